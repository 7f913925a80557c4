"""zambezi.wire.errors: one base class, and texts that say what was wrong and where."""

import pickle

import pytest

from zambezi import ZambeziError
from zambezi.wire import (
    BadSignature,
    BadValue,
    TrailingOctets,
    Truncated,
    Unencodable,
    UnknownCommand,
    WireError,
)
from zambezi.wire.errors import shown


@pytest.mark.parametrize("kind", [Truncated, TrailingOctets, BadSignature, UnknownCommand, BadValue, Unencodable])
def test_the_errors_are_one_family(kind: type[WireError]) -> None:
    assert issubclass(kind, WireError)
    assert issubclass(kind, ZambeziError)


def test_the_text_says_what_and_where() -> None:
    assert str(WireError("wrong")) == "wrong"
    assert str(WireError("wrong", 0)) == "wrong (at offset 0)"
    assert str(WireError("wrong", 7, "Hello")) == "Hello: wrong (at offset 7)"
    assert str(WireError("wrong", None, "Hello", "groups")) == "Hello.groups: wrong"


def test_an_error_survives_pickling() -> None:
    error = UnknownCommand("command 9", 2, id=9)
    error.command = "Zre"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is UnknownCommand
    assert (str(copy), copy.what, copy.offset, copy.id) == (str(error), "command 9", 2, 9)


def test_values_are_shown_short() -> None:
    assert shown("é") == "'\\xe9'"
    assert len(shown("x" * 1000)) == 60
    assert shown(10**5000) == "a huge int"
