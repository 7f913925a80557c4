"""A client's connection to its broker: finding the broker, ATTACH, and everything that all connections share.

A client has a connection for each stream that it publishes to (`publisher_connection`), and one for each subscription
(`subscriber_connection`). Each is a DEALER with one peer, the broker. Whenever it is connected it sends ATTACH. If the
connection is lost, the transport connects again and the session starts from the beginning.

These classes never block. They use a `Transport` for the sockets, and a `Reactor` for timers. The two faces (`asyncio`,
`sync`) only add the waiting: `on_change` is called when waiting callers should check again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from zambezi.wire import WireError
from zambezi.zeps.client.batch import check_deliveries, check_delivery_run, valid_beginning
from zambezi.zeps.client.finder import Finder, Locate
from zambezi.zeps.client.publisher import BOUND, LARGEST, OnFull
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.errors import ClientClosed, Moved, ZepsError
from zambezi.zeps.layout import DELIVER
from zambezi.zeps.messages import (
    Attach,
    AttachOk,
    ClaimOk,
    Deliveries,
    Detach,
    DetachOk,
    Fenced,
    Invalid,
    JoinOk,
    Ping,
    PingOk,
    ResumeOk,
    SubscribeOk,
    Taken,
    Times,
    Zeps,
    extensions_of,
)
from zambezi.zeps.multicast.datagram import KEY
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.events import HandshakeFailed, Retrying, SocketEvent
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.runs import Run
from zambezi.zmtp.security import Null, Security
from zambezi.zmtp.transport import Transport

if TYPE_CHECKING:
    from zambezi.zeps.tracing import Tracing

_log: Final = logging.getLogger("zambezi.zeps")

DIAL_PATIENCE: Final = 5.0  # seconds that a broker has to confirm the stream, if there is another broker to ask
LOCATE_INTERVAL: Final = 0.1  # seconds between attempts to find a broker
DETACH_PATIENCE: Final = 1.0  # seconds that a broker has to close after DETACH
QUIET: Final = 2.0  # seconds that a caller waits, after which the log has a warning
# The publisher bounds its messages by itself, so the queue of the socket is practically unbounded.
_PASSING: Final = Bound(messages=1 << 30, octets=1 << 40)

_DETACH: Final = Detach().encode()[0]
_DETACH_OK: Final = DetachOk().encode()[0]
_PING_OK: Final = PingOk().encode()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client. The names are those of the arguments of `Client.connect`."""

    security: Security = field(default_factory=Null)
    heartbeat: Heartbeat | None = field(default_factory=lambda: Heartbeat(interval=5.0, timeout=20.0))
    backoff: Backoff = field(default_factory=lambda: Backoff(0.05, 5.0))
    bound: int = BOUND
    on_full: OnFull = "wait"
    largest: int = LARGEST
    window: int = WINDOW
    linger: float | None = 5.0
    group_key: bytes = b""
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        if self.group_key and len(self.group_key) != KEY:
            raise ZepsError(f"group_key must have {KEY} bytes, not {len(self.group_key)}; see zambezi keygen")

    def socket(self) -> Options:
        """Return the options of a connection's socket."""
        return Options(security=self.security, heartbeat=self.heartbeat, backoff=self.backoff, send_bound=_PASSING)


