"""How long the disk takes: the mean of the last syncs, and the worst mean of late."""

from __future__ import annotations

from typing import Final

_DECAY: Final = 0.99  # at each look that finds syncs


class Latency:
    """Made from two sums that only grow: how many there were, and how long they took in all.

    >>> latency = Latency()
    >>> latency.look(2, 0.5)
    >>> latency.look(2, 0.5)  # nothing new: what was known stays
    >>> latency.lately, latency.worst
    (0.25, 0.25)
    """

    def __init__(self) -> None:
        self.lately = 0.0  # seconds
        self.worst = 0.0
        self._before = (0, 0.0)

    def look(self, count: int, seconds: float) -> None:
        """Take the sums of now."""
        known, took = self._before
        if count > known:
            self.lately = (seconds - took) / (count - known)
            self.worst = max(self.lately, self.worst * _DECAY)
            self._before = count, seconds
