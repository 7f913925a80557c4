"""What is done to a segment when a stream is opened: its index is made to agree with its log.

A process can be killed between any two octets that it writes, and a system can lose what its disk has not got. The
order of writing (log, then index) leaves these cases, and each has one answer:

    the index ends inside an entry          that entry was not finished: it is cut off, and its batch is the next case
    the log goes on after the last entry    it is walked; whole messages with consecutive sequences are indexed anew,
                                            and what follows them is cut off
    the log ends inside a batch             the whole messages of that batch are kept and indexed anew
    a batch does not have its CRC           log and index are cut off at that batch
    the index is missing, or is not one     it is made anew from the log

Entries made anew have no time of their own. They get the time of the entry that they replace, or else the time at
which the log was last changed, but never less than the entry before: who asks for messages since some time may get
some that are older, and never misses one.

How much is looked at: the last entry and what follows it, where nothing speaks against it. A killed process can spoil
no more. If the operating system went down, or the tail is not as it should be, the last segment is checked from its
first entry on. Older segments are never cut: their index is made anew where it can be, and the rest is reported.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from zlib import crc32

from zambezi.zeps.block import measure
from zambezi.zeps.journal.entry import LONGEST, SIZE, IndexEntry, unpack
from zambezi.zeps.journal.segment import Files, Segment

_CHUNK = 4096  # entries that are read at once


@dataclass(slots=True)
class Found:
    """What an index says that can be believed, and what has to be done to make log and index agree."""

    last: int  # the last sequence of the good entries
    promised: int  # the last sequence that any entry spoke of: if it is not there any more, messages are lost
    sound: int = 0  # so many entries are good, from the first on
    end: int = 0  # where in the log they end
    time: int = 0
    torn: IndexEntry | None = None  # the log ends inside this batch
    spoilt: IndexEntry | None = None  # the log has this batch, and it is not what was written
    anew: list[IndexEntry] = field(default_factory=list)  # entries to append to the good ones

    @property
    def kept(self) -> int:
        """The last sequence that is there."""
        return self.anew[-1].last if self.anew else self.last

    @property
    def stop(self) -> int:
        """Where the log ends, then."""
        return self.anew[-1].end if self.anew else self.end

    @property
    def is_lossy(self) -> bool:
        return self.kept < self.promised


@contextmanager
def mapped(descriptor: int) -> Iterator[memoryview]:
    """The content of a file."""
    if not os.fstat(descriptor).st_size:
        yield memoryview(b"")
        return
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as octets, memoryview(octets) as view:
        yield view


def examine(
    segment: Segment,
    files: Files,
    batch: int,
    *,
    thorough: bool,
    check_log: bool = True,
    earliest: int = 0,
    latest: int | None = None,
) -> Found:
    """Look at a segment, and change nothing. New entries get a time between `earliest` and `latest`."""
    changed = os.fstat(files.log).st_mtime_ns // 1000
    if latest is not None:
        changed = min(changed, latest)
    with mapped(files.log) as log:
        found = None if thorough else _glance(segment, files, log)
        if found is None:
            found = _check(segment, files, log, check_log)
        if found.spoilt is None:
            time = changed if found.torn is None else found.torn.time
            found.anew = list(_walk(log, found.end, found.last + 1, batch, max(time, found.time, earliest)))
    return found


def _glance(segment: Segment, files: Files, log: memoryview) -> Found | None:
    """The state as the last entry tells it, or None if anything is not as it should be."""
    number = os.fstat(files.index).st_size // SIZE
    if not number:
        return Found(segment.first - 1, segment.first - 1)
    head, entry = unpack(files.read(0, 1)), unpack(files.read(number - 1, 1))
    if head is None or head.first != segment.first or head.offset or entry is None or entry.end > len(log):
        return None
    if number > 1:
        before = unpack(files.read(number - 2, 1))
        if before is None or (before.last + 1, before.end) != (entry.first, entry.offset):
            return None
    with log[entry.offset : entry.end] as octets:
        if crc32(octets) != entry.crc:
            return None
    return Found(entry.last, entry.last, number, entry.end, entry.time)


def _check(segment: Segment, files: Files, log: memoryview, check_log: bool) -> Found:
    """Go through all entries, to the first that is not good."""
    found = Found(segment.first - 1, segment.first - 1)
    is_good = True
    for entry in _entries(files):
        if entry is not None:
            found.promised = max(found.promised, entry.last)
        if not is_good:
            continue
        if (
            entry is None
            or (entry.first, entry.offset) != (found.last + 1, found.end)
            or not 0 < entry.count <= entry.length
            or entry.time < found.time
        ):
            is_good = False
        elif entry.end > len(log):
            is_good = False
            found.torn = entry
        elif check_log and not _has_its_crc(log, entry):
            is_good = False
            found.spoilt = entry
        else:
            found.sound += 1
            found.last, found.end, found.time = entry.last, entry.end, entry.time
    return found


def _entries(files: Files) -> Iterator[IndexEntry | None]:
    number = 0
    while octets := files.read(number, _CHUNK):
        for position in range(0, len(octets), SIZE):
            yield unpack(octets, position)
        number += len(octets) // SIZE


def _has_its_crc(log: memoryview, entry: IndexEntry) -> bool:
    with log[entry.offset : entry.end] as octets:
        return crc32(octets) == entry.crc


def _walk(log: memoryview, start: int, sequence: int, batch: int, time: int) -> Iterator[IndexEntry]:
    """Entries for the whole messages with consecutive sequences that stand in the log from `start` on."""
    first, position, heads = sequence, start, 0
    while True:
        place = measure(log, position, len(log))
        if place is not None and (place.sequence != sequence or place.stop - position > LONGEST):
            place = None
        if sequence > first and (place is None or place.stop - start > batch):
            with log[start:position] as octets:
                length = position - start
                yield IndexEntry(first, start, time, sequence - first, length, length - heads, crc32(octets))
            first, start, heads = sequence, position, 0
        if place is None:
            return
        heads += 9 if log[position] else 2
        position = place.stop
        sequence += 1


def apply(files: Files, found: Found, *, cut_log: bool) -> bool:
    """Make log and index agree, and say whether anything had to be done."""
    size = found.sound * SIZE
    changed = False
    if os.fstat(files.index).st_size != size:
        os.ftruncate(files.index, size)
        changed = True
    if cut_log and os.fstat(files.log).st_size != found.stop:
        os.ftruncate(files.log, found.stop)
        changed = True
    octets = b"".join([entry.pack() for entry in found.anew])
    while octets:
        written = os.pwrite(files.index, octets, size)
        size += written
        octets = octets[written:]
        changed = True
    return changed
