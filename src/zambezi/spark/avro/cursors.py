"""Many bodies that are read at once: where each of them is being read, and the few moves that Avro's encoding needs.

A value of Avro's has no length but that of its parts, so a body can only be read from its beginning on. But all bodies
have the same schema: so one value of all bodies is read at once, then the next, and each body has its own place.

A cursor that meets what cannot be is spoilt: it is put to its end, where every further move fails as well, so that
nobody has to ask in between. What is read for it is anything; who asked for it leaves it out in the end.

Numbers are of variable length, 7 bits to an octet, the lowest first, and the last octet is less than 128. To read them
octet by octet takes as many rounds as the longest has octets. Instead the next 8 octets are taken as one number: its
lowest high bit that is not set marks the end, what is above is cut off, and the rest is closed up in three shifts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zambezi.spark.columns import Array, Numbers, Octets

Mask = npt.NDArray[np.bool_]
_Words = npt.NDArray[np.uint64]

_PADDING: Final = 16  # so that a number at the very end can be read as if it were a long one
_ONE: Final = np.uint64(1)
_HIGH: Final = np.uint64(0x8080808080808080)
_CLOSING: Final = tuple(  # what stays, what moves down, and by how much
    (np.uint64(stays), np.uint64(moves), np.uint64(by))
    for stays, moves, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


class Bodies:
    """The octets of a column of bodies, where each begins and ends, and what is known of all of them."""

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
        # Items that take no octets have no bound but this one: as many as the body has octets.
        self.allowance: Numbers = self.stops - self.starts

    def seen_as(self, kind: str) -> npt.NDArray[Any]:
        """The numbers of a fixed size that would begin at each octet."""
        return np.ndarray((len(self.octets) - 7,), kind, self.octets, 0, (1,))

    @cached_property
    def words(self) -> npt.NDArray[Any]:
        """The 8 octets from each octet on, as one number."""
        return self.seen_as("<u8")

    @cached_property
    def lasts(self) -> Numbers:
        """Where octets stand that would be the last of a number."""
        return np.flatnonzero(self.octets[:-_PADDING] < 0x80)


class Cursors:
    """Places in bodies, all to be read by the same schema. `owners` says in which body each of them is."""

    __slots__ = ("bad", "bodies", "owners", "places", "stops")

    def __init__(self, bodies: Bodies, owners: Numbers, places: Numbers, stops: Numbers, bad: Mask | None = None):
        self.bodies = bodies
        self.owners = owners
        self.places = places  # never changed but replaced: others may keep them
        self.stops = stops
        self.bad: Mask = np.zeros(len(places), np.bool_) if bad is None else bad

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def over(cls, column: Array) -> Cursors:
        """At the beginning of each body of a column; one that is null is bad."""
        bodies = Bodies(column)
        made = cls(bodies, np.arange(len(column)), bodies.starts, bodies.stops)
        if column.null_count:
            made.spoil(column.is_null().to_numpy(zero_copy_only=False))
        return made

    # Some of them

    def some(self, index: Numbers | Mask) -> Cursors:
        """Some of the cursors, to be moved for themselves."""
        return Cursors(self.bodies, self.owners[index], self.places[index], self.stops[index], self.bad[index])

    def back(self, index: Numbers | Mask, some: Cursors) -> None:
        """Put them back where they have come to."""
        self.places = self.places.copy()
        self.places[index] = some.places
        self.bad[index] = some.bad

    def spoil(self, wrong: Mask) -> None:
        """What these read is not what it should be."""
        if wrong.any():
            self.bad |= wrong
            self.places = np.where(wrong, self.stops, self.places)

    # Moves

    def take(self, size: int) -> Numbers:
        """Move past so many octets; where they begin (or anywhere, where they are not)."""
        begins = self.places
        self._move(begins + size, begins > self.stops - size)
        return begins

    def span(self, sizes: Numbers) -> tuple[Numbers, Numbers]:
        """Move past as many octets as each is told; where they begin and end."""
        wrong = (sizes < 0) | (sizes > self.stops - self.places)
        self.spoil(wrong)
        begins = self.places
        self.places = begins + (np.where(wrong, 0, sizes) if wrong.any() else sizes)
        return begins, self.places

    def number(self) -> Numbers:
        """Move past a number of variable length, zigzag: 0, -1, 1, -2, ..."""
        places = self.places
        firsts = self.bodies.octets[places]
        if not len(firsts) or firsts.max() < 0x80:
            found = firsts.astype(np.uint64)
            ends = places + 1
            self._move(ends, ends > self.stops)
        else:
            found, sizes = _numbers(self.bodies, places)
            ends = places + sizes
            self._move(ends, (ends > self.stops) | (sizes == 0))
        return (found >> _ONE).view(np.int64) ^ -(found & _ONE).view(np.int64)

    def choice(self, count: int) -> Numbers:
        """Move past a number that chooses one of so many."""
        numbers = self.number()
        wrong = (numbers < 0) | (numbers >= count)
        if not wrong.any():
            return numbers
        self.spoil(wrong)
        return np.where(wrong, 0, numbers)

    def expect(self, octets: bytes) -> None:
        """Move past octets that must be these."""
        begins = self.take(len(octets))
        for number, octet in enumerate(octets):
            # A cursor that is spoilt may stand where there are no octets for it any more, up to the padding.
            self.spoil(self.bodies.octets[begins + number] != octet)

    def spend(self, counts: Numbers) -> None:
        """Take items that have no octets out of the allowance of their bodies."""
        allowance = self.bodies.allowance
        wrong = counts > allowance[self.owners]
        np.subtract.at(allowance, self.owners, np.where(wrong, 0, counts))
        self.spoil(wrong | (allowance[self.owners] < 0))

    def _move(self, ends: Numbers, wrong: Mask) -> None:
        self.places = ends
        self.spoil(wrong)


def _numbers(bodies: Bodies, places: Numbers) -> tuple[_Words, Numbers]:
    """The numbers that begin at places, before zigzag, and how many octets they have; 0 for what is none."""
    found: _Words = bodies.words[places]
    ends = ~found & _HIGH
    ends &= ~ends + _ONE  # the lowest: that of the last octet
    found &= ends - _ONE  # and everything, if there is none
    for stays, moves, by in _CLOSING:
        found = (found & stays) | ((found & moves) >> by)
    # A power of two has its exponent in the upper bits of a float: 7, 15, ... with 1023 added.
    sizes: Numbers = ((ends.astype(np.float64).view(np.int64) >> 52) - 1022) >> 3
    longer = np.flatnonzero(ends == 0)
    if len(longer):
        ninth = bodies.octets[places[longer] + 8].astype(np.uint64)
        tenth = bodies.octets[places[longer] + 9].astype(np.uint64)
        is_tenth = ninth >= 0x80
        found[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        found[longer] |= np.where(is_tenth, tenth & _ONE, np.uint64(0)) << np.uint64(63)
        sizes[longer] = np.where(is_tenth, np.where(tenth <= _ONE, 10, 0), 9)  # 64 bits, and no more
    return found, sizes
