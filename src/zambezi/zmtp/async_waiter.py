"""Waiting in an event loop, for the asyncio faces.

Its twin for threads, with the same names, is in `thread_waiter`: so an asyncio face and its blocking face differ by
`await` alone.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.reactor import AsyncioReactor

T = TypeVar("T")

Mutex: Final = asyncio.Lock


class Closable(Protocol):
    """A socket that can begin to close."""

    closing: bool


class _Call:
    """A call that waits. Its time can be over: then it tries a last time, and nothing is cancelled for that."""

    __slots__ = ("future", "is_over")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] | None = None
        self.is_over = False

    def expire(self) -> None:
        """Wake the call, because its time is over."""
        self.is_over = True
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class Waiter:
    """Callers that wait for something to change, in one event loop.

    `more` returns whether another caller can succeed, too, after one has: then the next caller is woken. `state`
    returns a text that the error of a timeout ends with, and `timed_out` is the type of that error.
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
        """Call a function that uses the state that callers wait for."""
        return function(*args)

    def fast(
        self, attempt: Callable[..., T], socket: Closable, post: Callable[..., bool] | None = None
    ) -> Callable[..., T | None]:
        """Return `attempt`, which is safe to call as it is. Only the twin for threads needs the other arguments."""
        return attempt

    async def breathe(self) -> None:
        """Let the event loop run: a program that always finds room would otherwise never wait."""
        await asyncio.sleep(0)

    # Waiting

    async def until(self, attempt: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """Call `attempt` whenever it may succeed, until it returns something else than None, and return that.

        Raises `TimedOut`, with the text `what`, after `timeout` seconds. A call that is cancelled, or times out, has
        taken nothing.
        """
        result = attempt()
        if result is not None:
            return result
        call = _Call()
        timer = self._loop.call_later(timeout, call.expire) if timeout is not None else None
        try:
            while not call.is_over:
                await self._wait(call)
                result = attempt()
                if result is not None:
                    return result
        finally:
            if timer is not None:
                timer.cancel()
            if self._futures and self._more is not None and self._more():
                self.wake_one()
        raise self._timed_out(self.failure(what, timeout))

    def failure(self, what: str, timeout: float | None) -> str:
        """Return the text of the error of a timeout."""
        return failure(what, timeout, self.state)

    async def _wait(self, call: _Call) -> None:
        future = call.future = asyncio.Future(loop=self._loop)
        self._futures.append(future)
        try:
            await future
        except asyncio.CancelledError:
            # If this call was woken, it passes the wake-up on to another caller.
            if future.done() and not future.cancelled():
                self.wake_one()
            raise
        finally:
            if future in self._futures:
                self._futures.remove(future)

    @property
    def waiting(self) -> int:
        """The number of callers that wait now."""
        return len(self._futures)

    def wake(self) -> None:
        """Have all waiting callers try again."""
        futures = self._futures
        if futures:
            self._futures = []
            for future in futures:
                if not future.done():
                    future.set_result(None)

    def wake_one(self) -> None:
        """Have the caller that has waited longest try again."""
        futures = self._futures
        while futures:
            future = futures.pop(0)
            if not future.done():
                future.set_result(None)
                return

    def is_question(self, argument: object) -> bool:
        """Return whether an argument is awaitable, or a coroutine function."""
        return inspect.isawaitable(argument) or inspect.iscoroutinefunction(argument)

    async def answer(self, question: Any) -> object:
        """Await such an argument, and return its value."""
        return await (question() if inspect.iscoroutinefunction(question) else question)


def failure(what: str, timeout: float | None, state: Callable[[], str] | None) -> str:
    """Return the text of a `TimedOut`."""
    within = f"within {timeout:g} s" if timeout else "at once"
    return f"{what} {within}" + (f"; {state()}" if state is not None else "")
