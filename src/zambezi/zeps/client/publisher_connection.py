"""The connection of a publisher: what the engine holds goes out as fast as the broker takes it.

A message alone is on the wire at once; those that follow closely wait for each other, until the loop comes round or
there are enough of them. What does not go out at once is asked for by the link when it takes more (`pull`).
"""

from __future__ import annotations

import logging
from typing import Final

from zambezi.zeps.client.connection import BrokerConnection, ClientOptions, Locate
from zambezi.zeps.client.publisher import PARCEL, PING, POSTS, Barrier, Key, Outgoing, Publisher
from zambezi.zeps.errors import BrokerError, QueueFull
from zambezi.zmtp.reactor import Reactor, Timer

_log: Final = logging.getLogger("zambezi.zeps")

QUIET: Final = 50e-6


class PublisherConnection(BrokerConnection):
    """The connection of a publisher."""

    def __init__(
        self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str, engine: Publisher
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.engine = engine
        engine.settle = self._settle_post
        self.failure = ""  # why the broker does not grant the stream
        self._scheduled = False
        self._last = 0.0
        self._offering = False
        self._asking: Timer | None = None

    def check_open(self) -> None:
        super().check_open()
        if self.failure:
            raise BrokerError(f"the broker does not grant the stream {self.stream!r}: {self.failure}")

    def _settle_post(self, body: bytes) -> bool:
        """See to a message that a thread posted while another collected: it may have been left behind."""
        with self.reactor.lock:
            if not self.closing:
                self.pump()
            elif self.engine.take_back(body):
                self.check_open()
            return True

    def publish(self, key: Key, body: bytes, wait: bool = True) -> bool:
        """Take a message; False if it must wait for room."""
        self.check_open()
        try:
            taken = self.engine.publish(key, body, wait)
        except QueueFull:
            self.pump()
            raise
        if not taken or len(body) >= PARCEL:
            self.pump()
        else:
            self._nudge()
        return taken

    def publish_many(self, items: list[tuple[Key, bytes]], start: int, wait: bool = True) -> int:
        """Take messages from `start` on; where it stopped because the rest must wait for room."""
        self.check_open()
        try:
            return self.engine.publish_many(items, start, wait)
        finally:
            self.pump()

    def ask_for_confirmation(self) -> Barrier:
        """Ask the broker to confirm all until now; return what to wait for."""
        self.check_open()
        barrier = self.engine.barrier()
        self.pump()
        return barrier

    def _nudge(self) -> None:
        """A message alone goes out at once, and those that follow closely wait for each other."""
        if self._scheduled:
            if len(self.engine.pieces) >= 2 * POSTS:
                self.pump()
        elif self.reactor.time() - self._last > QUIET:
            self.pump()
        else:
            self._scheduled = True
            self.engine.posting = self.engine.roomy
            self.reactor.call_soon(self._come)

    def _come(self) -> None:
        self._scheduled = False
        self.engine.posting = False  # before it is collected: see `Publisher.post`
        self.pump()

    def pump(self) -> None:
        """Send what can be sent."""
        if self.closing:
            return  # nothing more is taken: who posts something now takes it back
        engine = self.engine
        engine.collect()
        now = self._last = self.reactor.time()
        if self.granted and not self._offering:
            self._offering = True  # or a link that writes something else first would pull the same
            try:
                self._offer(now)
            finally:
                self._offering = False
            self._arm()
        engine.posting = self._scheduled and engine.roomy and not self.failure

    def _offer(self, now: float) -> None:
        peer, engine = self._peer, self.engine
        # A connection that is to write soon, or waits until it can, pulls by itself.
        while peer is not None and not peer.busy:
            outgoing = engine.next(now)
            if outgoing is None or not peer.offer(outgoing):
                break
            engine.went(outgoing, now)

    def pull(self) -> Outgoing | None:
        """What the link sends next: it takes more."""
        if self._offering or not self.granted:
            return None
        engine = self.engine
        engine.collect()
        now = self.reactor.time()
        outgoing = engine.next(now)
        if outgoing is not None:
            engine.went(outgoing, now)
            self._arm()
        return outgoing

    def _arm(self) -> None:
        deadline = self.engine.deadline
        if deadline is not None and self._asking is None:
            self._asking = self.reactor.call_at(deadline, self._ask)

    def _ask(self) -> None:
        self._asking = None
        self.pump()

    def opened(self) -> None:
        self.failure = ""
        if self._peer is not None:
            self._peer.feed_from(self)
        self.pump()

    def came_back(self) -> None:
        self.engine.counters.reconnects += 1

    def disconnected(self) -> None:
        self.engine.lost()

    def confirmed(self) -> None:
        self.engine.confirm()
        if self.closing:
            self.engine.counters.unconfirmed = self.engine.unconfirmed  # it came in time after all
        if self.parting and self.engine.settled:
            self.agree()
        self.pump()
        self.on_change()

    def dismissed(self) -> None:
        # What is confirmed before we part need not be published again.
        if self.engine.ask():
            self.say(PING)
        elif self.engine.settled:
            self.agree()

    def invalid(self, reason: str) -> None:
        if not (self.granted or self.parting):
            self.failure = reason
            self.engine.posting = False
            return
        level = logging.DEBUG if self.engine.counters.refused else logging.WARNING
        _log.log(level, "the broker refused something that was published to %s: %s", self.stream, reason)
        self.engine.refuse(reason)
        if self.parting:
            self.agree()  # what was asked last may be what was refused

    def close(self, linger: float | None) -> None:
        if not self.closing:
            self.engine.posting = False
            self.engine.collect()
            self.engine.counters.unconfirmed = self.engine.unconfirmed
            if self._asking is not None:
                self._asking.cancel()
            if self._peer is not None:
                self._peer.feed_from(None)
        super().close(linger)
