"""The reader of Marshal: bytes that Ruby wrote, round trips, and bytes of an attacker."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.ruby_bodies import MARSHAL
from tests.mcollective.ruby.encoder import Encoder, Symbol, dump, integer
from zambezi.mcollective.ruby.marshal import load
from zambezi.mcollective.ruby.values import MAX_DEPTH, MAX_VALUES, Unreadable

RECORDED = {  # Marshal.dump in Ruby 3.1, and the plain values
    b'o:\x06O\a:\a@xi\x06:\a@yI"\x06z\x06:\x06ET': {"x": 1, "y": "z"},  # an object
    b'S:\x06S\a:\x06ai\x06:\x06bI"\x06b\x06:\x06ET': {"a": 1, "b": "b"},  # a struct
    b"Iu:\x06D\tdump\x06:\x06ET": b"dump",
    b'[\bU:\x06U[\ai\x06I"\x06u\x06:\x06ETI"\vshared\x06;\x06T@\t': [[1, "u"], "shared", "shared"],
    b"c\vString": "String",
    b"m\vKernel": "Kernel",
    b'IC:\tSubS"\x06s\x06:\x06ET': "s",  # of a subclass of String
    b"e:\x0fComparable[\x06i\x06": [1],
    b"I/\ba.b\x01\x06:\x06EF": "a.b",
    # A Time is numbered after its attributes: the link is to "shared".
    b'[\bIu:\tTime\r \x80\x11\xc0\0\0\0\0\x06:\tzoneI"\bUTC\x06:\x06EFI"\vshared\x06;\aT@\b': [
        b" \x80\x11\xc0\0\0\0\0",
        "shared",
        "shared",
    ],
    b"}\x06:\x06ai\x06i\n": {"a": 1},  # a hash with a default
    b'I"\al\xe9\x06:\rencoding"\x0fISO-8859-1': b"l\xe9",
    b'[\b[\x06I"\vshared\x06:\x06ET@\x06@\a': [["shared"], ["shared"], "shared"],
    b"[\vf\b1.5f\a-0f\n1e100f\binff\t-inff\v5e-324": [1.5, -0.0, 1e100, math.inf, -math.inf, 5e-324],
    b"[\ni\0i\x7fi\x01{i\x80i\xff\x84": [0, 122, 123, -123, -124],
    b"[\fi\x01\xffi\x02\0\x01i\xff\0i\xfe\xff\xfei\x03\0\0\x01i\x04\xff\xff\xff?l+\a\0\0\0@": [
        *(255, 256, -256, -257, 65536, (1 << 30) - 1, 1 << 30),
    ],
    b"l-\n\0\0\0\0\0\0\0\0\x01\0": -(1 << 64),
    b"[\t:\x06aI:\a\xc3\xa9\x06:\x06ET;\0;\x06": ["a", "é", "a", "é"],
    b'"\a\xff\0': b"\xff\0",
    b'I"\x06\xff\x06:\x06ET': b"\xff",  # marked as UTF-8, and it is not
}


@pytest.mark.parametrize("octets", RECORDED)
def test_values_that_ruby_wrote(octets: bytes) -> None:
    assert load(b"\x04\x08" + octets) == RECORDED[octets]


text = st.text(max_size=12)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | text
    | st.binary(max_size=12)
    | text.map(Symbol)
)
values = st.recursive(
    plain,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(text | text.map(Symbol), each, max_size=4),
    max_leaves=20,
)


def as_read(value: Any) -> Any:
    """Return a value as the reader should return it."""
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, list):
        return [as_read(each) for each in value]
    if isinstance(value, dict):
        strings = {key: as_read(each) for key, each in value.items() if not isinstance(key, Symbol)}
        symbols = {key.name: as_read(each) for key, each in value.items() if isinstance(key, Symbol)}
        return strings | symbols
    return value


@given(values)
def test_round_trip(value: Any) -> None:
    assert load(dump(value)) == as_read(value)


@given(values, st.data())
def test_bytes_that_end_too_early_are_refused(value: Any, data: st.DataObject) -> None:
    octets = dump(value)
    with pytest.raises(Unreadable):
        load(octets[: data.draw(st.integers(0, len(octets) - 1))])


@given(st.binary(max_size=60) | st.text('04T:;@"[{}IiuoUSCecmMdlf\x06\x07\x00\x01', max_size=60).map(str.encode))
def test_random_bytes_give_a_value_or_the_error(octets: bytes) -> None:
    with contextlib.suppress(Unreadable):
        load(b"\x04\x08" + octets)


@given(st.sampled_from(sorted(MARSHAL)), st.data())
def test_a_changed_byte_gives_a_value_or_the_error(name: str, data: st.DataObject) -> None:
    octets = bytearray(MARSHAL[name])
    octets[data.draw(st.integers(2, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Unreadable):
        load(bytes(octets))


def test_bytes_after_the_value_are_ignored_as_ruby_does() -> None:
    assert load(b"\x04\x08i\x06 and more") == 1


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"", "not Marshal 4.8: they begin with nothing"),
        (b"\x04\x09i\0", "not Marshal 4.8: they begin with 0409"),
        (b"\x04\x08", "a value is missing"),
        (b"\x04\x08X", "no kind of value b'X'"),
        (b"\x04\x08[\x06@\0", "object 0 contains itself"),
        (b"\x04\x08@\x06", "there is no object 1"),
        (b"\x04\x08;\0", "there is no symbol 0"),
        (b"\x04\x08[\x04\xff\xff\xff\x7f", "2147483647 parts, but there are 0 bytes"),
        (b"\x04\x08[\xfa", "-1 parts"),
        (b'\x04\x08"\x04\xff\xff\xff\x7fabc', "2147483647 parts, but there are 3 bytes"),
        (b"\x04\x08f\n1_000", "is not a float"),
        (b"\x04\x08f\n  1.0", "is not a float"),
        (b"\x04\x08l*\x06\0\0", "the sign b'\\*'"),
        (b"\x04\x08l+\x02\x00\x01" + bytes(512), "more than 1000 digits"),
        (b"\x04\x08oi\x06", "a name is missing"),
        (b"\x04\x08d:\x06X0", "a C extension"),
    ],
)
def test_refused(octets: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        load(octets)


def test_depth_is_bounded() -> None:
    def nested(levels: int) -> bytes:
        return b"\x04\x08" + b"[\x06" * levels + b"0"

    value = load(nested(MAX_DEPTH))
    for _ in range(MAX_DEPTH):
        assert isinstance(value, list)
        [value] = value
    for bomb in (
        nested(MAX_DEPTH + 1),
        nested(1_000_000),
        b"\x04\x08" + b"I:\x06a\x06" * 1_000_000,  # each attribute's name has an attribute
        b"\x04\x08" + b"e:\x06M" * 1_000_000,
        b"\x04\x08" + b"I" * 1_000_000,
        b"\x04\x08" + b"U:\x06M" * 1_000_000,
        b"\x04\x08" + b"}\0" * 1_000_000,
    ):
        with pytest.raises(Unreadable, match=f"more than {MAX_DEPTH} levels|a value is missing"):
            load(bomb)


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(Unreadable, match=f"more than {MAX_VALUES} values"):
        load(b"\x04\x08[" + integer(MAX_VALUES) + b"0" * MAX_VALUES)


def test_links_do_not_multiply() -> None:
    level: Any = ["x" * 1000]
    for _ in range(30):
        level = [level, level]  # printed, this would be 2**30 thousands of characters
    with pytest.raises(Unreadable, match="links stand for more than"):
        load(dump(level))
    with pytest.raises(Unreadable, match="links stand for more than"):
        load(Encoder().dump([Symbol("x" * 100_000)] * 1000))


def test_links_are_the_same_value() -> None:
    shared = {Symbol("a"): ["x"]}
    found = load(dump([shared, shared]))
    assert isinstance(found, list)
    assert found[0] is found[1]


def test_a_symbol_wins_over_a_string_of_the_same_name() -> None:
    assert load(dump({Symbol("agent"): 1, "agent": 2})) == {"agent": 1}
    assert load(dump({"agent": 2, Symbol("agent"): 1})) == {"agent": 1}


def test_a_key_that_is_a_list_is_left_out() -> None:
    assert load(b"\x04\x08{\x07[\0i\x06:\x06ai\x07") == {"a": 2}