class BrokerConnection:
    """A connection to the broker, attached to a stream. Subclasses implement what happens then."""

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str) -> None:
        self.transport = Transport(reactor, "DEALER", self, options.socket())
        self.transport.on_event = self._note_event
        self.reactor = reactor
        self.options = options
        self.stream = stream
        self.granted = False  # whether the broker has answered ATTACH-OK on this connection
        self.problem = "it was not reached yet"  # why there is no connection
        self.on_change: Callable[[], object] = _nothing
        self._attach = Attach(stream).encode()[0]
        self._finder = Finder(locate, options.backoff)
        self._patience: Timer | None = None  # with the broker that was dialled
        self._endpoint = ""
        self._dialled: Peer | None = None  # the broker, connected or not
        self._peer: Peer | None = None  # the broker, while it is connected
        self._connections = 0
        self._locate_timer: Timer | None = None
        self._detach_timer: Timer | None = None
        self._quiet_timer: Timer | None = None
        self._suspended = False  # whether no connection is wanted now

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self.transport.closing

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self.transport.closed

    # Finding the broker

    def start(self) -> None:
        """Connect to the broker, and connect again whenever the connection is lost."""
        if self._locate_timer is not None:
            self._locate_timer.cancel()
        self._locate_timer = None
        self._warn_later()
        if not self.closing and not self._dial():
            self._locate_timer = self.reactor.call_at(self.reactor.time() + LOCATE_INTERVAL, self.start)

    def _dial(self) -> bool:
        """Connect to the broker's current endpoint; return False if it is not known."""
        before = self._dialled
        try:
            endpoint = self._finder.endpoint
            if endpoint is not None and (self._suspended or endpoint != self._endpoint):
                self._dialled = self.transport.connect(endpoint)
        except Exception as error:  # an error in the program's function must not end the search
            self.problem = f"it cannot be found: {error}"
            return False
        if endpoint is None:
            self.problem = "no broker was found yet"
            return False
        if self._dialled is not before:
            self._suspended = False
            self._endpoint = endpoint
            if before is not None:
                self._close_peer(before)
            self._lose_patience_later()
        return True

    def _lose_patience_later(self) -> None:
        """Dial another broker if this one does not confirm the stream soon: it can be stopped, or cut off."""
        self._stop_patience()
        if self._finder.has_choice:
            self._patience = self.reactor.call_at(self.reactor.time() + DIAL_PATIENCE, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        if not (self.granted or self.closing or self._suspended):
            self.problem = f"{self._endpoint} did not answer"
            self._dial_after(self._finder.fail())

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _dial_after(self, seconds: float) -> None:
        """Leave the broker that was dialled, and dial the one that the finder has chosen, after a pause."""
        self._stop_patience()
        dialled, self._dialled, self._endpoint = self._dialled, None, ""
        if dialled is not None:
            self._close_peer(dialled)
        if self._locate_timer is not None:
            self._locate_timer.cancel()
        self._locate_timer = self.reactor.call_at(self.reactor.time() + seconds, self.start)

    def _warn_later(self) -> None:
        """Log a warning if the caller still waits after a while: so no program waits in silence."""
        if self._quiet_timer is None and not self.closing:
            self._quiet_timer = self.reactor.call_at(self.reactor.time() + QUIET, self._warn)

    def _warn(self) -> None:
        if (delay := self.delay) and not (self._suspended or self.closing):
            _log.warning("%s", delay)

    @property
    def delay(self) -> str:
        """Why the caller has to wait now, as one line; empty if it has not."""
        return "" if self.granted else f"waiting for a broker: this client is {self.state}"

    def _stop_quiet(self) -> None:
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
            self._quiet_timer = None

    def _close_peer(self, peer: Peer) -> None:
        self._reset(peer)
        peer.close(0)

    def _note_event(self, event: SocketEvent) -> None:
        if isinstance(event, Retrying | HandshakeFailed):
            self.problem = event.reason
        if isinstance(event, Retrying):
            self.reactor.call_soon(self._dial_again, self._endpoint)

    def _dial_again(self, endpoint: str) -> None:
        """Ask for the broker's endpoint again: a broker that restarts may have another one. Or dial the next broker."""
        if self.closing or self._suspended or self._peer is not None:
            return
        if not self._finder.has_choice:
            self._dial()
        elif endpoint == self._endpoint:
            self._dial_after(self._finder.fail())

    def _follow(self, reason: str) -> None:
        """Dial the broker that serves the stream."""
        if self._suspended or self.closing:
            return
        _log.info("%s of %s", reason, self.stream)
        self.problem = reason
        self.moving()
        self._dial_after(self._finder.follow(reason))

    def suspend(self) -> None:
        """Disconnect until `start` is called again."""
        self._suspended = True
        self._stop_patience()
        self._stop_quiet()
        self._connections = 0  # so that the next connection does not count as a reconnect
        if self._locate_timer is not None:
            self._locate_timer.cancel()
            self._locate_timer = None
        if self.granted:
            self.send(_DETACH)
        dialled, self._dialled = self._dialled, None
        if dialled is not None:
            self._close_peer(dialled)

    @property
    def state(self) -> str:
        """The state of the connection, for errors."""
        if self.granted:
            return f"attached to {self.stream!r} at {self._endpoint}"
        if self._suspended:
            return self.suspended_state
        if self._peer is not None:
            return f"connected to {self._endpoint}, which has not confirmed {self.stream!r} yet"
        if self._dialled is not None and self._dialled.handshaking:
            return f"not connected to {self._endpoint}: it accepts connections, but does not answer; does it hang?"
        return f"not connected to {self._endpoint or 'a broker'}: {self.problem}"

    @property
    def consequence(self) -> str:
        """The meaning of the state for a caller that waits no longer, for errors; often empty."""
        return ""

    @property
    def suspended_state(self) -> str:
        """The state of a connection that is not wanted now."""
        return f"listening to the multicast group of {self.stream!r}"

    # Calls from the transport

    def attached(self, peer: Peer) -> None:
        if peer is not self._dialled:
            return
        self._peer = peer
        self._connections += 1
        if self._connections > 1:
            self.reconnected()
        peer.send(self._attach)

    def lost(self, peer: Peer, reason: str) -> None:
        self._reset(peer)

    def _reset(self, peer: Peer) -> None:
        """Reset the session of a peer that is gone. Its queue is dropped: the next session sends everything again."""
        if peer is not self._peer:
            return
        if not self._suspended:
            peer.take_queue()
        if self._detach_timer is not None:
            self._detach_timer.cancel()
            self._detach_timer = None
        self._peer = None
        self.granted = False
        if not self._suspended:
            self._warn_later()
        self.disconnected()
        self.on_change()

    def writable(self, peer: Peer) -> None:
        """Do nothing: the connection asks a publisher for more with `pull`."""

    def send(self, message: bytes) -> None:
        """Send a message to the broker, if it is connected."""
        peer = self._peer
        if peer is not None:
            peer.send(message)

    def received(self, peer: Peer, batch: Batch) -> None:
        if peer is not self._peer:
            return  # a message of an old connection
        if batch.ends is not None:
            self.malformed("a message of several frames")
            return
        run = batch.run
        if run is not None and (body_at := check_delivery_run(run)):
            self.run_received(run, body_at)
            return
        frames = batch.frames
        offset = check_deliveries(frames)
        if offset is not None:
            self.messages_received(frames, offset)
        else:
            self._receive_mixed(frames)

    def _receive_mixed(self, frames: list[bytes]) -> None:
        """Handle commands, with or without DELIVER messages between them."""
        for are_deliveries, group in groupby(frames, lambda frame: frame[:3] == DELIVER):
            some = list(group)
            if are_deliveries:
                valid, body_at = valid_beginning(some)
                if valid:
                    self.messages_received(valid, body_at)
                if len(valid) < len(some):
                    self.malformed("DELIVER messages that are not valid, or not in order")
            else:
                for frame in some:
                    self._handle(frame)
                    if self._peer is None:
                        return  # this message has ended the connection: the ones after it answer nothing
            if self._peer is None:
                return

    def _handle(self, frame: bytes) -> None:
        try:
            message = Zeps.decode(frame)
        except WireError as error:
            self.malformed(str(error))
            return
        if isinstance(message, AttachOk):
            if not self.granted:
                self.granted = True
                self._finder.succeed()
                self._stop_patience()
                if not self.delay:
                    self._stop_quiet()
                self.stream_granted()
                self.on_change()
        elif isinstance(message, Invalid) and message.reason.startswith(Moved.PREFIX):
            self._follow(message.reason)
            self.on_change()
        elif isinstance(message, Invalid):
            self.invalid_received(message.reason)
            self.on_change()
        elif isinstance(message, PingOk):
            self.ping_answered()
        elif isinstance(message, SubscribeOk):
            self.subscription_confirmed()
        elif isinstance(message, Times):
            self.times_received(message.times)
        elif isinstance(message, Ping):
            self.send(_PING_OK)  # ZEP-06
        elif isinstance(message, Detach):
            self._handle_detach()
        elif isinstance(message, ResumeOk):
            self.resumption_confirmed(message)
            self.on_change()
        elif isinstance(message, Fenced):
            self.fenced(message.epoch)
            self.on_change()
        elif isinstance(message, ClaimOk):
            self.claim_confirmed(message)
            self.on_change()
        elif isinstance(message, Taken):
            self.taken(message)
            self.on_change()
        elif isinstance(message, Deliveries):
            self.deliveries_received(message.deliveries)
        elif isinstance(message, JoinOk):
            self.joined()

    def _handle_detach(self) -> None:
        """Handle DETACH: the broker closes the connection after our answer, and we connect again later. (ZEP-07)"""
        peer = self._peer
        if peer is not None and self._detach_timer is None:
            self.granted = False
            peer.feed_from(None)
            at = self.reactor.time() + DETACH_PATIENCE
            self._detach_timer = self.reactor.call_at(at, self.hang_up, "the broker sent DETACH")
            self.detach_received()

    @property
    def detaching(self) -> bool:
        """Whether the broker has sent DETACH, and the connection is still open."""
        return self._detach_timer is not None

    def answer_detach(self) -> None:
        """Send DETACH-OK, so that the broker closes the connection."""
        self.send(_DETACH_OK)

    def malformed(self, description: str) -> None:
        """Connect again: after bytes that are not a valid message, the connection cannot be trusted."""
        self.malformed_received()
        self.hang_up(f"the broker sent {description}")

    def extends(self, extension: str) -> bool:
        """Return whether the broker has an extension of the protocol."""
        return self._peer is not None and extension in extensions_of(self._peer.properties)

    def hang_up(self, reason: str) -> None:
        """Close this connection; the transport connects again after a while."""
        if self._peer is not None:
            _log.info("reconnecting to %s: %s", self._endpoint, reason)
            self._peer.abort(reason)

    def close(self, linger: float | None) -> None:
        """Send DETACH and begin to close."""
        if self.closing:
            return
        if self._locate_timer is not None:
            self._locate_timer.cancel()
        self._stop_patience()
        self._stop_quiet()
        if self.granted:
            self.send(_DETACH)
        self.transport.close(linger)
        self.on_change()

    def check_open(self) -> None:
        """Raise `ClientClosed` if the connection was closed."""
        if self.closing:
            raise ClientClosed(f"the stream {self.stream!r} of this client is closed")

    # Events, for subclasses

    def stream_granted(self) -> None:
        """Handle ATTACH-OK."""

    def reconnected(self) -> None:
        """Handle a new connection after one was lost."""

    def moving(self) -> None:
        """Handle that another broker serves the stream: this one has done nothing, and its connection is left."""

    def disconnected(self) -> None:
        """Handle the loss of the connection."""

    def detach_received(self) -> None:
        """Handle DETACH."""
        self.answer_detach()

    def run_received(self, run: Run, body_at: int) -> None:
        """Handle a run of valid DELIVER messages whose sequences follow each other."""
        self.messages_received(run.cut(), body_at)

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        """Handle valid DELIVER messages; `body_at` is the result of `batch.check_deliveries`."""

    def malformed_received(self) -> None:
        """Handle bytes that are not a valid message."""

    def subscription_confirmed(self) -> None:
        """Handle SUBSCRIBE-OK."""

    def times_received(self, octets: bytes) -> None:
        """Handle TIMES: the times of the DELIVER messages that follow."""

    def ping_answered(self) -> None:
        """Handle PING-OK."""

    def invalid_received(self, reason: str) -> None:
        """Handle INVALID."""

    def joined(self) -> None:
        """Handle JOIN-OK."""

    def deliveries_received(self, octets: bytes) -> None:
        """Handle DELIVERIES: which of the DELIVER messages that follow were delivered before."""

    def resumption_confirmed(self, answer: ResumeOk) -> None:
        """Handle RESUME-OK."""

    def fenced(self, epoch: int) -> None:
        """Handle FENCED."""

    def claim_confirmed(self, answer: ClaimOk) -> None:
        """Handle CLAIM-OK."""

    def taken(self, message: Taken) -> None:
        """Handle TAKEN."""


def _nothing() -> None:
    pass
