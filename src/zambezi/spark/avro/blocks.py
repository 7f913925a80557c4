"""Arrays and maps, which have their items in blocks.

They are read in two passes. The first only finds out where the items begin: where they have one size, or are numbers,
for a whole block at once; otherwise item by item, all arrays together, as long as one of them has more, and by leaps
when only a few long ones are left. The second reads all items of all arrays as one column, for which each has a cursor
of its own. So arrays in arrays are walked once for each depth, and nothing is put together from pieces.

What stays slow is a single body with thousands of arrays in an array: there are no leaps over what has arrays in it, as
from a wrong octet such a walk can be as long as the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro.cursors import Cursors, Mask
from zambezi.spark.avro.kinds import Kind, Record, String
from zambezi.spark.columns import Array, Numbers

_FEW: Final = 16  # arrays that are left over because they are longer than the others
_MANY: Final = 32  # items that one of them still has
_WINDOW: Final = 4096  # octets of each that are looked at together


class _Items:
    """Where the items of many arrays begin and end, as they are found."""

    def __init__(self) -> None:
        nothing = np.empty(0, np.int64)
        self._found: list[tuple[Numbers, Numbers, Numbers]] = [(nothing, nothing, nothing)]

    def add(self, arrays: Numbers, begins: Numbers, ends: Numbers) -> None:
        self._found.append((arrays, begins, ends))

    def in_order(self) -> tuple[Numbers, Numbers, Numbers]:
        """Of which array each item is, where it begins and where it ends: as they stand in the bodies."""
        arrays, begins, ends = (np.concatenate(parts) for parts in zip(*self._found, strict=True))
        self._found.clear()
        if (begins[1:] >= begins[:-1]).all():
            return arrays, begins, ends
        order = np.argsort(begins, kind="stable")
        return arrays[order], begins[order], ends[order]


@dataclass(frozen=True)
class _Blocks(Kind):
    """Items in blocks: how many, then these; in the end a block of none. A count below 0 is followed by the octets of
    the block, so that it can be passed over."""

    item: Kind
    is_flat = False

    def _read(self, cursors: Cursors) -> tuple[Array, Array]:
        """Where the items of each cursor begin in a column (in the end, where the last ends), and the column."""
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
        cursors.spoil(wrong)
        offsets = np.zeros(len(cursors) + 1, np.int32)
        offsets[1:] = np.cumsum(np.bincount(arrays, minlength=len(cursors)))
        return pa.array(offsets), column

    def skip(self, cursors: Cursors) -> None:
        self._walk(cursors, None)

    def _walk(self, cursors: Cursors, found: _Items | None) -> None:
        """Move past all blocks, and note the items if they are wanted."""
        arrays = np.flatnonzero(~cursors.bad)
        going = cursors.some(arrays)
        while len(arrays):
            counts, ends = self._block(going, found is not None)
            is_over = going.bad | (counts == 0)
            if is_over.any():
                cursors.back(arrays[is_over], going.some(is_over))
                arrays, going = arrays[~is_over], going.some(~is_over)
                counts, ends = counts[~is_over], ends[~is_over]
            if found is None and len(arrays):
                is_known = ends >= 0
                going.places = np.where(is_known, ends, going.places)
                counts = np.where(is_known, 0, counts)
            self._items(going, arrays, counts, found)
            going.spoil((ends >= 0) & (going.places != ends))

    def _block(self, going: Cursors, is_read: bool) -> tuple[Numbers, Numbers]:
        """How many items come next, and where they say that they end (-1 if they do not)."""
        counts = going.number()
        ends = np.full(len(going), -1, np.int64)
        with_size = np.flatnonzero(counts < 0)
        if len(with_size):
            some = going.some(with_size)
            sizes = some.number()
            some.spoil((sizes < 0) | (sizes > some.stops - some.places))
            ends[with_size] = np.where(some.bad, -1, some.places + sizes)
            going.back(with_size, some)
            counts = np.abs(counts)
        room = np.where(ends >= 0, ends, going.stops) - going.places
        width = 1 if self.item.width is None else self.item.width
        if width:
            going.spoil((counts < 0) | (counts > room // width))  # the least number has no absolute value
        else:
            going.spoil(counts < 0)
            if is_read:
                going.spend(counts)
        return counts, ends

    def _items(self, going: Cursors, arrays: Numbers, counts: Numbers, found: _Items | None) -> None:
        """Move past the items of a block, by the way that is the shortest."""
        width = self.item.width
        if width is not None:
            if found is not None:
                begins = np.repeat(going.places, counts) + width * _ranks(counts)
                found.add(np.repeat(arrays, counts), begins, begins + width)
            going.places = going.places + width * (counts if width else 0)
        elif self.item.is_number:
            self._numbers(going, arrays, counts, found)
        else:
            self._one_by_one(going, arrays, counts, found)

    def _numbers(self, going: Cursors, arrays: Numbers, counts: Numbers, found: _Items | None) -> None:
        lasts = going.bodies.lasts
        firsts = np.searchsorted(lasts, going.places)
        finals = firsts + counts - 1
        # There are as many as there are octets that can be the last of one. The count itself ended with one of them.
        wrong = lasts[np.minimum(finals, len(lasts) - 1)] >= going.stops
        wrong |= finals >= len(lasts)
        going.spoil(wrong)
        counts = np.where(wrong, 0, counts)
        if found is not None:
            index = np.repeat(firsts, counts) + _ranks(counts)
            found.add(np.repeat(arrays, counts), lasts[index - 1] + 1, lasts[index] + 1)
        going.places = np.where(counts > 0, lasts[np.where(wrong, 0, finals)] + 1, going.places)

    def _one_by_one(self, going: Cursors, arrays: Numbers, counts: Numbers, found: _Items | None) -> None:
        active = np.flatnonzero(counts)
        walkers = going.some(active)
        left = counts[active]
        is_short = self.item.is_flat
        while len(active):
            steps = np.ones(1, np.int64)
            if is_short and len(active) <= _FEW and int(left.max()) >= _MANY:
                steps = self._leap(walkers, left, arrays[active], found)
                is_short = bool((steps >= _MANY).any())  # otherwise the items are long, and it does not pay
            else:
                begins = walkers.places
                self.item.skip(walkers)
                if found is not None:
                    found.add(arrays[active], begins, walkers.places)
            left = left - steps
            is_over: Mask = walkers.bad | (left == 0)
            if is_over.any():
                going.back(active[is_over], walkers.some(is_over))
                active, left, walkers = active[~is_over], left[~is_over], walkers.some(~is_over)

    def _leap(self, walkers: Cursors, left: Numbers, arrays: Numbers, found: _Items | None) -> Numbers:
        """Move past many items of a few long arrays; how many of each.

        Where an item would end is found for every octet at once, as if one began there. Then it is only to go from
        each to the next.
        """
        sizes = np.minimum(walkers.stops - walkers.places, _WINDOW)
        index = np.repeat(np.arange(len(walkers)), sizes)
        places = walkers.places[index] + _ranks(sizes)
        everywhere = Cursors(walkers.bodies, walkers.owners[index], places, walkers.stops[index])
        self.item.skip(everywhere)
        jumps = np.where(everywhere.bad, -1, everywhere.places - walkers.places[index])
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
                start = int(walkers.places[number])
                bounds = np.array([*begins, at], np.int64) + start
                found.add(np.full(len(begins), arrays[number]), bounds[:-1], bounds[1:])
        walkers.places = walkers.places + np.maximum(reached, 0)
        walkers.spoil(reached < 0)
        return steps


def _ranks(counts: Numbers) -> Numbers:
    """0, 1, 2, ... for each count."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)


@dataclass(frozen=True)
class List(_Blocks):
    """Avro's array."""

    @property
    def ddl(self) -> str:
        return f"array<{self.item.ddl}>"

    def read(self, cursors: Cursors) -> Array:
        return pa.ListArray.from_arrays(*self._read(cursors))


@dataclass(frozen=True)
class Map(_Blocks):
    """Avro's map: an array of keys, which are strings, with their values."""

    item: Record

    @classmethod
    def of(cls, values: Kind) -> Map:
        """The map of strings to these."""
        return cls(Record(("key", "value"), (String(), values)))

    @property
    def ddl(self) -> str:
        return f"map<string,{self.item.kinds[1].ddl}>"

    def read(self, cursors: Cursors) -> Array:
        offsets, pairs = self._read(cursors)
        return pa.MapArray.from_arrays(offsets, *pairs.flatten())
