"""Ctrl-C, SIGTERM and SIGHUP end a command in good order: a node says goodbye, a client sends what is queued.

A service manager, `timeout` and a terminal that is closed send the last two. `zambezi serve` handles them itself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE: Final = 0.1  # seconds between two looks at work in a thread


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


def away_from_signals(work: Callable[[threading.Event], T], cancel: Callable[[], None]) -> T:
    """Run `work` in a thread, where no signal interrupts it, and return its result.

    This is for libraries that do not survive an exception at any point. After a signal, the event is set, and `cancel`
    is called until the work ends. Work that ends by itself then has a result. If it fails instead, the exception is
    that of the signal. A second signal ends the process.
    """
    ended: Future[T] = Future()
    interrupted = threading.Event()
    with _noting_signals() as noted:
        threading.Thread(target=_finish, args=(ended, work, interrupted), name="work", daemon=True).start()
        while not _has_ended(ended, _PAUSE):
            if noted:
                interrupted.set()
                cancel()
    if noted and ended.exception() is not None:
        raise KeyboardInterrupt if noted[0] == signal.SIGINT else Terminated(noted[0])
    return ended.result()


@contextlib.contextmanager
def _noting_signals() -> Iterator[list[int]]:
    """Give a list, which gets the first signal. Signals that are ignored stay so."""
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heeded = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)
        for one in heeded:
            signal.signal(one, signal.SIG_IGN if one == signal.SIGHUP else signal.SIG_DFL)

    for number in heeded:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def _finish(ended: Future[T], work: Callable[[threading.Event], T], interrupted: threading.Event) -> None:
    try:
        ended.set_result(work(interrupted))
    except BaseException as error:
        ended.set_exception(error)


def _has_ended(work: Future[T], timeout: float) -> bool:
    with contextlib.suppress(TimeoutError):
        work.exception(timeout)
    return work.done()
