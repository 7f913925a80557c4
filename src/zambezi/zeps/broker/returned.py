"""The messages of a group that were given back, and wait for their next delivery."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from zambezi.zeps.broker.group_state import Delivered

if TYPE_CHECKING:
    from zambezi.zeps.broker.group_member import Member


class Returned:
    """Messages that were given back. Some of them must wait for a time; the others are due."""

    def __init__(self) -> None:
        self._waiting: dict[int, Delivered] = {}  # by sequence; with those that are not due yet
        self._holder: dict[int, Member] = {}  # the member that had a message last
        self._due: dict[int, list[int]] = {}  # the sequences that are due, in order, by slot
        self._delayed: list[tuple[float, int]] = []  # a heap of times and sequences

    def __len__(self) -> int:
        return len(self._waiting)

    def items(self) -> dict[int, Delivered]:
        """Return the messages by sequence."""
        return dict(self._waiting)

    def add(self, sequence: int, what: Delivered, holder: Member | None, time: float = 0.0) -> None:
        """Add a message that is due now, or at a time."""
        self._waiting[sequence] = what
        if holder is not None:
            self._holder[sequence] = holder
        if time:
            heappush(self._delayed, (time, sequence))
        else:
            insort(self._due.setdefault(what.slot, []), sequence)

    def take(self, sequence: int) -> Delivered | None:
        """Remove a message, and return it; None if it is not here."""
        what = self._waiting.pop(sequence, None)
        self._holder.pop(sequence, None)
        due = self._due.get(what.slot) if what is not None else None
        if what is not None and due is not None and sequence in due:
            due.remove(sequence)
            if not due:
                del self._due[what.slot]
        return what

    def is_from(self, sequence: int, member: Member) -> bool:
        """Return whether a member had a message last."""
        return self._holder.get(sequence) is member

    def forget_holder(self, member: Member) -> None:
        """Forget a member that has left."""
        self._holder = {sequence: holder for sequence, holder in self._holder.items() if holder is not member}

    @property
    def has_due(self) -> bool:
        """Whether a message is due."""
        return bool(self._due)

    def due_slots(self) -> Iterator[int]:
        """Yield the slots that have messages which are due."""
        return iter(self._due)

    def due_in(self, slots: list[int]) -> list[int]:
        """Return the sequences that are due in some slots, in order."""
        return sorted([sequence for slot in slots for sequence in self._due[slot]])

    @property
    def next_time(self) -> float | None:
        """The time when a message becomes due; None if none waits for a time."""
        return self._delayed[0][0] if self._delayed else None

    def let_due(self, now: float) -> bool:
        """Let messages become due whose time has come; return whether there were any."""
        found = False
        while self._delayed and self._delayed[0][0] <= now:
            sequence = heappop(self._delayed)[1]
            what = self._waiting.get(sequence)
            if what is not None and sequence not in self._due.get(what.slot, ()):
                insort(self._due.setdefault(what.slot, []), sequence)
                found = True
        return found
