"""zambezi.wire.message: recorded bytes, the rules of declarations, and properties of encoding and decoding."""

import copy
import dataclasses
import pickle
import tracemalloc
import types
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.grammars import (
    All,
    Attach,
    Deliver,
    Draft,
    DraftHello,
    Everything,
    Hello,
    Join,
    Leave,
    Level,
    Log,
    Membership,
    Ping,
    PingOk,
    Shout,
    Whisper,
    Zeps,
    Zre,
    ZreLog,
)
from zambezi.wire import (
    BadSignature,
    BadValue,
    Message,
    TrailingOctets,
    Truncated,
    Unencodable,
    UnknownCommand,
    WireError,
    chunk,
    constant,
    dictionary,
    field,
    longstr,
    msg,
    number_1,
    number_2,
    number_4,
    number_8,
    string,
    strings,
)

FAMILIES: list[type[Message]] = [Zre, Draft, ZreLog, Zeps, Everything]

# Messages as zyre and pyre send them, without the headers of ZMTP frames.
RECORDED: list[tuple[Message, list[str]]] = [
    (
        Hello(1, "tcp://10.77.0.1:49152", ["CHAT"], 1, "zy", {"X-ROLE": "test"}),
        [
            """aaa1 01 02 0001 15 7463703a2f2f31302e37372e302e313a3439313532 00000001 00000004 43484154
            01 02 7a79 00000001 06 582d524f4c45 00000004 74657374"""
        ],
    ),
    (Join(2, "NEW", 2), ["aaa1 04 02 0002 03 4e4557 02"]),
    (Leave(3, "NEW", 3), ["aaa1 05 02 0003 03 4e4557 03"]),
    (Whisper(4, [b"hi"]), ["aaa1 02 02 0004", "6869"]),
    (Shout(5, "CHAT", [b"yo"]), ["aaa1 03 02 0005 04 43484154", "796f"]),
    (Ping(7), ["aaa1 06 02 0007"]),
    (PingOk(6), ["aaa1 07 02 0006"]),
]

# Messages that were written by hand, from the grammars.
WRITTEN: list[tuple[Message, list[str]]] = [
    (
        DraftHello(1, "10.0.0.1", 0xC000, ["G"], 1, {"K": "V"}),
        ["aaa1 01 0001 08 31302e302e302e31 c000 00000001 00000001 47 01 00000001 01 4b 00000001 56"],
    ),
    (Log(Level.INFO, 6, 0x1234, 0, 1, "d"), ["aaa2 01 03 06 1234 0000 0000000000000001 01 64"]),
    (Attach("s"), ["aaa5 01 04 5a455053 0001 01 73"]),
    (Deliver(9, "k", b"body"), ["aaa5 07 0000000000000009 01 6b 00000004 626f6479"]),
    (Whisper(1, []), ["aaa1 02 02 0001"]),
    (Whisper(1, [b"", b"x"]), ["aaa1 02 02 0001", "", "78"]),
]


def family_of(message: Message) -> type[Message]:
    return next(family for family in FAMILIES if isinstance(message, family))


@pytest.mark.parametrize(("message", "frames"), RECORDED + WRITTEN, ids=repr)
def test_messages_encode_to_these_bytes_and_decode_from_them(message: Message, frames: list[str]) -> None:
    octets = tuple(map(bytes.fromhex, frames))
    assert message.encode() == octets
    for family in (family_of(message), type(message)):
        decoded = family.decode(octets)
        assert type(decoded) is type(message)
        assert decoded == message


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_type_of_bytes_is_decoded(kind: Any) -> None:
    for message, frames in RECORDED:
        octets = [kind(bytes.fromhex(frame)) for frame in frames]
        assert Zre.decode(octets) == message
        if len(octets) == 1:
            assert Zre.decode(octets[0]) == message


def test_decoded_values_do_not_refer_to_the_input() -> None:
    body, content = bytearray(Deliver(1, "k", b"body").encode()[0]), bytearray(b"content")
    delivered, whispered = Zeps.decode(memoryview(body)), Zre.decode([Whisper(1, ()).encode()[0], content])
    body[:], content[:] = bytes(len(body)), bytes(len(content))
    assert delivered == Deliver(1, "k", b"body")
    assert whispered == Whisper(1, [b"content"])


# Valid declarations


