"""Connections that ask the broker a question, and close when they have the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from zambezi.wire.text import as_bytes
from zambezi.zeps.client.batch import Message, MessageBatch
from zambezi.zeps.client.connection import BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.publisher import Key, encode_key
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.directory import LAST, ORDERS, datetime_of
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.layout import BODY_LENGTH, PUBLISH, SEQUENCE
from zambezi.zeps.messages import ADMIN, BROKERS, Credit, Ping, Publish, Subscribe, extensions_of
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor

_PING: Final = Ping().encode()[0]


class Question(BrokerConnection):
    """A connection that reads all messages of a reserved stream once."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        on_answer: Callable[[Question], object],
        pattern: str = "",
        after: int = 0,
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.batches: list[MessageBatch] = []
        self.failure: ZepsError | None = None
        self.done = False
        self.has_others = False  # whether the broker shares its streams with others
        self._on_answer = on_answer
        self._requests = [*Subscribe(pattern, after).encode(), *Credit(WINDOW).encode(), _PING]

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of all messages."""
        return [body for batch in self.batches for body in batch.bodies()]

    @property
    def delay(self) -> str:
        if self.done or not self.granted:
            return super().delay
        return f"waiting for the answer of the broker: this client is {self.state}"

    def stream_granted(self) -> None:
        for message in self._requests:
            self.send(message)

    def disconnected(self) -> None:
        if not self.done:
            self.batches = []

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        batch = MessageBatch(self.stream, frames, body_at)
        self.batches.append(batch)
        self.send(Credit(batch.octets).encode()[0])

    def ping_answered(self) -> None:
        self._finish()

    def invalid_received(self, reason: str) -> None:
        self.failure = BrokerError(f"the broker does not answer about {self.stream!r}: {reason}")
        self._finish()

    def _finish(self) -> None:
        if not self.done:
            self.done = True
            self.has_others = self.extends(BROKERS)
            self.close(0)
            self._on_answer(self)
            self.on_change()


class Probe(Question):
    """A connection that reads the first message of a stream at or after a time."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        on_answer: Callable[[Question], object],
        time: int,
    ) -> None:
        super().__init__(reactor, options, locate, stream, on_answer)
        self._requests = [*Subscribe("", time).encode(), *Credit(1).encode()]

    @property
    def delay(self) -> str:
        return "" if self.granted else super().delay  # the message may be yet to come

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        super().messages_received(frames, body_at)
        self._finish()


class AdminQuestion(Question):
    """A question that is itself a message: only a broker with the extension "admin" does not take it for one."""

    _missing = ""  # the capability that another broker lacks

    def attached(self, peer: Peer) -> None:
        """Attach, but only at a broker that knows the question."""
        if ADMIN in extensions_of(peer.properties):
            super().attached(peer)
        else:
            self.failure = BrokerError(f"the broker at {self._endpoint} does not {self._missing}")
            self._finish()


class LastQuestion(AdminQuestion):
    """A connection that asks for the last message of a key."""

    _missing = "find the last message of a key"

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, about: str, key: Key) -> None:
        super().__init__(reactor, options, locate, LAST, lambda _: None)
        self._about = about
        name = as_bytes(about)
        question = PUBLISH + encode_key(key) + BODY_LENGTH.pack(len(name)) + name
        self._requests = [*Credit(WINDOW).encode(), question, _PING]

    @property
    def message(self) -> Message | None:
        """The message that the broker has found."""
        for batch in self.batches:
            for sequence, key, body, _, _ in batch:
                time = int.from_bytes(body[: SEQUENCE.size])
                return Message(sequence, key, body[SEQUENCE.size :], self._about, datetime_of(time))
        return None

    def invalid_received(self, reason: str) -> None:
        self.failure = BrokerError(reason)
        self._finish()


class Order(AdminQuestion):
    """A connection that gives the broker one order about a stream."""

    _missing = "administer streams for clients"

    def __init__(
        self, reactor: Reactor, options: ClientOptions, locate: Locate, order: str, content: Mapping[str, object]
    ) -> None:
        super().__init__(reactor, options, locate, ORDERS, lambda _: None)
        self._order = order
        self._requests = [*Publish(order, json.dumps(content).encode()).encode(), _PING]
        self._is_given = False

    @property
    def delay(self) -> str:
        """Why the operator has to wait: for example for an object store that is full."""
        if self.done or not self._is_given:
            return super().delay
        return f"the broker still executes {self._order!r}, and goes on with it if this client leaves"

    @property
    def consequence(self) -> str:
        return "the broker may still execute the order" if self._is_given else "the order was not sent"

    def stream_granted(self) -> None:
        self._is_given = True
        super().stream_granted()

    def moving(self) -> None:
        self._is_given = False

    def disconnected(self) -> None:
        if self._is_given and not self.done:
            # To give the order again could execute it twice.
            self.failure = BrokerError(
                f"the connection was lost while the broker executed {self._order!r}: find out whether it did"
            )
            self._finish()

    def invalid_received(self, reason: str) -> None:
        self.failure = BrokerError(reason)
        self._finish()
