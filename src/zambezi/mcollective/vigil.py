"""When to look whether a session has fallen silent.

Each session with a TTL has one place in a heap. A message that comes or goes moves nothing: it only notes the time, and
whoever is looked at too early is looked at again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final

from zambezi.mcollective.session import Session

_NEVER: Final = float("inf")
_FEW: Final = 10


class Vigil:
    """The sessions that are to be looked at, by time."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Session]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def deadline(self) -> float:
        """When the next one is due; infinity if none is."""
        return self._heap[0][0] if self._heap else _NEVER

    def watch(self, session: Session, when: float, sessions: int) -> None:
        """Look at a session at a time, or before. `sessions` is how many there are.

        Only an earlier look needs a new place. Old places are swept out before they are more than the sessions: clients
        that change their TTL all the time must not fill the heap.
        """
        if when < session.scheduled:
            session.scheduled = when
            if len(self._heap) >= 2 * sessions + _FEW:
                self._heap = [entry for entry in self._heap if entry[2].open and entry[0] == entry[2].scheduled]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (when, next(self._order), session))

    def due(self, now: float) -> Iterator[tuple[Session, float]]:
        """The sessions to be looked at now, and by how much that is too late."""
        while self._heap and self._heap[0][0] <= now:
            when, _, session = heapq.heappop(self._heap)
            if session.open and when == session.scheduled:
                session.scheduled = _NEVER
                yield session, now - when
