"""zambezi.zmtp.commands: commands, metadata, ERROR and PING, as libzmq sends them and malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp import commands
from zambezi.zmtp.commands import (
    command,
    decode_metadata,
    encode_metadata,
    error,
    error_reason,
    ping,
    read_ping,
    split,
)
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import encode_command

NAME_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+"
NAMES = st.text(NAME_CHARACTERS, min_size=1, max_size=255)


def prop(name: bytes, value: bytes, size: int | None = None) -> bytes:
    return bytes([len(name)]) + name + (len(value) if size is None else size).to_bytes(4, "big") + value


# Commands


@given(st.binary(min_size=1, max_size=255), st.binary(max_size=300))
def test_a_command_is_a_name_and_data(name: bytes, data: bytes) -> None:
    assert split(command(name, data)) == (name, data)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00READY", b"\x06READY", b"\xff"])
def test_a_command_without_a_whole_name_is_malformed(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        split(body)


def test_a_command_may_be_a_name_alone() -> None:
    assert split(b"\x07WELCOME") == (b"WELCOME", b"")


def test_the_ready_of_a_libzmq_peer_socket() -> None:
    ours = command(commands.READY, encode_metadata({commands.SOCKET_TYPE: b"PEER"}))
    recorded = bytes.fromhex("041a 055245414459 0b536f636b65742d54797065 00000004 50454552")
    assert encode_command(ours) == recorded


# Metadata


@given(st.dictionaries(NAMES, st.binary(max_size=300), max_size=6))
def test_properties_come_back_with_their_names_in_lower_case(properties: dict[str, bytes]) -> None:
    expected = {name.lower(): value for name, value in properties.items()}
    assert decode_metadata(encode_metadata(properties)) == expected


def test_names_are_not_case_sensitive() -> None:
    for name in (b"Socket-Type", b"SOCKET-TYPE", b"socket-type", b"sOCKET-tYPE"):
        assert decode_metadata(prop(name, b"PEER")) == {"socket-type": b"PEER"}


def test_the_last_of_two_equal_properties_wins() -> None:
    assert decode_metadata(prop(b"X-A", b"1") + prop(b"x-a", b"2")) == {"x-a": b"2"}


def test_empty_values_and_no_properties_are_fine() -> None:
    assert decode_metadata(prop(b"Identity", b"")) == {"identity": b""}
    assert decode_metadata(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        prop(b"", b"value"),
        b"\x00",
        b"\x05",
        b"\x05READ",
        b"\x05READY",
        b"\x05READY\x00\x00\x00",
        prop(b"Identity", b"abc", size=4),
        prop(b"Identity", b"abc", size=2),
        prop(b"Identity", b"", size=0xFFFFFFFF),
        prop(b"Ident ity", b"abc"),
        prop(b"Ident\xc3\xa4t", b"abc"),
        prop(b"Ident\x00ty", b"abc"),
        prop(b"Identity", b"abc") + b"\x01",
    ],
)
def test_malformed_properties(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata(data)


@given(st.binary(max_size=60))
def test_any_metadata_is_decoded_or_refused(data: bytes) -> None:
    try:
        properties = decode_metadata(data)
    except ProtocolError:
        return
    for name, value in properties.items():
        assert name == name.lower()
        assert value in data


# ERROR


def test_an_error_carries_its_reason() -> None:
    name, data = split(error("400"))
    assert (name, data) == (b"ERROR", b"\x03400")
    assert error_reason(data) == "400"


def test_a_long_reason_is_cut_and_what_is_not_ascii_is_replaced() -> None:
    _, data = split(error("x" * 300))
    assert data == b"\xff" + b"x" * 255
    _, data = split(error("naïve"))
    assert data == b"\x05na?ve"


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", ""), (b"\x00", ""), (b"\x05ab", "ab"), (b"\x02abc", "ab"), (b"\x02\xff!", "\\xff!")],
)
def test_a_malformed_error_still_has_a_reason(data: bytes, reason: str) -> None:
    assert error_reason(data) == reason


# PING


def test_the_ping_and_the_pong_that_libzmq_sends() -> None:
    ping_octets = bytes.fromhex("040b 0450494e47 000a 63747831")
    assert encode_command(ping(1.0, b"ctx1")) == ping_octets
    assert read_ping(split(ping_octets[2:])[1]) == (1.0, b"ctx1")
    assert encode_command(command(commands.PONG, b"ctx1")) == bytes.fromhex("0409 04504f4e47 63747831")


@given(st.integers(0, 0xFFFF), st.binary(max_size=16))
def test_a_ping_has_a_time_to_live_in_tenths_and_a_context(tenths: int, context: bytes) -> None:
    data = tenths.to_bytes(2, "big") + context
    ttl, echoed = read_ping(data)
    assert (ttl, echoed) == (tenths / 10, context)
    assert split(ping(ttl, context)) == (b"PING", data)


def test_the_time_to_live_has_a_greatest_value() -> None:
    assert read_ping(split(ping(1e6))[1]) == (6553.5, b"")


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(19)])
def test_a_ping_that_is_too_short_or_has_too_much_context_is_malformed(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="PING"):
        read_ping(data)
