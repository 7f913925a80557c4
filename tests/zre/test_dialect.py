"""zambezi.zre.dialect: two dialects, one interface."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zre import messages
from zambezi.zre.dialect import DIALECTS, DRAFT, STABLE, Dialect, Greeting, dialect_of_hello, greeting_of, read_hello

TEXTS = st.text(max_size=20)
GREETINGS = st.builds(
    Greeting,
    st.integers(1, 65535).map(lambda port: f"tcp://10.0.0.1:{port}"),
    st.lists(TEXTS, max_size=3).map(tuple),
    st.integers(0, 255),
    st.text(min_size=1, max_size=20),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@given(greeting=GREETINGS)
def test_a_greeting_is_understood_as_it_was_meant(dialect: Dialect, greeting: Greeting) -> None:
    frames = dialect.greet(greeting).encode()
    assert dialect_of_hello(frames[0]) is dialect
    assert dialect.sequence_of(frames[0]) == 1
    read = greeting_of(dialect.family.decode(frames), bytes(16))
    assert (read.endpoint, tuple(read.groups), read.status) == (greeting.endpoint, greeting.groups, greeting.status)
    assert dict(read.headers) == dict(greeting.headers)
    assert read.name == (greeting.name if dialect is STABLE else "000000")


@pytest.mark.parametrize("dialect", [STABLE, DRAFT], ids=lambda dialect: str(dialect.name))
@given(sequence=st.integers(0, 65535), content=st.lists(st.binary(max_size=5), max_size=3))
def test_a_number_can_be_put_in_later(dialect: Dialect, sequence: int, content: list[bytes]) -> None:
    frames = dialect.numbered(dialect.shout(0, "CHAT", content).encode(), sequence)
    assert frames == dialect.shout(sequence, "CHAT", content).encode()
    assert dialect.sequence_of(frames[0]) == sequence


def test_nodes_of_a_process_share_the_contents_of_a_hello() -> None:
    octets = messages.Hello(1, "tcp://10.0.0.1:50000", ["A"], 1, "", {"X-A": "1"}).encode()[0]
    dialect, greeting = read_hello([octets], b"\x01" * 16)
    assert read_hello([octets[:4] + octets[4:]], b"\x01" * 16)[1] is greeting
    assert dialect is STABLE
    assert read_hello([octets], b"\x02" * 16)[1].name == "020202"  # the name of a node without one is in its UUID
    large = messages.Hello(1, "tcp://10.0.0.1:50000", [], 0, "ann", {"X-A": "x" * 1000}).encode()[0]
    assert read_hello([large], b"\x01" * 16)[1] is not read_hello([large], b"\x01" * 16)[1]  # it would stay in memory
