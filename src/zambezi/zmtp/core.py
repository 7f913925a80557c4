"""What all socket types share: endpoints, links, queues, fairness, events, and the way to close.

A core never waits. `try_send` and `try_recv` do what can be done now and say whether they could; when that changes,
`on_readable` and `on_writable` are called. The faces (`asyncio`, `sync`) turn this into calls that wait. Who routes a
message where is the business of the subclasses, one per socket type.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from zambezi.zmtp import endpoint as endpoints
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Connection, Heartbeat, Limits, Ready, Subscription
from zambezi.zmtp.connector import Connector, MemoryConnector, StreamConnector
from zambezi.zmtp.endpoint import Inproc
from zambezi.zmtp.errors import EndpointError, QueueFull, ZmtpError
from zambezi.zmtp.events import (
    Connected,
    Disconnected,
    HandshakeFailed,
    Listening,
    Refused,
    Retrying,
    SocketEvent,
)
from zambezi.zmtp.frames import Batch, Message
from zambezi.zmtp.handshakes import Handshakes
from zambezi.zmtp.listener import StreamListener
from zambezi.zmtp.memory import MemoryLink, MemoryListener
from zambezi.zmtp.pipe import Bound, Pipe
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.security import Null, Security
from zambezi.zmtp.stream import Farewell, StreamLink

Policy: TypeAlias = Literal["block", "error", "drop"]
AnyLink: TypeAlias = StreamLink | MemoryLink

_log: Final = logging.getLogger("zambezi.zmtp")
_REVIEW: Final = 1.0
# The system's: it has no state that a forked child would share, and none that each of a million sockets would carry.
_CHANCE: Final = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a socket behaves. The names are those of the sockets' arguments."""

    identity: bytes = b""
    security: Security = field(default_factory=Null)
    authenticator: Authenticator | None = None
    send_bound: Bound = field(default_factory=Bound)
    receive_bound: Bound = field(default_factory=Bound)
    on_full: Policy = "block"
    limits: Limits = field(default_factory=Limits)
    heartbeat: Heartbeat | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if len(self.identity) > 255 or self.identity[:1] == b"\0":
            raise ZmtpError("an identity has at most 255 octets and does not begin with a zero octet")
        if self.on_full not in ("block", "error", "drop"):
            raise ZmtpError(f"on_full is 'block', 'error' or 'drop', not {self.on_full!r}")


@dataclass(slots=True)
class Counters:
    """What went wrong quietly, counted."""

    dropped: int = 0  # not queued: the queue was full and the policy is to drop
    unroutable: int = 0  # addressed to a peer that is not there
    abandoned: int = 0  # queued, but the peer left, or the linger of a close ran out
    refused: int = 0  # connections closed at once
    handshakes_failed: int = 0


