"""zambezi.zmtp.greeting: the greeting of libzmq, older versions, and invalid bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.greeting import SIZE, VERSION, Greeting, refuse_early

# The greeting of libzmq 4.3.6.
LIBZMQ = bytes.fromhex("ff00000000000000017f 0301 4e554c4c") + bytes(16) + b"\x00" + bytes(31)


def changed(octets: bytes, place: int, *values: int) -> bytes:
    return octets[:place] + bytes(values) + octets[place + len(values) :]


def test_we_greet_as_libzmq_does() -> None:
    assert Greeting("NULL").encode() == LIBZMQ
    assert len(LIBZMQ) == SIZE == 64


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE", "A-B_C.D+9", "X" * 20])
@pytest.mark.parametrize("as_server", [False, True])
@pytest.mark.parametrize("version", [(3, 0), VERSION, (3, 2), (4, 0), (255, 255)])
def test_decoding_reverses_encoding(mechanism: str, as_server: bool, version: tuple[int, int]) -> None:
    greeting = Greeting(mechanism, as_server, version)
    octets = greeting.encode()
    assert len(octets) == SIZE
    assert Greeting.decode(octets) == greeting
    assert octets[32] == as_server


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=31, max_size=31))
def test_padding_and_filler_are_ignored(padding: bytes, filler: bytes) -> None:
    octets = LIBZMQ[:1] + padding + LIBZMQ[9:33] + filler
    assert Greeting.decode(octets) == Greeting("NULL")


def test_the_padding_of_a_dealer_with_an_identity_of_17_bytes() -> None:
    octets = bytes.fromhex("ff00000000000000127f") + LIBZMQ[10:]
    assert Greeting.decode(octets) == Greeting("NULL")


def refused_after(octets: bytes) -> int:
    """Return the number of bytes after which a greeting is refused; 0 if it never is."""
    for size in range(1, len(octets) + 1):
        try:
            refuse_early(octets[:size])
        except ProtocolError:
            with pytest.raises(ProtocolError):
                Greeting.decode(octets)
            return size
    return 0


@pytest.mark.parametrize(
    ("octets", "size"),
    [
        (LIBZMQ, 0),
        (Greeting("NULL", version=(3, 0)).encode(), 0),
        (Greeting("NULL", version=(9, 9)).encode(), 0),
        # ZMTP 1.0 with a short identity, and with a long one: the flags byte after its length is even.
        (changed(LIBZMQ, 0, 0x01, 0x00), 1),
        (changed(LIBZMQ, 9, 0x00), 10),
        # ZMTP 2.0: revision 0 or 1 after the signature, and also 2.
        (changed(LIBZMQ, 10, 0x00), 11),
        (changed(LIBZMQ, 10, 0x01), 11),
        (changed(LIBZMQ, 10, 0x02), 11),
        # No ZMTP at all.
        (b"GET / HTTP/1.1\r\n".ljust(64), 1),
        (changed(LIBZMQ, 9, 0x7D), 10),
    ],
)
def test_older_peers_are_refused_as_early_as_possible(octets: bytes, size: int) -> None:
    assert refused_after(octets) == size


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (changed(LIBZMQ, 0, 0x00), "1.0"),
        (changed(LIBZMQ, 9, 0x00), "1.0"),
        (changed(LIBZMQ, 10, 0x01), "2.0"),
        (changed(LIBZMQ, 9, 0x7D), "0x7f"),
        (changed(LIBZMQ, 32, 2), "as-server"),
        (changed(LIBZMQ, 32, 255), "as-server"),
        (LIBZMQ + b"\x00", "64"),
        (LIBZMQ[:63], "64"),
        (changed(LIBZMQ, 12, *bytes(20)), "mechanism"),
        (changed(LIBZMQ, 12, *b"null"), "mechanism"),
        (changed(LIBZMQ, 12, *b"NU L"), "mechanism"),
        (changed(LIBZMQ, 12, *b"N\x00LL"), "mechanism"),
        (changed(LIBZMQ, 12, 0x80), "mechanism"),
        (changed(LIBZMQ, 31, *b"a"), "mechanism"),
    ],
)
def test_refused_greetings_and_the_reasons(octets: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Greeting.decode(octets)


@given(st.lists(st.tuples(st.sampled_from([0, 9, 10, 11, 12, 32]), st.integers(0, 255)), max_size=4))
def test_the_reason_does_not_depend_on_how_much_has_arrived(changes: list[tuple[int, int]]) -> None:
    octets = LIBZMQ
    for place, value in changes:
        octets = changed(octets, place, value)
    reasons = set()
    for size in range(len(octets) + 1):
        try:
            refuse_early(octets[:size])
        except ProtocolError as refusal:
            reasons.add(str(refusal))
    assert len(reasons) <= 1


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused(octets: bytes) -> None:
    try:
        greeting = Greeting.decode(octets)
    except ProtocolError:
        return
    assert Greeting.decode(greeting.encode()) == greeting
