"""zambezi.wire.types: each type alone, at the edges of its range."""

import pickle
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire import (
    BadValue,
    Dictionary,
    TooMany,
    Truncated,
    Unencodable,
    choice,
    chunk,
    dictionary,
    longstr,
    msg,
    number_1,
    number_2,
    number_4,
    number_8,
    string,
    strings,
)
from zambezi.wire.types import OctetType


class Colour(IntEnum):
    RED = 1
    GREEN = 2


@pytest.mark.parametrize(
    ("kind", "value", "octets"),
    [
        (number_1, 0, "00"),
        (number_1, 255, "ff"),
        (number_2, 0x0102, "0102"),
        (number_4, 0x01020304, "01020304"),
        (number_8, 2**64 - 1, "ffffffffffffffff"),
        (string, "", "00"),
        (string, "zy", "027a79"),
        (string, "é", "02c3a9"),
        (string, "\udcff", "01ff"),
        (longstr, "zy", "000000027a79"),
        (strings, (), "00000000"),
        (strings, ("a", ""), "00000002 00000001 61 00000000"),
        (dictionary, Dictionary(), "00000000"),
        (dictionary, Dictionary({"k": "v"}), "00000001 01 6b 00000001 76"),
        (chunk, b"\x00\xff", "00000002 00ff"),
        (choice(number_1, Colour), Colour.GREEN, "02"),
    ],
)
def test_a_value_and_its_bytes(kind: OctetType[Any], value: object, octets: str) -> None:
    wire = bytes.fromhex(octets)
    assert kind.encode(value) == wire
    assert kind.read(b"??" + wire + b"!", 2) == (value, 2 + len(wire))


@pytest.mark.parametrize(
    ("kind", "octets"),
    [
        (number_1, ""),
        (number_2, "00"),
        (number_4, "000000"),
        (number_8, "00000000000000"),
        (string, ""),
        (string, "02 61"),
        (longstr, "000000"),
        (longstr, "00000002 61"),
        (longstr, "ffffffff 61"),
        (chunk, "00000001"),
        (strings, "00000001"),
        (strings, "00000001 000000"),
        (strings, "00000002 00000001 61 000000"),
        (strings, "ffffffff 00000000"),
        (dictionary, "00000001 00 000000"),
        (dictionary, "00000001 01 61 00000001"),
        (dictionary, "ffffffff 00 00000000"),
    ],
)
def test_too_few_bytes_are_truncated(kind: OctetType[Any], octets: str) -> None:
    with pytest.raises(Truncated) as caught:
        kind.read(b"??" + bytes.fromhex(octets), 2)
    assert caught.value.offset is not None
    assert caught.value.offset >= 2


def test_a_truncation_names_the_offset_of_the_declaration() -> None:
    with pytest.raises(Truncated, match=r"declared length is 9, but 1 bytes are left \(at offset 9\)"):
        strings.read(bytes.fromhex("00000002 00000001 61 00000009 62"), 0)


@pytest.mark.parametrize(
    ("kind", "octets"),
    [
        (strings, "00000003 00000000 00000000 000000"),
        (dictionary, "00000002 00 00000000 00 000000"),
    ],
)
def test_a_count_is_refused_before_its_elements_are_read(kind: OctetType[Any], octets: str) -> None:
    with pytest.raises(Truncated, match=r"declared count is \d") as caught:
        kind.read(bytes.fromhex(octets), 0)
    assert caught.value.offset == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (number_1, -1),
        (number_1, 256),
        (number_2, 65536),
        (number_4, 2**32),
        (number_8, 2**64),
        (number_2, 1.0),
        (number_2, "1"),
        (number_2, None),
        (string, "x" * 256),
        (string, "é" * 128),
        (string, "\ud800"),
        (string, chr(0xDC7F)),
        (string, b"octets"),
        (longstr, "\udd00"),
        (strings, ("ok", "\ud800")),
        (strings, ("ok", 1)),
        (dictionary, {"x" * 256: ""}),
        (dictionary, {"name": 1}),
    ],
)
def test_values_that_do_not_fit_are_not_encoded(kind: OctetType[Any], value: object) -> None:
    with pytest.raises(Unencodable):
        kind.encode(value)


