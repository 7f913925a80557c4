"""zambezi.zre.messages: the grammar of both dialects, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire import Message, WireError
from zambezi.zre.messages import (
    Draft,
    DraftHello,
    DraftJoin,
    DraftLeave,
    DraftPing,
    DraftPingOk,
    DraftShout,
    DraftWhisper,
    Hello,
    Join,
    Leave,
    Ping,
    PingOk,
    Shout,
    Stable,
    Whisper,
)

# As the texts of 36/ZRE have them: a string has its length in one byte, one in a list or a header's value in four.
GRAMMAR = {
    "aaa1 01 02 0001 08 7463703a2f2f613a 00000002 00000001 41 00000002 c3a9 ff 03 626f62 00000001 01 58 00000001 79": (
        Hello(1, "tcp://a:", ["A", "é"], 255, "bob", {"X": "y"})
    ),
    "aaa1 01 02 0001 00 00000000 00 00 00000000": Hello(1, ""),
    "aaa1 02 02 ffff": Whisper(65535, []),
    "aaa1 03 02 0000 04 43484154": Shout(0, "CHAT", []),
    "aaa1 04 02 0102 04 43484154 07": Join(258, "CHAT", 7),
    "aaa1 05 02 0003 00 08": Leave(3, "", 8),
    "aaa1 06 02 0004": Ping(4),
    "aaa1 07 02 0005": PingOk(5),
}
DRAFT_GRAMMAR = {
    "aaa1 01 0001 08 31302e302e302e31 c350 00000001 00000001 41 01 00000001 01 58 00000001 79": (
        DraftHello(1, "10.0.0.1", 50000, ["A"], 1, {"X": "y"})
    ),
    "aaa1 02 0002": DraftWhisper(2, []),
    "aaa1 03 0003 04 43484154": DraftShout(3, "CHAT", []),
    "aaa1 04 0004 04 43484154 07": DraftJoin(4, "CHAT", 7),
    "aaa1 05 0005 04 43484154 08": DraftLeave(5, "CHAT", 8),
    "aaa1 06 0006": DraftPing(6),
    "aaa1 07 0007": DraftPingOk(7),
}
ALL = [(Stable, text, message) for text, message in GRAMMAR.items()]
ALL += [(Draft, text, message) for text, message in DRAFT_GRAMMAR.items()]  # type: ignore[misc]


@pytest.mark.parametrize(("family", "text", "message"), ALL, ids=[f"{type(one[2]).__name__}" for one in ALL])
def test_the_octets_of_a_command(family: type[Stable | Draft], text: str, message: Message) -> None:
    octets = bytes.fromhex(text)
    assert message.encode() == (octets,)
    assert family.decode([octets]) == message
    for end in range(len(octets)):
        with pytest.raises(WireError):
            family.decode([octets[:end]])
    with pytest.raises(WireError):
        family.decode([octets + b"\0"])


@pytest.mark.parametrize("command", [Whisper(2, [b"x", b"", b"y"]), DraftShout(2, "A", [b"x", b"", b"y"])])
def test_content_is_the_frames_that_follow(command: Message) -> None:
    frames = command.encode()
    assert frames[1:] == (b"x", b"", b"y")
    assert type(command).decode(list(frames)) == command


@pytest.mark.parametrize("command", [Hello(1, ""), Join(2, "A", 1), Ping(2), DraftPingOk(2)])
def test_commands_without_content_have_one_frame(command: Message) -> None:
    with pytest.raises(WireError):
        type(command).decode([*command.encode(), b"more"])


@pytest.mark.parametrize(
    "text", ["aaa1 06 01 0004", "aaa1 06 03 0004", "aaa2 06 02 0004", "aaa1 08 02 0004", "aaa1 00 02 0004"]
)
def test_other_versions_signatures_and_commands_are_refused(text: str) -> None:
    with pytest.raises(WireError):
        Stable.decode([bytes.fromhex(text)])


FIELDS = {
    "sequence": st.integers(0, 65535),
    "mailbox": st.integers(0, 65535),
    "status": st.integers(0, 255),
    "groups": st.lists(st.text(max_size=20), max_size=4).map(tuple),
    "headers": st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3),
    "content": st.lists(st.binary(max_size=20), max_size=4).map(tuple),
}


@pytest.mark.parametrize("kind", sorted({type(one[2]) for one in ALL}, key=str))
@given(data=st.data())
def test_a_command_is_read_as_it_was_written(kind: type[Message], data: st.DataObject) -> None:
    names = [name for name in kind.__annotations__ if name != "version"]
    names = ["sequence", *(name for name in names if name != "sequence")]
    fields = {name: data.draw(FIELDS.get(name, st.text(max_size=60)), name) for name in names}
    command = kind(**fields)
    again = kind.decode(list(command.encode()))
    assert again.encode() == command.encode()
    for name, value in fields.items():
        told = getattr(again, name)
        assert (dict(told) if name == "headers" else tuple(told) if isinstance(value, tuple) else told) == value


@given(st.sampled_from([Stable, Draft]), st.lists(st.binary(max_size=40), min_size=1, max_size=3), st.integers(0, 12))
def test_malformed_bytes_raise_nothing_but_a_wire_error(
    family: type[Stable | Draft], frames: list[bytes], number: int
) -> None:
    for head in (b"", b"\xaa\xa1" + bytes([number]), b"\xaa\xa1" + bytes([number]) + b"\x02\x00\x01"):
        try:
            family.decode([head + frames[0], *frames[1:]])
        except WireError:
            continue