def test_a_message_is_a_frozen_value() -> None:
    hello = Hello(1, "e", groups=["a"], headers={"k": "v"})
    assert hello == Hello(sequence=1, endpoint="e", groups=("a",), headers={"k": "v"})
    assert hello != Hello(1, "e")
    assert len({Join(1, "g", 1), Leave(1, "g", 1)}) == 2
    assert hash(hello) == hash(copy.deepcopy(hello))
    assert hello.version == 2
    assert not hasattr(hello, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        hello.status = 2  # type: ignore[misc]
    assert repr(Join(1, "g", 2)) == "Join(sequence=1, group='g', status=2)"


def test_a_message_is_a_dataclass_in_every_other_way() -> None:
    join = Join(1, "g", 2)
    assert dataclasses.replace(join, status=3) == Join(1, "g", 3)
    match join:
        case Join(sequence, group=group):
            assert (sequence, group) == (1, "g")


@pytest.mark.parametrize("message", [message for message, _ in RECORDED + WRITTEN], ids=repr)
def test_a_message_survives_pickling(message: Message) -> None:
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_constant_is_not_an_argument() -> None:
    with pytest.raises(TypeError):
        Ping(1, version=3)  # type: ignore[call-arg]


def test_a_family_knows_its_commands() -> None:
    assert Zre.signature == 0xAAA1
    assert Zre.id is None
    assert Join.id == 4
    assert set(Zre.commands) == {1, 2, 3, 4, 5, 6, 7}
    assert Membership.commands == {4: Join, 5: Leave}
    assert Message.signature is None


def test_dialects_with_the_same_signature_stay_apart() -> None:
    assert Draft.commands == {1: DraftHello}
    assert Zre.commands[1] is Hello


def test_a_part_of_a_family_decodes_its_own_commands_only() -> None:
    assert Membership.decode(Leave(1, "g", 1).encode()) == Leave(1, "g", 1)
    with pytest.raises(UnknownCommand):
        Membership.decode(Ping(1).encode())
    with pytest.raises(UnknownCommand, match="Leave has no command 4"):
        Leave.decode(Join(1, "g", 1).encode())


# Invalid declarations


def test_a_field_needs_a_wire_type() -> None:
    with pytest.raises(TypeError, match="has no wire type"):

        class Untyped(Zre, id=100):
            plain: int


def test_a_msg_is_the_last_field() -> None:
    with pytest.raises(TypeError, match="last field"):

        class Early(Zre, id=100):
            content: Any = field(msg)
            group: str = field(string)


def test_an_id_is_used_once_in_a_family() -> None:
    with pytest.raises(TypeError, match="Ping already has the id 6"):

        class Again(Zre, id=6):
            pass

    assert Zre.commands[6] is Ping


def test_an_id_needs_a_family() -> None:
    with pytest.raises(TypeError, match="no family"):

        class Alone(Message, id=1):
            pass


def test_a_family_does_not_derive_from_another() -> None:
    with pytest.raises(TypeError, match="derive from another"):

        class Inner(Zre, signature=0xAAA9):
            pass


@pytest.mark.parametrize("signature", [-1, 0x10000])
def test_a_signature_has_two_bytes(signature: int) -> None:
    with pytest.raises(TypeError, match="two bytes"):

        class Wide(Message, signature=signature):
            pass


@pytest.mark.parametrize("number", [-1, 256])
def test_an_id_has_one_byte(number: int) -> None:
    with pytest.raises(TypeError, match="one byte"):

        class Wide(Zre, id=number):
            pass


def test_only_commands_can_be_instantiated_and_only_families_decode() -> None:
    with pytest.raises(TypeError, match="not a command"):
        Membership(1, "g", 1)
    with pytest.raises(TypeError, match="no signature"):
        Message.decode(b"")


# Refused messages, and the place in the error


@pytest.mark.parametrize(
    ("octets", "error", "offset", "place"),
    [
        ("", Truncated, 0, (None, None)),
        ("aa", Truncated, 1, (None, None)),
        ("aaa1", Truncated, 2, (None, None)),
        ("ab", BadSignature, 0, (None, None)),
        ("aaa2 01", BadSignature, 0, (None, None)),
        ("aaa1 08 02 0001", UnknownCommand, 2, (None, None)),
        ("aaa1 06 03 0001", BadValue, 3, ("Ping", "version")),
        ("aaa1 06 02 00", Truncated, 4, ("Ping", "sequence")),
        ("aaa1 06 02 0001 00", TrailingOctets, 6, ("Ping", None)),
        ("aaa1 04 02 0001 05 41 01", Truncated, 6, ("Join", "group")),
        ("aaa1 02 02 0001 68", TrailingOctets, 6, ("Whisper", None)),
    ],
)
def test_bytes_that_do_not_fit_the_grammar(
    octets: str, error: type[WireError], offset: int, place: tuple[str | None, str | None]
) -> None:
    with pytest.raises(error) as caught:
        Zre.decode(bytes.fromhex(octets))
    assert type(caught.value) is error
    assert caught.value.offset == offset
    assert (caught.value.command, caught.value.field) == place
    assert f"at offset {offset}" in str(caught.value)


def test_a_message_without_frames_is_truncated() -> None:
    with pytest.raises(Truncated):
        Zre.decode([])


def test_frames_after_the_last_field_are_refused() -> None:
    with pytest.raises(TrailingOctets, match="1 frames are left"):
        Zre.decode([*Ping(1).encode(), b""])


def test_an_unknown_command_tells_its_id() -> None:
    with pytest.raises(UnknownCommand) as caught:
        Zre.decode(bytes.fromhex("aaa1 0a 02 0004"))
    assert caught.value.id == 10


def test_a_number_that_the_grammar_does_not_list_is_refused() -> None:
    with pytest.raises(BadValue, match=r"Log\.level: 4 is not a Level \(at offset 3\)"):
        ZreLog.decode(bytes.fromhex("aaa2 01 04 06 1234 0000 0000000000000001 00"))


def test_the_error_of_a_value_that_does_not_fit_names_the_field() -> None:
    with pytest.raises(Unencodable, match=r"^Join\.status: 256 is not a number-1") as caught:
        Join(1, "g", 256).encode()
    assert (caught.value.command, caught.value.field, caught.value.offset) == ("Join", "status", None)
    with pytest.raises(Unencodable, match=r"^Hello\.groups: 'CHAT' is not a list of str"):
        Hello(1, "e", groups="CHAT")


# Properties

up_to_8_bytes = st.binary(max_size=8)
# Texts that were decoded from bytes: other texts can have surrogates that spell UTF-8, and decode to characters.
texts = st.one_of(st.text(max_size=40), up_to_8_bytes.map(lambda o: o.decode("utf-8", "surrogateescape")))
VALUES: list[tuple[Any, type, st.SearchStrategy[Any]]] = [
    (number_1, int, st.integers(0, 2**8 - 1)),
    (number_2, int, st.integers(0, 2**16 - 1)),
    (number_4, int, st.integers(0, 2**32 - 1)),
    (number_8, int, st.integers(0, 2**64 - 1)),
    (string, str, texts),
    (longstr, str, st.one_of(texts, st.text(min_size=256, max_size=300))),
    (strings, tuple, st.lists(texts, max_size=5)),
    (dictionary, dict, st.dictionaries(texts, texts, max_size=5)),
    (chunk, bytes, st.binary(max_size=300)),
]
MSG = (msg, tuple, st.lists(up_to_8_bytes, max_size=3))


@st.composite
def declared_messages(draw: st.DrawFn) -> tuple[type[Message], Message]:
    """Return a new family that has a command of random fields, some of them constant, and a message of it."""
    kinds = draw(st.lists(st.sampled_from(VALUES), max_size=6))
    if draw(st.booleans()):
        kinds.append(MSG)
    annotations: dict[str, type] = {}
    namespace: dict[str, Any] = {"__annotations__": annotations}
    arguments = {}
    for position, (kind, annotation, strategy) in enumerate(kinds):
        name = f"field_{position}"
        annotations[name] = annotation
        value = draw(strategy)
        if kind in {number_1, number_8, string, chunk} and draw(st.booleans()):
            namespace[name] = constant(kind, value)
        else:
            namespace[name] = field(kind)
            arguments[name] = value
    signature = {"signature": draw(st.integers(0, 0xFFFF))}
    number = {"id": draw(st.integers(0, 0xFF))}
    family = types.new_class("Family", (Message,), signature)
    command = types.new_class("Command", (family,), number, lambda body: body.update(namespace))
    return family, command(**arguments)


@given(declared_messages())
def test_decoding_reverses_encoding(declared: tuple[type[Message], Message]) -> None:
    family, message = declared
    frames = message.encode()
    decoded = family.decode(frames)
    assert decoded == message
    assert hash(decoded) == hash(message)
    assert repr(decoded) == repr(message)
    assert decoded.encode() == frames


def decoded_or_none(family: type[Message], frames: list[bytes]) -> Message | None:
    try:
        return family.decode(frames)
    except WireError as error:
        str(error)
        return None


@given(st.sampled_from(FAMILIES), st.binary(max_size=100), st.lists(up_to_8_bytes, max_size=2))
@example(Zre, b"\xaa\xa1\x01\x02" + b"\xff" * 20, [])
def test_bytes_that_are_no_message_raise_a_wire_error(
    family: type[Message], octets: bytes, content: list[bytes]
) -> None:
    command = next(iter(family.commands.values()))
    assert family.signature is not None
    assert command.id is not None
    head = family.signature.to_bytes(2) + command.id.to_bytes()
    for first in (octets, head + octets):
        decoded = decoded_or_none(family, [first, *content])
        if decoded is not None:
            assert type(decoded).decode(decoded.encode()) == decoded


VALID = [message.encode() for message, _ in RECORDED + WRITTEN] + [
    All(1, 2, 3, 4, "short", "long", ["a", "b"], {"k": "v", "l": "w"}, b"octets", [b"f", b"g"]).encode()
]


@given(st.sampled_from(VALID), st.data())
def test_a_damaged_message_decodes_or_raises_a_wire_error(frames: tuple[bytes, ...], data: st.DataObject) -> None:
    first = bytearray(frames[0])
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(first)))
        end = data.draw(st.integers(begin, min(begin + 4, len(first))))
        first[begin:end] = data.draw(st.binary(max_size=4))
    for family in FAMILIES:
        decoded = decoded_or_none(family, [bytes(first), *frames[1:]])
        if decoded is not None:
            # Equal names in a dictionary become one, so the bytes can differ; the message cannot.
            assert family.decode(decoded.encode()) == decoded


