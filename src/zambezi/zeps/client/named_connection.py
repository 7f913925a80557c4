"""The connection of a subscription with a name: it claims the name, then it subscribes after the reader's position.

    ATTACH-OK ---> ask `$streams` ---> CLAIM ---> CLAIM-OK ---> SUBSCRIBE, CREDIT ---> messages
                   (the same                                    ACK, PING        <---
                    incarnation?)

The question comes first: after a lost connection, acknowledgements must not go to a stream whose sequences stand for
other messages. The connection stays open when the last message of the subscription has come: the program has to read
and to acknowledge it.
"""

from __future__ import annotations

from typing import Final

from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.named_reader import NamedReader
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.client.subscriber_connection import SubscriberConnection
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import BrokerError, ReaderTaken
from zambezi.zeps.messages import POSITIONS, ClaimOk, Ping, Taken
from zambezi.zmtp.reactor import Reactor, Timer

ACK_INTERVAL: Final = 0.002  # seconds between the acknowledgements of a program that is quick
_PING: Final = Ping().encode()[0]


class NamedConnection(SubscriberConnection):
    """The connection of a subscription with a name."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        engine: Subscriber,
        reader: NamedReader,
    ) -> None:
        super().__init__(reactor, options, locate, stream, engine)
        self.reader = reader
        self._is_claiming = False  # whether CLAIM was sent on this connection
        self._holds_name = False  # whether CLAIM-OK has come on this connection
        self._wants_confirmation = False
        self._taken_by = ""
        self._ack_timer: Timer | None = None

    # The name

    def _begin(self, info: StreamInfo | None) -> None:
        if not self.engine.ended:
            super()._begin(info)
            return
        self.engine.update(info)
        if self.engine.failure is not None:
            self._close_if_over()
        else:
            self._subscribe()  # all messages are here, but the last acknowledgements may be lost

    def _subscribe(self) -> None:
        if self._is_claiming:
            return
        if not self.extends(POSITIONS):
            problem = f"the broker at {self._endpoint} keeps no positions of readers: subscribe without a name"
            self.engine.fail(BrokerError(problem))
            self._close_if_over()
            return
        self._is_claiming = True
        self.send(self.reader.claim())

    def claim_confirmed(self, answer: ClaimOk) -> None:
        if not self._is_claiming or self._holds_name:
            return
        self._holds_name = True
        if not self.reader.is_claimed:
            self.engine.begin_at(answer.position, answer.missed)
        self.reader.note_claimed(answer)
        self.send_acks()
        if self._wants_confirmation:
            self._ping()
        if self.engine.ended:
            self.subscription_confirmed()
        else:
            super()._subscribe()

    def taken(self, message: Taken) -> None:
        """Fail; but first ask about the stream: if it has another incarnation, that is the better error."""
        self._taken_by = message.holder
        self.reader.is_lost = True
        self.engine.drop_unread()
        if self.reader.is_claimed:
            self.suspend()
            self._ask_about_stream(self._fail_taken)
        else:
            self._fail_taken(None)

    def _fail_taken(self, info: StreamInfo | None) -> None:
        if info is not None:
            self.engine.update(info)
        by = f"{self._taken_by} has" if self._taken_by else "another client has, or has had,"
        self.engine.fail(ReaderTaken(f"{by} the reader {self.reader.name!r} of the stream {self.stream!r}"))
        self._close_if_over()

    @property
    def suspended_state(self) -> str:
        return f"disconnected: another client has the reader {self.reader.name!r}"

    # Acknowledgements

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge all messages up to a sequence. Any thread can call it, without the lock."""
        if self.reader.acknowledge(sequence):
            self.schedule_acks()

    def schedule_acks(self) -> None:
        """Send the last acknowledgement soon. Any thread can call it, without the lock."""
        self.reactor.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        """Send the last acknowledgement, and look again a little later: the program does not wake this thread then."""
        self._ack_timer = None
        self.reader.is_scheduled = False  # before `take_ack`: see `named_reader`
        if self.send_acks():
            self.reader.is_scheduled = True
            self._ack_timer = self.reactor.call_at(self.reactor.time() + ACK_INTERVAL, self._send_scheduled)

    def send_acks(self) -> bool:
        """Send the last acknowledgement, if the broker does not have it; return whether that was necessary."""
        ack = self.reader.take_ack() if self._holds_name and not self.closing else None
        if ack is not None:
            self.send(ack)
        return ack is not None

    def ask_for_confirmation(self) -> int:
        """Ask the broker to confirm all acknowledgements; return the sequence to wait for."""
        self.send_acks()
        self._wants_confirmation = not self.reader.is_confirmed
        if self._wants_confirmation and self._holds_name:
            self._ping()
        return self.reader.acknowledged

    def check_confirmed(self, sequence: int) -> bool | None:
        """Return True if the broker has confirmed an acknowledgement, and None if not yet; raise if it never will."""
        if self.reader.confirmed >= sequence:
            return True
        if self.engine.failure is not None:
            raise self.engine.failure
        self.check_open()
        return None

    def _ping(self) -> None:
        self.send(_PING)
        self.reader.note_ping()

    def ping_answered(self) -> None:
        self.reader.note_ping_answered()
        self._wants_confirmation = self._wants_confirmation and not self.reader.is_confirmed
        self.on_change()

    # Other events of the connection

    def _close_if_over(self) -> bool:
        """Close the connection if the subscription has failed; return whether it has failed or ended."""
        if self.engine.ended and self.engine.failure is None:
            self.on_change()
            return True
        return super()._close_if_over()

    def close(self, linger: float | None) -> None:
        self.send_acks()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        super().close(linger)

    def disconnected(self) -> None:
        self._is_claiming = self._holds_name = False
        self.reader.note_disconnected()
        super().disconnected()
