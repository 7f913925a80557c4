"""zambezi.spark.plan: partitions have similar sizes, and every message is in exactly one of them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.schemas import COLUMNS
from zambezi.spark.backend import Backend, SequenceRange, SizeIndex, StreamState, size_index_from_points
from zambezi.spark.base_reader import BaseReader
from zambezi.spark.options import BATCH, Options
from zambezi.spark.plan import (
    CORES,
    MAX_PARTITION_SIZE,
    MIN_PARTITION_SIZE,
    StreamPartition,
    default_cores,
    divide_limit,
    partition_count,
    split_into_partitions,
    uniform_size_index,
)

counts_of_streams = st.lists(st.integers(1, 500), max_size=6)


def messages_in(partitions: list[StreamPartition]) -> list[tuple[str, int]]:
    return [
        (one.stream, sequence)
        for partition in partitions
        for one in partition.ranges
        for sequence in range(one.after + 1, one.last + 1)
    ]


@given(
    counts_of_streams,
    st.one_of(st.none(), st.integers(1, 20)),
    st.one_of(st.none(), st.integers(1, 100)),
    st.integers(1, 5),
)
def test_every_message_is_in_one_partition(
    counts: list[int], min_partitions: int | None, max_messages: int | None, cores: int
) -> None:
    ranges = [SequenceRange(f"s{number}", "i", 10, 10 + count) for number, count in enumerate(counts)]
    partitions = split_into_partitions(
        [(one, uniform_size_index(one, StreamState(one.stream, "i", 1, 1, 100, 0))) for one in ranges],
        min_partitions=min_partitions,
        max_messages=max_messages,
        cores=cores,
    )
    assert messages_in(partitions) == [(one.stream, number) for one in ranges for number in range(11, one.last + 1)]
    assert all(partition.count for partition in partitions)
    if max_messages is not None:
        assert all(partition.count <= max_messages for partition in partitions)
    if min_partitions is not None and sum(counts) >= 2 * min_partitions * (len(counts) + 1):
        assert len(partitions) >= min_partitions


def test_partitions_have_similar_sizes_in_bytes() -> None:
    """The first half of the messages is large, the second half small."""
    sizes = SizeIndex(np.array([1, 101, 201]), np.array([0, 90_000, 100_000]))
    first, second = split_into_partitions([(SequenceRange("s", "i", 0, 200), sizes)], min_partitions=2)
    assert [first.count, second.count] == [55, 145]


def test_many_small_streams_share_a_partition() -> None:
    ranges = [SequenceRange(f"s{number}", "i", 0, 3) for number in range(50)]
    [partition] = split_into_partitions(
        [(one, uniform_size_index(one, StreamState(one.stream, "i", 1, 1, 100, 0))) for one in ranges], cores=8
    )
    assert len(partition.ranges) == 50


@pytest.mark.parametrize(
    ("size", "min_partitions", "cores", "count"),
    [
        (0, None, 4, 1),
        (2 * MIN_PARTITION_SIZE, None, 4, 1),
        (2 * MIN_PARTITION_SIZE + 1, None, 4, 3),  # too little for one partition per core
        (100 * MIN_PARTITION_SIZE, None, 4, 4),
        (MAX_PARTITION_SIZE * 5, None, 4, 8),  # two rounds, and no core is idle in the second
        (MAX_PARTITION_SIZE * 5, 11, 4, 11),
        (1, 3, 4, 3),
    ],
)
def test_the_number_of_partitions(size: int, min_partitions: int | None, cores: int, count: int) -> None:
    assert partition_count(size, min_partitions, cores) == count


def test_the_default_cores_are_those_of_the_cluster_or_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, "24")
    assert default_cores() == 24
    monkeypatch.delenv(CORES)
    assert default_cores() == len(os.sched_getaffinity(0))


def test_no_messages_make_no_partition() -> None:
    assert split_into_partitions([]) == []
    empty = SizeIndex(np.array([6, 6]), np.array([0, 0]))
    assert split_into_partitions([(SequenceRange("s", "i", 5, 5), empty)]) == []


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000)), st.integers(1, 500))
def test_a_divided_limit_is_used_up(unread: dict[str, int], limit: int) -> None:
    shares = divide_limit(unread, limit)
    assert sum(shares.values()) == min(limit, sum(unread.values()))
    assert all(0 <= shares[name] <= count for name, count in unread.items())


def test_ten_terabytes_of_tiny_batches_are_planned_in_little_memory() -> None:
    """The index would have 86 billion entries. The plan needs as many points as it has partitions, times eight."""
    size, message = 10 << 40, 116
    last = size // message
    state = StreamState("s", "i", 1, last, size, 0)
    wanted = SequenceRange("s", "i", 0, last)

    class Reader(BaseReader):
        @property
        def backend(self) -> Backend:
            return cast("Backend", _PointsOnDemand(message))

    reader = Reader(COLUMNS, Options({"path": "none", "stream": "s"}, BATCH))
    [(_, sizes)] = reader.sized_ranges([wanted], {"s": state})
    assert sizes.sequences.nbytes + sizes.bytes_before.nbytes < 3 << 20
    partitions = reader.plan_partitions([wanted], {"s": state})
    assert len(partitions) == pytest.approx(size / MAX_PARTITION_SIZE, rel=0.01)
    assert len(pickle.dumps(partitions)) < 3 << 20
    assert sum(partition.count for partition in partitions) == last
    assert max(partition.count for partition in partitions) * message < 1.1 * MAX_PARTITION_SIZE


class _PointsOnDemand:
    """A backend of messages of one size that were published one by one."""

    def __init__(self, message: int) -> None:
        self._message = message

    def size_indexes(self, ranges: Sequence[SequenceRange], step: int) -> list[SizeIndex | None]:
        [wanted] = ranges
        between = range(wanted.after + 1, wanted.last + 1, -(-step // self._message))
        points = [(sequence, (sequence - 1) * self._message) for sequence in between]
        return [size_index_from_points([*points, (wanted.last + 1, wanted.last * self._message)])]


def test_ten_thousand_streams_are_divided_quickly() -> None:
    """The work grows with the number of ranges and of partitions, and not with their product."""
    ranges = [SequenceRange(f"s{number}", "i", 0, 100) for number in range(10_000)]
    state = StreamState("s", "i", 1, 1, 1, 0)
    sized = [(one, uniform_size_index(one, state)) for one in ranges]
    partitions = split_into_partitions(sized, min_partitions=10_000)
    assert len(partitions) == 10_000
    assert all(partition.count == 100 for partition in partitions)
