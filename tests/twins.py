"""One test for both faces: it is written for asyncio, and `awaited` lets it call the blocking twin.

    faces = {"asyncio": aio.Node, "sync": awaited(aio.Node, sync.Node)}

The blocking object is called in threads: whatever its twin has as a coroutine, the test awaits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

T = TypeVar("T")

THREADS = ThreadPoolExecutor(32)  # more than any test waits in at once, whatever the machine


async def in_thread(call: Callable[..., T], *args: object, **options: object) -> T:
    """Wait for a call that blocks."""
    return await asyncio.get_running_loop().run_in_executor(THREADS, partial(call, *args, **options))


def awaited(twin: type[T], blocking: Callable[..., object]) -> type[T]:
    """Return a stand-in for an asyncio class, which makes objects of its blocking twin."""

    def make(*args: object, **options: object) -> Awaited:
        return Awaited(twin, blocking(*map(_target_of, args), **options))

    return cast("type[T]", make)


class Awaited:
    """A blocking object that looks like its asyncio twin."""

    def __init__(self, twin: type, target: Any) -> None:
        self._twin = twin
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.iscoroutinefunction(getattr(self._twin, name, None)):
            return value  # a property, or a method that does not wait

        async def call(*args: object, **options: object) -> object:
            return await in_thread(value, *args, **options)

        return call

    async def __aenter__(self) -> Self:
        await in_thread(self._target.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self._target.__exit__, kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[object]:
        end = object()
        items = iter(cast("Iterable[object]", self._target))
        while (item := await in_thread(next, items, end)) is not end:
            yield item


def _target_of(argument: object) -> object:
    return argument._target if isinstance(argument, Awaited) else argument
