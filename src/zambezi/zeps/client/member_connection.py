"""The connection of a member of a group of shared readers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import DETACH_PATIENCE, BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.member import GroupMember
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.messages import SHARED, TIMES, Ping
from zambezi.zmtp.reactor import Reactor, Timer

_PING: Final = Ping().encode()[0]
_DOUBT: Final = (-1, 0)  # no connection: acknowledgements were lost with another one
INTERVAL: Final = 0.005  # seconds between looks for new answers of a program that does not ask for messages


class MemberConnection(BrokerConnection):
    """The connection of a member."""

    def __init__(
        self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str, engine: GroupMember
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.engine = engine
        self.confirmed_once = False
        self._scheduled = False  # whether answers will be sent soon
        self._has_sent = False  # whether answers were sent since the last look for new ones
        self._timer: Timer | None = None
        self._asked = 0  # confirmations that were asked for on this connection
        self._confirmed = 0

    def next_batch(self) -> MessageBatch | None:
        """Return the next batch, and give the broker credit for more."""
        batch = self.engine.next_batch()
        self.send_answers()  # before the credit: messages that are given back must not come again by it
        if self.engine.is_joined and (credit := self.engine.next_credit()) is not None:
            self.send(credit)
        return batch

    # Answers

    def acknowledge_one(self, sequence: int) -> None:
        """Acknowledge a message, soon, if `engine.is_plain`. Programs call it for each message."""
        self.engine.done.append(sequence)
        if not self._scheduled:
            self._send_soon()

    def acknowledge(self, sequences: Iterable[int]) -> None:
        """Acknowledge messages, soon. Any thread can call it, without the lock."""
        self.engine.acknowledge(sequences)
        if not self._scheduled:
            self._send_soon()

    def give_back(self, sequences: Iterable[int], delay: float = 0.0, *, seen: bool = True) -> None:
        """Give messages back, soon."""
        self.engine.give_back(sequences, delay, seen=seen)
        if not self._scheduled:
            self._send_soon()

    def keep(self, sequences: Iterable[int]) -> None:
        """Say that the program still works on messages, soon."""
        self.engine.keep(sequences)
        if not self._scheduled:
            self._send_soon()

    def _send_soon(self) -> None:
        """Send the answers in this turn of the loop. A program that asks for the next messages sends them before."""
        self._scheduled = True
        self.reactor.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        """Send the answers; while the program works, look again a little later: it does not wake this thread then."""
        self._timer = None
        self._scheduled = False  # before the answers are taken: a thread that adds one now schedules it again
        self.send_answers()
        is_working, self._has_sent = self._has_sent, False
        if is_working:
            self._scheduled = True
            self._timer = self.reactor.call_at(self.reactor.time() + INTERVAL, self._send_scheduled)

    def send_answers(self) -> None:
        """Send the answers that wait."""
        if not (self.engine.has_answers and self.engine.is_joined) or self.closing:
            return
        for message in self.engine.take_answers():
            self.send(message)
        self._has_sent = True

    def ask_for_confirmation(self) -> tuple[int, int]:
        """Ask the broker to confirm all answers so far; return what `check_confirmed` needs."""
        self.send_answers()
        if self.engine.take_doubt():
            return _DOUBT
        if self.engine.is_joined:
            self._asked += 1
            self.send(_PING)
        return self.engine.losses, self._asked

    def check_confirmed(self, target: tuple[int, int]) -> bool | None:
        """Return True if the broker has confirmed, and None if not yet; raise if it never will."""
        losses, asked = target
        if self.engine.losses == losses and self._confirmed >= asked:
            return True
        if self.engine.failure is not None:
            raise self.engine.failure
        if self.engine.losses != losses:
            raise BrokerError(
                "the connection was lost before the broker has confirmed the acknowledgements: some of the messages "
                "can come again"
            )
        self.check_open()
        return None

    def ping_answered(self) -> None:
        self._confirmed += 1
        if self._confirmed == self._asked:
            self.engine.note_confirmed()
        self.on_change()

    # Events of the connection

    def stream_granted(self) -> None:
        if not self.extends(SHARED):
            self._fail(BrokerError(f"the broker at {self._endpoint} has no shared readers"))
            return
        if self.engine.wants_times and not self.extends(TIMES):
            self._fail(BrokerError(f"the broker at {self._endpoint} does not tell the times of messages"))
            return
        for message in self.engine.join_messages():
            self.send(message)

    def joined(self) -> None:
        self.confirmed_once = True
        self.on_change()

    def detach_received(self) -> None:
        self.send_answers()  # they still count
        self.answer_detach()

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        self.engine.accept(frames, body_at)
        self.on_change()

    def deliveries_received(self, octets: bytes) -> None:
        try:
            self.engine.learn_deliveries(octets)
        except ZepsError as error:
            self.malformed(str(error))

    def times_received(self, octets: bytes) -> None:
        try:
            self.engine.learn_times(octets)
        except ZepsError as error:
            self.malformed(str(error))

    def invalid_received(self, reason: str) -> None:
        self.engine.fail_refused(reason)
        if not self.closing:
            super().close(DETACH_PATIENCE)

    def _fail(self, error: ZepsError) -> None:
        self.engine.fail(error)
        if not self.closing:
            super().close(DETACH_PATIENCE)

    def malformed_received(self) -> None:
        self.engine.counters.malformed += 1

    def reconnected(self) -> None:
        self.engine.counters.reconnects += 1

    def disconnected(self) -> None:
        self.engine.lose_connection()
        self._asked = self._confirmed = 0

    def close(self, linger: float | None) -> None:
        """Give back what the program has not read, and leave the group."""
        if not self.closing:
            self.engine.is_plain = False
            self.engine.give_back_unread()
            self.send_answers()
            if self._timer is not None:
                self._timer.cancel()
        super().close(linger)
