"""Both faces of a socket in one test.

A test that says the same about both faces is written once, as a coroutine, and awaits every call that waits:

    @in_loop
    async def test_echo(zmtp: Zmtp) -> None:
        async with zmtp.Router() as router, zmtp.Dealer() as dealer: ...

The fixtures `zmtp` and `p2p` provide the asyncio classes in one run of the test. In the other run they provide the
blocking classes, and each call that the asyncio twin awaits runs in a thread. So a test can also start such a call as a
task, and go on while it waits.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeVar, cast

import zambezi.p2p.asyncio
import zambezi.p2p.sync
import zambezi.zmtp.asyncio
import zambezi.zmtp.sync

T = TypeVar("T")
FaceName = Literal["asyncio", "sync"]

_threads = ThreadPoolExecutor(32)
_END = object()


@dataclass(frozen=True)
class Zmtp:
    """The sockets of `zambezi.zmtp`, of one face."""

    Dealer: type[zambezi.zmtp.asyncio.Dealer]
    Router: type[zambezi.zmtp.asyncio.Router]
    Pub: type[zambezi.zmtp.asyncio.Pub]
    Sub: type[zambezi.zmtp.asyncio.Sub]
    XPub: type[zambezi.zmtp.asyncio.XPub]
    XSub: type[zambezi.zmtp.asyncio.XSub]

    @classmethod
    def of(cls, face: FaceName) -> Self:
        return cls(*(_class(zambezi.zmtp, name, face) for name in cls.__annotations__))


@dataclass(frozen=True)
class P2p:
    """The sockets of `zambezi.p2p`, of one face."""

    PeerSocket: type[zambezi.p2p.asyncio.PeerSocket]

    @classmethod
    def of(cls, face: FaceName) -> Self:
        return cls(*(_class(zambezi.p2p, name, face) for name in cls.__annotations__))


class Awaited:
    """A blocking object that is awaited like its asyncio twin: its calls run in threads."""

    def __init__(self, blocking: Any, twin: type) -> None:
        self._blocking = blocking
        self._twin = twin

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._blocking, name)
        method = inspect.getattr_static(self._twin, name, None)
        if inspect.iscoroutinefunction(method):
            return partial(_in_thread, attribute)
        if inspect.isasyncgenfunction(method):
            return lambda *args: _iterate(attribute(*args))
        return attribute

    def __aiter__(self) -> AsyncIterator[Any]:
        return _iterate(self._blocking)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await _in_thread(self._blocking.__exit__, *error)

    def __repr__(self) -> str:
        return repr(self._blocking)


def _class(package: Any, name: str, face: FaceName) -> Any:
    """Return a class of the asyncio face, or a function that makes an awaited object of the blocking face."""
    twin = getattr(package.asyncio, name)
    blocking = getattr(package.sync, name)
    return twin if face == "asyncio" else lambda **options: Awaited(blocking(**options), twin)


async def _in_thread(function: Callable[..., T], *args: object, **options: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *args, **options))


async def _iterate(items: Iterable[Any]) -> AsyncIterator[Any]:
    iterator = iter(items)
    while (item := await _in_thread(cast("Callable[..., Any]", next), iterator, _END)) is not _END:
        yield item
