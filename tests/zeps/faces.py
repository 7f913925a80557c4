"""Both faces of the client, for tests that say the same about both: the blocking one is used as if it were asyncio's.

@both_faces
@in_loop
async def test_something(connect: Connect) -> None:
    async with connect(endpoint) as client:
        await client.stream("s").publish("k", b"body")
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import pytest

from tests.zmtp.waiting import PATIENCE
from zambezi.zeps import asyncio as asyncio_face
from zambezi.zeps import sync
from zambezi.zeps.broker.service import BrokerService
from zambezi.zmtp import Backoff

Connect: TypeAlias = Callable[..., asyncio_face.Client]

_TWINS: dict[type, type] = {
    sync.Client: asyncio_face.Client,
    sync.Stream: asyncio_face.Stream,
    sync.Subscription: asyncio_face.Subscription,
}
_THREADS = ThreadPoolExecutor(16, "blocking-face")
_END = object()


async def _in_thread(call: Callable[..., object], *arguments: object, **options: object) -> object:
    loop = asyncio.get_running_loop()
    return _adapted(await loop.run_in_executor(_THREADS, partial(call, *arguments, **options)))


async def _iterate(iterator: Iterator[object]) -> AsyncIterator[object]:
    while (item := await _in_thread(next, iterator, _END)) is not _END:
        yield item


def _adapted(value: object) -> object:
    return Blocking(value) if type(value) in _TWINS else value


class Blocking:
    """An object of the blocking face with the methods of its asyncio twin: a call that can block runs in a thread."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        twin = getattr(_TWINS[type(self._blocking)], name, None)
        if inspect.iscoroutinefunction(twin):
            return partial(_in_thread, value)
        if inspect.isasyncgenfunction(twin):
            return lambda: _iterate(value())
        if callable(value):
            return lambda *arguments, **options: _adapted(value(*arguments, **options))
        return value

    def __aiter__(self) -> AsyncIterator[object]:
        return _iterate(iter(self._blocking))

    async def __aenter__(self) -> Self:
        await _in_thread(self._blocking.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self._blocking.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return repr(self._blocking)


def connect_blocking(endpoint: Any, **options: Any) -> asyncio_face.Client:
    """Return a client of the blocking face."""
    return cast("asyncio_face.Client", Blocking(sync.Client.connect(endpoint, **options)))


both_faces = pytest.mark.parametrize(
    "connect", [asyncio_face.Client.connect, connect_blocking], ids=["asyncio", "sync"]
)


# What tests of both faces share

QUICK = Backoff(0.01, 0.05)
NOWHERE = "tcp://127.0.0.1:1"
TCP = "tcp://127.0.0.1:*"


@asynccontextmanager
async def connected(
    path: Path, where: str = TCP, connect: Connect = asyncio_face.Client.connect
) -> AsyncIterator[tuple[BrokerService, asyncio_face.Client]]:
    """A broker, and a client of it."""
    async with BrokerService(path) as broker:
        endpoint = broker.bind(where)
        async with connect(endpoint, backoff=QUICK) as client:
            yield broker, client


async def fill(stream: asyncio_face.Stream, count: int, start: int = 0) -> None:
    """Publish messages with the numbers from `start` on as bodies, and keys from `k0` to `k9`."""
    await stream.publish_many([(f"k{number % 10}", b"%d" % number) for number in range(start, start + count)])
    await stream.flush(PATIENCE)


async def bodies(subscription: asyncio_face.Subscription) -> list[int]:
    """Return the numbers in all messages of a subscription that ends."""
    return [int(message.body) async for message in subscription]
