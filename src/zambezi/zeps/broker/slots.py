"""The slots of a group of shared readers, and the member that has each of them.

Each key belongs to one of a fixed number of slots, and each slot to one member. So the messages of a key go to one
member, and to find it costs the same for any number of keys. The slots are spread evenly. When a member joins, it gets
slots of the members that have most; when a member leaves, its slots go to the members that have least; all other slots
stay where they are.

A message with an empty key has no order to keep: its slot follows from its sequence, so that these messages are spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heapreplace
from typing import Final, Generic, TypeVar
from zlib import crc32

from zambezi.zeps.block import Block

SLOTS: Final = 1024  # more members than this have nothing to do
MASK: Final = SLOTS - 1
_SPREAD: Final = 0x9E3779B1  # 2 ** 32 divided by the golden ratio

_KNOWN: Final = 16_384

M = TypeVar("M")


def slots_of(block: Block, sequences: Iterable[int]) -> list[int]:
    """Return the slot of each message of a block, whose sequences are given."""
    keys = block.keys
    if b"" in keys:
        return [slot_of(key, sequence) for key, sequence in zip(keys, sequences, strict=True)]
    return [_slots[key] for key in keys]


def slot_of(key: bytes, sequence: int) -> int:
    """Return the slot of a message."""
    return _slots[key] if key else _spread(sequence)


def _spread(number: int) -> int:
    """Return a slot. Neighbours have slots far from each other."""
    return (number * _SPREAD >> 16) & MASK


class _KeySlots(dict[bytes, int]):
    """A cache of the slots of keys."""

    def __missing__(self, key: bytes) -> int:
        if len(self) >= _KNOWN:
            self.clear()
        slot = self[key] = _spread(crc32(key))
        return slot


_slots: Final = _KeySlots()


class Slots(Generic[M]):
    """The member that has each slot. Without members, no slot has one."""

    def __init__(self) -> None:
        self.owner: list[M | None] = [None] * SLOTS
        self._counts: dict[M, int] = {}  # the number of slots of each member

    def __contains__(self, member: M) -> bool:
        return member in self._counts

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._counts)

    def of(self, member: M) -> list[int]:
        """Return the slots of a member."""
        return [slot for slot, owner in enumerate(self.owner) if owner == member]

    def join(self, member: M) -> list[int]:
        """Give a new member its share of the slots; return the slots that it takes from other members."""
        if not self._counts:
            self._counts[member] = SLOTS
            self.owner = [member] * SLOTS
            return []
        wanted = SLOTS // (len(self._counts) + 1)
        moved = self._richest_slots(wanted)
        for slot in moved:
            giver = self.owner[slot]
            assert giver is not None
            self._counts[giver] -= 1
            self.owner[slot] = member
        self._counts[member] = len(moved)
        return moved

    def _richest_slots(self, wanted: int) -> list[int]:
        """Return slots of the members that have most."""
        owned: dict[M | None, list[int]] = {}
        for slot, owner in enumerate(self.owner):
            owned.setdefault(owner, []).append(slot)
        rich = [(-len(slots), place, slots) for place, slots in enumerate(owned.values())]
        heapify(rich)
        found = []
        for _ in range(wanted):
            size, place, slots = rich[0]
            found.append(slots.pop())
            heapreplace(rich, (size + 1, place, slots))
        return found

    def leave(self, member: M) -> list[int]:
        """Give the slots of a member to the other members, and return them."""
        moved = self.of(member)
        self._counts.pop(member, None)
        if not self._counts:
            self.owner = [None] * SLOTS
            return moved
        poor = [(count, place, other) for place, (other, count) in enumerate(self._counts.items())]
        heapify(poor)
        for slot in moved:
            count, place, other = poor[0]
            heapreplace(poor, (count + 1, place, other))
            self._counts[other] += 1
            self.owner[slot] = other
        return moved
