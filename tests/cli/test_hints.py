"""The reasons of the library, and what to do about them on a command line."""

import logging

import pytest

from zambezi import cli
from zambezi.cli.hints import with_hint
from zambezi.cli.notices import _Warnings
from zambezi.zmtp.errors import TimedOut

CURVE = "this client is not connected to tcp://h:1: the peer wants CURVE security, but this socket uses NULL"


@pytest.mark.parametrize(
    ("problem", "hint"),
    [
        (CURVE, "--server-key FILE, or with $ZAMBEZI_SERVER_KEY"),
        ("the peer does not let us in (400): is our key allowed there?", "--key FILE, or $ZAMBEZI_KEY"),
        ("no connection to tcp://h:1: connection refused", "is zambezi serve running?"),
        ("the peer speaks ZMTP 1.0, or no ZMTP at all; ZMTP 3.0 is needed", "port of another service"),
    ],
)
def test_a_reason_gets_its_hint(problem: str, hint: str) -> None:
    assert with_hint(problem).startswith(f"{problem} (")
    assert hint in with_hint(problem)


def test_other_texts_are_left_alone() -> None:
    for problem in ("there is no stream x", "the object store: connection refused, after 3 attempts"):
        assert with_hint(problem) == problem


def test_warnings_and_errors_have_hints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _Warnings().emit(logging.makeLogRecord({"msg": CURVE}))
    assert "$ZAMBEZI_SERVER_KEY" in capsys.readouterr().err

    def fail(*_: object) -> int:
        raise TimedOut(CURVE)

    monkeypatch.setattr("zambezi.cli.keygen.run", fail)
    assert cli.main(["keygen", "x"]) == 1
    assert "$ZAMBEZI_SERVER_KEY" in capsys.readouterr().err
