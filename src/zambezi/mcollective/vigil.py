"""The vigil of the middleware: when to check whether a session has fallen silent.

Each session with a TTL has one entry in a heap. A message that comes or goes moves no entry: it only notes the time. A
session that is checked too early gets another entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final

from zambezi.mcollective.session import Session

# The parts of a TTL after which a side breaks its silence, and after which it gives up the other side. The Ruby
# connector gives up a middleware that is silent for 1.0 of the TTL, by the clock of a thread that competes with others:
# at 0.95, NOOPs that were a little late made Ruby daemons reconnect 20 times in five minutes; at 0.85, never in nine.
BEAT: Final = 0.85
EXPIRY: Final = 1.05
GRACE: Final = 0.1  # of a TTL: if we check so much too late, we forget no client before the next check
_NEVER: Final = float("inf")
_FEW: Final = 10


class Vigil:
    """The sessions to check, by time."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Session]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def deadline(self) -> float:
        """The time of the next check; infinity if there is none."""
        return self._heap[0][0] if self._heap else _NEVER

    def watch(self, session: Session, when: float, sessions: int) -> None:
        """Check a session at a time, or before. `sessions` is the number of all sessions.

        Only an earlier check needs a new entry. Old entries are removed before they outnumber the sessions: clients
        that change their TTL all the time must not fill the heap.
        """
        if when < session.scheduled:
            session.scheduled = when
            if len(self._heap) >= 2 * sessions + _FEW:
                self._heap = [entry for entry in self._heap if entry[2].open and entry[0] == entry[2].scheduled]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (when, next(self._order), session))

    def due(self, now: float) -> Iterator[tuple[Session, float]]:
        """Yield the sessions to check now, and by how much that is too late."""
        while self._heap and self._heap[0][0] <= now:
            when, _, session = heapq.heappop(self._heap)
            if session.open and when == session.scheduled:
                session.scheduled = _NEVER
                yield session, now - when
