"""inproc: links in memory. No octets, no system calls, no engine: batches pass from pipe to pipe.

A name is bound by at most one socket of the process. Who connects before somebody binds waits for it. The two ends may
live in different event loops or threads: each touches only its own pipe, and calls the other through its reactor.

Flow control is by acknowledgement: one batch is under way at a time, and it is acknowledged when the receiving pipe
has room for more. What is sent meanwhile waits in the sender's bounded outbox.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from zambezi.zmtp.connection import COMPATIBLE, Ready
from zambezi.zmtp.endpoint import Inproc
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.frames import Batch, Message, parts_of
from zambezi.zmtp.greeting import VERSION
from zambezi.zmtp.pipe import Pipe
from zambezi.zmtp.source import Framed, Source, Stored

if TYPE_CHECKING:
    from zambezi.zmtp.connector import MemoryConnector
    from zambezi.zmtp.core import Core

_lock: Final = threading.Lock()
_bound: Final[dict[str, MemoryListener]] = {}
_waiting: Final[dict[str, list[MemoryConnector]]] = {}


class MemoryListener:
    """A bound inproc name."""

    def __init__(self, core: Core, endpoint: Inproc) -> None:
        self._core = core
        self._name = endpoint.name
        self.endpoint = str(endpoint)
        with _lock:
            if self._name in _bound:
                raise EndpointError(f"{endpoint} is bound already in this process; choose another name")
            _bound[self._name] = self
            waiting = _waiting.pop(self._name, [])
        for connector in waiting:
            connector.core.reactor.call_soon(connector.attempt)

    def close(self) -> None:
        with _lock:
            if _bound.get(self._name) is self:
                del _bound[self._name]

    def accept(self, theirs: MemoryLink, socket_type: str, identity: bytes) -> None:
        """Runs in the binding socket's context."""
        core = self._core
        if core.closing:
            theirs.core.reactor.call_soon(theirs.lost, "the peer closed the socket")
            return
        if socket_type not in COMPATIBLE[core.socket_type]:
            reason = f"a {socket_type} cannot talk to a {core.socket_type}"
            core.handshake_failed(self.endpoint, "", reason)
            theirs.core.reactor.call_soon(theirs.failed, reason)
            return
        ours = MemoryLink(core, Pipe(core, self.endpoint), self.endpoint)
        ours.peer = theirs
        core.links.add(ours)
        theirs.core.reactor.call_soon(theirs.accepted, ours, core.socket_type, core.options.identity)
        core.link_ready(ours, Ready(socket_type, identity, "", VERSION, {}))
        ours.nudge()


class MemoryLink:
    """One end of an inproc connection."""

    __slots__ = (
        "_unacknowledged",
        "_under_way",
        "address",
        "core",
        "endpoint",
        "gone",
        "peer",
        "pipe",
        "source",
    )

    def __init__(self, core: Core, pipe: Pipe, endpoint: str) -> None:
        self.core = core
        self.pipe = pipe
        self.endpoint = endpoint
        self.address = ""
        self.peer: MemoryLink | None = None
        self.gone = False
        self.source: Source | None = None
        self._under_way: list[Message] | None = None
        self._unacknowledged = False

    @property
    def pending(self) -> bool:
        return self._under_way is not None

    @property
    def idle(self) -> bool:
        return self._under_way is None

    def accepted(self, peer: MemoryLink, socket_type: str, identity: bytes) -> None:
        """Runs in the connecting socket's context: the other end is there."""
        if self.gone or self.pipe not in self.core.connectors:
            # Closed or disconnected in the meantime.
            self.gone = True
            peer.core.reactor.call_soon(peer.lost, "the peer closed the connection")
            return
        self.peer = peer
        self.core.links.add(self)
        self.core.link_ready(self, Ready(socket_type, identity, "", VERSION, {}))
        self.nudge()

    def failed(self, reason: str) -> None:
        if not self.gone:
            self.gone = True
            self.core.link_lost(self, reason)

    def nudge(self) -> None:
        pipe = self.pipe
        if pipe.mailbox:
            pipe.collect()
        if self._under_way is None and self.peer is not None:
            if pipe.outbox:
                self._pass(*pipe.take())
                self.core.departed(pipe)
            elif self.source is not None and (more := self.source.pull()) is not None:
                self.offer(more.read() if isinstance(more, Stored) else more)

    def wake(self) -> None:
        """The source may have something."""
        self.core.reactor.call_soon(self.nudge)

    def offer(self, messages: Framed) -> bool:
        """Pass messages on now, past the outbox; False if others are under way."""
        if self._under_way is not None or self.pipe.outbox or self.gone or self.peer is None:
            return False
        self._pass(list(messages.bodies), True)
        return True

    def _pass(self, messages: list[Message], singles: bool) -> None:
        self._under_way = messages
        peer = self.peer
        assert peer is not None
        peer.core.reactor.call_soon(peer._receive, _batch(messages, singles))

    def _receive(self, batch: Batch) -> None:
        if self.gone:
            return
        self._unacknowledged = True
        self.pipe.deliver(batch)
        if not self.pipe.paused:
            self.resume()

    def pause(self) -> None:
        """Nothing to do: without an acknowledgement nothing more comes."""

    def resume(self) -> None:
        if self._unacknowledged:
            self._unacknowledged = False
            peer = self.peer
            if peer is not None:
                peer.core.reactor.call_soon(peer._acknowledged)

    def _acknowledged(self) -> None:
        self._under_way = None
        if not self.gone:
            self.nudge()
            self.core.settle(self.pipe)

    def subscribe(self, prefix: bytes, cancel: bool) -> None:
        """Tell the publisher at the other end."""
        peer = self.peer
        if peer is not None:
            peer.core.reactor.call_soon(peer._subscribed, prefix, cancel)

    def _subscribed(self, prefix: bytes, cancel: bool) -> None:
        if not self.gone:
            self.core.subscribed_to(self.pipe, prefix, cancel)

    def finish(self) -> None:
        self.abort("closed by this side")

    def abort(self, reason: str) -> None:
        peer = self.peer
        if not self.gone and peer is not None:
            peer.core.reactor.call_soon(peer.lost, "the peer closed the connection")
        self.lost(reason)

    def lost(self, reason: str) -> None:
        if not self.gone:
            self.gone = True
            self.core.links.discard(self)
            self.core.link_lost(self, reason)


def find(name: str, connector: MemoryConnector) -> MemoryListener | None:
    """Who has bound the name; if nobody has, the connector is called when somebody does."""
    with _lock:
        listener = _bound.get(name)
        if listener is None:
            _waiting.setdefault(name, []).append(connector)
        return listener


def forget(name: str, connector: MemoryConnector) -> None:
    with _lock:
        waiting = _waiting.get(name, [])
        if connector in waiting:
            waiting.remove(connector)
            if not waiting:
                del _waiting[name]


def _batch(messages: list[Message], singles: bool) -> Batch:
    if singles:
        frames: list[bytes] = messages  # type: ignore[assignment]
        return Batch(frames, None, sum(map(len, frames)))
    frames = []
    ends: list[int] = []
    for message in messages:
        frames += parts_of(message)
        ends.append(len(frames))
    return Batch(frames, ends, sum(map(len, frames)))
