"""ZRE nodes that block, for scripts and threads. Names, arguments and meaning are those of `zambezi.zre.asyncio`.

>>> network = MemoryNetwork()
>>> with Node("ann", network=network) as ann, Node("bob", network=network) as bob:
...     event = ann.recv(timeout=10)
...     ann.whisper(event.peer, b"hello bob")
...     heard = [bob.recv(timeout=10), bob.recv(timeout=10)]
>>> event.name, heard[1].data
('bob', b'hello bob')
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack
from uuid import UUID

from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.face import Sendable
from zambezi.zmtp.reactor import ThreadReactor
from zambezi.zmtp.sync import io_loop
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.engine import Counters
from zambezi.zre.errors import NodeStopped
from zambezi.zre.events import Event
from zambezi.zre.face import DEFAULT_LINGER, NodeArguments, frames_of
from zambezi.zre.log import SERVICE, Record
from zambezi.zre.logservice import LogCore
from zambezi.zre.node import NodeCore, NodeOptions, PeerInfo

__all__ = ["LogService", "MemoryNetwork", "Node"]

T = TypeVar("T")


class Waiting(Generic[T]):
    """Threads that wait for the next of something: an event of a node, a log of a service.

    `take` gives it, or None if there is none yet; when `over` says so, none will come any more. Both are called, and
    `wake` is to be called, with the lock held.
    """

    def __init__(
        self, lock: threading.Lock, what: str, take: Callable[[], T | None], over: Callable[[], bool], end: str
    ) -> None:
        self._come = threading.Condition(lock)
        self._what = what
        self._take = take
        self._over = over
        self._end = end
        self.wake = self._come.notify_all

    def next(self, timeout: float | None) -> T:
        """The next one."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._come:
            while (found := self._take()) is None:
                if self._over():
                    raise NodeStopped(self._end)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimedOut(f"no {self._what} came within {timeout:g} s")
                self._come.wait(left)
            return found

    def all(self) -> Iterator[T]:
        """Each of them, until it is over."""
        try:
            while True:
                yield self.next(None)
        except NodeStopped:
            return


class Node:
    """A node of a mesh. It starts with `with`, or `start()`, and says goodbye when it stops. Any thread may use it.

    `name` is what others see of it. `interface` (a name or an address, several of them, or `"*"`) says where beacons go
    out; `seeds` names mailboxes to begin with where there is no broadcast; `keys` is the key pair of a mesh that only
    its holders can join. See docs/mesh.md for all the options.
    """

    def __init__(self, name: str = "", **options: Unpack[NodeArguments]) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        core = self._core = NodeCore(ThreadReactor(io_loop(), self._lock), name, NodeOptions(**options))
        self._events = Waiting(self._lock, "event", core.next_event, lambda: core.stopping, "the node is stopped")
        self._core.on_event = self._events.wake
        self._core.on_stopped = self._ended.notify_all
        self._started = False

    # The life of a node

    def start(self) -> None:
        """Open the mailbox, and begin to look for peers."""
        with self._lock:
            if not self._started:
                self._started = True
                self._core.start()

    def stop(self, linger: float = DEFAULT_LINGER) -> None:
        """Say goodbye; what is queued has `linger` seconds to go out."""
        with self._lock:
            self._core.stop(linger)
            self._events.wake()
            while not self._core.stopped:
                self._ended.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(0 if kind is not None else DEFAULT_LINGER)

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
        with self._lock:
            return self._core.peers

    @property
    def groups(self) -> frozenset[str]:
        """The groups that this node is in."""
        with self._lock:
            return frozenset(self._core.engine.groups)

    def services(self, service: str) -> dict[UUID, str]:
        """Which peers offer a service, and where."""
        with self._lock:
            return self._core.engine.services(service)

    @property
    def unsent(self) -> list[UUID]:
        """The peers to whom something has still to go out."""
        with self._lock:
            return self._core.unsent

    @property
    def counters(self) -> Counters:
        """What was discarded, and why."""
        return self._core.engine.counters

    # What we say

    def join(self, group: str) -> None:
        """Join a group, and tell all peers."""
        with self._lock:
            self._core.join(group)

    def leave(self, group: str) -> None:
        """Leave a group, and tell all peers."""
        with self._lock:
            self._core.leave(group)

    def whisper(self, peer: UUID, data: Sendable) -> None:
        """Send a message to one peer: one frame as `bytes`, or several."""
        frames = frames_of(data)
        with self._lock:
            self._core.whisper(peer, frames)

    def shout(self, group: str, data: Sendable) -> int:
        """Send a message to all peers in a group; how many that are now."""
        frames = frames_of(data)
        with self._lock:
            return self._core.shout(group, frames)

    def announce(self, service: str, endpoint: str) -> None:
        """Offer a service, such as `X-NAME`, at an endpoint. Peers that know us already are greeted anew."""
        with self._lock:
            self._core.announce(service, endpoint)

    # What we hear

    def recv(self, timeout: float | None = None) -> Event:
        """The next event."""
        return self._events.next(timeout)

    def __iter__(self) -> Iterator[Event]:
        return self._events.all()

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.uuid.hex[:6]} with {len(self._core.peers)} peers>"


class LogService:
    """Collects the logs of a mesh (ZRE/LOG): announced by a node, found by those that log."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._over = False
        with self._lock:
            core = self._core = LogCore(ThreadReactor(io_loop(), self._lock), node._core)
            self._records = Waiting(
                self._lock, "log", core.next_record, lambda: core.closing, "the log service is closed"
            )
            self._core.on_record = self._records.wake
            self._core.on_closed = self._end

    def __enter__(self) -> Self:
        self._node.announce(SERVICE, self._core.endpoint)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        return self._core.endpoint

    @property
    def discarded(self) -> int:
        """How many messages came that were no logs."""
        return self._core.discarded

    def recv(self, timeout: float | None = None) -> Record:
        """The next log."""
        return self._records.next(timeout)

    def __iter__(self) -> Iterator[Record]:
        return self._records.all()

    def close(self) -> None:
        with self._lock:
            self._core.close()
            self._records.wake()
            while not self._over:
                self._ended.wait()

    def _end(self) -> None:
        self._over = True
        self._ended.notify_all()
