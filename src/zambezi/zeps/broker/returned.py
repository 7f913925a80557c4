"""The messages of a group that were given back, and wait for their next delivery.

A member can give back tens of thousands of messages of one key at once, and acknowledge them late. So the time of a
method does not depend on how many others wait, except for sorting those that did not come in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from zambezi.zeps.broker.group_state import Delivered

if TYPE_CHECKING:
    from zambezi.zeps.broker.group_member import Member

_OLD: Final = 64  # entries of messages that have gone, before the list of times is made again


class Returned:
    """Messages that were given back. Some of them must wait for a time; the others are due."""

    def __init__(self) -> None:
        self._waiting: dict[int, Delivered] = {}  # by sequence; with those that are not due yet
        self._holder: dict[int, Member] = {}  # the member that had a message last
        self._due: dict[int, dict[int, None]] = {}  # the sequences that are due, by slot
        self._unsorted: set[int] = set()  # slots whose sequences are not in order
        self._delayed: list[tuple[float, int]] = []  # a heap of times and sequences, also of messages that have gone

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
            self._add_due(sequence, what.slot)

    def _add_due(self, sequence: int, slot: int) -> None:
        due = self._due.setdefault(slot, {})
        if due and sequence < next(reversed(due)):
            self._unsorted.add(slot)
        due[sequence] = None

    def take(self, sequence: int) -> Delivered | None:
        """Remove a message, and return it; None if it is not here."""
        what = self._waiting.pop(sequence, None)
        self._holder.pop(sequence, None)
        if what is None:
            return None
        due = self._due.get(what.slot)
        if due is None or sequence not in due:
            self._forget_old_times()
            return what
        del due[sequence]
        if not due:
            del self._due[what.slot]
            self._unsorted.discard(what.slot)
        return what

    def _forget_old_times(self) -> None:
        """Forget the times of messages that have gone, if they are most of all times."""
        if len(self._delayed) > 2 * len(self._waiting) + _OLD:
            self._delayed = [entry for entry in self._delayed if entry[1] in self._waiting]
            heapify(self._delayed)

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

    def is_due(self, slots: list[int]) -> bool:
        """Return whether a message of some slots is due."""
        return any(slot in self._due for slot in slots)

    def first_due(self, slots: list[int], most: int) -> list[int]:
        """Return the lowest sequences that are due in some slots, in order."""
        for slot in self._unsorted.intersection(slots):
            self._due[slot] = dict.fromkeys(sorted(self._due[slot]))
            self._unsorted.discard(slot)
        return sorted(chain.from_iterable([islice(self._due[slot], most) for slot in slots]))[:most]

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
                self._add_due(sequence, what.slot)
                found = True
        return found
