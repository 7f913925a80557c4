"""The seam between a protocol and its sockets: two classes, `Transport` and `Peer`.

A protocol owns a transport, which binds and connects, keeps connections alive and reconnects lost ones. For each
connection the transport has a `Peer`, with which the protocol sends, pauses and closes. The transport never waits. It
calls the protocol, its `Handler`, on four occasions:

    attached(peer)          the handshake is complete, and messages can flow
    received(peer, batch)   messages have arrived: all messages of one read
    writable(peer)          part of the peer's queue has gone out
    lost(peer, reason)      the connection is over

The meaning of `lost` depends on the side that made the connection. A peer that connected to us is gone. A peer that we
connected to stays: it keeps its queue and its place, the transport reconnects, and calls `attached` again.

The rules of ZeroMQ's own socket types (`patterns`) are protocols on this seam like all others.
"""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from zambezi.wire.text import printable
from zambezi.zmtp import endpoint as endpoints
from zambezi.zmtp.busy_links import BusyLinks
from zambezi.zmtp.commands import application_properties
from zambezi.zmtp.connection import Connection, Ready, Subscription
from zambezi.zmtp.connector import Connector, MemoryConnector, StreamConnector
from zambezi.zmtp.doorstep import Doorstep
from zambezi.zmtp.endpoint import Inproc
from zambezi.zmtp.errors import EndpointError, QueueFull
from zambezi.zmtp.events import (
    Connected,
    Disconnected,
    HandshakeFailed,
    KeyRefused,
    Listening,
    Refused,
    Retrying,
    SocketEvent,
)
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.handshakes import Handshakes
from zambezi.zmtp.listener import StreamListener
from zambezi.zmtp.memory import MemoryLink, MemoryListener
from zambezi.zmtp.options import Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.refusals import KeyLog, RefusalLog, writer
from zambezi.zmtp.security import Security
from zambezi.zmtp.stream import Farewell, StreamLink

AnyLink: TypeAlias = StreamLink | MemoryLink

_log: Final = logging.getLogger("zambezi.zmtp")
_REVIEW: Final = 1.0  # seconds between reviews of the connected peers
# The random numbers of the system: no state that a forked child would share, or that a million sockets would multiply.
CHANCE: Final = random.SystemRandom()


class Handler(Protocol):
    """A protocol, as the transport sees it."""

    def attached(self, peer: Peer) -> None:
        """Note that the handshake with a peer is complete: messages can flow."""

    def received(self, peer: Peer, batch: Batch) -> None:
        """Handle the messages of one read."""

    def writable(self, peer: Peer) -> None:
        """Note that part of the peer's queue has gone out."""

    def lost(self, peer: Peer, reason: str) -> None:
        """Note that the connection is over. A peer that connected to us is gone with it."""


@dataclass(slots=True)
class Counters:
    """The numbers of messages that a socket did not deliver, and of connections that it refused."""

    dropped: int = 0  # not queued: the queue was full, and `on_full` is "drop"
    unroutable: int = 0  # addressed to a peer that does not exist
    abandoned: int = 0  # queued, but the peer left, or the linger time was over
    unread: int = 0  # arrived, but discarded before the program received them: only by PEER sockets
    refused: int = 0  # connections that were closed before the handshake
    handshakes_failed: int = 0
    keys_refused: int = 0  # of these handshakes, those whose CURVE key is not allowed
    cut_off: int = 0  # connections that were closed because the peer exceeded a bound