class Core:
    """The rules of a socket, without waiting."""

    socket_type: ClassVar[str]
    # Whether messages are received with the sender's identity in front.
    addressed: ClassVar[bool] = False
    # Whether a message may have several frames.
    multipart: ClassVar[bool] = True
    # Whether messages are routed to an outgoing connection before it is established.
    early: ClassVar[bool] = False
    # Whether a message to a quiet peer is written at once. If not, with all that is sent before the loop turns again.
    eager: ClassVar[bool] = True

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        self.reactor = reactor
        self.options = options
        self.chance = chance or _CHANCE
        self.counters = Counters()
        self.send_messages = options.send_bound.messages
        self.send_octets = options.send_bound.octets
        self.listeners: dict[str, StreamListener | MemoryListener] = {}
        self.connectors: dict[Pipe, Connector] = {}
        self.links: set[AnyLink] = set()
        self.handshakes = Handshakes(reactor)
        self.farewells: set[Farewell] = set()
        self.ready: deque[Pipe] = deque()  # pipes with something to read, in turn
        self.closing = False
        self.closed = False
        self.on_readable: Callable[[], object] = _nothing
        self.on_writable: Callable[[], object] = _nothing
        self.on_event: Callable[[SocketEvent], object] = _nothing
        self.on_closed: Callable[[], object] = _nothing
        self._leaving: dict[Pipe, Timer | None] = {}  # with what ends their linger, where they have one of their own
        self._linger: Timer | None = None
        self._review: Timer | None = None
        self._generation = 0
        if options.authenticator is not None:
            self._generation = options.authenticator.generation
            self._review = reactor.call_at(reactor.time() + _REVIEW, self._review_due)

    # Endpoints

    def bind(self, text: str) -> str:
        """Accept connections; the endpoint with its wildcards filled in."""
        endpoint = endpoints.parse(text, binding=True)
        listener = MemoryListener(self, endpoint) if isinstance(endpoint, Inproc) else StreamListener(self, endpoint)
        self.listeners[listener.endpoint] = listener
        self.happened(Listening(listener.endpoint))
        return listener.endpoint

    def unbind(self, text: str) -> None:
        """Accept no more connections at an endpoint. Those that are there stay."""
        listener = self.listeners.pop(text, None)
        if listener is None:
            raise EndpointError(f"{text} is not bound; bind() returned one of {', '.join(self.listeners) or 'none'}")
        listener.close()

    def connect(self, text: str) -> Pipe:
        """Make a connection in the background, and keep making it."""
        endpoint = endpoints.parse(text)
        connector = MemoryConnector(self, endpoint) if isinstance(endpoint, Inproc) else StreamConnector(self, endpoint)
        self.connectors[connector.pipe] = connector
        if self.early:
            self.attach(connector.pipe)
        connector.attempt()
        return connector.pipe

    def disconnect(self, text: str, linger: float | None) -> None:
        """End a connection that `connect` made, once what is queued for it has gone out, or `linger` is over."""
        wanted = str(endpoints.parse(text))
        pipe = next((pipe for pipe, one in self.connectors.items() if one.endpoint == wanted), None)
        if pipe is None:
            raise EndpointError(f"{text} is not connected")
        self.leave(pipe, linger)

    def leave(self, pipe: Pipe, linger: float | None) -> None:
        """Route nothing more to a peer, and part from it."""
        if pipe.attached:
            self.detach(pipe)
        self._leaving[pipe] = None
        if linger is not None:
            self._leaving[pipe] = self.reactor.call_at(self.reactor.time() + linger, self._give_up, pipe)
        self.settle(pipe)

    def connection(self, address: str) -> Connection:
        """A fresh engine."""
        options = self.options
        return Connection(
            self.socket_type,
            self.reactor.time(),
            identity=options.identity,
            security=options.security,
            authenticator=options.authenticator,
            address=address,
            limits=options.limits,
            heartbeat=options.heartbeat,
            admit=self.admit,
            multipart=self.multipart,
        )

    # What links tell

    def happened(self, event: SocketEvent) -> None:
        """Tell whoever watches the socket, and the log. Events carry no secrets."""
        _log.log(logging.INFO if isinstance(event, HandshakeFailed | Refused) else logging.DEBUG, "%s", event)
        self.on_event(event)

    def link_ready(self, link: AnyLink, ready: Ready) -> None:
        pipe = link.pipe
        connector = self.connectors.get(pipe)
        if connector is not None:
            connector.established()
        pipe.user = ready.user
        if not self.identify(pipe, ready):
            link.abort("the identity is in use by another connection")
            return
        pipe.link = link
        if pipe.paused:
            link.pause()
        if not pipe.attached and pipe not in self._leaving:
            self.attach(pipe)
        self.happened(self.connected_event(link, ready))

    def link_lost(self, link: AnyLink, reason: str) -> None:
        pipe = link.pipe
        connector = self.connectors.get(pipe)
        if pipe.link is link:
            pipe.link = None
            self.happened(self.disconnected_event(link, reason))
            if pipe.attached and (connector is None or not self.early):
                self.detach(pipe)
            if connector is None:
                self.counters.abandoned += pipe.clear_outbox()
                self.left(pipe)
        else:
            self.handshake_failed(link.endpoint, link.address, reason)
        if connector is not None:
            connector.again(reason)
        self.settle(pipe)

    def connected_event(self, link: AnyLink, ready: Ready) -> SocketEvent:
        return Connected(link.endpoint, link.address, link.pipe.identity, ready.user, ready.socket_type)

    def disconnected_event(self, link: AnyLink, reason: str) -> SocketEvent:
        return Disconnected(link.endpoint, link.address, link.pipe.identity, reason)

    def handshake_failed(self, endpoint: str, address: str, reason: str) -> None:
        self.counters.handshakes_failed += 1
        self.happened(HandshakeFailed(endpoint, address, reason))

    def refused(self, endpoint: str, address: str, reason: str) -> None:
        self.counters.refused += 1
        self.happened(Refused(endpoint, address, reason))

    def retrying(self, endpoint: str, attempt: int, delay: float, reason: str) -> None:
        self.happened(Retrying(endpoint, attempt, delay, reason))

    def arrived(self, pipe: Pipe) -> None:
        """A pipe has something to read."""
        if not pipe.queued:
            pipe.queued = True
            self.ready.append(pipe)
        self.on_readable()

    def departed(self, pipe: Pipe) -> None:
        """A pipe's outbox was emptied, at least in part."""
        self.on_writable()
        if self._leaving:
            self.settle(pipe)

    def subscribed(self, pipe: Pipe, subscription: Subscription) -> None:
        self.subscribed_to(pipe, subscription.prefix, subscription.cancel)

    # What a socket type decides

    def admit(self, properties: Mapping[str, bytes]) -> None:
        """Raise `ProtocolError` if a peer with this metadata is not welcome."""

    def identify(self, pipe: Pipe, ready: Ready) -> bool:
        """Take note of who the peer is; False to refuse it."""
        pipe.identity = ready.identity
        return True

    def attach(self, pipe: Pipe) -> None:
        """Route messages to the pipe from now on."""
        pipe.attached = True
        self.on_writable()

    def detach(self, pipe: Pipe) -> None:
        """Route no more messages to the pipe."""
        pipe.attached = False

    def left(self, pipe: Pipe) -> None:
        """An incoming peer is gone, and its pipe with it. What it sent before can still be received."""

    def subscribed_to(self, pipe: Pipe, prefix: bytes, cancel: bool) -> None:
        """The peer subscribed, or took a subscription back."""

    def try_send(self, message: Message) -> bool:
        """Queue a message, or say that it cannot be queued now."""
        raise ZmtpError(f"a {self.socket_type} socket does not send")

    def try_send_batch(self, messages: Sequence[Message], start: int) -> int:
        """Queue messages from index `start` on; where it stopped."""
        for index in range(start, len(messages)):
            if not self.try_send(messages[index]):
                return index
        return len(messages)

    def settle_post(self, pipe: Pipe, data: bytes) -> bool:
        """Send what was posted to a pipe that nobody looks after. False if the pipe is over, and it was taken back."""
        if (self.closing or not pipe.attached) and pipe.take_back(data):
            self.settle(pipe)  # the end of the pipe may have waited for this message alone
            return False
        if pipe.link is not None:
            pipe.link.nudge()
        return True

    def full(self, what: str) -> bool:
        """A queue is full: what the policy says about the message. True: it was dealt with (dropped)."""
        policy = self.options.on_full
        if policy == "block":
            return False
        if policy == "error":
            raise QueueFull(f"{what}; the bound is {self.send_messages} messages or {self.send_octets} octets")
        self.counters.dropped += 1
        return True

    # Receiving: fair between pipes

    def try_recv(self) -> list[bytes] | None:
        """The next message, one from each pipe in turn."""
        ready = self.ready
        while ready:
            pipe = ready[0]
            current = pipe.current
            if current is not None:
                for message in current:
                    if len(ready) > 1:
                        ready.rotate(-1)
                    return message
            batch = pipe.advance()
            if batch is None:
                pipe.queued = False
                ready.popleft()
            else:
                pipe.current = self.messages_of(pipe, batch)
        return None

    def messages_of(self, pipe: Pipe, batch: Batch) -> Iterator[list[bytes]]:
        """A batch as the messages that `try_recv` gives."""
        return batch.addressed() if self.addressed else iter(batch)

    def try_recv_batch(self) -> Batch | None:
        """The next batch, one from each pipe in turn."""
        ready = self.ready
        while ready:
            pipe = ready[0]
            batch = pipe.pop_batch()
            if batch is None:
                pipe.queued = False
                ready.popleft()
                continue
            if not pipe.inbox:
                pipe.queued = False
                ready.popleft()
            elif len(ready) > 1:
                ready.rotate(-1)
            return batch
        return None

    # Who may stay

    def _review_due(self) -> None:
        authenticator = self.options.authenticator
        if authenticator is None or self.closing:
            return
        authenticator.refresh()
        self.review()
        self._review = self.reactor.call_at(self.reactor.time() + _REVIEW, self._review_due)

    def review(self) -> None:
        """Judge the peers again if the rules have changed, and cut those who may not be here any more."""
        authenticator = self.options.authenticator
        if authenticator is None or authenticator.generation == self._generation:
            return
        self._generation = authenticator.generation
        for link in list(self.links):
            if not isinstance(link, StreamLink):
                continue
            claim = link.connection.claim
            verdict = authenticator.judge(claim) if claim else authenticator.judge_address(link.address)
            if not verdict.allowed:
                link.abort(f"no longer allowed: {verdict.reason}")

    # The end

    def close(self, linger: float | None) -> None:
        """Begin to close. What is queued has `linger` seconds (None: for ever) to go out; then `on_closed` comes."""
        if self.closing:
            return
        self.closing = True
        for listener in self.listeners.values():
            listener.close()
        self.listeners.clear()
        if self._review is not None:
            self._review.cancel()
        if linger is not None and linger > 0:
            self._linger = self.reactor.call_at(self.reactor.time() + linger, self._linger_over)
        for pipe in [*self.connectors, *(link.pipe for link in self.links)]:
            self._leaving.setdefault(pipe, None)
        if linger is not None and linger <= 0:
            self._abandon()
        for pipe in list(self._leaving):
            self.settle(pipe)
        self.settle()

    def settle(self, pipe: Pipe | None = None) -> None:
        """End a leaving pipe that has nothing left to send; when nothing is left at all, the socket is closed."""
        if pipe in self._leaving:
            link = pipe.link
            connector = self.connectors.get(pipe)
            waits = not pipe.drained and (link is not None or connector is not None)
            if not waits:
                self._end(pipe)
        if self.closing and not (self.closed or self._leaving or self.links or self.farewells):
            self.closed = True
            self.handshakes.close()
            if self._linger is not None:
                self._linger.cancel()
            self.on_closed()

    def _end(self, pipe: Pipe) -> None:
        timer = self._leaving.pop(pipe)
        if timer is not None:
            timer.cancel()
        connector = self.connectors.pop(pipe, None)
        if connector is not None:
            connector.close()
        if pipe.link is not None:
            pipe.link.finish()
        else:
            self._abort_handshakes(pipe)

    def _abort_handshakes(self, pipe: Pipe) -> None:
        for link in [link for link in self.links if link.pipe is pipe]:
            link.abort("the socket is closing")

    def _linger_over(self) -> None:
        self._linger = None
        self._abandon()
        self.settle()

    def _abandon(self) -> None:
        for pipe in list(self._leaving):
            self._give_up(pipe)
        for link in list(self.links):
            link.abort("the socket was closed")
        for farewell in list(self.farewells):
            farewell.end()

    def _give_up(self, pipe: Pipe) -> None:
        """The linger of a leaving pipe is over: what is queued is lost."""
        connector = self.connectors.pop(pipe, None)
        if connector is not None:
            connector.close()  # first: it must not take the end of its link for a loss
        link = pipe.link
        if link is not None:
            # What is queued is counted when the link reports its end.
            link.abort("closed by this side with messages left to send" if not pipe.drained else "closed by this side")
        else:
            self.counters.abandoned += pipe.clear_outbox()
        if pipe in self._leaving:
            self._end(pipe)
        self.settle()


def _nothing(*_: object) -> None:
    pass
