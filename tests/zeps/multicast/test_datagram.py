"""zambezi.zeps.multicast.datagram: the grammar of the datagrams."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.multicast.datagram import Datagram, Fragment, Mark, Messages, decode, seal, unseal

UUIDS = st.uuids()
NUMBERS = st.integers(0, 2**64 - 1)
SHORT = st.integers(0, 2**32 - 1)
DATAGRAMS = st.one_of(
    st.builds(Messages, UUIDS, NUMBERS, SHORT, st.binary()),
    st.builds(Fragment, UUIDS, NUMBERS, SHORT, SHORT, st.binary(min_size=1)),
    st.builds(Mark, UUIDS, NUMBERS),
)
KEY = bytes(range(32))


@given(DATAGRAMS)
def test_a_datagram_is_decoded_as_it_was_encoded(datagram: Datagram) -> None:
    assert decode(datagram.encode()) == datagram


@given(DATAGRAMS, st.binary(min_size=24, max_size=24))
def test_a_seal_is_opened_by_its_key_alone(datagram: Datagram, nonce: bytes) -> None:
    sealed = seal(datagram.encode(), KEY, nonce)
    assert decode(sealed) is None
    assert unseal(sealed, KEY) == datagram.encode()
    assert unseal(sealed, bytes(32)) is None
    assert unseal(datagram.encode(), KEY) is None


@given(st.binary())
def test_foreign_datagrams_are_not_decoded(octets: bytes) -> None:
    found = decode(octets)
    assert found is None or found.encode() == octets


@pytest.mark.parametrize("cut", range(4 + 16 + 8))
def test_a_datagram_that_was_cut_is_none(cut: int) -> None:
    assert decode(Mark(UUID(int=7), 9).encode()[:cut]) is None


def test_the_bytes_on_the_wire() -> None:
    mark = Mark(UUID(bytes=bytes(range(16))), 258)
    assert mark.encode() == b"ZM\x01\x03" + bytes(range(16)) + b"\0\0\0\0\0\0\x01\x02"
