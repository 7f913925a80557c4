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
_SPREAD: Final = 0x9E3779B1  # neighbours of a sequence have slots far from its slot

_KNOWN: Final = 16_384

M = TypeVar("M")


def slots_of(block: Block, sequences: Iterable[int]) -> list[int]:
    """Return the slot of each message of a block, whose sequences are given."""
    keys = block.keys
    if b"" in keys:
        return [
            _slots[key] if key else (sequence * _SPREAD >> 16) & MASK
            for key, sequence in zip(keys, sequences, strict=True)
        ]
    return [_slots[key] for key in keys]


class _KeySlots(dict[bytes, int]):
    """A cache of the slots of keys."""

    def __missing__(self, key: bytes) -> int:
        if len(self) >= _KNOWN:
            self.clear()
        slot = self[key] = crc32(key) & MASK
        return slot


_slots: Final = _KeySlots()


class Slots(Generic[M]):
    """The member that has each slot. Without members, no slot has one."""

    def __init__(self) -> None:
        self.owner: list[M | None] = [None] * SLOTS
        self._owned: dict[M, set[int]] = {}

    def __contains__(self, member: M) -> bool:
        return member in self._owned

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._owned)

    def of(self, member: M) -> set[int]:
        """Return the slots of a member."""
        return self._owned.get(member, set())

    def join(self, member: M) -> list[int]:
        """Give a new member its share of the slots; return the slots that it takes from other members."""
        others = [(-len(owned), place, owner) for place, (owner, owned) in enumerate(self._owned.items())]
        mine = self._owned[member] = set(range(SLOTS)) if not others else set()
        moved: list[int] = []
        if others:
            heapify(others)
            while len(mine) < SLOTS // len(self._owned):
                size, place, richest = others[0]
                slot = self._owned[richest].pop()
                heapreplace(others, (size + 1, place, richest))
                mine.add(slot)
                moved.append(slot)
        for slot in mine:
            self.owner[slot] = member
        return moved

    def leave(self, member: M) -> list[int]:
        """Give the slots of a member to the other members, and return them."""
        moved = list(self._owned.pop(member, ()))
        others = [(len(owned), place, owner) for place, (owner, owned) in enumerate(self._owned.items())]
        if not others:
            self.owner = [None] * SLOTS
            return moved
        heapify(others)
        for slot in moved:
            size, place, poorest = others[0]
            heapreplace(others, (size + 1, place, poorest))
            self._owned[poorest].add(slot)
            self.owner[slot] = poorest
        return moved
