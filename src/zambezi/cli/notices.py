"""Warnings of commands. They need no Rich, whose import takes longer than a short command."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Final

from zambezi.cli.errors import shown
from zambezi.cli.hints import with_hint

# Seconds that a command waits before it says for what: a bit longer than the library, whose warnings say more.
QUIET: Final = 2.2


def warn(text: str) -> None:
    """Print a warning as one line on standard error."""
    print(f"zambezi: warning: {shown(text)}", file=sys.stderr, flush=True)


class _Warnings(logging.Handler):
    """Shows the warnings of the library; the same one once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text != self.last:
            self.last = text
            warn(with_hint(text))
        if record.exc_info:
            print(logging.Formatter().formatException(record.exc_info), file=sys.stderr, flush=True)


def show_warnings() -> None:
    """Show the warnings of the library on standard error, unless a log was begun."""
    logger = logging.getLogger("zambezi")
    if not logger.handlers:
        logger.addHandler(_Warnings())


@contextlib.contextmanager
def telling(text: str) -> Iterator[None]:
    """Show a text if the work in this context takes long, unless a warning of the library has said why."""
    before = _last_shown()
    timer = threading.Timer(QUIET, lambda: warn(text) if _last_shown() == before else None)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _last_shown() -> list[str]:
    return [one.last for one in logging.getLogger("zambezi").handlers if isinstance(one, _Warnings)]
