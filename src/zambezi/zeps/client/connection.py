"""A client's connection to its broker, without waiting: finding the broker, ATTACH, and what all connections share.

There is one connection for each stream that is published to (`publisher_connection`), and one for each subscription
(`subscriber_connection`). Each is a DEALER with one peer, the broker. Whenever the connection is there it says ATTACH;
when the connection is lost, the transport makes it anew and the session begins again. The faces (`asyncio`, `sync`) add
the waiting, and nothing else: `on_change` is called when callers that wait should look again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

from zambezi.wire import WireError
from zambezi.zeps.client.batch import examine
from zambezi.zeps.client.publisher import BOUND, LARGEST, OnFull
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.errors import ClientClosed, ZepsError
from zambezi.zeps.layout import DELIVER
from zambezi.zeps.messages import Attach, AttachOk, Detach, DetachOk, Invalid, Ping, PingOk, SubscribeOk, Zeps
from zambezi.zeps.multicast.datagram import KEY
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.events import HandshakeFailed, Retrying, SocketEvent
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.security import Null, Security
from zambezi.zmtp.transport import Transport

Locate: TypeAlias = Callable[[], str | None]

_log: Final = logging.getLogger("zambezi.zeps")

LOOK: Final = 0.1  # seconds between looks for a broker that is not found yet
PART: Final = 1.0  # how long a broker that said DETACH may take to close
# The publisher bounds what goes out: the queue of the socket holds only what passes through.
_PASSING: Final = Bound(messages=1 << 30, octets=1 << 40)

_DETACH: Final = Detach().encode()[0]
_DETACH_OK: Final = DetachOk().encode()[0]
_PING_OK: Final = PingOk().encode()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client behaves. The names are those of the arguments of `Client.connect`."""

    security: Security = field(default_factory=Null)
    heartbeat: Heartbeat | None = field(default_factory=lambda: Heartbeat(interval=5.0, timeout=20.0))
    backoff: Backoff = field(default_factory=lambda: Backoff(0.05, 5.0))
    bound: int = BOUND
    on_full: OnFull = "wait"
    largest: int = LARGEST
    window: int = WINDOW
    linger: float | None = 5.0
    group_key: bytes = b""

    def __post_init__(self) -> None:
        if self.group_key and len(self.group_key) != KEY:
            raise ZepsError(f"the key of a group has {KEY} octets, not {len(self.group_key)}; see zambezi keygen")

    def socket(self) -> Options:
        """Return the options of a connection's socket."""
        return Options(security=self.security, heartbeat=self.heartbeat, backoff=self.backoff, send_bound=_PASSING)


