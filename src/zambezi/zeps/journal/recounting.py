"""The recovery of counts: the messages of a stream and the counts of its publishers are made to agree.

A batch that is not whole, and has records, is cut off: no reader has seen it, and its publishers send it again.

If the system went down, the disk can have messages without their records. So messages that the index does not have are
cut off, and batches at the end whose records are missing; but only if publishers of the stream count their messages,
and never messages that the disk is known to have had before (`synced` in the mark).

A file that is damaged costs counts, and never messages: the counts that remain are written again, as a snapshot, and
the entries of the index say that they have no counts any more.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
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
        if not has_snapshot(self._active.path):
            return []  # the file itself is damaged: that is no reason to cut messages
        before = self._active.last
        keep = min(before, max(promised, synced))
        records = [place.record for place in read_places(self._active.path) if place.record is not None]
        written = Counter([(record.first, record.last) for record in records])
        blocks = sorted(written)
        while keep > synced and (entry := self._entry_at(keep)) is not None and entry.publishers:
            block = blocks[bisect_right(blocks, (entry.first, HIGHEST)) - 1]
            if entry.last <= block[1] and written[block] == entry.publishers:
                break
            keep = max(entry.first - 1, synced)
        if keep == before:
            return []
        self._cut_after(keep)
        told = "the disk does not have their counts, and had not confirmed them"
        return [f"{self._active.path}{COUNTS}: the messages after {keep} were cut off: {told}"]

    def _entry_at(self, sequence: int) -> IndexEntry | None:
        active = self._active
        if sequence < active.first:
            return None
        return unpack(self._files.read_entries(active.locate(self._files, sequence), 1))

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
        stop = self._active.entries if self._is_counted else 0
        while stop:
            start = max(0, stop - _CHUNK)
            octets = self._files.read_entries(start, stop - start)
            for position in range(len(octets) - SIZE, -1, -SIZE):
                entry = unpack(octets, position)
                if entry is not None and entry.publishers:
                    return entry
            stop = start
        return None

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
