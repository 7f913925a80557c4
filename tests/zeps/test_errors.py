"""zambezi.zeps.errors: one family."""

import inspect

from zambezi.errors import ZambeziError
from zambezi.zeps import errors
from zambezi.zmtp import errors as zmtp_errors


def test_all_errors_of_streams_have_one_base() -> None:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(found) > 10
    for kind in found:
        assert issubclass(kind, errors.ZepsError)
        assert issubclass(kind, ZambeziError)
        assert kind.__doc__


def test_a_timeout_is_caught_like_any_other() -> None:
    assert issubclass(errors.TimedOut, TimeoutError)
    assert issubclass(errors.TimedOut, zmtp_errors.TimedOut)


def test_out_of_range_names_the_oldest_sequence() -> None:
    assert errors.OutOfRange("gone", 7).oldest == 7
    assert isinstance(errors.OutOfRange("gone"), errors.JournalError)
