"""Histories of publishes and reads, and the check that they are linearizable as operations on one log.

A publish begins, and may be confirmed at a sequence. A read begins, and returns the last sequence of the log that it
found. The log is the order of all operations, so the check needs no search. An execution is linearizable if each
operation can take effect at one moment between its beginning and its end: a message at sequence s takes effect before
s + 1, and a read of s between s and s + 1. So

- a publish that was confirmed before another one began has the lower sequence;
- a read that began after a confirmation returns at least that sequence;
- a read returns no message whose publish had not begun, and not less than a read that ended before it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate


class History:
    """The operations of one run, with the times at which they began and ended."""

    def __init__(self) -> None:
        self.begun: dict[tuple[bytes, int], float] = {}
        self.confirmed: dict[tuple[bytes, int], int] = {}
        self._ended: dict[int, float] = {}  # when the publish of a sequence was confirmed
        self._reads: list[tuple[float, float, int]] = []  # beginning, end, last sequence

    def begin(self, publisher: bytes, number: int, now: float) -> None:
        """Note that a message is published."""
        self.begun[publisher, number] = now

    def confirm(self, publisher: bytes, number: int, sequence: int, now: float) -> None:
        """Note that a message is confirmed."""
        self.confirmed[publisher, number] = sequence
        self._ended.setdefault(sequence, now)

    def read(self, last: int, begun: float, now: float) -> None:
        """Note that a reader found the log up to a sequence."""
        self._reads.append((begun, now, last))

    def problem(self, log: Mapping[int, tuple[bytes, int]]) -> str:
        """Return why the history is not linearizable; nothing if it is. `log` has all messages by sequence."""
        # The log up to s exists at a moment t if the publish of s or of a later sequence was confirmed, or read, by t.
        facts = sorted(
            [(now, sequence) for sequence, now in self._ended.items()] + [(end, last) for _, end, last in self._reads]
        )
        times = [time for time, _ in facts]
        reached = list(accumulate((sequence for _, sequence in facts), max))
        newest = [0.0, *accumulate((self.begun[log[one]] if one in log else 0.0 for one in _up_to(log)), max)]
        for begun, end, last in self._reads:
            if last < (least := _reached_before(times, reached, begun)):
                return f"a read that began at {begun:.3f} found {last}, and {least} was known before"
            if newest[min(last, len(newest) - 1)] > end:
                return f"a read that ended at {end:.3f} found a message that was not published yet"
        for sequence, message in log.items():
            if sequence <= (least := _reached_before(times, reached, self.begun[message])):
                return f"{message} has sequence {sequence}, and was published when {least} was known"
        return ""


def _up_to(log: Mapping[int, tuple[bytes, int]]) -> range:
    return range(1, max(log, default=0) + 1)


def _reached_before(times: list[float], reached: list[int], moment: float) -> int:
    """Return the highest sequence that was known before a moment."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] < moment:
            low = middle + 1
        else:
            high = middle
    return reached[low - 1] if low else 0
