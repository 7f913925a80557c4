"""zambezi.zmtp.z85: the example of the specification, pyzmq, and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85 as witness

from zambezi.errors import ZambeziError
from zambezi.zmtp import z85

HELLO = bytes.fromhex("864FD26FB559F75B")
groups = st.integers(0, 32).flatmap(lambda count: st.binary(min_size=count * 4, max_size=count * 4))


def test_the_vector_of_the_specification() -> None:
    assert z85.encode(HELLO) == "HelloWorld"
    assert z85.decode("HelloWorld") == HELLO


def test_an_empty_text_is_empty() -> None:
    assert z85.encode(b"") == ""
    assert z85.decode("") == b""


def test_the_alphabet_has_85_different_characters() -> None:
    assert len(z85.ALPHABET) == len(set(z85.ALPHABET)) == 85


@given(groups)
def test_round_trip(octets: bytes) -> None:
    assert z85.decode(z85.encode(octets)) == octets


@given(groups)
def test_pyzmq_agrees(octets: bytes) -> None:
    text = z85.encode(octets)
    assert text.encode() == witness.encode(octets)
    assert witness.decode(text) == octets


@given(st.text(alphabet=z85.ALPHABET + ' "\\é', max_size=40))
def test_any_text_is_decoded_exactly_or_refused(text: str) -> None:
    try:
        octets = z85.decode(text)
    except z85.Z85Error as refusal:
        position = refusal.position
    else:
        position = 0
        assert z85.encode(octets) == text
    assert 0 <= position <= len(text)


def test_bytes_of_a_bad_length() -> None:
    with pytest.raises(z85.Z85Error, match="6 bytes are not a multiple of 4: incomplete group at position 4"):
        z85.encode(bytes(6))


def test_text_of_a_bad_length() -> None:
    with pytest.raises(z85.Z85Error, match=r"11 characters are not a multiple of 5.* at position 10"):
        z85.decode("HelloWorld!")


@pytest.mark.parametrize("character", [" ", '"', "~", "\n", "\x00", "é", "€", "\udc80"])
def test_a_bad_character(character: str) -> None:
    with pytest.raises(z85.Z85Error, match="is not a Z85 character at position 7") as caught:
        z85.decode(f"HelloWo{character}ld")
    assert caught.value.position == 7


def test_the_largest_group_and_one_more() -> None:
    largest = z85.encode(b"\xff\xff\xff\xff")
    assert largest == "%nSc0"
    with pytest.raises(z85.Z85Error, match=r"more than 2\^32 - 1 at position 5") as caught:
        z85.decode("Hello%nSc1")
    assert caught.value.position == 5
    with pytest.raises(z85.Z85Error):
        z85.decode("#####")


@pytest.mark.parametrize("text", ["Hell~", "Secr#####et%nSc1", "%nSc1", "Hello!!"])
def test_errors_belong_to_the_family_and_do_not_quote_the_text(text: str) -> None:
    with pytest.raises(ZambeziError) as caught:
        z85.decode(text)
    assert text not in str(caught.value)
