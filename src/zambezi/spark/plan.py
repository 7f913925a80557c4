"""The division of work: ranges of streams into partitions of similar size, and unread messages into micro-batches.

The index of a journal has the number of bytes before a sequence. So partitions have similar sizes in bytes, whatever
the sizes of the messages. Small ranges of many streams share a partition, because a partition costs more than a few
messages do.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from pyspark.sql.datasource import InputPartition

from zambezi.spark.backend import SequenceRange, SizeIndex, StreamState

MAX_PARTITION_SIZE: Final = 512 << 20  # bytes, unless the user wants more partitions
CORES: Final = "ZAMBEZI_SPARK_CORES"  # a variable of the environment: the cores of the cluster
MIN_PARTITION_SIZE: Final = 4 << 20  # bytes; less is not worth a partition


class StreamPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[SequenceRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[SequenceRange, ...]:
        return tuple(self.value)

    @property
    def count(self) -> int:
        return sum(one.count for one in self.ranges)


def default_cores() -> int:
    """Return the cores of the cluster, as `session` knows them; else the cores of this machine.

    Spark tells the process that plans a query nothing about the cluster.
    """
    known = os.environ.get(CORES, "")
    return max(1, int(known)) if known.isdecimal() else len(os.sched_getaffinity(0))


def partition_count(size: int, min_partitions: int | None, cores: int) -> int:
    """Return the number of partitions for this many bytes. It is a multiple of the cores if possible, so that none of
    them is idle."""
    if size <= 2 * MIN_PARTITION_SIZE:
        return min_partitions or 1
    least = -(-size // MAX_PARTITION_SIZE)
    rounded = min(-(-least // cores) * cores, -(-size // MIN_PARTITION_SIZE))
    return max(rounded, min_partitions or 1)


def split_into_partitions(
    sized_ranges: Sequence[tuple[SequenceRange, SizeIndex]],
    *,
    min_partitions: int | None = None,
    max_messages: int | None = None,
    cores: int = 1,
) -> list[StreamPartition]:
    """Return partitions of similar size in bytes: at least `min_partitions`, each with at most `max_messages`."""
    sized_ranges = [(wanted, sizes) for wanted, sizes in sized_ranges if wanted.count]
    total = sum(sizes.size for _, sizes in sized_ranges)
    if not total:
        return []
    number = partition_count(total, min_partitions, cores)
    bounds = [total * partition / number for partition in range(1, number)]
    partitions: list[list[SequenceRange]] = [[]]
    passed = 0.0  # bytes of the ranges before this one
    for wanted, sizes in sized_ranges:
        inside = [
            bound - passed for bound in bounds[bisect_right(bounds, passed) : bisect_left(bounds, passed + sizes.size)]
        ]
        cuts = [wanted.after, *(_clamp(sequence - 1, wanted) for sequence in sizes.sequences_at(inside)), wanted.last]
        for index, (after, last) in enumerate(pairwise(cuts)):
            if index:
                partitions.append([])
            if last > after:
                partitions[-1].append(SequenceRange(wanted.stream, wanted.incarnation, after, last))
        passed += sizes.size
        here = bisect_left(bounds, passed)
        if here < len(bounds) and bounds[here] == passed:
            partitions.append([])
    return [
        StreamPartition(limited) for ranges in partitions if ranges for limited in _limit_messages(ranges, max_messages)
    ]


def _clamp(sequence: int, wanted: SequenceRange) -> int:
    return max(wanted.after, min(wanted.last, sequence))


def _limit_messages(ranges: list[SequenceRange], max_messages: int | None) -> list[list[SequenceRange]]:
    """Divide ranges into groups of similar size with at most `max_messages` messages each."""
    count = sum(one.count for one in ranges)
    if max_messages is None or count <= max_messages:
        return [ranges]
    groups = -(-count // max_messages)
    size, remainder = divmod(count, groups)
    found: list[list[SequenceRange]] = [[]]
    room = size + (remainder > 0)
    for one in ranges:
        after = one.after
        while after < one.last:
            if not room:
                found.append([])
                room = size + (len(found) <= remainder)
            last = min(one.last, after + room)
            found[-1].append(SequenceRange(one.stream, one.incarnation, after, last))
            room -= last - after
            after = last
    return found


def divide_limit(unread: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide a limit among streams in proportion to their unread messages, so that no stream waits for ever.

    >>> divide_limit({"a": 90, "b": 10, "c": 0}, 20)
    {'a': 18, 'b': 2, 'c': 0}
    >>> divide_limit({"a": 1000, "b": 1}, 10)
    {'a': 9, 'b': 1}
    """
    total = sum(unread.values())
    if total <= limit:
        return dict(unread)
    shares = {name: count * limit // total for name, count in unread.items()}
    rest = limit - sum(shares.values())
    # The rest from rounding goes to the streams with the smallest shares: a busy stream does not hold up a quiet one.
    for name in sorted(unread, key=lambda name: (shares[name], name)):
        if rest and shares[name] < unread[name]:
            shares[name] += 1
            rest -= 1
    return shares


def uniform_size_index(wanted: SequenceRange, state: StreamState) -> SizeIndex:
    """Return a size index that takes all messages of a stream for equally large: an estimate that needs no request."""
    size = state.size * wanted.count // max(1, state.last - state.first + 1)
    return SizeIndex(np.array([wanted.after + 1, wanted.last + 1], np.int64), np.array([0, max(1, size)], np.int64))
