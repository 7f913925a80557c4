"""A client without waiting: its options, and what all its connections share.

There is one connection for each stream that is published to (`publishing`), and one for each subscription
(`subscribing`). Each is a DEALER with one peer, the broker. Whenever the connection is there it says ATTACH, and what
the engine (`publisher`, `subscriber`) wants said; what comes goes to the engine; and when the connection is lost, the
socket makes it anew and the session begins again. The faces (`asyncio`, `sync`) add the waiting, and nothing else:
`on_change` is called when somebody who waits should look again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

from zambezi.wire import WireError
from zambezi.zeps.block import DELIVER
from zambezi.zeps.errors import ClientClosed, ZepsError
from zambezi.zeps.messages import Attach, AttachOk, Detach, DetachOk, Invalid, Ping, PingOk, SubscribeOk, Zeps
from zambezi.zeps.multicast.datagram import KEY
from zambezi.zeps.publisher import BOUND, LARGEST, OnFull
from zambezi.zeps.received import examine
from zambezi.zeps.subscriber import WINDOW
from zambezi.zmtp import core
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.events import HandshakeFailed, Retrying, SocketEvent
from zambezi.zmtp.patterns import Dealer
from zambezi.zmtp.pipe import Bound, Pipe
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.security import Null, Security

Locate: TypeAlias = Callable[[], str | None]

_log: Final = logging.getLogger("zambezi.zeps")

LOOK: Final = 0.1  # seconds between looks for a broker that is not found yet
PART: Final = 1.0  # how long a broker that said DETACH may take to close
# Credit bounds what comes, and the publisher what goes: the queues of the socket hold only what passes through.
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

    def socket(self) -> core.Options:
        return core.Options(
            security=self.security,
            heartbeat=self.heartbeat,
            backoff=self.backoff,
            send_bound=_PASSING,
            receive_bound=_PASSING,
        )


class Session(Dealer):
    """A connection to the broker, attached to a stream. What to say then is the business of the subclasses."""

    early = False

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str) -> None:
        super().__init__(reactor, options.socket())
        self.client_options = options
        self.stream = stream
        self.attached = False  # to the stream: the broker has said so
        self.problem = "it was not reached yet"  # why there is no connection
        self.on_change: Callable[[], object] = _nothing
        self._attach = Attach(stream).encode()[0]
        self._locate = locate
        self._endpoint = ""
        self._pipe: Pipe | None = None
        self._connections = 0
        self._looking: Timer | None = None
        self._parting: Timer | None = None
        self._apart = False  # no connection is wanted now

    # Finding the broker

    def start(self) -> None:
        """Connect, and keep connecting."""
        self._looking = None
        if not self.closing and not self._look():
            self._looking = self.reactor.call_at(self.reactor.time() + LOOK, self.start)

    def _look(self) -> bool:
        """Connect to where the broker is now; False if nobody knows."""
        try:
            endpoint = self._locate()
            if endpoint is not None and (self._apart or endpoint != self._endpoint):
                self.connect(endpoint)
        except Exception as error:  # whoever is asked is not ours, and must not end the search
            self.problem = f"it cannot be found: {error}"
            return False
        if endpoint is None:
            self.problem = "no broker was found yet"
        elif self._apart:
            self._apart = False
            self._endpoint = endpoint
        elif endpoint != self._endpoint:
            for pipe, connector in list(self.connectors.items()):
                if connector.endpoint == self._endpoint:
                    self.leave(pipe, 0)
            self._endpoint = endpoint
        return endpoint is not None

    def happened(self, event: SocketEvent) -> None:
        super().happened(event)
        if isinstance(event, Retrying | HandshakeFailed):
            self.problem = event.reason
        if isinstance(event, Retrying):
            self.reactor.call_soon(self._look_again)

    def _look_again(self) -> None:
        """A broker that comes back may be somewhere else."""
        if not self.closing and not self._apart and self._pipe is None:
            self._look()

    def part(self) -> None:
        """Have no connection, until `start` is called again."""
        self._apart = True
        self._connections = 0  # the next one is not there because this one was lost
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self.attached:
            self.say(_DETACH)
        for pipe in list(self.connectors):
            self.leave(pipe, 0)

    @property
    def state(self) -> str:
        """How the connection is, for errors."""
        if self.attached:
            return f"attached to {self.stream!r} at {self._endpoint}"
        if self._apart:
            return f"listening to the multicast group of {self.stream!r}"
        if self._pipe is not None:
            return f"connected to {self._endpoint}, which has not granted {self.stream!r} yet"
        return f"not connected to {self._endpoint or 'a broker'}: {self.problem}"

    # The life of a connection

    def attach(self, pipe: Pipe) -> None:
        super().attach(pipe)
        self._pipe = pipe
        self._connections += 1
        if self._connections > 1:
            self.came_back()
        pipe.push(self._attach)

    def detach(self, pipe: Pipe) -> None:
        super().detach(pipe)
        # What did not go out belongs to a connection that is over; the engine says it again, in its order.
        pipe.clear_outbox()
        pipe.clear_inbox()
        if self._parting is not None:
            self._parting.cancel()
            self._parting = None
        if pipe is self._pipe:
            self._pipe = None
            self.attached = False
            self.lost()
            self.on_change()

    def say(self, message: bytes) -> None:
        pipe = self._pipe
        if pipe is not None:
            pipe.push(message)

    def arrived(self, pipe: Pipe) -> None:
        while (batch := pipe.pop_batch()) is not None:
            if pipe is not self._pipe:
                continue  # of a connection that is over
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
            if self._pipe is None:
                return  # the connection was ended by what came

    def _command(self, frame: bytes) -> None:
        try:
            message = Zeps.decode(frame)
        except WireError as error:
            self.malformed(str(error))
            return
        if isinstance(message, AttachOk):
            if not self.attached:
                self.attached = True
                self.opened()
                self.on_change()
        elif isinstance(message, Invalid):
            self.invalid(message.reason)
            self.on_change()
        elif isinstance(message, PingOk):
            self.confirmed()
        elif isinstance(message, SubscribeOk):
            self.standing()
        elif isinstance(message, Ping):
            self.say(_PING_OK)  # ZEP-06
        elif isinstance(message, Detach):
            self._dismissed()

    def _dismissed(self) -> None:
        """The broker ends the peering. It closes when it has heard us; then we try again, after a while. (ZEP-07)"""
        pipe = self._pipe
        if pipe is not None and pipe.link is not None and self._parting is None:
            self.attached = False
            pipe.link.source = None
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
        """The broker sent what is no message of ZEPS: nothing that follows on this connection can be trusted."""
        self.misunderstood()
        self.hang_up(f"the broker sent {what}")

    def hang_up(self, reason: str) -> None:
        """End this connection; the next one is made after a while."""
        pipe = self._pipe
        if pipe is not None and pipe.link is not None:
            _log.info("the connection to %s is made anew: %s", self._endpoint, reason)
            pipe.link.abort(reason)

    def close(self, linger: float | None) -> None:
        if self.closing:
            return
        if self._looking is not None:
            self._looking.cancel()
        if self.attached:
            self.say(_DETACH)
        super().close(linger)
        self.on_change()

    def checked(self) -> None:
        if self.closing:
            raise ClientClosed(f"the stream {self.stream!r} of this client is closed")

    # What the subclasses decide

    def opened(self) -> None:
        """The broker has granted the stream."""

    def came_back(self) -> None:
        """There is a connection again, after one was lost."""

    def lost(self) -> None:
        """The connection is lost."""

    def dismissed(self) -> None:
        """The broker has ended the peering."""
        self.agree()

    def delivered(self, frames: list[bytes], after: int) -> None:
        """DELIVER messages have come, as `received.examine` found them."""

    def misunderstood(self) -> None:
        """Something came that is no message."""

    def standing(self) -> None:
        """A SUBSCRIBE-OK has come."""

    def confirmed(self) -> None:
        """A PING-OK has come."""

    def invalid(self, reason: str) -> None:
        """An INVALID has come."""


def _nothing() -> None:
    pass
