"""Verification of a stream: does every batch have its CRC, does each follow from the one before, are its counts there?
The positions of readers are checked, too.

It changes nothing, and a broker may be writing at the same time: it checks the batches that were indexed when it began.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from zambezi.zeps.block import walk_messages
from zambezi.zeps.errors import JournalError, OutOfRange, Rewritten
from zambezi.zeps.journal.counts import COUNTS, NO_PUBLISHER, RECORD, Place, Record, read_places
from zambezi.zeps.journal.entry import LARGEST_BATCH, SIZE, IndexEntry, unpack
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.positions import FILE, read_positions
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment

_PIECE: Final = 1 << 20  # bytes of the log that are read at once
_ENTRIES: Final = 1024  # entries that are read at once


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch that is good."""

    entry: IndexEntry


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a file that is not as it was written."""

    path: str
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}, byte {self.offset}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Bytes at the end that are not indexed: a broker is writing them, or was killed and repairs them at its start."""

    path: str
    offset: int
    octets: int

    def __str__(self) -> str:
        return (
            f"{self.path}, byte {self.offset}: {self.octets} bytes at the end are not finished; a broker is writing "
            "them, or repairs them when it starts"
        )


def verify(journal: Journal) -> Iterator[Checked | Damage | Unfinished]:
    """Check every batch of a journal, in order, and yield a result for each."""
    time = 0
    expected = journal.first
    waiting = list(journal.segments)
    last = waiting[-1].last if waiting else 0
    while waiting:
        segment = waiting.pop(0)
        is_last = not waiting
        if segment.first != expected and not journal.is_cache:
            yield Damage(segment.path + LOG, 0, f"sequences {expected} to {segment.first - 1} are missing before it")
        try:
            files = journal.files(segment)
        except Rewritten:
            begin = segment.first
            waiting = [one for one in journal.segments if one.first >= begin and one.first <= last]
            continue
        except OutOfRange:
            expected = segment.last + 1
            continue  # retention removed it
        except JournalError as problem:
            yield Damage(segment.path + LOG, 0, str(problem))
            continue
        check = SegmentCheck(segment, time, is_last=is_last)
        yield from check.check_entries(files)
        yield from check.check_tail(files, is_last)
        time = check.time
        expected = segment.last + 1
    yield from _check_positions(journal)


def _check_positions(journal: Journal) -> Iterator[Damage | Unfinished]:
    """Check the positions of readers."""
    path = journal.directory / FILE
    try:
        found = read_positions(journal.directory)
    except OSError as error:
        yield Damage(str(path), 0, f"it cannot be read: {error.strerror or error}")
        return
    for offset, length in found.damaged:
        yield Damage(str(path), offset, f"{length} bytes are not a record of a position")
    if found.torn:
        yield Unfinished(str(path), found.end, found.torn)


def crc_of(files: Files, entry: IndexEntry) -> int:
    """Return the CRC of a batch in the log. It is read in pieces: a damaged entry can claim gigabytes."""
    crc = 0
    for offset in range(entry.offset, entry.end, _PIECE):
        crc = crc32(files.read_log(offset, min(_PIECE, entry.end - offset)), crc)
    return crc


