"""The connection of a mirror to the broker of its target.

After ATTACH-OK it sends RESUME and waits for the answer, which tells where to go on (see `target`). What it sends is
not kept: after a lost connection the mirror reads again from the source what the target does not have. Each answer to
RESUME begins a new *life*; messages that were read for an earlier life are dropped.
"""

from __future__ import annotations

from collections import deque

from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.errors import BrokerError, Fenced, ZepsError
from zambezi.zeps.messages import ONCE, ResumeOk
from zambezi.zeps.mirror.target import Parcel, Standing, Target
from zambezi.zmtp.reactor import Reactor


class TargetConnection(BrokerConnection):
    """The connection that fills the target."""

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str, engine: Target) -> None:
        super().__init__(reactor, options, locate, stream)
        self.engine = engine
        self.life = 0  # answers to RESUME so far
        self.standing: Standing | None = None  # the point that the target had reached when this life began
        self.alive = False  # whether the target has answered RESUME on this connection
        self.failure: ZepsError | None = None  # why the mirror cannot go on
        self._queue: deque[Parcel] = deque()
        self._offering = False

    def check(self) -> None:
        """Raise the error that ended the connection, if there is one."""
        if self.failure is not None:
            raise self.failure
        self.check_open()

    def resumed(self) -> bool | None:
        """Return True if the target has told where to go on; None before that."""
        self.check()
        return self.alive or None

    def begin(self, life: int, digest: bytes, position: int, standing: Standing | None) -> bool:
        """Go on after a sequence of the source; return False if this life is over."""
        if not self.is_current(life):
            return False
        parcel = self.engine.begin(digest, position, standing)
        if parcel is not None:
            self._put(parcel)
        return True

    def publish(self, life: int, batch: MessageBatch) -> bool | None:
        """Send a batch to the target. Return None if it must wait for room, and False if this life is over."""
        if not self.is_current(life):
            return False
        if not self.engine.has_room:
            return None
        self._put(self.engine.take(batch))
        return True

    def settled(self, life: int) -> bool | None:
        """Return True if the target has confirmed everything, or this life is over; None before that."""
        return not self.is_current(life) or not self.engine.unconfirmed or None

    def is_current(self, life: int) -> bool:
        """Return whether this life goes on; raise the error that ended the connection, if there is one."""
        self.check()
        return self.alive and life == self.life

    # Sending

    def _put(self, parcel: Parcel) -> None:
        self._queue.append(parcel)
        peer = self._peer
        if peer is None or self._offering:
            return
        self._offering = True  # or a link that writes other messages first would pull the same parcel
        try:
            # A busy connection pulls by itself when it writes.
            while self._queue and not peer.busy and peer.offer(self._queue[0]):
                self._queue.popleft()
        finally:
            self._offering = False

    def pull(self) -> Parcel | None:
        """Return the next parcel for a link that has room, or None."""
        return self._queue.popleft() if self._queue and not self._offering else None

    # Events of the connection

    def stream_granted(self) -> None:
        if self.extends(ONCE):
            self.send(self.engine.request())
        else:
            self._fail(
                BrokerError(
                    f"the broker of the target {self.stream!r} does not count the messages of publishers: it is an "
                    "older release, or another program, and cannot take a mirror"
                )
            )

    def resumption_confirmed(self, answer: ResumeOk) -> None:
        self.standing = self.engine.resume(answer)
        self.life += 1
        self.alive = True
        if self._peer is not None:
            self._peer.feed_from(self)

    def ping_answered(self) -> None:
        parcel = self.engine.ping_answered()
        if parcel is not None:
            self._put(parcel)
        self.on_change()

    def disconnected(self) -> None:
        self.alive = False
        self._queue.clear()

    def invalid_received(self, reason: str) -> None:
        self._fail(BrokerError(f"the broker of the target {self.stream!r} refuses: {reason}"))

    def fenced(self, epoch: int) -> None:
        self._fail(
            Fenced(
                f"another mirror fills {self.stream!r} under the same name, and began later (epoch {epoch}): this one "
                "has ended. Let one of them run; or, if both are wanted, give them different names"
            )
        )

    def _fail(self, error: ZepsError) -> None:
        if self.failure is None:
            self.failure = error
        self.alive = False
        self._queue.clear()
        self.suspend()

    @property
    def suspended_state(self) -> str:
        return "disconnected, because the mirror has failed"
