"""The repair of a segment when a stream is opened: its index is made to agree with its log.

A process can be killed between any two bytes that it writes, and a crash of the system can lose all that the disk does
not have. As the log is written before the index, these cases exist, and each has one repair:

    the index ends inside an entry            the entry is cut off; the log then continues after the last entry
    the log continues after the last entry    whole messages with consecutive sequences get new entries; bytes after
                                              them are cut off. A segment that was compacted can have gaps
    the log ends inside a batch               the whole messages of that batch are kept, with a new entry; but nothing
                                              of a batch with counts of publishers
    a batch does not have its CRC             log and index are cut before that batch
    the index is missing, or is not one       all entries are created again from the log

New entries do not know when their messages were appended. They get the time of the entry that they replace, or else
the time of the last change of the log, but never less than the entry before. So a subscriber that asks for messages
since some time may get older ones, and never misses one.

Usually only the last entry and the bytes after it are checked: a killed process cannot damage more. If the operating
system went down, or the tail is damaged, the last segment is checked from its first entry on. Older segments are never
cut: their index is created again if possible, and other damage is reported.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from zlib import crc32

from zambezi.zeps.block import message_at
from zambezi.zeps.journal.entry import LONGEST, SIZE, IndexEntry, unpack
from zambezi.zeps.journal.segment import Files, Segment
from zambezi.zeps.layout import LONG, SHORT

_CHUNK = 4096  # entries that are read at once
_HOLE = 16 * _CHUNK  # entries in a row that are not valid, after which an index ends


@contextmanager
def mapped(descriptor: int) -> Iterator[memoryview]:
    """Map the content of a file into memory."""
    if not os.fstat(descriptor).st_size:
        yield memoryview(b"")
        return
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as octets, memoryview(octets) as view:
        yield view


@dataclass(slots=True)
class Diagnosis:
    """The entries of an index that can be trusted, and the changes that make log and index agree."""

    last_good: int  # the last sequence of the good entries
    last_promised: int  # the last sequence of any entry: if it is missing after the repair, messages are lost
    good: int = 0  # the number of good entries, from the first on
    good_end: int = 0  # where their batches end in the log
    time: int = 0  # of the last good entry
    removed: int = 0  # the sum of their gaps
    torn: IndexEntry | None = None  # the log ends inside this batch
    corrupt: IndexEntry | None = None  # this batch does not have its CRC
    new: list[IndexEntry] = field(default_factory=list)  # entries to append to the good ones

    @property
    def last_kept(self) -> int:
        """The last sequence after the repair."""
        return self.new[-1].last if self.new else self.last_good

    @property
    def log_end(self) -> int:
        """The size of the log after the repair."""
        return self.new[-1].end if self.new else self.good_end

    @property
    def is_lossy(self) -> bool:
        """Whether messages that the index promised are missing after the repair."""
        return self.last_kept < self.last_promised


def examine_segment(
    segment: Segment,
    files: Files,
    batch: int,
    *,
    thorough: bool,
    check_log: bool = True,
    earliest: int = 0,
    latest: int | None = None,
    following: int | None = None,
) -> Diagnosis:
    """Return what must be repaired in a segment; change nothing. New entries get a time from `earliest` to `latest`.

    `following` is the first sequence of the next segment. Only a segment that was written again can have gaps.
    """
    changed = os.fstat(files.log).st_mtime_ns // 1000
    if latest is not None:
        changed = min(changed, latest)
    with mapped(files.log) as log:
        found = None if thorough else _check_tail(segment, files, log)
        if found is None:
            found = _check_all(segment, files, log, check_log)
        # A part of a batch with counts is not kept: nobody knows which messages of which publisher it has.
        if found.corrupt is None and (found.torn is None or not found.torn.publishers):
            time = max(changed if found.torn is None else found.torn.time, found.time, earliest)
            found.new = list(_index_log(log, found, batch, time, bool(segment.revision), following))
    return found


def _check_tail(segment: Segment, files: Files, log: memoryview) -> Diagnosis | None:
    """Check the last entry only; return None if anything is wrong, and all entries must be checked."""
    number = os.fstat(files.index).st_size // SIZE
    if not number:
        return Diagnosis(segment.first - 1, segment.first - 1)
    head, entry = unpack(files.read_entries(0, 1)), unpack(files.read_entries(number - 1, 1))
    if head is None or head.first != segment.first or head.offset or entry is None or entry.end > len(log):
        return None
    if number > 1:
        before = unpack(files.read_entries(number - 2, 1))
        if before is None or (before.last + 1, before.end) != (entry.first, entry.offset):
            return None
    with log[entry.offset : entry.end] as octets:
        if crc32(octets) != entry.crc:
            return None
    return Diagnosis(entry.last, entry.last, number, entry.end, entry.time, entry.removed + entry.gap)


def _check_all(segment: Segment, files: Files, log: memoryview, check_log: bool) -> Diagnosis:
    """Check all entries up to the first that is not good."""
    found = Diagnosis(segment.first - 1, segment.first - 1)
    is_good = True
    for entry in _entries(files):
        if entry is not None:
            found.last_promised = max(found.last_promised, entry.last)
        if not is_good:
            continue
        if (
            entry is None
            or (entry.first, entry.offset) != (found.last_good + 1, found.good_end)
            or entry.removed != found.removed
            or entry.time < found.time
        ):
            is_good = False
        elif entry.end > len(log):
            is_good = False
            found.torn = entry
        elif check_log and not _has_its_crc(log, entry):
            is_good = False
            found.corrupt = entry
        else:
            found.good += 1
            found.last_good, found.good_end, found.time = entry.last, entry.end, entry.time
            found.removed += entry.gap
    return found


def _entries(files: Files) -> Iterator[IndexEntry | None]:
    number = 0
    bad = 0  # entries in a row that are not valid: a hole in the file can have billions
    while bad < _HOLE and (octets := files.read_entries(number, _CHUNK)):
        for position in range(0, len(octets), SIZE):
            entry = unpack(octets, position)
            bad = bad + 1 if entry is None else 0
            yield entry
        number += len(octets) // SIZE


def _has_its_crc(log: memoryview, entry: IndexEntry) -> bool:
    with log[entry.offset : entry.end] as octets:
        return crc32(octets) == entry.crc


def _index_log(
    log: memoryview, found: Diagnosis, batch: int, time: int, may_have_gaps: bool, following: int | None
) -> Iterator[IndexEntry]:
    """Yield entries for the whole messages that follow in the log, with consecutive or at least growing sequences."""
    first, start, removed = found.last_good + 1, found.good_end, found.removed
    sequence, position, count, heads = first, start, 0, 0
    while True:
        place = message_at(log, position, len(log))
        if place is not None and place.stop - position > LONGEST:
            place = None
        if place is not None and place.sequence != sequence:
            is_gap = sequence < place.sequence and (following is None or place.sequence < following)
            place = place if may_have_gaps and is_gap else None
        if count and (place is None or place.stop - start > batch):
            if place is None and may_have_gaps and following is not None and position == len(log):
                sequence = max(sequence, following)  # the messages up to the next segment were removed
            length = position - start
            gap = sequence - first - count
            with log[start:position] as octets:
                yield IndexEntry(first, start, time, count, length, length - heads, crc32(octets), 0, gap, removed)
            removed += gap
            first, start, count, heads = sequence, position, 0, 0
        if place is None:
            return
        heads += LONG if log[position] else SHORT
        position = place.stop
        sequence = place.sequence + 1
        count += 1


def apply_repair(files: Files, found: Diagnosis, *, cut_log: bool) -> bool:
    """Make log and index agree, and return whether that changed anything."""
    size = found.good * SIZE
    changed = False
    if os.fstat(files.index).st_size != size:
        os.ftruncate(files.index, size)
        changed = True
    if cut_log and os.fstat(files.log).st_size != found.log_end:
        os.ftruncate(files.log, found.log_end)
        changed = True
    octets = b"".join([entry.pack() for entry in found.new])
    while octets:
        written = os.pwrite(files.index, octets, size)
        size += written
        octets = octets[written:]
        changed = True
    return changed
