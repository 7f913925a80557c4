"""zambezi.zeps.journal.names: names of streams as names of directories."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.names import LIMIT, directory_of, name_of

names = st.binary(min_size=1, max_size=255).map(lambda octets: octets.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("prices", "prices"),
        ("Prices_2-b", "Prices_2-b"),
        ("a.b", "a%2Eb"),
        ("..", "%2E%2E"),
        ("../../etc", "%2E%2E%2F%2E%2E%2Fetc"),
        ("$streams", "%24streams"),
        ("a b\x00\n", "a%20b%00%0A"),
        ("température", "temp%C3%A9rature"),
        ("100%", "100%25"),
        ("\udcff", "%FF"),
    ],
)
def test_names_of_directories(name: str, directory: str) -> None:
    assert directory_of(name) == directory
    assert name_of(directory) == name


@given(names)
def test_no_name_escapes(name: str) -> None:
    directory = directory_of(name)
    assert Path("/data", directory).parent == Path("/data")
    assert not directory.startswith(".")
    assert len(directory) <= LIMIT
    assert name_of(directory) in (name, None)


@given(names, names)
def test_no_two_share_one(one: str, other: str) -> None:
    assert (directory_of(one) == directory_of(other)) == (one == other)


def test_long_names_have_directories_of_their_own() -> None:
    one, other = "." * 255, "." * 254 + "x"
    assert directory_of(one) != directory_of(other)
    assert name_of(directory_of(one)) is None
    assert directory_of("x" * LIMIT) == "x" * LIMIT
    # A stream with the name of a long name's directory gets another directory.
    assert directory_of(directory_of(one)) != directory_of(one)


def test_a_stream_needs_a_name() -> None:
    with pytest.raises(JournalError, match="needs a name"):
        directory_of("")


def test_a_name_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(JournalError, match="at most 255 bytes, and this one has 256"):
        directory_of("\u00e9" * 128)


def test_a_lone_surrogate_cannot_be_encoded() -> None:
    with pytest.raises(JournalError, match="lone surrogate"):
        directory_of("\ud800")
