"""The sizes of parts of a journal, for programs that divide it: how many bytes are before some sequences.

The index has the offset of every batch. A journal of messages that were published one by one has as many entries as
messages, so nothing here reads the whole index: each point is found by a binary search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, TypeAlias

from zambezi.zeps.errors import Rewritten
from zambezi.zeps.journal.backing import Backing, Extent
from zambezi.zeps.journal.reading import JournalReading
from zambezi.zeps.journal.segment import Files, Segment

Point: TypeAlias = tuple[int, int]  # a sequence, and the bytes of the range before it

MOST: Final = 100_000  # points of a range, about


def size_points(journal: JournalReading, after: int, last: int, step: int) -> Iterator[Point]:
    """Yield points of a range, about one for each `step` bytes: the first is its beginning, the last is after its end.

    The points between them are beginnings of batches. At both ends of the range, a batch counts in proportion to its
    messages. Nothing is yielded if the journal has no message of the range.
    """
    if journal.backing is not None:
        yield from _points_of_extents(journal, journal.backing, after, last, step)
        return
    sizes = [segment.size for segment in journal.segments if segment.last > after and segment.first <= last]
    step = max(1, step, sum(sizes) // MOST)
    passed, target = 0, step  # bytes of the range before the segment, and where the next point is wanted
    reached = after
    is_first = True
    while (segment := _segment_after(journal, reached, last)) is not None:
        try:
            files = journal.files(segment)
        except Rewritten:
            continue  # another segment has its messages now
        begin = _offset_of(segment, files, max(reached + 1, segment.first))
        end = _offset_of(segment, files, min(last, segment.last) + 1)
        if is_first:
            is_first = False
            yield max(after + 1, segment.first), 0
        number = 0
        while target < passed + end - begin:
            number = segment.locate_offset(files, begin + target - passed, number)
            if number >= segment.entries:
                break
            entry = segment.read_entry(files, number)
            if entry.first > last or entry.offset >= end:
                break
            yield entry.first, passed + entry.offset - begin
            target = passed + entry.offset - begin + step
        passed += end - begin
        reached = segment.last
    if not is_first:
        yield min(last, reached) + 1, passed


def _points_of_extents(journal: JournalReading, backing: Backing, after: int, last: int, step: int) -> Iterator[Point]:
    """Yield points of a stream that is in a store, without a look at its index: messages count as equally large."""
    after, last = max(after, journal.first - 1), min(last, journal.last)
    extents = list(backing.extents(after, last))
    reached = extents[-1].last if extents else after
    rest = sum(segment.size for segment in journal.segments if segment.first > reached)
    if reached < last:
        extents.append(Extent(reached + 1, journal.last, rest))
    step = max(1, step, sum(extent.octets for extent in extents) // MOST)
    passed, target = 0, step
    at = after + 1  # the first sequence that does not count yet
    if at <= last:
        yield at, 0
    for first, final, octets in extents:
        until = min(final, last)
        if until < at:
            continue
        size = octets * (until - at + 1) // (final - first + 1)
        while target < passed + size:
            place = at + (target - passed) * (until - at + 1) // size
            if place > at:
                yield place, target
            target += step
        passed += size
        at = until + 1
    if after < last:
        yield last + 1, passed


def _segment_after(journal: JournalReading, after: int, last: int) -> Segment | None:
    segments = journal.segments
    for number in range(bisect_right(segments, after, key=lambda segment: segment.last), len(segments)):
        segment = segments[number]
        if segment.entries:
            return segment if segment.first <= last else None
    return None


def _offset_of(segment: Segment, files: Files, sequence: int) -> int:
    """Return the byte of the log at which a message begins, approximately; the end of the log, if it is the next."""
    if sequence <= segment.first:
        return 0
    if sequence > segment.last:
        return segment.size
    entry = segment.read_entry(files, segment.locate(files, sequence))
    return entry.offset + entry.length * (sequence - entry.first) // (entry.last - entry.first + 1)
