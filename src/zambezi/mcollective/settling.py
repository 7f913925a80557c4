"""Settling: clients of the Ruby connector that have just subscribed, and may subscribe to more. Without I/O.

A daemon subscribes to the topics of one agent after the other. After each SUB its connector takes the very next message
for the answer. If that is a MESSAGE of a topic before, the connector gives up, and the daemon runs without this agent
until it is restarted. So messages to such a client wait (`outbox`) until it has been quiet for `QUIET` seconds.

A PUT ends the wait: the client has finished its subscriptions, and may expect replies.
"""

from __future__ import annotations

from typing import Final

from zambezi.mcollective.outbox import Outbox
from zambezi.mcollective.session import Session

QUIET: Final = 0.2  # seconds after a SUB: between two agents a daemon takes some milliseconds
LONGEST: Final = 5.0  # seconds, for a client that subscribes all the time


class Settling:
    """The clients that settle, each with the time of its first SUB and the time until which its messages wait."""

    __slots__ = ("_outbox", "_times")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._times: dict[Session, tuple[float, float]] = {}  # the last SUB last

    def __len__(self) -> int:
        return len(self._times)

    def subscribed(self, session: Session, now: float) -> None:
        """Note a SUB of a client: messages to it wait."""
        first, _ = self._times.pop(session, (now, now))
        self._times[session] = (first, min(now + QUIET, first + LONGEST))
        self._outbox.settle(session)

    def end(self, session: Session) -> None:
        """Let messages to a client wait no longer."""
        self.remove(session)
        self._outbox.settled(session)

    def remove(self, session: Session) -> None:
        """Forget a client whose connection has ended."""
        self._times.pop(session, None)

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called; infinity if never."""
        return next((until for _, until in self._times.values()), float("inf"))

    def tick(self, now: float) -> None:
        """Let messages wait no longer to the clients that have been quiet."""
        while self.deadline <= now:
            self.end(next(iter(self._times)))
