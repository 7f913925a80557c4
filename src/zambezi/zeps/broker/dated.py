"""Subscriptions that begin at a time that is still to come.

Each message that is appended may be the first of that time, so it is asked at each block whether one begins; and that
must cost the same however many there are, as anybody can subscribe to the year 3000 as often as he likes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Selection


class Dated:
    """Subscriptions in the order in which they begin."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Selection]] = []  # with their identity, to tell those of one time apart

    def add(self, one: Selection) -> None:
        insort(self._waiting, (one.due, id(one), one))

    def discard(self, one: Selection) -> None:
        place = bisect_left(self._waiting, (one.due, id(one)))
        if place < len(self._waiting) and self._waiting[place][2] is one:
            del self._waiting[place]

    def begin(self, time: int, after: int) -> None:
        """It is this time, in microseconds since 1970: those that are due begin after a sequence."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= time:
            place = bisect_left(waiting, (time + 1,))
            for _, _, one in waiting[:place]:
                one.due = 0
                one.after = after
            del waiting[:place]

    def __len__(self) -> int:
        return len(self._waiting)
