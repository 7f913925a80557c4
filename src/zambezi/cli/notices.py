"""Warnings of commands. They need no Rich, whose import takes longer than a short command."""

from __future__ import annotations

import logging
import sys

from zambezi.cli.hints import with_hint
from zambezi.wire.text import printable


def warn(text: str) -> None:
    """Print a warning as one line on standard error."""
    print(f"zambezi: warning: {printable(text)}", file=sys.stderr, flush=True)


class _Warnings(logging.Handler):
    """Shows the warnings of the library; the same one once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self._last:
            self._last = text
            warn(with_hint(text))


def show_warnings() -> None:
    """Show the warnings of the library on standard error, unless a log was begun."""
    logger = logging.getLogger("zambezi")
    if not logger.handlers:
        logger.addHandler(_Warnings())
