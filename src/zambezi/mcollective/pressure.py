"""Pressure: what a full queue of one client does to the clients that send to it. Without I/O.

A client whose queue is full gets time to read. Meanwhile its senders wait: the middleware does not read from them.
What a sender had sent before is queued above the bound, from a reserve that all clients share. The client must read
half of its queue within `Bounds.reading_time`. If it does, its senders go on, and it has missed nothing, however long
the burst was. If it does not, its senders wait no longer, and it misses messages.

So a client that reads gets all its messages. A client that does not read costs its senders some seconds, once. A client
that reads slowly holds its senders back, but not below half a queue in that time. Clients that send to others never
wait.
"""

from __future__ import annotations

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.session import Session


class Jam:
    """The full queue of a client: the time until which it must be read, and the clients that wait for that."""

    __slots__ = ("over", "senders", "until")

    def __init__(self, until: float) -> None:
        self.until: float | None = until  # None: the client did not read in time, and misses messages
        self.senders: dict[Session, None] = {}
        self.over = 0  # bytes above the bound


class Pressure:
    """The jams of a middleware. `bound` is the bound of a queue in bytes."""

    def __init__(self, bounds: Bounds, bound: int) -> None:
        self.bound = bound
        self.reserved = 0  # bytes that the jams take of the reserve
        self._bounds = bounds
        self._jams: dict[Session, Jam] = {}
        self._waits: dict[Session, int] = {}  # the number of jams for which a sender waits

    def __len__(self) -> int:
        return len(self._jams)

    def accept(self, session: Session, queued: int, sender: Session | None, now: float) -> bool:
        """Return whether a message can go into a full queue of `queued` bytes; then its sender must wait.

        A message without a sender (of a replay) or above the reserve cannot: the client misses it. Then `give_up`.
        """
        jam = self._jams.get(session)
        if jam is None:
            jam = self._jams[session] = Jam(now + self._bounds.reading_time)
        if jam.until is None or sender is None or self.reserved >= self._bounds.reserve_bytes:
            return False
        self._measure(jam, queued)
        if sender not in jam.senders:
            jam.senders[sender] = None
            self._waits[sender] = self._waits.get(sender, 0) + 1
            sender.paused = True
        return True

    def give_up(self, session: Session) -> list[Session]:
        """Note that a client misses messages; return the senders that need not wait any more."""
        jam = self._jams[session]
        jam.until = None
        return self._release(jam)

    def drained(self, session: Session, queued: int) -> list[Session]:
        """Note that `queued` bytes are left in a queue; return the senders that need not wait any more."""
        jam = self._jams.get(session)
        if jam is None:
            return []
        self._measure(jam, queued)
        if queued > self.bound // 2:
            return []
        del self._jams[session]
        return self._release(jam)

    def due(self, now: float) -> list[Session]:
        """Note which clients did not read in time; return the senders that need not wait any more."""
        freed: list[Session] = []
        for jam in self._jams.values():
            if jam.until is not None:
                if jam.until > now:
                    break  # all have the same time, so they are due in their order
                jam.until = None
                freed += self._release(jam)
        return freed

    @property
    def deadline(self) -> float:
        """The time at which `due` must be called; infinity if never."""
        return next((jam.until for jam in self._jams.values() if jam.until is not None), float("inf"))

    def closed(self, session: Session) -> list[Session]:
        """Forget a client whose connection has ended; return the senders that need not wait any more."""
        self._waits.pop(session, None)
        jam = self._jams.pop(session, None)
        if jam is None:
            return []
        self._measure(jam, 0)
        return self._release(jam)

    def _measure(self, jam: Jam, queued: int) -> None:
        over = max(0, queued - self.bound)
        self.reserved += over - jam.over
        jam.over = over

    def _release(self, jam: Jam) -> list[Session]:
        freed = []
        for sender in jam.senders:
            left = self._waits.get(sender, 0) - 1
            if left > 0:
                self._waits[sender] = left
            elif self._waits.pop(sender, None) is not None:
                sender.paused = False
                freed.append(sender)
        jam.senders = {}
        return freed