@pytest.mark.parametrize("frames", VALID, ids=lambda frames: frames[0][:3].hex())
def test_a_message_cut_anywhere_raises_a_wire_error(frames: tuple[bytes, ...]) -> None:
    for family in FAMILIES:
        for end in range(len(frames[0])):
            with pytest.raises(WireError):
                family.decode([frames[0][:end], *frames[1:]])


# The memory that a peer can make us allocate


def peak_of_decoding(family: type[Message], octets: bytes) -> int:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        decoded_or_none(family, [octets])
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


class Single(Message, signature=0x0002):
    """One command for each type that has a length or a count."""


class OneString(Single, id=1):
    value: str = field(string)


class OneLongstr(Single, id=2):
    value: str = field(longstr)


class OneStrings(Single, id=3):
    value: Any = field(strings)


class OneDictionary(Single, id=4):
    value: Any = field(dictionary)


class OneChunk(Single, id=5):
    value: bytes = field(chunk)


LARGEST_PER_BYTE = 64
LARGEST_AT_LEAST = 32 * 1024


@pytest.mark.parametrize("command", Single.commands.values())
@pytest.mark.parametrize("declared", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00"])
@pytest.mark.parametrize("tail", [b"", b"\x00\x00\x00", b"\x00" * 100, b"\xff" * 100])
def test_a_huge_declaration_in_a_small_message_allocates_little(command: Any, declared: bytes, tail: bytes) -> None:
    octets = b"\x00\x02" + command.id.to_bytes() + declared + tail
    assert peak_of_decoding(Single, octets) < LARGEST_AT_LEAST


@pytest.mark.parametrize(
    "octets",
    [
        OneStrings([""] * 20_000).encode()[0],
        OneStrings([chr(n) for n in range(0x4E00, 0x4E00 + 10_000)]).encode()[0],
        OneDictionary({f"{n:x}": "" for n in range(10_000)}).encode()[0],
        OneLongstr("\udcff" * 100_000).encode()[0],
        OneLongstr("\U0001f600" * 25_000).encode()[0],
        OneChunk(bytes(100_000)).encode()[0],
    ],
    ids=["empty strings", "short strings", "dictionary", "no UTF-8", "wide", "chunk"],
)
def test_a_whole_message_allocates_in_proportion_to_its_size(octets: bytes) -> None:
    assert peak_of_decoding(Single, octets) < LARGEST_AT_LEAST + LARGEST_PER_BYTE * len(octets)
    assert peak_of_decoding(Single, octets + b"\x00") < LARGEST_AT_LEAST + LARGEST_PER_BYTE * len(octets)
