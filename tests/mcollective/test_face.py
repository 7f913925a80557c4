"""zambezi.mcollective.face: the two faces are twins, and what programs give them is converted in one place."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from zambezi.mcollective import asyncio as aio
from zambezi.mcollective import sync
from zambezi.mcollective.errors import McollectiveError, RuleError
from zambezi.mcollective.face import body_of, bytes_of, middleware_options, put_headers, rules_of, texts_of, topics_of
from zambezi.mcollective.middleware import DEFAULT_BOUND, DEFAULT_HEARTBEAT, DEFAULT_LIMITS
from zambezi.mcollective.rules import Rule, Rules
from zambezi.zmtp import Bound
from zambezi.zmtp.errors import MessageError


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_") or name == "__init__"}


@pytest.mark.parametrize("name", ["Connector", "Middleware", "Fleet"])
def test_the_faces_have_the_same_names_and_arguments(name: str) -> None:
    ours, theirs = public(getattr(sync, name)), public(getattr(aio, name))
    assert ours.keys() == theirs.keys()
    for key, member in ours.items():
        if inspect.isfunction(member):
            assert list(inspect.signature(member).parameters) == list(inspect.signature(theirs[key]).parameters), key
            assert member.__doc__ == theirs[key].__doc__, key


def test_a_middleware_has_defaults_of_its_own() -> None:
    options = middleware_options({})
    assert (options.limits, options.send_bound, options.heartbeat) == (
        DEFAULT_LIMITS,
        DEFAULT_BOUND,
        DEFAULT_HEARTBEAT,
    )
    assert middleware_options({"send_bound": Bound(octets=7)}).send_bound == Bound(octets=7)


def test_rules_can_be_given_in_several_forms() -> None:
    rule = Rule("ann", put=("a",))
    made = Rules([rule])
    assert rules_of(made) is made
    assert rules_of(None).rules == ()
    assert rules_of([rule, {"user": "ann", "put": ["a"]}]).rules == (rule, rule)
    with pytest.raises(RuleError):
        rules_of([{"who": "ann"}])


def test_topics_and_headers_carry_any_bytes() -> None:
    assert topics_of(("a", "é", "\udcff")) == (b"a", "é".encode(), b"\xff")
    assert texts_of({b"X-A": b"\xff"}) == {"X-A": "\udcff"}
    with pytest.raises(McollectiveError, match="not empty"):
        topics_of(("a", ""))
    with pytest.raises(McollectiveError, match="stands for no byte"):
        bytes_of("\ud800")


def test_headers_of_applications_begin_as_they_must() -> None:
    assert put_headers("r", {"X-A": "ä"}) == {b"X-REPLY-TO": b"r", b"X-A": "ä".encode()}
    with pytest.raises(McollectiveError, match="begins with X-"):
        put_headers(None, {"COLOUR": "red"})


def test_a_body_is_one_frame_or_several() -> None:
    assert body_of(b"x") == (b"x",)
    assert body_of([b"x", bytearray(b"y")]) == (b"x", b"y")
    with pytest.raises(MessageError):
        body_of("text")  # type: ignore[arg-type]