class BrokerConnection:
    """A connection to the broker, attached to a stream. Subclasses decide what to say then."""

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str) -> None:
        self.transport = Transport(reactor, "DEALER", self, options.socket())
        self.transport.on_event = self._happened
        self.reactor = reactor
        self.options = options
        self.stream = stream
        self.granted = False  # whether the broker has granted the stream on this connection
        self.problem = "it was not reached yet"  # why there is no connection
        self.on_change: Callable[[], object] = _nothing
        self._attach = Attach(stream).encode()[0]
        self._locate = locate
        self._endpoint = ""
        self._dialled: Peer | None = None  # the broker, connected or not
        self._peer: Peer | None = None  # the broker, while it is connected
        self._connections = 0
        self._looking: Timer | None = None
        self._parting: Timer | None = None
        self._apart = False  # no connection is wanted now

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self.transport.closing

    @property
    def closed(self) -> bool:
        """Whether all is closed."""
        return self.transport.closed

    # Finding the broker

    def start(self) -> None:
        """Connect, and keep connecting."""
        self._looking = None
        if not self.closing and not self._dial():
            self._looking = self.reactor.call_at(self.reactor.time() + LOOK, self.start)

    def _dial(self) -> bool:
        """Connect to where the broker is now; return False if nobody knows."""
        before = self._dialled
        try:
            endpoint = self._locate()
            if endpoint is not None and (self._apart or endpoint != self._endpoint):
                self._dialled = self.transport.connect(endpoint)
        except Exception as error:  # the program's function must not end the search
            self.problem = f"it cannot be found: {error}"
            return False
        if endpoint is None:
            self.problem = "no broker was found yet"
            return False
        if self._dialled is not before:
            self._apart = False
            self._endpoint = endpoint
            if before is not None:
                self._leave(before)
        return True

    def _leave(self, peer: Peer) -> None:
        self._forget(peer)
        peer.close(0)

    def _happened(self, event: SocketEvent) -> None:
        if isinstance(event, Retrying | HandshakeFailed):
            self.problem = event.reason
        if isinstance(event, Retrying):
            self.reactor.call_soon(self._dial_again)

    def _dial_again(self) -> None:
        """Look where the broker is: one that comes back may be somewhere else."""
        if not self.closing and not self._apart and self._peer is None:
            self._dial()

    def part(self) -> None:
        """Have no connection, until `start` is called again."""
        self._apart = True
        self._connections = 0  # the next one does not follow a loss
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self.granted:
            self.say(_DETACH)
        dialled, self._dialled = self._dialled, None
        if dialled is not None:
            self._leave(dialled)

    @property
    def state(self) -> str:
        """The state of the connection, for errors."""
        if self.granted:
            return f"attached to {self.stream!r} at {self._endpoint}"
        if self._apart:
            return f"listening to the multicast group of {self.stream!r}"
        if self._peer is not None:
            return f"connected to {self._endpoint}, which has not granted {self.stream!r} yet"
        return f"not connected to {self._endpoint or 'a broker'}: {self.problem}"

    # What the transport tells

    def attached(self, peer: Peer) -> None:
        if peer is not self._dialled:
            return
        self._peer = peer
        self._connections += 1
        if self._connections > 1:
            self.came_back()
        peer.send(self._attach)

    def lost(self, peer: Peer, reason: str) -> None:
        self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        """Begin anew: what did not go out belongs to a connection that is over, and is said again, in its order."""
        if peer is not self._peer:
            return
        if not self._apart:
            peer.take_queue()
        if self._parting is not None:
            self._parting.cancel()
            self._parting = None
        self._peer = None
        self.granted = False
        self.disconnected()
        self.on_change()

    def writable(self, peer: Peer) -> None:
        """Do nothing: a publisher is asked for more by `pull`."""

    def say(self, message: bytes) -> None:
        """Send a message to the broker, if it is connected."""
        peer = self._peer
        if peer is not None:
            peer.send(message)

    def received(self, peer: Peer, batch: Batch) -> None:
        if peer is not self._peer:
            return  # of a connection that is over
        if batch.ends is not None:
            self.malformed("a message of several frames")
        elif (after := examine(batch.frames)) is not None:
            self.delivered(batch.frames, after)
        else:
            self._mixed(batch.frames)

    def _mixed(self, frames: list[bytes]) -> None:
        """Commands, with or without DELIVER messages between them."""
        for are_deliveries, group in groupby(frames, lambda frame: frame[:3] == DELIVER):
            some = list(group)
            if are_deliveries:
                after = examine(some)
                if after is None:
                    self.malformed("DELIVER messages that are not whole, or not in order")
                else:
                    self.delivered(some, after)
            else:
                for frame in some:
                    self._command(frame)
            if self._peer is None:
                return  # the connection was ended by what came

    def _command(self, frame: bytes) -> None:
        try:
            message = Zeps.decode(frame)
        except WireError as error:
            self.malformed(str(error))
            return
        if isinstance(message, AttachOk):
            if not self.granted:
                self.granted = True
                self.opened()
                self.on_change()
        elif isinstance(message, Invalid):
            self.invalid(message.reason)
            self.on_change()
        elif isinstance(message, PingOk):
            self.confirmed()
        elif isinstance(message, SubscribeOk):
            self.subscribed()
        elif isinstance(message, Ping):
            self.say(_PING_OK)  # ZEP-06
        elif isinstance(message, Detach):
            self._dismiss()

    def _dismiss(self) -> None:
        """Let the broker end the peering. It closes when it has heard us; then we try again, after a while. (ZEP-07)"""
        peer = self._peer
        if peer is not None and self._parting is None:
            self.granted = False
            peer.feed_from(None)
            self._parting = self.reactor.call_at(self.reactor.time() + PART, self.hang_up, "the broker said DETACH")
            self.dismissed()

    @property
    def parting(self) -> bool:
        """Whether the broker has ended the peering, and the connection is still there."""
        return self._parting is not None

    def agree(self) -> None:
        """Let the broker close the connection."""
        self.say(_DETACH_OK)

    def malformed(self, what: str) -> None:
        """Make the connection anew: after something that is no message of ZEPS nothing on it can be trusted."""
        self.misunderstood()
        self.hang_up(f"the broker sent {what}")

    def hang_up(self, reason: str) -> None:
        """End this connection; the next one is made after a while."""
        if self._peer is not None:
            _log.info("the connection to %s is made anew: %s", self._endpoint, reason)
            self._peer.abort(reason)

    def close(self, linger: float | None) -> None:
        """Say DETACH and begin to close."""
        if self.closing:
            return
        if self._looking is not None:
            self._looking.cancel()
        if self.granted:
            self.say(_DETACH)
        self.transport.close(linger)
        self.on_change()

    def check_open(self) -> None:
        """Raise `ClientClosed` if the connection was closed."""
        if self.closing:
            raise ClientClosed(f"the stream {self.stream!r} of this client is closed")

    # What the subclasses decide

    def opened(self) -> None:
        """Begin: the broker has granted the stream."""

    def came_back(self) -> None:
        """Take note that there is a connection again, after one was lost."""

    def disconnected(self) -> None:
        """Take note that the connection is lost."""

    def dismissed(self) -> None:
        """Take note that the broker has ended the peering."""
        self.agree()

    def delivered(self, frames: list[bytes], after: int) -> None:
        """Take DELIVER messages, as `batch.examine` found them."""

    def misunderstood(self) -> None:
        """Take note that something came that is no message."""

    def subscribed(self) -> None:
        """Take note of a SUBSCRIBE-OK."""

    def confirmed(self) -> None:
        """Take note of a PING-OK."""

    def invalid(self, reason: str) -> None:
        """Take note of an INVALID."""


def _nothing() -> None:
    pass
