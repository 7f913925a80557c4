"""The recovery of counts: the messages of a stream and the counts of its publishers are made to agree.

A batch that is not whole, and has records, is cut off: no reader has seen it, and its publishers send it again.

If the system went down, the disk can have messages without their records. So messages that the index does not have are
cut off, and batches at the end whose records are missing; but only if publishers of the stream count their messages,
and never messages that the disk is known to have had before (`synced` in the mark). If the disk never had the file of
counts of the last segment, no batch of it has records.

A file that is damaged costs counts, and never messages: the counts that remain are written again, as a snapshot, and
the entries of the index say that they have no counts any more.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Final

from zambezi.zeps.journal.counts import COUNTS, Counts, Recount, has_snapshot, read_places
from zambezi.zeps.journal.entry import HIGHEST, SIZE, IndexEntry, unpack
from zambezi.zeps.journal.segment import Files, Segment

_CHUNK: Final = 4096  # entries that are read at once


class Recounting:
    """The recovery of the counts of one stream, whose last segment is open for writing."""

    def __init__(self, segments: list[Segment], files: Files, counts: Counts, *, is_counted: bool) -> None:
        self._segments = segments
        self._active = segments[-1]
        self._files = files
        self._counts = counts
        self._is_counted = is_counted  # whether publishers of the stream count their messages
        self.is_changed = False  # whether a file was changed

    def cut_uncounted(self, promised: int, synced: int) -> list[str]:
        """Cut off messages that can be of publishers whose counts the disk does not have; return what was done.

        `promised` is the last sequence that the index had before the repair, `synced` one that the disk had.
        """
        has_head = has_snapshot(self._active.path)
        if not has_head and synced >= self._active.first:
            return []  # the disk had the file, and it is damaged: that is no reason to cut messages
        before = self._active.last
        places = read_places(self._active.path) if has_head else ()
        written = Counter([(place.record.first, place.record.last) for place in places if place.record is not None])
        keep = self._last_counted_at(min(before, max(promised, synced)), synced, written)
        if keep == before:
            return []
        self._cut_after(keep)
        told = "the disk does not have their counts, and had not confirmed them"
        return [f"{self._active.path}{COUNTS}: the messages after {keep} were cut off: {told}"]

    def _last_counted_at(self, last: int, synced: int, written: Counter[tuple[int, int]]) -> int:
        """Return the last sequence, up to `last`, before all batches at the end whose records are missing.

        `written` has the batches that have records, with their number. A batch with all its records ends the search:
        the disk got the records before it earlier.
        """
        blocks = sorted(written)
        keep = last
        for entry in self._entries_back(last):
            if entry.last <= synced:
                break
            if not entry.publishers:
                continue
            place = bisect_right(blocks, (entry.first, HIGHEST)) - 1
            if place >= 0 and entry.last <= blocks[place][1] and written[blocks[place]] == entry.publishers:
                break
            keep = max(entry.first - 1, synced)
        return keep

    def _entries_back(self, last: int) -> Iterator[IndexEntry]:
        """Yield the valid entries of the active segment from the one with a sequence back to the first."""
        stop = self._active.locate(self._files, last) + 1 if last >= self._active.first else 0
        while stop:
            start = max(0, stop - _CHUNK)
            octets = self._files.read_entries(start, stop - start)
            for position in range(len(octets) - SIZE, -1, -SIZE):
                if (entry := unpack(octets, position)) is not None:
                    yield entry
            stop = start

    def recount(self) -> list[str]:
        """Fill in the counts, and make the files agree; return the damage that was found."""
        found = self._read(self._counts)
        if found.torn is not None:
            self._cut_after(found.torn - 1)
        active, files = self._active, self._files
        is_whole = has_snapshot(active.path) and not found.damaged
        if not is_whole or self._is_uncounted(found):
            has_counts = any(entry.publishers for entry in active.read_all_entries(files))
            active.replace_counts(files, self._counts.snapshot(active.last + 1))
            self.is_changed = True
            return [_damage(active)] if has_counts or found.damaged else []
        active.count_bytes, active.snapshot_bytes, active.epoch_bytes = found.size, found.snapshot, found.epochs
        if os.fstat(files.counts).st_size != found.size:
            os.ftruncate(files.counts, found.size)
            self.is_changed = True
        return []

    def _is_uncounted(self, found: Recount) -> bool:
        """Return whether the last batch with counts has fewer records than its entry says."""
        entry = self._last_counted()
        if entry is None:
            return False
        first, last = found.block  # it can be later than the entry: the index did not have it before the repair
        return last < entry.last or (first <= entry.first and found.publishers < entry.publishers)

    def _last_counted(self) -> IndexEntry | None:
        """Return the last entry that says that its batch has counts. In a stream without counts, none is read."""
        entries = self._entries_back(self._active.last) if self._is_counted else iter(())
        return next((entry for entry in entries if entry.publishers), None)

    def _read(self, counts: Counts) -> Recount:
        """Read the files from the last one with a whole snapshot on. Usually that is the file of the last segment."""
        start = len(self._segments) - 1
        while start > 0 and not has_snapshot(self._segments[start].path):
            start -= 1
        found = Recount(counts)
        for segment in self._segments[start:]:
            found.read(segment.path, self._active.last)
        return found

    def _cut_after(self, last: int) -> None:
        if last < self._active.last:
            self._active.cut_after(self._files, last)
            self.is_changed = True


def _damage(segment: Segment) -> str:
    return (
        f"{segment.path}{COUNTS} was missing or damaged: publishers that resume now may publish messages again that "
        "the stream has"
    )
