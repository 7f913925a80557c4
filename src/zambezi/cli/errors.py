"""The errors of command lines."""

from __future__ import annotations

from zambezi.errors import ZambeziError
from zambezi.wire.text import printable


class OptionsError(ZambeziError):
    """A command line that cannot work: options that contradict each other, or of which one is missing."""


class InputError(ZambeziError):
    """Something that a command needs is missing, or is not what it should be: a file, a table, a program."""


def error_line(problem: str) -> str:
    """Return an error as the one line that a command shows."""
    return f"zambezi: {printable(' '.join(problem.split()))}"
