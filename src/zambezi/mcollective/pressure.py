"""Pressure: what a full queue of one client does to the clients that send to it. Without I/O.

A client whose queue is full is in a *jam*. Its senders wait: the middleware does not read from them. Messages that they
had sent before go into the queue above its bound, from a reserve that all clients share. When the client has read half
of its queue, its senders go on, and it has missed nothing. If it takes too long, its senders wait no longer, and it
misses messages until it has read half of its queue.

Waiting is rationed, so that no client can hold others for ever, whether it is sick or hostile:

- The senders of a client wait for it at most `Bounds.reading_time`, in one jam or in several. A client that has used up
  this allowance gets it back slowly, in `REFILL` times that time.
- A sender waits for all clients together at most `SENDER` times as long. So many slow clients, or one that connects
  again and again, cannot hold it for ever either.

So a client that reads fast enough gets all its messages, however large a burst is. Clients that send to others never
wait.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.session import Session

REFILL: Final = 12  # an allowance that is used up is full again after so many times its length
SENDER: Final = 3  # the allowance of a sender, in reading times
_FEW: Final = 10


class Allowance:
    """A number of seconds to spend, which refills slowly."""

    __slots__ = ("_left", "_most", "_since")

    def __init__(self, most: float, now: float) -> None:
        self._most = self._left = most
        self._since = now

    def left(self, now: float) -> float:
        """Return how many seconds can be spent."""
        return min(self._most, self._left + (now - self._since) / REFILL)

    def spend(self, seconds: float, now: float) -> None:
        """Take seconds away."""
        self._left = max(0.0, self.left(now) - seconds)
        self._since = now


class Jam:
    """The full queue of a client: the time until which its senders wait, and these senders."""

    __slots__ = ("client", "over", "senders", "since", "until")

    def __init__(self, client: Session, now: float, until: float) -> None:
        self.client = client
        self.since = now
        self.until: float | None = until  # None: no sender waits, and the client misses messages
        self.senders: dict[Session, None] = {}
        self.over = 0  # bytes above the bound


class Wait:
    """A sender that waits: since when, and for how many jams."""

    __slots__ = ("jams", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.jams = 0


class Pressure:
    """The jams of a middleware. `bound` is the bound of a queue in bytes."""

    def __init__(self, bounds: Bounds, bound: int) -> None:
        self.bound = bound
        self.reserved = 0  # bytes that the jams take of the reserve
        self._bounds = bounds
        self._jams: dict[Session, Jam] = {}
        self._waits: dict[Session, Wait] = {}
        self._readers: dict[Session, Allowance] = {}  # of clients that were in a jam
        self._senders: dict[Session, Allowance] = {}  # of clients that had to wait
        # A heap of the times in `Jam.until`; entries of times that have changed are skipped.
        self._times: list[tuple[float, int, Jam]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._jams)

    def accept(self, session: Session, queued: int, sender: Session | None, now: float) -> bool:
        """Return whether a message can go into a full queue of `queued` bytes; then its sender must wait.

        A message without a connected sender (such as that of a replay), above the reserve, or above an allowance
        cannot: the client misses it. Then call `give_up`.
        """
        jam = self._jams.get(session)
        if jam is None:
            jam = self._jams[session] = Jam(session, now, now + self._left(session, now))
            self._watch(jam)
        if jam.until is None or jam.until <= now or self.reserved >= self._bounds.reserve_bytes:
            return False
        if sender is None or not sender.open:
            return False
        if sender not in jam.senders:
            left = self._left_to_sender(sender, now)
            if left <= 0:
                return False
            self._wait(sender, jam, now)
            if now + left < jam.until:
                jam.until = now + left
                self._watch(jam)
        self._measure(jam, queued)
        return True

    def give_up(self, session: Session, now: float) -> list[Session]:
        """Note that a client misses messages; return the senders that need not wait any more."""
        return self._release(self._jams[session], now)

    def drained(self, session: Session, queued: int, now: float) -> list[Session]:
        """Note that `queued` bytes are left in a queue; return the senders that need not wait any more."""
        jam = self._jams.get(session)
        if jam is None:
            return []
        self._measure(jam, queued)
        if queued > self.bound // 2:
            return []
        del self._jams[session]
        return self._release(jam, now)

    def due(self, now: float) -> list[Session]:
        """Note which clients did not read in time; return the senders that need not wait any more."""
        freed: list[Session] = []
        while self.deadline <= now:
            freed += self._release(self._times[0][2], now)
        return freed

    @property
    def deadline(self) -> float:
        """The time at which `due` must be called; infinity if never."""
        while self._times and self._times[0][0] != self._times[0][2].until:
            heapq.heappop(self._times)
        return self._times[0][0] if self._times else float("inf")

    def closed(self, session: Session, now: float) -> list[Session]:
        """Forget a client whose connection has ended; return the senders that need not wait any more."""
        self._waits.pop(session, None)
        self._senders.pop(session, None)
        jam = self._jams.pop(session, None)
        freed = []
        if jam is not None:
            self._measure(jam, 0)
            freed = self._release(jam, now)
        self._readers.pop(session, None)
        return freed

    def _left(self, session: Session, now: float) -> float:
        """Return how long the senders of a client can wait for it."""
        if session not in self._readers:
            self._readers[session] = Allowance(self._bounds.reading_time, now)
        return self._readers[session].left(now)

    def _left_to_sender(self, sender: Session, now: float) -> float:
        """Return how long a sender, which may be waiting already, can wait from now on."""
        if sender not in self._senders:
            self._senders[sender] = Allowance(SENDER * self._bounds.reading_time, now)
        wait = self._waits.get(sender)
        return self._senders[sender].left(now) - (now - wait.since if wait is not None else 0.0)

    def _watch(self, jam: Jam) -> None:
        assert jam.until is not None
        if len(self._times) > 2 * len(self._jams) + _FEW:
            self._times = [entry for entry in self._times if entry[0] == entry[2].until]
            heapq.heapify(self._times)
        heapq.heappush(self._times, (jam.until, next(self._order), jam))

    def _measure(self, jam: Jam, queued: int) -> None:
        over = max(0, queued - self.bound)
        self.reserved += over - jam.over
        jam.over = over

    def _wait(self, sender: Session, jam: Jam, now: float) -> None:
        jam.senders[sender] = None
        wait = self._waits.get(sender)
        if wait is None:
            wait = self._waits[sender] = Wait(now)
        wait.jams += 1
        sender.paused = True

    def _release(self, jam: Jam, now: float) -> list[Session]:
        """End the waiting for a jam; return the senders that wait for no other jam."""
        if jam.until is not None:
            jam.until = None
            self._readers[jam.client].spend(now - jam.since, now)
        freed = []
        for sender in jam.senders:
            wait = self._waits.get(sender)
            if wait is None:
                continue  # its connection has ended
            wait.jams -= 1
            if not wait.jams:
                del self._waits[sender]
                self._senders[sender].spend(now - wait.since, now)
                sender.paused = False
                freed.append(sender)
        jam.senders = {}
        return freed
