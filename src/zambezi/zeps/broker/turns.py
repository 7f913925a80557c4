"""Turns: how the clients of a broker share its event loop.

A client can ask for much work with few bytes: thousands of small commands, or a replay through a slow pattern. The
broker does a little of it at once. The rest waits in line, and each turn of the event loop does some of the work in
line, so that no client keeps the others waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

# Work is counted in units of some microseconds: a small command is one.
TURN: Final = 1000  # units of work in line that are done in one turn of the loop
INLINE: Final = 64  # units that a client gets at once, without waiting in line
SUBSCRIBE: Final = 32  # units of a SUBSCRIBE
WEIGHT: Final = 100  # steps of a pattern's program, for one key, that are one unit
SLICE: Final = 300  # units that the filter of one subscriber gets in a turn


def keys_in_slice(weight: int) -> int:
    """Return how many keys patterns of a weight above 0 can be tried on in one slice."""
    return max(1, SLICE * WEIGHT // weight)


class Turns:
    """The line of work that waits for its turn."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], int]] = deque()
        self._scheduled = False

    def wait(self, work: Callable[[], int]) -> None:
        """Call `work` in a later turn of the loop, after all work that waits already. It returns the units it took."""
        self._waiting.append(work)
        self._schedule()

    def __len__(self) -> int:
        return len(self._waiting)

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        left = TURN
        try:
            while self._waiting and left > 0:
                left -= max(1, self._waiting.popleft()())
        finally:
            self._schedule()
