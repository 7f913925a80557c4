"""Subscriptions that begin at a future time.

Each block that is appended may contain their first message, so each block must ask whether one begins. That must cost
the same for any number of them: a client can subscribe to the year 3000 as often as it likes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Selection


class FutureSelections:
    """Selections that begin at a future time, ordered by that time."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, Selection]] = []  # due time, identity (to order equal times), selection

    def add(self, selection: Selection) -> None:
        """Add a selection that begins at its time `due`."""
        insort(self.waiting, (selection.due, id(selection), selection))

    def discard(self, selection: Selection) -> None:
        """Remove a selection, if it is here."""
        place = bisect_left(self.waiting, (selection.due, id(selection)))
        if place < len(self.waiting) and self.waiting[place][2] is selection:
            del self.waiting[place]

    def begin(self, time: int, after: int) -> None:
        """Let the selections that are due at `time`, in microseconds since 1970, begin after the sequence `after`."""
        waiting = self.waiting
        if waiting and waiting[0][0] <= time:
            place = bisect_left(waiting, (time + 1,))
            for _, _, selection in waiting[:place]:
                selection.due = 0
                selection.after = after
            del waiting[:place]

    def __len__(self) -> int:
        return len(self.waiting)
