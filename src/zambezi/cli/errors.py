"""The errors of command lines."""

from __future__ import annotations

from zambezi.errors import ZambeziError
from zambezi.wire.text import printable


class OptionsError(ZambeziError):
    """Options that contradict each other, or of which one is missing."""


def error_line(problem: str) -> str:
    """Return an error as the one line that a command shows."""
    return f"zambezi: {printable(' '.join(problem.split()))}"
