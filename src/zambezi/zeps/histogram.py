"""Durations, counted by size: what a histogram of Prometheus needs."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

# Upper bounds in seconds: 100 microseconds to 10 seconds, so that both a fast disk and a slow store fit.
BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)


class Histogram:
    """A histogram of durations. Adding to it costs less than a microsecond. Only one thread at a time may add.

    >>> histogram = Histogram()
    >>> histogram.add(0.0002)
    >>> histogram.add(0.0003, 9)
    >>> histogram.buckets()[:3], histogram.count, round(histogram.seconds, 4)
    ([(0.0001, 0), (0.00025, 1), (0.0005, 10)], 10, 0.0029)
    """

    __slots__ = ("_counts", "seconds")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0  # the sum of all durations

    def add(self, seconds: float, count: int = 1) -> None:
        """Add a duration, `count` times. A clock that was set back gives a negative one, which counts as 0."""
        if seconds > 0:
            self.seconds += seconds * count
        self._counts[bisect_left(BOUNDS, seconds)] += count

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Return the upper bounds, each with the number of durations up to it. Longer ones are only in `count`."""
        return list(zip(BOUNDS, accumulate(self._counts), strict=False))
