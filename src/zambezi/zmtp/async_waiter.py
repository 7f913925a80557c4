"""Waiting in an event loop: the asyncio half of what makes the two faces differ by `await` alone.

Its twin for threads, with the same names, is in `thread_waiter`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.reactor import AsyncioReactor

T = TypeVar("T")

Mutex: Final = asyncio.Lock


class Waiter:
    """Callers that wait for something to change, in one event loop.

    `more` returns whether one change is enough for a second caller: then `wake_one` goes on to the next. `state` tells
    a caller that waited in vain how things stand, and `timed_out` is the error that it gets.
    """

    disowned = False  # in a forked child: see `thread_waiter`

    def __init__(
        self,
        *,
        more: Callable[[], object] | None = None,
        state: Callable[[], str] | None = None,
        timed_out: type[TimedOut] = TimedOut,
        reactor: AsyncioReactor | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.reactor = reactor or AsyncioReactor(self._loop)
        self.state = state
        self._more = more
        self._timed_out = timed_out
        self._futures: list[asyncio.Future[None]] = []

    def sibling(self, more: Callable[[], object] | None = None) -> Waiter:
        """Return a waiter for another change of the same thing."""
        return Waiter(more=more, state=self.state, timed_out=self._timed_out, reactor=self.reactor)

    # Calling

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that touches what is waited for."""
        return function(*args)

    def fast(
        self, attempt: Callable[..., T], over: Callable[[], bool], post: Callable[..., bool] | None = None
    ) -> Callable[..., T | None]:
        """Return `attempt` in a form that is safe to call from outside. `over` and `post` are for threads."""
        return attempt

    async def breathe(self) -> None:
        """Let the event loop run, for a program that never waits otherwise."""
        await asyncio.sleep(0)

    # Waiting

    async def until(self, attempt: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """Call `attempt` whenever it may succeed, until it returns something; or raise `TimedOut`: `what` failed.

        A call that is cancelled, or times out, has taken nothing.
        """
        result = attempt()
        if result is not None:
            return result
        try:
            async with asyncio.timeout(timeout):
                while (result := attempt()) is None:
                    future = self._loop.create_future()
                    self._futures.append(future)
                    try:
                        await future
                    except asyncio.CancelledError:
                        # The wake-up may have been meant for this call: another caller gets it then.
                        if future.done() and not future.cancelled():
                            self.wake_one()
                        raise
                    finally:
                        if future in self._futures:
                            self._futures.remove(future)
                return result
        except TimeoutError:
            raise self._timed_out(failure(what, timeout, self.state)) from None
        finally:
            if self._futures and self._more is not None and self._more():
                self.wake_one()

    @property
    def waiting(self) -> int:
        """How many callers wait now."""
        return len(self._futures)

    def wake(self) -> None:
        """Have all that wait try again."""
        futures = self._futures
        if futures:
            self._futures = []
            for future in futures:
                if not future.done():
                    future.set_result(None)

    def wake_one(self) -> None:
        """Have the one that has waited longest try again."""
        futures = self._futures
        while futures:
            future = futures.pop(0)
            if not future.done():
                future.set_result(None)
                return

    def released(self) -> None:
        """Return when the kernel has closed the sockets that were closed: here that is at once."""

    def is_question(self, argument: object) -> bool:
        """Return whether an argument must be awaited before its value is known."""
        return inspect.isawaitable(argument) or inspect.iscoroutinefunction(argument)

    async def answer(self, question: Any) -> object:
        """Return the value of such an argument."""
        return await (question() if inspect.iscoroutinefunction(question) else question)


def failure(what: str, timeout: float | None, state: Callable[[], str] | None) -> str:
    """Return the text of a `TimedOut`."""
    return f"{what} within {timeout:g} s" + (f"; {state()}" if state is not None else "")