def _size_of(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


class SegmentCheck:
    """The check of one segment, with the values that its next entry must have.

    Records of counts are written before their batch, so a batch that is indexed has all of them. Only the last segment
    must have a file of counts: those of old segments are removed. With `is_parsed` the
    messages of each batch are parsed, too. That finds mistakes of the program that wrote them.
    """

    def __init__(self, segment: Segment, time: int, *, is_parsed: bool = True, is_last: bool = False) -> None:
        self.segment = segment
        self._has_counts = is_last or Path(segment.path + COUNTS).exists()
        self._is_parsed = is_parsed
        self.first = segment.first
        self.offset = 0
        self.removed = 0
        self.time = time
        self._places = read_places(segment.path)
        self._place: Place | None = None
        self._counts_end = 0  # where the counts end that were checked
        self._uncounted = 0  # batches that do not have their counts
        self._open: list[Record] = []  # the records of batches that reach the next entry, or end after it

    def check_entries(self, files: Files) -> Iterator[Checked | Damage]:
        """Check every entry and its batch, and yield a result for each."""
        entries = self.segment.entries
        number = 0
        yield from self._check_head()
        while number < entries and (octets := files.read_entries(number, min(_ENTRIES, entries - number))):
            for position in range(0, len(octets), SIZE):
                entry = unpack(octets, position)
                problem = self._index_problem(entry)
                if problem:
                    yield Damage(self.segment.path + INDEX, (number + position // SIZE) * SIZE, problem)
                if entry is None:
                    continue
                yield from self._check_counts(entry)
                problem = self._log_problem(files, entry)
                if problem:
                    yield Damage(self.segment.path + LOG, entry.offset, problem)
                else:
                    yield Checked(entry)
                self._pass(entry)
            number += len(octets) // SIZE

    def _check_head(self) -> Iterator[Damage]:
        if not self._has_counts:
            return
        self._place = next(self._places, None)
        if self._place is None or self._place.record is None or self._place.record.publisher != NO_PUBLISHER:
            yield Damage(self.segment.path + COUNTS, 0, "it does not begin with a head")

    def check_counts(self, files: Files) -> Iterator[Damage]:
        """Check only the counts, with the entries of the index as they are."""
        yield from self._check_head()
        for entry in self.segment.read_all_entries(files):
            yield from self._check_counts(entry)

    def _check_counts(self, entry: IndexEntry) -> Iterator[Damage]:
        """Check the records up to those of an entry, and that the entry has as many as it says."""
        if not self._has_counts:
            return
        yield from self._check_records(entry.last)
        self._open = [record for record in self._open if record.last >= entry.first]
        found = sum([record.covers(entry.first, entry.last) for record in self._open])
        if entry.publishers and found != entry.publishers:
            self._uncounted += 1
            if self._uncounted > 1:
                return
            problem = f"the batch of {entry.first} to {entry.last} has {found} counts instead of {entry.publishers}"
            yield Damage(self.segment.path + COUNTS, self._counts_end, problem)

    def _check_records(self, last: int) -> Iterator[Damage]:
        """Check the records of batches that begin at `last` or before."""
        while self._place is not None and (self._place.record is None or self._place.record.first <= last):
            if self._place.record is None:
                yield Damage(self.segment.path + COUNTS, self._place.offset, "the record does not have its CRC")
            else:
                self._open.append(self._place.record)
            self._counts_end = self._place.offset + RECORD
            self._place = next(self._places, None)

    def passes(self, entry: IndexEntry | None) -> bool:
        """Return whether an entry follows from the one before; then the next one must follow from it."""
        if entry is None or self._index_problem(entry):
            return False
        self._pass(entry)
        return True

    def _pass(self, entry: IndexEntry) -> None:
        self.first, self.offset, self.time = entry.last + 1, entry.end, max(self.time, entry.time)
        self.removed += entry.gap

    def _index_problem(self, entry: IndexEntry | None) -> str:
        if entry is None:
            return "the entry does not have its CRC"
        if entry.first != self.first:
            return f"the entry is for sequence {entry.first}, not {self.first}"
        if entry.offset != self.offset:
            return f"the entry is for byte {entry.offset} of the log, not {self.offset}"
        if entry.removed != self.removed:
            return f"the entry says that {entry.removed} messages before it were removed, not {self.removed}"
        if entry.gap and not self.segment.revision:
            return "the entry says that messages were removed, and the segment was never compacted"
        if entry.time < self.time:
            return f"the time goes back from {self.time} to {entry.time}"
        return ""

    def _log_problem(self, files: Files, entry: IndexEntry) -> str:
        batch = f"the batch of {entry.first} to {entry.last}"
        if entry.end > os.fstat(files.log).st_size:
            return f"the log ends inside {batch}"
        # First the header of a large message: to read gigabytes of a hole in the file would take long.
        if entry.length > LARGEST_BATCH and not files.has_message(entry.offset, entry.length):
            return f"{batch} has no valid message after sequence {entry.first - 1}"
        if crc_of(files, entry) != entry.crc:
            return f"{batch} does not have its CRC"
        return self._message_problem(files, entry, batch) if self._is_parsed else ""

    def _message_problem(self, files: Files, entry: IndexEntry, batch: str) -> str:
        octets = files.read_log(entry.offset, entry.length)
        sequence, end, count = entry.first, 0, 0
        for place in walk_messages(octets):
            if place.sequence < sequence or place.sequence > sequence + entry.gap or place.sequence > entry.last:
                return f"{batch} has sequence {place.sequence} instead of {sequence}"
            sequence, end, count = place.sequence + 1, place.stop, count + 1
        if end != len(octets) or count != entry.count:
            return f"{batch} has no valid message after sequence {sequence - 1}"
        return ""

    def check_tail(self, files: Files, is_last: bool) -> Iterator[Damage | Unfinished]:
        """Check that nothing follows the last entry, unless a broker is writing."""
        segment = self.segment
        entry = unpack(files.read_entries(segment.entries, 1))
        log = os.fstat(files.log).st_size
        if entry is not None and entry.end > log:
            problem = f"the log ends at byte {log}, inside the batch of {entry.first} to {entry.last}"
            yield Damage(segment.path + LOG, log, problem)
        elif entry is not None and is_last:
            return  # the stream has grown since the check began
        index = os.fstat(files.index).st_size
        if index < segment.entries * SIZE:
            missing = f"{self.first} to {segment.last}"
            yield Damage(segment.path + INDEX, index, f"the entries of sequences {missing} are missing")
        yield from self._check_records(self.segment.last + 1)
        if self._uncounted > 1:
            problem = f"{self._uncounted - 1} further batches do not have their counts"
            yield Damage(segment.path + COUNTS, self._counts_end, problem)
        for path, end, size in (
            (segment.path + INDEX, segment.entries * SIZE, index),
            (segment.path + LOG, segment.size, log),
            (segment.path + COUNTS, self._counts_end, _size_of(segment.path + COUNTS)),
        ):
            if size > end and entry is None:
                octets = size - end
                yield (
                    Unfinished(path, end, octets)
                    if is_last
                    else Damage(path, end, f"{octets} unexpected bytes at the end")
                )
