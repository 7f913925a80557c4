"""zambezi.zre.log: hashes, cuts and keys of ZRE/LOG."""

import binascii
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zre import log


def test_the_hash_is_crc_16_ccitt_false() -> None:
    assert binascii.crc_hqx(b"123456789", 0xFFFF) == 0x29B1  # the check value of that CRC
    assert log.hash_of(UUID(bytes=b"123456789" + bytes(7))) == binascii.crc_hqx(b"123456789" + bytes(7), 0xFFFF)
    assert log.hash_of(UUID(int=0)) == binascii.crc_hqx(bytes(16), 0xFFFF) != 0
    assert log.hash_of(None) == 0


@pytest.mark.parametrize(("text", "kept"), [("x" * 256, 255), ("é" * 128, 127), ("x" + "€" * 85, 85), ("short", 5)])
def test_a_text_is_cut_between_characters(text: str, kept: int) -> None:
    assert log.cut(text) == text[:kept]


@given(st.text(max_size=400))
def test_any_text_fits_when_it_is_cut(text: str) -> None:
    cut = log.cut(text)
    assert len(cut.encode()) <= 255
    log.Log(log.Level.INFO, log.What.SEND, 1, 2, 3, cut).encode()


def test_the_key_of_a_record() -> None:
    octets = log.Log(log.Level.ERROR, log.What.RECV, 0x0A, 0, 0, "").encode()[0]
    record = log.read(octets)
    assert record is not None
    assert (record.key, record.octets) == ("ERROR.RECV.000a", octets)


@given(st.binary(max_size=40), st.booleans())
def test_no_bytes_make_it_raise(octets: bytes, signed: bool) -> None:
    log.read(b"\xaa\xa2\x01" + octets if signed else octets)
