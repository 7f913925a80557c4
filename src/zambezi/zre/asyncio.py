"""ZRE nodes for asyncio. Names, arguments and meaning are those of `zambezi.zre.sync`.

>>> import asyncio
>>> async def main() -> list[str]:
...     network = MemoryNetwork()
...     async with Node("ann", network=network) as ann, Node("bob", network=network, groups=["CHAT"]) as bob:
...         story = []
...         async for event in ann:
...             story.append(f"{type(event).__name__} {event.name}")
...             match event:
...                 case Join():
...                     await ann.shout("CHAT", b"hello all")
...                     break
...         async for event in bob:
...             if isinstance(event, Shout):
...                 story.append(event.data.decode())
...                 return story
>>> asyncio.run(main())
['Enter bob', 'Join bob', 'hello all']
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, Unpack
from uuid import UUID

from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.face import Sendable
from zambezi.zmtp.reactor import AsyncioReactor
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.engine import Counters
from zambezi.zre.errors import NodeStopped
from zambezi.zre.events import Event, Join, Shout
from zambezi.zre.face import DEFAULT_LINGER, NodeArguments, frames_of
from zambezi.zre.log import SERVICE, Record
from zambezi.zre.logservice import LogCore
from zambezi.zre.node import NodeCore, NodeOptions, PeerInfo

__all__ = ["Join", "LogService", "MemoryNetwork", "Node", "Shout"]

T = TypeVar("T")

_AT_ONCE: Final = 64


class Waiting(Generic[T]):
    """Those who wait for the next of something: an event of a node, a log of a service.

    `take` gives it, or None if there is none yet; when `over` says so, none will come any more.
    """

    def __init__(self, what: str, take: Callable[[], T | None], over: Callable[[], bool], end: str) -> None:
        self._what = what
        self._take = take
        self._over = over
        self._end = end
        self._waiting: list[asyncio.Future[None]] = []

    async def next(self, timeout: float | None) -> T:
        """The next one. A call that is cancelled, or comes too late, has taken none."""
        found = self._take()
        if found is not None:
            return found
        try:
            async with asyncio.timeout(timeout):
                while (found := self._take()) is None:
                    if self._over():
                        raise NodeStopped(self._end)
                    future = asyncio.get_running_loop().create_future()
                    self._waiting.append(future)
                    try:
                        await future
                    finally:
                        if future in self._waiting:
                            self._waiting.remove(future)
                return found
        except TimeoutError:
            raise TimedOut(f"no {self._what} came within {timeout:g} s") from None

    async def all(self) -> AsyncIterator[T]:
        """Each of them, until it is over."""
        try:
            while True:
                yield await self.next(None)
        except NodeStopped:
            return

    def wake(self) -> None:
        """Something has come, or it is over: all look again."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Node:
    """A node of a mesh. It starts with `async with`, or `start()`, and says goodbye when it stops.

    `name` is what others see of it. `interface` (a name or an address, several of them, or `"*"`) says where beacons go
    out; `seeds` names mailboxes to begin with where there is no broadcast; `keys` is the key pair of a mesh that only
    its holders can join. See docs/mesh.md for all the options.
    """

    def __init__(self, name: str = "", **options: Unpack[NodeArguments]) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = NodeCore(AsyncioReactor(self._loop), name, NodeOptions(**options))
        self._events = Waiting("event", self._core.next_event, lambda: self._core.stopping, "the node is stopped")
        self._core.on_event = self._events.wake
        self._core.on_stopped = self._done
        self._stopped = self._loop.create_future()
        self._started = False
        self._said = 0

    # The life of a node

    async def start(self) -> None:
        """Open the mailbox, and begin to look for peers."""
        if not self._started:
            self._started = True
            self._core.start()

    async def stop(self, linger: float = DEFAULT_LINGER) -> None:
        """Say goodbye; what is queued has `linger` seconds to go out."""
        if not self._started:
            self._started = True
        self._core.stop(linger)
        self._events.wake()
        await asyncio.shield(self._stopped)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(0 if kind is not None else DEFAULT_LINGER)

    # Who we are, and who is there

    @property
    def uuid(self) -> UUID:
        return self._core.engine.uuid

    @property
    def name(self) -> str:
        return self._core.engine.name

    @property
    def endpoint(self) -> str:
        """Where the mailbox is bound."""
        return self._core.endpoint

    @property
    def peers(self) -> list[PeerInfo]:
        """Everybody who is here now."""
        return self._core.peers

    @property
    def groups(self) -> frozenset[str]:
        """The groups that this node is in."""
        return frozenset(self._core.engine.groups)

    def services(self, service: str) -> dict[UUID, str]:
        """Which peers offer a service, and where."""
        return self._core.engine.services(service)

    @property
    def unsent(self) -> list[UUID]:
        """The peers to whom something has still to go out."""
        return self._core.unsent

    @property
    def counters(self) -> Counters:
        """What was discarded, and why."""
        return self._core.engine.counters

    # What we say

    async def join(self, group: str) -> None:
        """Join a group, and tell all peers."""
        self._core.join(group)

    async def leave(self, group: str) -> None:
        """Leave a group, and tell all peers."""
        self._core.leave(group)

    async def whisper(self, peer: UUID, data: Sendable) -> None:
        """Send a message to one peer: one frame as `bytes`, or several."""
        self._core.whisper(peer, frames_of(data))
        await self._breathe()

    async def shout(self, group: str, data: Sendable) -> int:
        """Send a message to all peers in a group; how many that are now."""
        count = self._core.shout(group, frames_of(data))
        await self._breathe()
        return count

    async def _breathe(self) -> None:
        """Let the loop run, now and then: what is said at once goes out together, but queues must not fill up."""
        self._said += 1
        if self._said % _AT_ONCE == 0:
            await asyncio.sleep(0)

    async def announce(self, service: str, endpoint: str) -> None:
        """Offer a service, such as `X-NAME`, at an endpoint. Peers that know us already are greeted anew."""
        self._core.announce(service, endpoint)

    # What we hear

    async def recv(self, timeout: float | None = None) -> Event:
        """The next event."""
        return await self._events.next(timeout)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events.all()

    def _done(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.uuid.hex[:6]} with {len(self._core.peers)} peers>"


class LogService:
    """Collects the logs of a mesh (ZRE/LOG): announced by a node, found by those that log."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._core = LogCore(AsyncioReactor(self._loop), node._core)
        self._records = Waiting("log", self._core.next_record, lambda: self._core.closing, "the log service is closed")
        self._core.on_record = self._records.wake
        self._closed = self._loop.create_future()
        self._core.on_closed = self._done

    async def __aenter__(self) -> Self:
        await self._node.announce(SERVICE, self._core.endpoint)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def endpoint(self) -> str:
        return self._core.endpoint

    @property
    def discarded(self) -> int:
        """How many messages came that were no logs."""
        return self._core.discarded

    async def recv(self, timeout: float | None = None) -> Record:
        """The next log."""
        return await self._records.next(timeout)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records.all()

    def _done(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    async def close(self) -> None:
        self._core.close()
        self._records.wake()
        await asyncio.shield(self._closed)
