"""The reasons of the library, and what to do about them on a command line."""

import logging
import threading

import pytest

from tests.zmtp.waiting import PATIENCE
from zambezi import cli
from zambezi.cli import notices
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
        ("not connected to tcp://h:1: the broker sent a message of several frames", "such as the middleware of fleets"),
        ("it accepts connections, but does not answer as a middleware", "such as the broker of streams"),
        ("the peer speaks ZMTP 1.0, or no ZMTP at all; ZMTP 3.0 is needed", "port of another service"),
    ],
)
def test_a_reason_gets_its_hint(problem: str, hint: str) -> None:
    assert with_hint(problem).startswith(f"{problem} (")
    assert hint in with_hint(problem)


def test_other_texts_are_left_alone() -> None:
    for problem in ("there is no stream x", "the object store: connection refused, after 3 attempts"):
        assert with_hint(problem) == problem


def test_a_command_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    told, lines = threading.Event(), list[str]()

    def warn(text: str) -> None:
        lines.append(text)
        told.set()

    monkeypatch.setattr(notices, "QUIET", 0.0)
    monkeypatch.setattr(notices, "warn", warn)
    with notices.telling("waiting for a reply"):
        assert told.wait(PATIENCE)
    assert lines == ["waiting for a reply"]


def test_warnings_and_errors_have_hints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _Warnings().emit(logging.makeLogRecord({"msg": CURVE}))
    assert "$ZAMBEZI_SERVER_KEY" in capsys.readouterr().err

    def fail(*_: object) -> int:
        raise TimedOut(CURVE)

    monkeypatch.setattr("zambezi.cli.keygen.run", fail)
    assert cli.main(["keygen", "x"]) == 1
    assert "$ZAMBEZI_SERVER_KEY" in capsys.readouterr().err
