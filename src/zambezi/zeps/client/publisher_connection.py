"""The connection of a publisher: it sends the engine's messages as fast as the broker takes them.

A single message goes out at once. Messages that follow closely wait for each other, until the next turn of the event
loop or until there are enough of them. If the connection cannot take all of them, it pulls the rest later (`pull`).

After ATTACH-OK the connection sends RESUME, if the broker knows it, and waits for the answer: only then does it know
which messages to send. FENCED ends it: another program publishes as the same publisher.
"""

from __future__ import annotations

import logging
from typing import Final

from zambezi.zeps.client.connection import BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.publisher import PARCEL, PING, POSTS, Barrier, Key, Outgoing, Publisher
from zambezi.zeps.errors import BrokerError, Fenced, QueueFull
from zambezi.zeps.messages import ONCE, ResumeOk
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.reactor import Reactor, Timer

_log: Final = logging.getLogger("zambezi.zeps")

RETRY_INTERVAL: Final = 1.0  # seconds after which ATTACH or RESUME is sent again, if the broker has refused it
QUIET: Final = 50e-6  # seconds without a send, after which the next message goes out at once


class PublisherConnection(BrokerConnection):
    """The connection of a publisher."""

    def __init__(
        self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str, engine: Publisher
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.engine = engine
        engine.on_late_post = self._handle_late_post
        self.failure = ""  # why the broker refuses ATTACH
        self._resume_failure = ""  # why the broker refuses RESUME
        self.fenced_by = 0  # the epoch of another program that publishes as this publisher
        self._resuming = False  # whether RESUME waits for its answer
        self._was_refused = False  # whether the broker has sent INVALID on this connection
        self._retry_timer: Timer | None = None
        self._scheduled = False
        self._sent_at = 0.0
        self._offering = False
        self._alarm = Alarm(reactor, self.send_pending)

    def check_open(self) -> None:
        super().check_open()
        if self.fenced_by:
            raise Fenced(
                f"another program publishes to {self.stream!r} as this publisher, with epoch {self.fenced_by}; this "
                f"one has {self.engine.position.epoch}, and the broker takes no further message of it. Messages that "
                "were not confirmed may or may not be in the stream"
            )
        if self.failure:
            raise BrokerError(f"the broker refuses access to the stream {self.stream!r}: {self.failure}")

    def _handle_late_post(self, body: bytes) -> bool:
        """Send a message that was posted while another thread collected, or take it back if this is closed."""
        with self.reactor.lock:
            if not self.closing:
                self.send_pending()
            elif self.engine.take_back(body):
                self.check_open()
            return True

    def publish(self, key: Key, body: bytes, wait: bool = True) -> bool:
        """Add a message; return False if it must wait for room."""
        if self.transport.closing or self.fenced_by or self.failure:
            self.check_open()
        try:
            taken = self.engine.publish(key, body, wait)
        except QueueFull:
            self.send_pending()
            raise
        if not taken or len(body) >= PARCEL:
            self.send_pending()
        else:
            self._send_soon()
        return taken

    def publish_many(self, items: list[tuple[Key, bytes]], start: int, wait: bool = True) -> int:
        """Add messages from `start` on; return the index of the first one that must wait for room."""
        self.check_open()
        try:
            return self.engine.publish_many(items, start, wait)
        finally:
            self.send_pending()

    def ask_for_confirmation(self) -> Barrier:
        """Ask the broker to confirm all messages so far; return the barrier to wait for."""
        self.check_open()
        barrier = self.engine.request_confirmation()
        self.send_pending()
        return barrier

    def _send_soon(self) -> None:
        """Send a single message at once, and messages that follow closely in the next turn of the event loop."""
        if self._scheduled:
            if len(self.engine.pieces) >= 2 * POSTS:
                self.send_pending()
        elif self.reactor.time() - self._sent_at > QUIET:
            self.send_pending()
        else:
            self._scheduled = True
            self.engine.posting = self.engine.has_room_to_post
            self.reactor.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._scheduled = False
        self.engine.posting = False  # before `collect`: see `Publisher.post`
        self.send_pending()

    def send_pending(self) -> None:
        """Send as many messages as the connection takes."""
        if self.transport.closing:
            return  # nothing more is sent: a late post is taken back
        engine = self.engine
        if engine.pieces:
            engine.collect()
        if self._suspended and engine.unconfirmed_bytes and not self.fenced_by:
            self.start()
        now = self._sent_at = self.reactor.time()
        if self.granted and not (self._resuming or self._offering):
            self._offering = True  # or a link that writes other messages first would pull the same parcels
            try:
                self._offer_to_peer(now)
            finally:
                self._offering = False
            self._set_timer()
        engine.posting = self._scheduled and engine.has_room_to_post and not self.failure and not self.fenced_by

    @property
    def _may_send(self) -> bool:
        """Whether the broker has answered everything that comes before the first PUBLISH."""
        return self.granted and not self._resuming

    def _offer_to_peer(self, now: float) -> None:
        peer, engine = self._peer, self.engine
        # A busy connection pulls by itself when it writes.
        while peer is not None and not peer.busy:
            outgoing = engine.next_outgoing(now)
            if outgoing is None or not peer.offer(outgoing) or not engine.mark_sent(outgoing, now):
                break

    def pull(self) -> Outgoing | None:
        """Return the next parcels for a link that has room, or None."""
        if self._offering or not self._may_send:
            return None
        engine = self.engine
        engine.collect()
        now = self.reactor.time()
        outgoing = engine.next_outgoing(now)
        if outgoing is not None:
            engine.mark_sent(outgoing, now)
            self._set_timer()
        return outgoing

    def _set_timer(self) -> None:
        deadline = self.engine.deadline
        if deadline is not None and deadline < self._alarm.at:
            self._alarm.set(deadline)

    def stream_granted(self) -> None:
        if self.extends(ONCE):
            self._resume()
        else:
            self._begin()

    def _retry(self) -> None:
        """Ask again for what the broker has refused."""
        self._retry_timer = None
        if self._resuming:
            self._resume()
        elif not self.granted:
            self.send(self._attach)

    def _resume(self) -> None:
        self._resuming = True
        self.send(self.engine.position.request())

    def _begin(self) -> None:
        self.failure = self._resume_failure = ""
        self.engine.begin()
        if self._peer is not None:
            self._peer.feed_from(self)
        self.send_pending()

    def resumption_confirmed(self, answer: ResumeOk) -> None:
        if self._resuming:
            self._resuming = False
            self.engine.resume(answer)
            self._begin()

    def fenced(self, epoch: int) -> None:
        self.fenced_by = max(1, epoch)
        self.engine.posting = False
        _log.error("another program publishes to %s as this publisher, with epoch %d", self.stream, epoch)
        self.suspend()

    @property
    def suspended_state(self) -> str:
        if self.fenced_by:
            return "fenced by another program that publishes as the same publisher"
        return f"not connected: an operator took {self.stream!r} away, and nothing was published since"

    @property
    def is_known_to_be_refused(self) -> bool:
        """Whether the broker refuses RESUME, and the program was told."""
        return bool(self._resume_failure) and self.engine.has_raised_refusal

    @property
    def found(self) -> int | None:
        """The number of messages that the stream had of this publisher at the first RESUME; None before the answer."""
        if self._resume_failure:
            raise BrokerError(f"the broker does not tell where {self.stream!r} stands: {self._resume_failure}")
        if self.engine.position.found is None and self._may_send:
            raise BrokerError(
                f"the broker of {self.stream!r} does not count the messages of publishers: it is an older release, or "
                "another program"
            )
        return self.engine.position.found

    def reconnected(self) -> None:
        self.engine.counters.reconnects += 1

    def disconnected(self) -> None:
        self._resuming = self._was_refused = False
        self._stop_retrying()
        self.engine.connection_lost()

    def _stop_retrying(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    def ping_answered(self) -> None:
        self.engine.ping_answered()
        if self.closing:
            self.engine.counters.unconfirmed = self.engine.unconfirmed  # the confirmation came before the end
        if self.detaching and self.engine.all_sent_confirmed:
            self.answer_detach()
        self.send_pending()
        self.on_change()

    def detach_received(self) -> None:
        if self._was_refused and not self.engine.unconfirmed_bytes:
            # An operator has taken the stream away: only the next message may create it again.
            self.suspend()
            return
        # Messages that are confirmed before the connection ends need not be published again.
        if self.engine.claim_ping():
            self.send(PING)
        elif self.engine.all_sent_confirmed:
            self.answer_detach()

    def invalid_received(self, reason: str) -> None:
        if not (self._may_send or self.detaching):
            self._note_refused_access(reason)
            return
        self._was_refused = True
        if not self.engine.unconfirmed_bytes:
            # It is not about a message: an operator takes the stream away.
            _log.info("the broker detaches from %s: %s", self.stream, reason)
            return
        level = logging.DEBUG if self.engine.counters.refused else logging.WARNING
        _log.log(level, "the broker refused a message that was published to %s: %s", self.stream, reason)
        self.engine.note_refusal(reason)
        if self.detaching:
            self.answer_detach()  # the broker may have refused the last PING

    def _note_refused_access(self, reason: str) -> None:
        """Note that the broker has refused ATTACH or RESUME, and ask again later.

        After ATTACH is refused, calls raise. After RESUME is refused, because the stream is stopped or the client may
        not publish, programs go on to publish: the messages wait, and `flush` raises.
        """
        if self._resuming:
            self._resume_failure = reason
            self.engine.note_refusal(reason)
        else:
            self.failure = reason
            self.engine.posting = False
        if self._retry_timer is None:
            # The operator can allow it at any time, or make room on the disk.
            self._retry_timer = self.reactor.call_at(self.reactor.time() + RETRY_INTERVAL, self._retry)

    def close(self, linger: float | None) -> None:
        if not self.closing:
            self._stop_retrying()
            self.engine.posting = False
            self.engine.collect()
            self.engine.counters.unconfirmed = self.engine.unconfirmed
            self._alarm.end()
            if self._peer is not None:
                self._peer.feed_from(None)
        super().close(linger)
