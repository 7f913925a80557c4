"""Cursors: the reading position in each of many bodies, and the few moves that the encoding of Avro needs.

An Avro value does not give its length, so a body can only be read from its beginning. But all bodies have the same
schema: so one value is read from all bodies at once, then the next, and each body has its own position.

A cursor that finds an invalid value becomes bad: it moves to the end of its body, where every further move fails as
well, so that callers need not check after each move. The values that it reads are arbitrary; the caller discards them
at the end.

Numbers have a variable length: 7 bits in each byte, the lowest first, and the last byte is less than 128. Reading them
byte by byte takes as many rounds as the longest number has bytes. Instead, the next 8 bytes are read as one number: its
lowest clear high bit marks the end, the bits above are removed, and three shifts close the gaps between the rest.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zambezi.spark.columns import Array, Numbers, Octets

Mask = npt.NDArray[np.bool_]
_Words = npt.NDArray[np.uint64]

_PADDING: Final = 16  # bytes after the last body, so that 8 bytes can be read at every position
_ONE: Final = np.uint64(1)
_HIGH: Final = np.uint64(0x8080808080808080)
_CLOSING: Final = tuple(  # the bits that stay, the bits that move down, and by how much
    (np.uint64(stays), np.uint64(moves), np.uint64(by))
    for stays, moves, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


class Bodies:
    """The bytes of a column of bodies, and where each body begins and ends."""

    def __init__(self, column: Array) -> None:
        _, offsets, values = column.buffers()
        bounds = np.zeros(1, np.int64)
        if len(column):
            bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        octets = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
        octets = octets[int(bounds[0]) : int(bounds[-1])]
        bounds -= bounds[0]
        self.octets: Octets = np.concatenate([octets, np.zeros(_PADDING, np.uint8)])
        self.starts: Numbers = bounds[:-1]
        self.stops: Numbers = bounds[1:]
        # The bound for items that take no bytes: at most as many as the body has bytes.
        self.allowance: Numbers = self.stops - self.starts

    def as_numbers(self, kind: str) -> npt.NDArray[Any]:
        """Return the number of a fixed size that begins at each byte."""
        return np.ndarray((len(self.octets) - 7,), kind, self.octets, 0, (1,))

    @cached_property
    def words(self) -> npt.NDArray[Any]:
        """The 8 bytes from each byte on, as one number."""
        return self.as_numbers("<u8")

    @cached_property
    def number_ends(self) -> Numbers:
        """The positions of all bytes that can be the last of a number."""
        return np.flatnonzero(self.octets[:-_PADDING] < 0x80)


class Cursors:
    """Positions in bodies that are read with the same schema. `owners` has the body of each cursor."""

    __slots__ = ("bad", "bodies", "owners", "positions", "stops")

    def __init__(self, bodies: Bodies, owners: Numbers, positions: Numbers, stops: Numbers, bad: Mask | None = None):
        self.bodies = bodies
        self.owners = owners
        self.positions = positions  # replaced and never modified, because callers keep references
        self.stops = stops
        self.bad: Mask = np.zeros(len(positions), np.bool_) if bad is None else bad

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def over(cls, column: Array) -> Cursors:
        """Return cursors at the beginning of each body of a column. The cursor of a null is bad."""
        bodies = Bodies(column)
        made = cls(bodies, np.arange(len(column)), bodies.starts, bodies.stops)
        if column.null_count:
            made.mark_bad(column.is_null().to_numpy(zero_copy_only=False))
        return made

    # Subsets

    def subset(self, index: Numbers | Mask) -> Cursors:
        """Return a copy of some cursors, which can be moved separately."""
        return Cursors(self.bodies, self.owners[index], self.positions[index], self.stops[index], self.bad[index])

    def put_back(self, index: Numbers | Mask, some: Cursors) -> None:
        """Set the state of some cursors to that of a subset."""
        self.positions = self.positions.copy()
        self.positions[index] = some.positions
        self.bad[index] = some.bad

    def mark_bad(self, wrong: Mask) -> None:
        """Mark cursors as bad, and move them to their ends."""
        if wrong.any():
            self.bad |= wrong
            self.positions = np.where(wrong, self.stops, self.positions)

    # Moves

    def take(self, size: int) -> Numbers:
        """Move past this many bytes, and return where they begin. The result of a bad cursor is arbitrary."""
        begins = self.positions
        self._move(begins + size, begins > self.stops - size)
        return begins

    def span(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Move each cursor past its number of bytes, and return where they begin and end."""
        wrong = (sizes < 0) | (sizes > self.stops - self.positions)
        self.mark_bad(wrong)
        begins = self.positions
        self.positions = begins + (np.where(wrong, 0, sizes) if wrong.any() else sizes)
        return begins, self.positions

    def number(self) -> Numbers:
        """Read a number of variable length in zigzag coding: 0, -1, 1, -2, ..."""
        positions = self.positions
        firsts = self.bodies.octets[positions]
        if not len(firsts) or firsts.max() < 0x80:
            found = firsts.astype(np.uint64)
            ends = positions + 1
            self._move(ends, ends > self.stops)
        else:
            found, sizes = _numbers(self.bodies, positions)
            ends = positions + sizes
            self._move(ends, (ends > self.stops) | (sizes == 0))
        return (found >> _ONE).view(np.int64) ^ -(found & _ONE).view(np.int64)

    def choice(self, count: int) -> Numbers:
        """Read a number from 0 to `count` - 1."""
        numbers = self.number()
        wrong = (numbers < 0) | (numbers >= count)
        if not wrong.any():
            return numbers
        self.mark_bad(wrong)
        return np.where(wrong, 0, numbers)

    def expect(self, octets: bytes) -> None:
        """Move past bytes that must be equal to the given ones."""
        begins = self.take(len(octets))
        for number, octet in enumerate(octets):
            # A bad cursor is at the end of its body; the padding makes this access valid.
            self.mark_bad(self.bodies.octets[begins + number] != octet)

    def use_allowance(self, counts: Numbers) -> None:
        """Subtract items that take no bytes from the allowance of their bodies."""
        allowance = self.bodies.allowance
        wrong = counts > allowance[self.owners]
        np.subtract.at(allowance, self.owners, np.where(wrong, 0, counts))
        self.mark_bad(wrong | (allowance[self.owners] < 0))

    def _move(self, ends: Numbers, wrong: Mask) -> None:
        self.positions = ends
        self.mark_bad(wrong)


