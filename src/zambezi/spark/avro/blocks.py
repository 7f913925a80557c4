"""Arrays and maps, whose encoding has the items in blocks.

They are read in two passes. The first pass only finds where the items begin. If items have one size, or are numbers, it
does so for a whole block at once. Otherwise it moves item by item through all arrays together, as long as one of them
has more items, and in leaps when only a few long arrays are left. The second pass reads the items of all arrays as one
column, with a cursor for each item. So nested arrays are passed once for each depth, and no column is assembled from
parts.

A single body with thousands of arrays in an array stays slow: there are no leaps over items that contain arrays,
because a walk that begins at a wrong byte can be as long as the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro.cursors import Cursors, Mask
from zambezi.spark.avro.kinds import Kind, Record, String
from zambezi.spark.columns import Array, Numbers

_FEW: Final = 16  # at most this many arrays are left: use leaps
_MANY: Final = 32  # and one of them still has at least this many items
_LEAP_SIZE: Final = 4096  # bytes of each array that one leap examines


class _Items:
    """The positions of the items of many arrays, collected in any order."""

    def __init__(self) -> None:
        nothing = np.empty(0, np.int64)
        self._found: list[tuple[Numbers, Numbers, Numbers]] = [(nothing, nothing, nothing)]

    def add(self, arrays: Numbers, begins: Numbers, ends: Numbers) -> None:
        self._found.append((arrays, begins, ends))

    def in_order(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return, in the order of the bodies, the array of each item, where it begins and where it ends."""
        arrays, begins, ends = (np.concatenate(parts) for parts in zip(*self._found, strict=True))
        self._found.clear()
        if (begins[1:] >= begins[:-1]).all():
            return arrays, begins, ends
        order = np.argsort(begins, kind="stable")
        return arrays[order], begins[order], ends[order]


