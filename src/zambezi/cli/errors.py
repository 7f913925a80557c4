"""The errors of command lines."""

from __future__ import annotations

import re
from typing import Final

from zambezi.errors import ZambeziError
from zambezi.wire.text import printable

# A byte in a name that `repr` has quoted. A backslash of the name itself is doubled there.
_BYTE: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\udc([89a-f][0-9a-f])")


class OptionsError(ZambeziError):
    """A command line that cannot work: options that contradict each other, or of which one is missing."""


class InputError(ZambeziError):
    """Something that a command needs is missing, or is not what it should be: a file, a table, a program."""


def error_line(problem: str) -> str:
    """Return an error as the one line that a command shows."""
    return f"zambezi: {shown(' '.join(problem.split()))}"


def shown(problem: str) -> str:
    """Return the text of a problem in printable form. Bytes in quoted names have the form that all commands use.

    >>> print(shown(f"there is no stream {'caf' + chr(0xDCE9)!r}"))
    there is no stream 'caf\\xe9'
    """
    return _BYTE.sub(r"\1\\x\2", printable(problem))
