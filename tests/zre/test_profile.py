"""zambezi.zre.profile: what a node tells of itself, and the HELLO that carries it."""

from uuid import UUID

import pytest

from zambezi.wire import string
from zambezi.zre.dialect import DRAFT, ELECTIONS, STABLE
from zambezi.zre.errors import ZreError
from zambezi.zre.messages import DraftHello, Hello
from zambezi.zre.profile import Profile

UUID_ = UUID(int=0xABCDEF << 104)
MAILBOX = "tcp://10.0.0.1:50000"


def profile(**headers: str) -> Profile:
    return Profile(UUID_, "ann", headers, ["A"])


def test_a_node_without_a_name_is_called_by_its_uuid() -> None:
    assert Profile(UUID_, "", {}, []).name == "abcdef"
    assert profile().name == "ann"


def test_the_status_counts_the_changes_of_groups_and_starts_anew_after_255() -> None:
    ann = profile()
    assert ann.status == 1
    assert ann.join("B")
    assert not ann.join("B")
    assert not ann.leave("C")
    assert ann.leave("B")
    assert ann.status == 3
    for _ in range(126):
        ann.join("B")
        ann.leave("B")
    assert ann.status == 255
    ann.join("B")
    assert (ann.status, ann.groups) == (0, {"A", "B"})


def test_a_group_is_found_by_its_encoded_name_while_the_node_is_in_it() -> None:
    ann = profile()
    ann.join("é")
    assert ann.own_group(string.encode("é")) == "é"
    assert ann.own_group(string.encode("A")) == "A"
    ann.leave("A")
    assert ann.own_group(string.encode("A")) is None


def test_hello_is_made_once_until_something_changes() -> None:
    ann = profile(X="1")
    hello = ann.hello(MAILBOX, STABLE, {})
    assert hello == Hello(1, MAILBOX, ["A"], 1, "ann", {"X": "1", ELECTIONS: ""}).encode()
    assert ann.hello(MAILBOX, STABLE, {}) is hello
    assert (
        ann.hello(MAILBOX, DRAFT, {}) == DraftHello(1, "10.0.0.1", 50000, ["A"], 1, {"X": "1", ELECTIONS: ""}).encode()
    )
    for change in (
        lambda: ann.join("B"),
        lambda: ann.leave("B"),
        lambda: ann.set_header("S", "tcp://10.0.0.1:1"),
        ann.moved,
    ):
        before = ann.hello(MAILBOX, STABLE, {})
        change()
        assert ann.hello(MAILBOX, STABLE, {}) is not before
    assert not ann.set_header("S", "tcp://10.0.0.1:1")
    extra = ann.hello("tcp://10.0.0.2:1", STABLE, {"Y": "2"})
    assert extra == Hello(1, "tcp://10.0.0.2:1", ["A"], 3, "ann", {**ann.headers, "Y": "2", ELECTIONS: ""}).encode()


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128])
def test_a_name_that_no_message_can_carry_is_refused_and_changes_nothing(name: str) -> None:
    ann = profile()
    for ask in (
        lambda: ann.join(name),
        lambda: ann.set_header(name, "tcp://10.0.0.1:1"),
        lambda: Profile(UUID_, name, {}, []),
        lambda: Profile(UUID_, "", {name: "x"}, []),
        lambda: Profile(UUID_, "", {}, [name]),
    ):
        with pytest.raises(ZreError, match="at most 255 bytes, not 256"):
            ask()
    assert (ann.groups, ann.status, ann.headers) == ({"A"}, 1, {})


def test_a_header_needs_a_name() -> None:
    with pytest.raises(ZreError, match="a header needs a name"):
        profile().set_header("", "x")
    with pytest.raises(ZreError, match="a header needs a name"):
        Profile(UUID_, "ann", {"": "x"}, [])
