"""Ctrl-C, SIGTERM and SIGHUP end a command in good order: a node says goodbye, a client sends what is queued.

A service manager, `timeout` and a terminal that is closed send the last two. `zambezi serve` handles them itself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal other than that of Ctrl-C ended the command. `status` is the one that a shell reports for it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


@contextlib.contextmanager
def ending_in_good_order() -> Iterator[None]:
    """Let SIGINT raise `KeyboardInterrupt`, and SIGTERM and SIGHUP `Terminated`.

    Signals that are ignored already (`nohup`) or handled stay so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that is closed can send it twice
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the command at once
    raise Terminated(number)