class Transport:
    """The connections of one socket.

    `admit` checks a peer's metadata during the handshake, and raises `ProtocolError` to refuse the peer. `identify`
    assigns a peer its identity at the end of the handshake, and returns False to refuse it; without `identify`, the
    peer has the identity that it claims. `subscribed` is called when a peer subscribes, or cancels a subscription.

    With `eager`, a message to an idle peer is written at once; without it, the message is written together with all
    others that are sent before the event loop turns. Without `multipart`, a message of several frames ends the
    connection. The transport reads up to `slack` bytes from a paused peer, to notice the end of its connection.
    """

    def __init__(
        self,
        reactor: Reactor,
        socket_type: str,
        handler: Handler,
        options: Options | None = None,
        *,
        chance: random.Random | None = None,
        counters: Counters | None = None,
        eager: bool = True,
        multipart: bool = True,
        slack: int = 0,
        admit: Callable[[Mapping[str, bytes]], None] | None = None,
        identify: Callable[[Peer, bytes], bool] | None = None,
        subscribed: Callable[[Peer, bytes, bool], None] | None = None,
    ) -> None:
        self.reactor = reactor
        self.socket_type = socket_type
        self.handler = handler
        self.options = options = options or Options()
        self.chance = chance or CHANCE
        self.eager = eager
        self.slack = slack
        self.counters = counters or Counters()
        self.threaded = reactor.threaded
        self.send_messages = options.send_bound.messages
        self.send_bytes = options.send_bound.octets
        self.closing = False
        self.closed = False
        self.on_event: Callable[[SocketEvent], object] = _nothing
        self.on_closed: Callable[[], object] = _nothing
        # For the modules of this package:
        self.listeners: dict[str, StreamListener | MemoryListener] = {}
        self.connectors: dict[Peer, Connector] = {}
        self.links: set[AnyLink] = set()
        self.handshakes = Handshakes(reactor, options.limits)
        self.busy = BusyLinks(reactor)
        self.farewells: set[Farewell] = set()
        self._multipart = multipart
        self._admit = admit
        self._identify = identify
        self._subscribed = subscribed
        self._leaving: dict[Peer, Timer | None] = {}  # with the timer of the peer's own linger, if it has one
        self._linger: Timer | None = None
        self._review: Timer | None = None
        self._generation = 0
        # Made when they are needed: most sockets refuse no peer, and a process can have very many sockets.
        self._refusals: RefusalLog | None = None
        self._refused_keys: KeyLog | None = None
        self._doorstep: Doorstep | None = None
        reactor.join()
        if options.authenticator is not None:
            self._generation = options.authenticator.generation
            self._review = reactor.call_at(reactor.time() + _REVIEW, self._review_due)

    # Endpoints

    def bind(self, text: str) -> str:
        """Accept connections; return the endpoint with its wildcards filled in."""
        endpoint = endpoints.parse(text, binding=True)
        listener = MemoryListener(self, endpoint) if isinstance(endpoint, Inproc) else StreamListener(self, endpoint)
        self.listeners[listener.endpoint] = listener
        self.tell(Listening(listener.endpoint))
        return listener.endpoint

    def unbind(self, text: str) -> None:
        """Accept no more connections at an endpoint. Existing connections stay."""
        listener = self.listeners.pop(text, None)
        if listener is None:
            raise EndpointError(f"{text} is not bound; the bound endpoints: {', '.join(self.listeners) or 'none'}")
        listener.close()

    def unbind_all(self) -> None:
        """Accept no more connections anywhere."""
        for endpoint in list(self.listeners):
            self.unbind(endpoint)

    def connect(self, text: str, security: Security | None = None) -> Peer:
        """Return a peer; connect to it in the background, and reconnect until the peer is closed.

        `security` is that of the socket, unless this connection has its own.
        """
        endpoint = endpoints.parse(text)
        connector = (
            MemoryConnector(self, endpoint)
            if isinstance(endpoint, Inproc)
            else StreamConnector(self, endpoint, security)
        )
        self.connectors[connector.peer] = connector
        connector.attempt()
        return connector.peer

    def connected_to(self, text: str) -> Peer:
        """Return the peer that `connect` made for an endpoint."""
        wanted = str(endpoints.parse(text))
        peer = next((peer for peer, one in self.connectors.items() if one.endpoint == wanted), None)
        if peer is None:
            raise EndpointError(f"{text} is not connected: connect() was not called with this endpoint")
        return peer

    @property
    def endpoints(self) -> list[str]:
        """The endpoints that are bound, then those that are connected to."""
        return [*self.listeners, *(connector.endpoint for connector in self.connectors.values())]

    def is_outgoing(self, peer: Peer) -> bool:
        """Return whether `connect` made this peer, so that a lost connection to it is made again."""
        return peer in self.connectors

    @property
    def longest_queue(self) -> int:
        """The largest number of bytes that wait for one connected peer."""
        return max((link.peer.queued for link in self.links), default=0)

    # Events

    def tell(self, event: SocketEvent) -> None:
        """Pass an event to the log and to `on_event`. Events carry no secrets."""
        if isinstance(event, KeyRefused):
            if self._refused_keys is None:
                self._refused_keys = KeyLog(self.reactor, writer(_log.info))
            told = f"a peer at {event.address} is refused: {event.reason}"
            self._refused_keys.add(event.key, told, **_fields(event))
        elif isinstance(event, HandshakeFailed | Refused):
            self.log_refusal(str(event), **_fields(event))
        elif _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s", event, extra=_fields(event))
        self.on_event(event)

    def log_refusal(self, text: str, **fields: object) -> None:
        """Log that a peer was refused or closed: at once, or in sum if there are many. The fields are for programs."""
        if self._refusals is None:
            self._refusals = RefusalLog(self.reactor, writer(_log.info))
        self._refusals.add(text, **fields)

    def cut_off(self, peer: Peer, reason: str) -> None:
        """Close the connection of a peer that exceeded a bound; count and log that."""
        self.counters.cut_off += 1
        who = f" {printable(peer.identity)}" if peer.identity else ""
        where = f" at {peer.address}" if peer.address else ""
        told = f"{peer.endpoint}: the peer{who}{where} is cut off: {reason}"
        self.log_refusal(told, endpoint=peer.endpoint, address=peer.address, reason=reason)
        peer.abort(reason)

    def apply_policy(self, what: str) -> bool:
        """Apply `on_full` to a message for a full queue: return True if it is dropped, and False if it must wait."""
        policy = self.options.on_full
        if policy == "block":
            return False
        if policy == "error":
            raise QueueFull(f"{what}; the bound is {self.send_messages} messages or {self.send_bytes} bytes")
        self.counters.dropped += 1
        return True

    # For links, listeners and connectors

    def connection(self, address: str, security: Security | None = None, accepted: bool = False) -> Connection:
        """Return a new engine for one connection, which this side accepted or made."""
        options = self.options
        return Connection(
            self.socket_type,
            self.reactor.time(),
            identity=options.identity,
            security=security or options.security,
            authenticator=options.authenticator,
            address=address,
            limits=options.limits,
            heartbeat=options.heartbeat,
            admit=self._admit,
            multipart=self._multipart,
            accepted=accepted,
            properties=options.properties,
        )

    def link_ready(self, link: AnyLink, ready: Ready) -> None:
        """Note that a handshake is complete."""
        peer = link.peer
        connector = self.connectors.get(peer)
        if connector is not None:
            connector.established()
        peer.address = link.address
        peer.user = ready.user
        peer.properties = application_properties(ready.properties)
        peer.key = ready.key
        if self._identify is None:
            peer.identity = ready.identity
        elif not self._identify(peer, ready.identity):
            link.abort("the identity is in use by another connection")
            return
        peer._link = link
        if peer.paused:
            peer._pause_link()
        if peer not in self._leaving:
            self.handler.attached(peer)
        # A mesh makes thousands of connections, and most programs do not watch them.
        if self.on_event is not _nothing or _log.isEnabledFor(logging.DEBUG):
            self.tell(Connected(link.endpoint, link.address, peer.identity, ready.user, ready.socket_type))

    def link_lost(self, link: AnyLink, reason: str, refused_key: str = "") -> None:
        """Note that a link is gone, after its handshake or before, because the peer's key is refused or otherwise."""
        peer = link.peer
        connector = self.connectors.get(peer)
        if peer._link is link:
            peer._link = None
            if connector is None:
                peer.open = False
            self.tell(Disconnected(link.endpoint, link.address, peer.identity, reason))
            self.handler.lost(peer, reason)
            if connector is None:
                self.counters.abandoned += peer._abandon()
        else:
            self.handshake_failed(link.endpoint, link.address, reason, refused_key)
        if connector is not None:
            connector.again(reason)
        self.settle(peer)

    def handshake_failed(self, endpoint: str, address: str, reason: str, refused_key: str = "") -> None:
        """Count and report a failed handshake."""
        self.counters.handshakes_failed += 1
        if refused_key:
            self.counters.keys_refused += 1
            self.tell(KeyRefused(endpoint, address, reason, refused_key))
        else:
            self.tell(HandshakeFailed(endpoint, address, reason))

    def leave_outside(self, sock: socket.socket) -> None:
        """Keep the connection of a refused peer for a while, without an answer."""
        if self._doorstep is None:
            self._doorstep = Doorstep(self)
        self._doorstep.add(sock)

    def refused(self, endpoint: str, address: str, reason: str) -> None:
        """Count and report a connection that was closed before the handshake."""
        self.counters.refused += 1
        self.tell(Refused(endpoint, address, reason))

    def retrying(self, endpoint: str, attempt: int, delay: float, reason: str) -> None:
        """Report that another attempt to connect is scheduled."""
        self.tell(Retrying(endpoint, attempt, delay, reason))

    def subscribed(self, peer: Peer, subscription: Subscription) -> None:
        """Pass a subscription of a peer to the protocol, unless the peer is being closed."""
        if self._subscribed is not None and peer.open:
            self._subscribed(peer, subscription.prefix, subscription.cancel)

    def departed(self, peer: Peer) -> None:
        """Note that part of a peer's queue has gone out."""
        self.handler.writable(peer)
        if self._leaving:
            self.settle(peer)

    def settle_post(self, peer: Peer, message: bytes) -> bool:
        """Send a message that a thread posted while the link was not `pending`; return False if it was too late."""
        with self.reactor.lock:
            if (self.closing or not peer.open) and peer._take_back(message):
                self.settle(peer)  # this message may have been the only one that kept the peer open
                return False
            if peer._link is not None:
                peer._link.nudge()
            return True

    # Review of the connected peers

    def _review_due(self) -> None:
        authenticator = self.options.authenticator
        if authenticator is None or self.closing:
            return
        try:
            authenticator.refresh()
            self.review()
        finally:
            if not self.closing:
                self._review = self.reactor.call_at(self.reactor.time() + _REVIEW, self._review_due)

    def review(self) -> None:
        """Judge the peers again if the rules have changed.

        Disconnect those that are no longer allowed, and those whose user has another name now: their protocols know
        them by the old name, and would grant them its rights.
        """
        authenticator = self.options.authenticator
        if authenticator is None or authenticator.generation == self._generation:
            return
        self._generation = authenticator.generation
        if self._doorstep is not None:
            self._doorstep.clear()
        for link in list(self.links):
            if not isinstance(link, StreamLink):
                continue
            claim = link.connection.claim
            verdict = authenticator.judge(claim) if claim else authenticator.judge_address(link.address)
            if not verdict.allowed:
                link.abort(f"no longer allowed: {verdict.reason}")
            elif claim and link.connection.mechanism.user != verdict.user:
                link.abort(f"its user is now called {verdict.user!a}")

    # The end

    def leave(self, peer: Peer, linger: float | None) -> None:
        """Disconnect from a peer when its queue is empty, or after `linger` seconds. See `Peer.close`."""
        peer.open = False
        if peer in self._leaving:
            return
        self._leaving[peer] = None
        if linger is not None:
            self._leaving[peer] = self.reactor.call_at(self.reactor.time() + linger, self._give_up, peer)
        self.settle(peer)

    def close(self, linger: float | None) -> None:
        """Begin to close; call `on_closed` at the end.

        Queued messages have `linger` seconds to go out (None: no time limit).
        """
        if self.closing:
            return
        self.closing = True
        for listener in self.listeners.values():
            listener.close()
        self.listeners.clear()
        if self._review is not None:
            self._review.cancel()
        if self._doorstep is not None:
            self._doorstep.close()
        if linger is not None and linger > 0:
            self._linger = self.reactor.call_at(self.reactor.time() + linger, self._linger_over)
        for peer in [*self.connectors, *(link.peer for link in self.links)]:
            self._leaving.setdefault(peer, None)
        if linger is not None and linger <= 0:
            self._abandon()
        for peer in list(self._leaving):
            self.settle(peer)
        self.settle()

    def settle(self, peer: Peer | None = None) -> None:
        """End a leaving peer that has nothing left to send; finish closing the socket if that was the last thing."""
        if peer in self._leaving:
            waits = not peer.drained and (peer.connected or peer in self.connectors)
            if not waits:
                self._end(peer)
        if self.closing and not (self.closed or self._leaving or self.links or self.farewells):
            self.closed = True
            self.handshakes.close()
            for log in (self._refusals, self._refused_keys):
                if log is not None:
                    log.close()
            if self._linger is not None:
                self._linger.cancel()
            self.reactor.leave()
            self.on_closed()

    def _end(self, peer: Peer) -> None:
        timer = self._leaving.pop(peer)
        if timer is not None:
            timer.cancel()
        connector = self.connectors.pop(peer, None)
        if connector is not None:
            connector.close()
        if peer._link is not None:
            peer._link.finish()
        else:
            self._abort_handshakes(peer)

    def _abort_handshakes(self, peer: Peer) -> None:
        for link in [link for link in self.links if link.peer is peer]:
            link.abort("the socket is closing")

    def _linger_over(self) -> None:
        self._linger = None
        self._abandon()
        self.settle()

    def _abandon(self) -> None:
        for peer in list(self._leaving):
            self._give_up(peer)
        for link in list(self.links):
            link.abort("the socket was closed")
        for farewell in list(self.farewells):
            farewell.end()

    def _give_up(self, peer: Peer) -> None:
        """Discard the queue of a leaving peer: its linger time is over."""
        connector = self.connectors.pop(peer, None)
        if connector is not None:
            connector.close()  # first: it must not reconnect when its link ends
        link = peer._link
        if link is not None:
            # The queued messages are counted when the link reports its end.
            link.abort("closed by this side with messages left to send" if not peer.drained else "closed by this side")
        else:
            self.counters.abandoned += peer._abandon()
        if peer in self._leaving:
            self._end(peer)
        self.settle()


def _fields(event: SocketEvent) -> dict[str, object]:
    """Return the fields of an event for the log: those of endpoint, address and reason that it has."""
    return {name: getattr(event, name) for name in ("endpoint", "address", "reason") if hasattr(event, name)}


def _nothing(*_: object) -> None:
    pass