def _numbers(bodies: Bodies, positions: Numbers) -> tuple[_Words, Numbers]:
    """Return the numbers at positions, before zigzag decoding, and their sizes in bytes; 0 for an invalid number."""
    found: _Words = bodies.words[positions]
    ends = ~found & _HIGH
    ends &= ~ends + _ONE  # the lowest one: that of the last byte
    found &= ends - _ONE  # if there is none, all bits are kept
    for stays, moves, by in _CLOSING:
        found = (found & stays) | ((found & moves) >> by)
    # The upper bits of a float are the exponent plus 1023. A power of two has the exponents 7, 15, ...
    sizes: Numbers = ((ends.astype(np.float64).view(np.int64) >> 52) - 1022) >> 3
    longer = np.flatnonzero(ends == 0)
    if len(longer):
        ninth = bodies.octets[positions[longer] + 8].astype(np.uint64)
        tenth = bodies.octets[positions[longer] + 9].astype(np.uint64)
        is_tenth = ninth >= 0x80
        found[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        found[longer] |= np.where(is_tenth, tenth & _ONE, np.uint64(0)) << np.uint64(63)
        sizes[longer] = np.where(is_tenth, np.where(tenth <= _ONE, 10, 0), 9)  # a number has at most 64 bits
    return found, sizes
