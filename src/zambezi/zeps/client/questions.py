"""Connections that ask the broker something, once, and end with the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import BrokerConnection, ClientOptions, Locate
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.messages import Credit, Ping, Subscribe
from zambezi.zmtp.reactor import Reactor

_PING: Final = Ping().encode()[0]


class Question(BrokerConnection):
    """A connection that asks a reserved stream for all that it has to tell, once."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        answer: Callable[[Question], object],
        pattern: str = "",
        after: int = 0,
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.batches: list[MessageBatch] = []
        self.failure: ZepsError | None = None
        self.done = False
        self._answer = answer
        self._ask = [*Subscribe(pattern, after).encode(), *Credit(WINDOW).encode(), _PING]

    @property
    def bodies(self) -> list[bytes]:
        """What was told."""
        return [body for batch in self.batches for body in batch.bodies()]

    def opened(self) -> None:
        for message in self._ask:
            self.say(message)

    def disconnected(self) -> None:
        if not self.done:
            self.batches = []

    def delivered(self, frames: list[bytes], after: int) -> None:
        batch = MessageBatch(self.stream, frames, after)
        self.batches.append(batch)
        self.say(Credit(batch.octets).encode()[0])

    def confirmed(self) -> None:
        self.finish()

    def invalid(self, reason: str) -> None:
        self.failure = BrokerError(f"the broker tells nothing of {self.stream!r}: {reason}")
        self.finish()

    def finish(self) -> None:
        if not self.done:
            self.done = True
            self.close(0)
            self._answer(self)
            self.on_change()


class Probe(Question):
    """Asks for the first message of a stream that is not before a time."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        answer: Callable[[Question], object],
        time: int,
    ) -> None:
        super().__init__(reactor, options, locate, stream, answer)
        self._ask = [*Subscribe("", time).encode(), *Credit(1).encode()]

    def delivered(self, frames: list[bytes], after: int) -> None:
        super().delivered(frames, after)
        self.finish()
