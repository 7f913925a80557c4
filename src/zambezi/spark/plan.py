"""How work is cut: slices of streams into partitions that are even, and what waits into micro-batches of a size.

The index of a journal knows how many octets stand before a sequence, so partitions are even in octets, whatever the
sizes of the messages. Small slices of many streams share a partition: a partition costs more than a few messages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from pyspark.sql.datasource import InputPartition

from zambezi.spark.backend import Marks, Slice

PIECE: Final = 512 << 20  # octets of a partition, at most, if there is no other wish
LEAST: Final = 4 << 20  # less is not worth a partition of its own


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(tuple(slices))

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(self.value)

    @property
    def count(self) -> int:
        return sum(piece.count for piece in self.slices)


def cores() -> int:
    """How many tasks run at once on this machine: what is known of the cluster where partitions are planned."""
    return len(os.sched_getaffinity(0))


def how_many(octets: int, least: int | None, cores: int) -> int:
    """How many partitions so many octets make: none idle at the end while others work, where that is possible."""
    if octets <= 2 * LEAST:
        return least or 1
    wanted = -(-octets // PIECE)
    rounded = min(-(-wanted // cores) * cores, -(-octets // LEAST))
    return max(rounded, least or 1)


def cut(
    weighed: Sequence[tuple[Slice, Marks]], *, least: int | None = None, most: int | None = None, cores: int = 1
) -> list[Part]:
    """Partitions of about the same number of octets, at least `least`, each with `most` messages at most."""
    weighed = [(piece, marks) for piece, marks in weighed if piece.count]
    total = sum(marks.size for _, marks in weighed)
    if not total:
        return []
    number = how_many(total, least, cores)
    bounds = [total * part / number for part in range(1, number)]
    parts: list[list[Slice]] = [[]]
    passed = 0.0
    for piece, marks in weighed:
        inside = [bound - passed for bound in bounds if passed < bound < passed + marks.size]
        places = [piece.after, *(_between(marks.at(place) - 1, piece) for place in inside), piece.last]
        for index, (after, last) in enumerate(pairwise(places)):
            if index:
                parts.append([])
            if last > after:
                parts[-1].append(Slice(piece.stream, piece.incarnation, after, last))
        passed += marks.size
        if any(bound == passed for bound in bounds):
            parts.append([])
    return [Part(slices) for part in parts if part for slices in _bounded(part, most)]


def _between(sequence: int, piece: Slice) -> int:
    return max(piece.after, min(piece.last, sequence))


def _bounded(part: list[Slice], most: int | None) -> list[list[Slice]]:
    """The same slices in pieces of at most so many messages, all about as large."""
    count = sum(piece.count for piece in part)
    if most is None or count <= most:
        return [part]
    pieces = -(-count // most)
    size, more = divmod(count, pieces)
    found: list[list[Slice]] = [[]]
    room = size + (more > 0)
    for piece in part:
        after = piece.after
        while after < piece.last:
            if not room:
                found.append([])
                room = size + (len(found) <= more)
            last = min(piece.last, after + room)
            found[-1].append(Slice(piece.stream, piece.incarnation, after, last))
            room -= last - after
            after = last
    return found


def share(waiting: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many of what waits in each stream are taken, `limit` together: in proportion, and nobody waits for ever.

    >>> share({"a": 90, "b": 10, "c": 0}, 20)
    {'a': 18, 'b': 2, 'c': 0}
    >>> share({"a": 1000, "b": 1}, 10)
    {'a': 9, 'b': 1}
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    taken = {name: count * limit // total for name, count in waiting.items()}
    rest = limit - sum(taken.values())
    # What rounding left over goes to those with the least: a busy stream does not keep a quiet one waiting.
    for name in sorted(waiting, key=lambda name: (taken[name], name)):
        if rest and taken[name] < waiting[name]:
            taken[name] += 1
            rest -= 1
    return taken


def even(piece: Slice, octets: int) -> Marks:
    """Marks for a slice that is too small to ask the index about."""
    return Marks(
        np.array([piece.after + 1, piece.last + 1], np.int64), np.array([0, max(1, octets * piece.count)], np.int64)
    )
