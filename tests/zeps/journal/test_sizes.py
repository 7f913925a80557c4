"""zambezi.zeps.journal.sizes: where a journal can be cut into parts of similar size, without the whole index."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zambezi.zeps.block import deliver
from zambezi.zeps.journal import IndexEntry, Journal, Policy, Store
from zambezi.zeps.journal.entry import SIZE
from zambezi.zeps.journal.segment import Files, Segment
from zambezi.zeps.journal.sizes import size_points
from zambezi.zeps.messages import Publish


def append(journal: Journal, count: int, size: int) -> None:
    frames = [Publish("k", bytes(size)).encode()[0]] * count
    journal.append(deliver(frames, journal.last + 1), 1_700_000_000.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, policy=Policy(segment=5000, sync="never")) as made:
        yield made


def test_points_of_a_whole_journal(store: Store) -> None:
    journal = store.open("s")
    for _ in range(100):
        append(journal, 3, 80)
    assert len(journal.segments) > 3
    assert list(size_points(journal, 0, 300, 1 << 40)) == [(1, 0), (301, journal.octets)]
    points = list(size_points(journal, 0, 300, 1000))
    assert points[0] == (1, 0)
    assert points[-1] == (301, journal.octets)
    sizes = [size for _, size in points]
    assert all(1000 <= after - before <= 2000 for before, after in pairwise(sizes[:-1]))
    message = journal.octets // 300
    assert all(size == (sequence - 1) * message for sequence, size in points)


def test_points_begin_and_end_inside_of_batches(store: Store) -> None:
    journal = store.open("s")
    for _ in range(4):
        append(journal, 10, 20)
    message = journal.octets // 40
    assert list(size_points(journal, 4, 36, 10 * message)) == [
        (5, 0),
        (21, 16 * message),
        (31, 26 * message),
        (37, 32 * message),
    ]
    assert list(size_points(journal, 12, 13, 1)) == [(13, 0), (14, message)]


def test_a_range_without_messages_has_no_points(store: Store) -> None:
    journal = store.open("s")
    assert list(size_points(journal, 0, 10, 1)) == []
    append(journal, 3, 1)
    assert list(size_points(journal, 3, 10, 1)) == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=30),
    st.integers(0, 160),
    st.integers(0, 160),
    st.integers(1, 3000),
)
def test_points_are_in_order_and_end_with_the_size(
    batches: list[tuple[int, int]], after: int, last: int, step: int
) -> None:
    journal = _Virtual(batches)
    points = list(size_points(cast("Journal", journal), after, last, step))
    if last <= after or after >= journal.segments[-1].last:
        assert len(points) <= 2
        return
    assert points == sorted(set(points))
    assert points[0] == (after + 1, 0)
    assert points[-1][0] == min(last, journal.segments[-1].last) + 1


def test_ten_terabytes_of_tiny_batches_need_few_reads() -> None:
    """The index would have 86 billion entries, which are 4 TB."""
    journal = _Huge(segments=37_000, size=256 << 20, message=116)
    points = list(size_points(cast("Journal", journal), 0, 1 << 60, 64 << 30))
    assert len(points) == pytest.approx(37_000 / 256, rel=0.1)
    assert journal.reads < 30 * len(points)
    size = 37_000 * (256 << 20)
    assert points[-1][1] == pytest.approx(size, rel=0.001)


class _Virtual:
    """A journal of one segment whose index is made by a function."""

    backing = None

    def __init__(self, batches: list[tuple[int, int]]) -> None:
        entries = []
        first, offset = 1, 0
        for count, size in batches:
            length = count * (size + 20)
            entries.append(IndexEntry(first, offset, 1, count, length, length, 0))
            first, offset = first + count, offset + length
        self._index = b"".join([entry.pack() for entry in entries])
        segment = Segment("", 1)
        segment.note_append(first - 1, offset, 1, len(entries))
        self.segments = [segment]

    def files(self, segment: Segment) -> Files:
        return cast("Files", _VirtualFiles(self._index))


class _VirtualFiles:
    def __init__(self, index: bytes) -> None:
        self._index = index

    def read_entries(self, number: int, limit: int) -> bytes:
        return self._index[number * SIZE : (number + limit) * SIZE]

    def read_field(self, number: int, offset: int) -> bytes:
        return self._index[number * SIZE + offset : number * SIZE + offset + 8]


class _Huge:
    """A journal of messages of one size that were published one by one."""

    backing = None

    def __init__(self, segments: int, size: int, message: int) -> None:
        self.reads = 0
        self._message = message
        count = size // message
        self.segments = [_segment(1 + number * count, count, message) for number in range(segments)]
        self._segment: Segment

    def files(self, segment: Segment) -> Files:
        self._segment = segment
        return cast("Files", self)

    def read_entries(self, number: int, limit: int) -> bytes:
        self.reads += 1
        first = self._segment.first + number
        return IndexEntry(first, number * self._message, 1, 1, self._message, self._message, 0).pack()

    def read_field(self, number: int, offset: int) -> bytes:
        self.reads += 1
        assert offset == 8
        return (number * self._message).to_bytes(8, "big")


def _segment(first: int, count: int, message: int) -> Segment:
    segment = Segment("", first)
    segment.note_append(first + count - 1, count * message, 1, count)
    return segment