@dataclass(frozen=True)
class _Blocks(Kind):
    """Items in blocks: each block is a count and that many items; an empty block is the last.

    After a negative count comes the size of the block in bytes, which allows readers to skip it.
    """

    item: Kind
    is_flat = False

    def _read(self, cursors: Cursors) -> tuple[Array, Array]:
        """Read all items. Return the offsets of each cursor's items in their column, and the column."""
        found = _Items()
        self._walk(cursors, found)
        arrays, begins, ends = found.in_order()
        is_good = ~cursors.bad[arrays]
        if not is_good.all():
            arrays, begins, ends = arrays[is_good], begins[is_good], ends[is_good]
        items = Cursors(cursors.bodies, cursors.owners[arrays], begins, ends)
        column = self.item.read(items)
        wrong = np.zeros(len(cursors), np.bool_)
        wrong[arrays[items.bad]] = True
        cursors.mark_bad(wrong)
        offsets = np.zeros(len(cursors) + 1, np.int32)
        offsets[1:] = np.cumsum(np.bincount(arrays, minlength=len(cursors)))
        return pa.array(offsets), column

    def skip(self, cursors: Cursors) -> None:
        self._walk(cursors, None)

    def _walk(self, cursors: Cursors, found: _Items | None) -> None:
        """Move past all blocks, and add their items to `found` if it is given."""
        arrays = np.flatnonzero(~cursors.bad)
        going = cursors.subset(arrays)
        while len(arrays):
            counts, ends = self._block(going, found is not None)
            is_over = going.bad | (counts == 0)
            if is_over.any():
                cursors.put_back(arrays[is_over], going.subset(is_over))
                arrays, going = arrays[~is_over], going.subset(~is_over)
                counts, ends = counts[~is_over], ends[~is_over]
            if found is None and len(arrays):
                is_known = ends >= 0
                going.positions = np.where(is_known, ends, going.positions)
                counts = np.where(is_known, 0, counts)
            self._items(going, arrays, counts, found)
            going.mark_bad((ends >= 0) & (going.positions != ends))

    def _block(self, going: Cursors, is_read: bool) -> tuple[Numbers, Numbers]:
        """Read the beginning of a block. Return its number of items, and where it ends (-1 if that is not given)."""
        counts = going.number()
        ends = np.full(len(going), -1, np.int64)
        with_size = np.flatnonzero(counts < 0)
        if len(with_size):
            some = going.subset(with_size)
            sizes = some.number()
            some.mark_bad((sizes < 0) | (sizes > some.stops - some.positions))
            ends[with_size] = np.where(some.bad, -1, some.positions + sizes)
            going.put_back(with_size, some)
            counts = np.abs(counts)
        room = np.where(ends >= 0, ends, going.stops) - going.positions
        width = 1 if self.item.width is None else self.item.width
        if width:
            # The absolute value of the smallest number is negative.
            going.mark_bad((counts < 0) | (counts > room // width))
        else:
            going.mark_bad(counts < 0)
            if is_read:
                going.use_allowance(counts)
        return counts, ends

    def _items(self, going: Cursors, arrays: Numbers, counts: Numbers, found: _Items | None) -> None:
        """Move past the items of a block, by the fastest method for their type."""
        width = self.item.width
        if width is not None:
            if found is not None:
                begins = np.repeat(going.positions, counts) + width * _ranks(counts)
                found.add(np.repeat(arrays, counts), begins, begins + width)
            going.positions = going.positions + width * (counts if width else 0)
        elif self.item.is_number:
            self._numbers(going, arrays, counts, found)
        else:
            self._one_by_one(going, arrays, counts, found)

    def _numbers(self, going: Cursors, arrays: Numbers, counts: Numbers, found: _Items | None) -> None:
        number_ends = going.bodies.number_ends
        firsts = np.searchsorted(number_ends, going.positions)
        finals = firsts + counts - 1
        # Each number has one byte that can be its last. So has the count, whose last byte is before the first number.
        wrong = number_ends[np.minimum(finals, len(number_ends) - 1)] >= going.stops
        wrong |= finals >= len(number_ends)
        going.mark_bad(wrong)
        counts = np.where(wrong, 0, counts)
        if found is not None:
            index = np.repeat(firsts, counts) + _ranks(counts)
            found.add(np.repeat(arrays, counts), number_ends[index - 1] + 1, number_ends[index] + 1)
        going.positions = np.where(counts > 0, number_ends[np.where(wrong, 0, finals)] + 1, going.positions)

    def _one_by_one(self, going: Cursors, arrays: Numbers, counts: Numbers, found: _Items | None) -> None:
        active = np.flatnonzero(counts)
        walkers = going.subset(active)
        left = counts[active]
        is_short = self.item.is_flat
        while len(active):
            steps = np.ones(1, np.int64)
            if is_short and len(active) <= _FEW and int(left.max()) >= _MANY:
                steps = self._leap(walkers, left, arrays[active], found)
                is_short = bool((steps >= _MANY).any())  # otherwise the items are long, and leaps are not faster
            else:
                begins = walkers.positions
                self.item.skip(walkers)
                if found is not None:
                    found.add(arrays[active], begins, walkers.positions)
            left = left - steps
            is_over: Mask = walkers.bad | (left == 0)
            if is_over.any():
                going.put_back(active[is_over], walkers.subset(is_over))
                active, left, walkers = active[~is_over], left[~is_over], walkers.subset(~is_over)

    def _leap(self, walkers: Cursors, left: Numbers, arrays: Numbers, found: _Items | None) -> Numbers:
        """Move past many items of a few long arrays. Return how many items of each.

        For every byte at once, this computes where an item would end if it began there. Then it follows these ends
        from item to item.
        """
        sizes = np.minimum(walkers.stops - walkers.positions, _LEAP_SIZE)
        index = np.repeat(np.arange(len(walkers)), sizes)
        positions = walkers.positions[index] + _ranks(sizes)
        everywhere = Cursors(walkers.bodies, walkers.owners[index], positions, walkers.stops[index])
        self.item.skip(everywhere)
        jumps = np.where(everywhere.bad, -1, everywhere.positions - walkers.positions[index])
        steps = np.zeros(len(walkers), np.int64)
        reached = np.zeros(len(walkers), np.int64)
        for number, (size, end) in enumerate(zip(sizes.tolist(), np.cumsum(sizes).tolist(), strict=True)):
            nexts = jumps[end - size : end].tolist()
            most = int(left[number])
            begins: list[int] = []
            at = 0
            while 0 <= at < size and len(begins) < most:
                begins.append(at)
                at = nexts[at]
            steps[number], reached[number] = len(begins), at
            if found is not None and at >= 0:
                start = int(walkers.positions[number])
                bounds = np.array([*begins, at], np.int64) + start
                found.add(np.full(len(begins), arrays[number]), bounds[:-1], bounds[1:])
        walkers.positions = walkers.positions + np.maximum(reached, 0)
        walkers.mark_bad(reached < 0)
        return steps


def _ranks(counts: Numbers) -> Numbers:
    """Return 0, 1, 2, ... up to each count."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


@dataclass(frozen=True)
class List(_Blocks):
    """The type array."""

    @property
    def ddl(self) -> str:
        return f"array<{self.item.ddl}>"

    def read(self, cursors: Cursors) -> Array:
        return pa.ListArray.from_arrays(*self._read(cursors))


@dataclass(frozen=True)
class Map(_Blocks):
    """The type map: an array of pairs of a string key and a value."""

    item: Record

    @classmethod
    def of(cls, values: Kind) -> Map:
        """Return the map from strings to these values."""
        return cls(Record(("key", "value"), (String(), values)))

    @property
    def ddl(self) -> str:
        return f"map<string,{self.item.kinds[1].ddl}>"

    def read(self, cursors: Cursors) -> Array:
        offsets, pairs = self._read(cursors)
        return pa.MapArray.from_arrays(offsets, *pairs.flatten())
