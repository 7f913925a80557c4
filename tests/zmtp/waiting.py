"""Waiting for a condition, with a deadline; and tests that are coroutines."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

from zambezi.zmtp.events import SocketEvent

P = ParamSpec("P")
E = TypeVar("E", bound=SocketEvent)

PATIENCE = 20.0


def in_loop(story: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A test that runs in an event loop of its own."""

    @functools.wraps(story)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(2 * PATIENCE):
                await story(*args, **kwargs)

        asyncio.run(bounded())

    return test


async def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.002)


class Eventful(Protocol):
    async def next_event(self, timeout: float | None = None) -> SocketEvent: ...


class BlockingEventful(Protocol):
    def next_event(self, timeout: float | None = None) -> SocketEvent: ...


async def next_of(source: Eventful, kind: type[E]) -> E:
    """The next event of a kind; others are passed over."""
    while True:
        event = await source.next_event(PATIENCE)
        if isinstance(event, kind):
            return event


def wait_for(source: BlockingEventful, kind: type[E]) -> E:
    while True:
        event = source.next_event(PATIENCE)
        if isinstance(event, kind):
            return event
