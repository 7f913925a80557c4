"""inproc: links in memory. They need no bytes, no system calls and no engine: batches pass from queue to queue.

At most one socket of the process can bind a name. A socket that connects before the name is bound waits for it. The two
ends can be in different event loops or threads: each end uses only its own queue, and calls the other end through the
other end's reactor.

Acknowledgements control the flow: one batch at a time is under way, and the receiving end acknowledges it when its
socket has room for more. Meanwhile, further messages wait in the sender's bounded outbox.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zambezi.zmtp.connection import COMPATIBLE, Ready, Subscription
from zambezi.zmtp.endpoint import Inproc
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.frames import Batch, Message, Shared, parts_of
from zambezi.zmtp.greeting import VERSION
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.source import Framed, Source, Stored

if TYPE_CHECKING:
    from zambezi.zmtp.connector import MemoryConnector
    from zambezi.zmtp.transport import Transport

_lock: Final = threading.Lock()
_bound: Final[dict[str, MemoryListener]] = {}
_waiting: Final[dict[str, list[MemoryConnector]]] = {}


def _ready_of(transport: Transport) -> Ready:
    """Return the event that a handshake with a socket would end with over a network."""
    options = transport.options
    properties = {name.lower(): value for name, value in options.properties.items()} if options.properties else {}
    return Ready(transport.socket_type, options.identity, "", VERSION, properties)


class MemoryListener:
    """A bound inproc name."""

    def __init__(self, transport: Transport, endpoint: Inproc) -> None:
        self.transport = transport
        self._name = endpoint.name
        self.endpoint = str(endpoint)
        with _lock:
            if self._name in _bound:
                raise EndpointError(f"{endpoint} is bound already in this process; choose another name")
            _bound[self._name] = self
            waiting = _waiting.pop(self._name, [])
        for connector in waiting:
            connector.transport.reactor.call_soon(connector.attempt)

    def close(self) -> None:
        """Free the name."""
        with _lock:
            if _bound.get(self._name) is self:
                del _bound[self._name]

    def accept(self, theirs: MemoryLink, at_once: bool = False) -> None:
        """Connect a link of another socket to this socket. Runs in the reactor of this socket, which bound the name.

        With `at_once` the other socket has the same loop, so that its end can be completed now.
        """
        transport = self.transport
        caller = theirs.transport
        if transport.closing:
            theirs.call(theirs.lost, "the peer closed the socket")
            return
        if caller.socket_type not in COMPATIBLE[transport.socket_type]:
            reason = f"a {caller.socket_type} cannot talk to a {transport.socket_type}"
            transport.handshake_failed(self.endpoint, "", reason)
            theirs.call(theirs.failed, reason)
            return
        ours = MemoryLink(transport, Peer(transport, self.endpoint), self.endpoint)
        ours.other = theirs
        transport.links.add(ours)
        if not at_once:
            theirs.call(theirs.accepted, ours)  # first: `link_ready` can send subscriptions
        transport.link_ready(ours, _ready_of(caller))
        if at_once and not ours.gone:  # gone, if the identity of the other socket is refused
            theirs.accepted(ours, at_once)
        ours.nudge()


class MemoryLink:
    """One end of an inproc connection. `other` is the other end."""

    __slots__ = (
        "_unacknowledged",
        "_under_way",
        "address",
        "endpoint",
        "gone",
        "other",
        "peer",
        "source",
        "transport",
    )

    def __init__(self, transport: Transport, peer: Peer, endpoint: str) -> None:
        self.transport = transport
        self.peer = peer
        self.endpoint = endpoint
        self.address = ""
        self.other: MemoryLink | None = None
        self.gone = False
        self.source: Source | None = None
        self._under_way: list[Message] | None = None
        self._unacknowledged = False

    @property
    def local(self) -> bool:
        return True

    @property
    def pending(self) -> bool:
        return self._under_way is not None

    @property
    def idle(self) -> bool:
        return self._under_way is None

    @property
    def unsent(self) -> int:
        return 0

    def call(self, callback: Callable[..., object], *args: object) -> None:
        """Run a callback in the reactor of this end."""
        self.transport.reactor.call_soon(callback, *args)

    def accepted(self, other: MemoryLink, at_once: bool = False) -> None:
        """Complete the connection. Runs in the reactor of the socket that connected."""
        if self.gone or not self.transport.is_outgoing(self.peer):
            # The socket was closed, or disconnected, in the meantime.
            self.gone = True
            other.call(other.lost, "the peer closed the connection")
            return
        self.other = other
        self.transport.links.add(self)
        self.transport.link_ready(self, _ready_of(other.transport))
        if at_once:
            self._pass_first(other)
        self.nudge()

    def _pass_first(self, other: MemoryLink) -> None:
        """Pass the messages that waited for the connection to the other end now.

        Most connections of a mesh carry one message, HELLO, and two turns of the loop would cost a tenth of the time of
        a link. Later messages wait for a turn, so that no socket is called while it calls another one.
        """
        peer = self.peer
        if not peer._outbox or self.gone or self._under_way is not None:
            return
        self._under_way, singles = peer._take()
        other._unacknowledged = True
        try:
            other.peer._deliver(_batch(self._under_way, singles))
        finally:
            if other._unacknowledged and not other.peer.paused:
                other._unacknowledged = False
                self._under_way = None
        self.transport.departed(peer)

    def failed(self, reason: str) -> None:
        """Note that the other end refused the connection."""
        if not self.gone:
            self.gone = True
            self.transport.link_lost(self, reason)

    def nudge(self) -> None:
        peer = self.peer
        if peer._mailbox:
            peer._collect()
        if self._under_way is None and self.other is not None:
            if peer._outbox:
                self._pass(*peer._take())
                self.transport.departed(peer)
            elif self.source is not None and (more := self.source.pull()) is not None:
                self.offer(more.read() if isinstance(more, Stored) else more)

    def flush(self) -> None:
        self.nudge()

    def wake(self) -> None:
        self.call(self.nudge)

    def offer(self, messages: Framed) -> bool:
        if self._under_way is not None or self.peer._outbox or self.gone or self.other is None:
            return False
        self._pass(list(messages.bodies), True)
        return True

    def _pass(self, messages: list[Message], singles: bool) -> None:
        self._under_way = messages
        other = self.other
        assert other is not None
        other.call(other._receive, _batch(messages, singles))

    def _receive(self, batch: Batch) -> None:
        if self.gone:
            return
        self._unacknowledged = True
        self.peer._deliver(batch)
        if not self.peer.paused:
            self.resume()

    def pause(self) -> None:
        """Do nothing: the other end sends nothing more without an acknowledgement."""

    def resume(self) -> None:
        if self._unacknowledged:
            self._unacknowledged = False
            other = self.other
            if other is not None:
                other.call(other._acknowledged)

    def _acknowledged(self) -> None:
        self._under_way = None
        if not self.gone:
            self.nudge()
            self.transport.settle(self.peer)

    def subscribe(self, prefix: bytes, cancel: bool) -> None:
        other = self.other
        if other is not None:
            other.call(other._subscribed, Subscription(prefix, cancel))

    def _subscribed(self, subscription: Subscription) -> None:
        if not self.gone:
            self.transport.subscribed(self.peer, subscription)

    def finish(self) -> None:
        self.abort("closed by this side")

    def abort(self, reason: str) -> None:
        other = self.other
        if not self.gone and other is not None:
            other.call(other.lost, "the peer closed the connection")
        self.lost(reason)

    def lost(self, reason: str) -> None:
        """Note that the connection is over."""
        if not self.gone:
            self.gone = True
            self.transport.links.discard(self)
            self.transport.link_lost(self, reason)


def find(name: str, connector: MemoryConnector) -> MemoryListener | None:
    """Return the listener that has bound a name, or None; then call the connector when a socket binds it."""
    with _lock:
        listener = _bound.get(name)
        if listener is None:
            _waiting.setdefault(name, []).append(connector)
        return listener


def forget(name: str, connector: MemoryConnector) -> None:
    """Do not call a connector any more when its name is bound."""
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
        for one in message.messages if isinstance(message, Shared) else (message,):
            frames += parts_of(one)
            ends.append(len(frames))
    return Batch(frames, ends, sum(map(len, frames)))
