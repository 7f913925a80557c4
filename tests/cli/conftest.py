"""Fixtures for all tests of commands."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.zmtp.waiting import PATIENCE
from zambezi import cli


@pytest.fixture(autouse=True, scope="session")
def patience() -> Iterator[None]:
    """Let commands that only look wait for longer than people would: the machine can be busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zambezi.cli.client.LOOK", PATIENCE)
        yield


@pytest.fixture
def in_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[list[str], str]]:
    """Return a function that runs a command as in a terminal of 80 columns, and returns its lines and its errors."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")

    def run(*arguments: str, status: int = 0) -> tuple[list[str], str]:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda: True)
            assert cli.main(list(arguments)) == status
        output, errors = capsys.readouterr()
        lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).splitlines()]
        assert all(len(line) <= 80 for line in lines), output
        return lines, errors

    return run
