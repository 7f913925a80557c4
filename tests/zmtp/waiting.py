"""Waiting for a condition, with a deadline; and tests that are coroutines."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

from zambezi.zmtp import asyncio as aio
from zambezi.zmtp import sync
from zambezi.zmtp.events import SocketEvent

P = ParamSpec("P")
E = TypeVar("E", bound=SocketEvent)

PATIENCE = 60.0  # seconds: a busy machine is no failure


def in_loop(story: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Turn a coroutine into a test that runs in an event loop of its own."""

    @functools.wraps(story)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(2 * PATIENCE):
                await story(*args, **kwargs)

        asyncio.run(bounded())

    return test


async def eventually(condition: Callable[[], object]) -> None:
    """Wait in a coroutine until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE:g} s"
        await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait in a thread until a condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {patience:g} s"
        time.sleep(0.002)


def waiting_calls(socket: aio.BaseSocket | sync.BaseSocket) -> int:
    """Return how many calls wait for a message, for room, or for an event."""
    return sum(waiter.waiting for waiter in (socket._readable, socket._writable, socket._eventful))


class Eventful(Protocol):
    async def next_event(self, timeout: float | None = None) -> SocketEvent: ...


class BlockingEventful(Protocol):
    def next_event(self, timeout: float | None = None) -> SocketEvent: ...


async def next_of(source: Eventful, kind: type[E]) -> E:
    """Return the next event of a type; ignore others."""
    while True:
        event = await source.next_event(PATIENCE)
        if isinstance(event, kind):
            return event


def wait_for(source: BlockingEventful, kind: type[E]) -> E:
    """Return the next event of a type; ignore others."""
    while True:
        event = source.next_event(PATIENCE)
        if isinstance(event, kind):
            return event