def test_a_number_too_large_to_print_is_not_encoded() -> None:
    with pytest.raises(Unencodable, match="a huge int is not a number-8"):
        number_8.encode(10**5000)


def test_a_string_of_255_bytes_fits() -> None:
    assert string.read(string.encode("é" * 127 + "x"), 0) == ("é" * 127 + "x", 256)


def test_the_last_of_two_equal_names_wins() -> None:
    octets = bytes.fromhex("00000002 01 6b 00000001 31 01 6b 00000001 32")
    assert dictionary.read(octets, 0)[0] == {"k": "2"}


def test_a_number_outside_the_choice_is_a_bad_value() -> None:
    with pytest.raises(BadValue, match="3 is not a Colour"):
        choice(number_1, Colour).read(b"\x03", 0)
    with pytest.raises(Unencodable, match="3 is not a Colour"):
        choice(number_1, Colour).freeze(3)
    assert choice(number_1, Colour).freeze(1) is Colour.RED


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (strings, "CHAT"),
        (strings, 7),
        (dictionary, ["k"]),
        (chunk, "text"),
        (chunk, 7),
        (msg, b"hi"),
        (msg, "hi"),
        (msg, 7),
        (msg, [7]),
        (msg, ["hi"]),
    ],
)
def test_values_that_only_look_like_lists_are_refused(kind: Any, value: object) -> None:
    with pytest.raises(Unencodable):
        kind.freeze(value)


def test_frozen_values_are_copies() -> None:
    texts, octets, pairs = ["a"], bytearray(b"o"), {"k": "v"}
    frozen = strings.freeze(texts), chunk.freeze(octets), msg.freeze([octets]), dictionary.freeze(pairs)
    texts[0], octets[0], pairs["k"] = "b", 0, "w"
    assert frozen == (("a",), b"o", (b"o",), Dictionary({"k": "v"}))


@given(st.binary(max_size=255))
def test_any_bytes_become_text_and_the_same_bytes_again(octets: bytes) -> None:
    text, _ = string.read(bytes([len(octets)]) + octets, 0)
    assert string.encode(text)[1:] == octets


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_texts_are_equal_exactly_if_their_bytes_are(one: bytes, other: bytes) -> None:
    texts = [string.read(bytes([len(octets)]) + octets, 0)[0] for octets in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)


def test_a_dictionary_keeps_its_order_and_compares_without_it() -> None:
    one, other = Dictionary([("a", "1"), ("b", "2")]), Dictionary({"b": "2", "a": "1"})
    assert list(one) == ["a", "b"]
    assert list(other) == ["b", "a"]
    assert one == other == {"a": "1", "b": "2"}
    assert hash(one) == hash(other)
    assert one != Dictionary()
    assert repr(one) == "{'a': '1', 'b': '2'}"
    assert pickle.loads(pickle.dumps(one)) == one
    assert len(one) == 2


def test_a_type_shows_the_name_in_the_specification() -> None:
    assert repr(number_8) == "<number-8>"
    assert repr(msg) == "<msg>"


def test_a_count_above_the_bound_is_refused_before_any_element_is_read() -> None:
    few, pairs = strings.at_most(2), dictionary.at_most(1)
    assert few.read(strings.encode(["a", "b"]), 0)[0] == ("a", "b")
    assert pairs.read(dictionary.encode({"a": "b"}), 0)[0] == {"a": "b"}
    # The elements are malformed, and nobody notices.
    with pytest.raises(TooMany, match="the declared count is 3, but at most 2 are allowed"):
        few.read(number_4.encode(3) + b"\xff" * 20, 0)
    with pytest.raises(TooMany, match="the declared count is 6000000, but at most 1 are allowed"):
        pairs.read(number_4.encode(6_000_000) + b"\xff" * 20, 0)
