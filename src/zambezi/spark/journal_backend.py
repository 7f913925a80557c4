"""A backend that reads the journals of a broker as files, on a disk or a file system that the executors share.

It locks nothing and writes nothing; the broker can be running or not. It reads only messages that the index of the
journal lists, so it never sees half a batch. If retention removes a segment that is being read, the segment stays open
until it has been read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from zambezi.spark.backend import (
    READ_SIZE,
    Found,
    Request,
    SequenceRange,
    SizeIndex,
    StreamState,
    read_each,
    replaced_error,
    size_index_from_points,
    trimmed_error,
)
from zambezi.spark.columns import (
    MAX_MESSAGE_SIZE,
    BareMessages,
    BatchTimes,
    EncodedMessages,
    Messages,
    Octets,
    too_large,
)
from zambezi.spark.entries import ENTRY, are_consecutive
from zambezi.spark.errors import DamagedLog, DataLoss, Replaced, SparkError, Trimmed, Vanished
from zambezi.wire.text import as_bytes
from zambezi.zeps.errors import JournalError, OutOfRange, Rewritten
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.journal.identity import read_identity
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.journal.segment import Files, Segment
from zambezi.zeps.journal.sizes import size_points
from zambezi.zeps.matchers import Matchers

_ENTRIES_PER_READ: Final = 4096


class JournalBackend:
    """The streams in a data directory."""

    filters_keys = False

    def __init__(self, path: str, *, verify: bool = False) -> None:
        self._path = Path(path)
        self._verify = verify
        self._buffer = bytearray()  # used again for every read, because new memory takes longer than reading
        try:
            self._store = Store(path, write=False)
        except JournalError as error:
            raise SparkError(f"option 'path': {error}") from None

    def streams(self, names: Iterable[str] | None = None, pattern: str = "") -> dict[str, StreamState]:
        if names is None:
            is_selected = Matchers().parse(pattern)
            names = [name for name in self._store.names() if is_selected(as_bytes(name))]
        found = {}
        for name in names:
            journal = self._open(name)
            if journal is not None:
                found[name] = StreamState(
                    name,
                    str(journal.incarnation),
                    journal.first,
                    journal.last,
                    journal.octets,
                    journal.last_time,
                )
        return found

    def _open(self, name: str) -> Journal | None:
        """Open a journal in its present state; None if it does not exist."""
        directory = self._path / directory_of(name)
        try:
            journal = self._store.open_current(name)
        except (JournalError, OSError) as error:
            if not directory.is_dir():
                return None
            raise SparkError(str(error)) from None
        if journal.is_cache:
            raise SparkError(str(journal.unreachable_error()))
        return journal

    def _open_incarnation(self, wanted: SequenceRange) -> Journal:
        """Open the journal of a range. Raise `Vanished` or `Replaced` if that incarnation does not exist any more."""
        journal = self._open(wanted.stream)
        if journal is None:
            raise Vanished(f"stream {wanted.stream!a} does not exist any more in {self._path}")
        if str(journal.incarnation) != wanted.incarnation:
            raise replaced_error(wanted.stream, str(journal.incarnation), wanted.incarnation)
        return journal

    def last_before(self, times: Mapping[str, int]) -> dict[str, int]:
        return {
            stream: 0 if (journal := self._open(stream)) is None else journal.before(time)
            for stream, time in times.items()
        }

    def times_after(self, positions: Mapping[str, int]) -> dict[str, int]:
        return {
            stream: 0 if (journal := self._open(stream)) is None else journal.time_after(after)
            for stream, after in positions.items()
        }

    def size_indexes(self, ranges: Sequence[SequenceRange], step: int) -> list[SizeIndex | None]:
        return [self._size_index(wanted, step) for wanted in ranges]

    def _size_index(self, wanted: SequenceRange, step: int) -> SizeIndex | None:
        try:
            journal = self._open_incarnation(wanted)
            return size_index_from_points(list(size_points(journal, wanted.after, wanted.last, step)))
        except (DataLoss, OutOfRange):
            return None
        except JournalError as error:
            raise SparkError(str(error)) from None

    def read(self, ranges: Sequence[SequenceRange], request: Request) -> Iterator[Found]:
        return read_each(ranges, partial(self._read_range, request=request))

    def _read_range(self, wanted: SequenceRange, request: Request) -> Iterator[Found]:
        journal = self._open_incarnation(wanted)
        after = wanted.after
        if after + 1 < journal.first:
            yield wanted, trimmed_error(wanted.stream, after, journal.first)
        while segments := _segments(journal, after, wanted.last):
            segment = segments[0]
            after = max(after, segment.first - 1)
            try:
                files = self._open_files(journal, segment, wanted, after)
            except Rewritten:
                continue  # the stream is compacted: another segment has the messages now
            except Trimmed as loss:
                yield wanted, loss
            else:
                for messages in self._read_segment(segment, files, after, wanted.last, request):
                    yield wanted, messages
            after = segment.last

    def _open_files(self, journal: Journal, segment: Segment, wanted: SequenceRange, after: int) -> Files:
        """Open the files of a segment, and check that they belong to the wanted incarnation."""
        try:
            files = journal.files(segment)
        except Rewritten:
            raise
        except OutOfRange as error:
            raise trimmed_error(wanted.stream, after, error.oldest) from None
        except JournalError as error:
            raise SparkError(str(error)) from None
        # The incarnation is read after the files were opened: if it is still the wanted one, the files belong to it.
        try:
            incarnation = str(read_identity(journal.directory).incarnation)
        except JournalError:
            return files  # the stream was deleted meanwhile, and open files can still be read
        if incarnation != wanted.incarnation:
            raise Replaced(f"stream {wanted.stream!a} became {incarnation} while {wanted.incarnation} was read")
        return files

    def _read_segment(
        self, segment: Segment, files: Files, after: int, last: int, request: Request
    ) -> Iterator[Messages]:
        number = max(0, segment.locate(files, after + 1))
        while number < segment.entries:
            entries = np.frombuffer(files.read_entries(number, min(_ENTRIES_PER_READ, segment.entries - number)), ENTRY)
            self._check_entries(segment, entries)
            ends = (entries["offset"] + entries["length"]).astype(np.int64)
            offsets = entries["offset"].astype(np.int64)
            firsts = entries["first"].astype(np.int64)
            times = entries["time"].astype(np.int64)
            gaps = entries["gap"]
            is_bare = request.bare and not gaps.any()  # only the messages say which of them were removed
            if is_bare:
                end = int(firsts[-1]) + int(entries[-1]["count"]) - 1
                yield BareMessages(int(firsts[0]), end, BatchTimes(firsts, times))
                if end >= last:
                    return
            start = len(entries) if is_bare else 0
            while start < len(entries):
                if firsts[start] > last:
                    return
                stop = max(start + 1, int(np.searchsorted(ends, offsets[start] + READ_SIZE, "right")))
                stop = min(stop, start + max(1, int(np.searchsorted(firsts[start:], last, "right"))))
                octets = self._read_log(segment, files, int(offsets[start]), int(ends[stop - 1]))
                if self._verify:
                    self._check_sums(segment, octets, entries[start:stop])
                batches = BatchTimes(firsts[start:stop], times[start:stop])
                if len(octets):
                    yield EncodedMessages(octets, int(firsts[start]), batches, has_gaps=bool(gaps[start:stop].any()))
                start = stop
            number += len(entries)

    def _read_log(self, segment: Segment, files: Files, start: int, end: int) -> Octets:
        """Read bytes of a log. They are valid until the next call."""
        size = end - start
        if size > MAX_MESSAGE_SIZE:
            raise SparkError(f"{segment.path}.log: {too_large(size)}")
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        octets = memoryview(self._buffer)[:size]
        filled = 0
        while filled < size:
            count = os.preadv(files.log, [octets[filled:]], start + filled)
            if not count:
                raise DamagedLog(f"{segment.path}.log ends before byte {end}: `zambezi journal verify` says more")
            filled += count
        return np.frombuffer(octets, np.uint8)

    def _check_entries(self, segment: Segment, entries: npt.NDArray[np.void]) -> None:
        """Check that each index entry begins where the one before it ends."""
        if not are_consecutive(entries):
            raise DamagedLog(f"{segment.path}.idx is damaged: `zambezi journal verify` says more")

    def _check_sums(self, segment: Segment, octets: Octets, entries: npt.NDArray[np.void]) -> None:
        """Check the CRC of each batch."""
        view = octets.data
        begin = int(entries[0]["offset"])
        for entry in entries:
            start = int(entry["offset"]) - begin
            if crc32(view[start : start + int(entry["length"])]) != entry["crc"]:
                raise DamagedLog(
                    f"{segment.path}.log: the batch at byte {int(entry['offset'])}, sequence {int(entry['first'])}, "
                    "does not match its CRC: `zambezi journal verify` says more"
                )

    def close(self) -> None:
        self._store.close()


def _segments(journal: Journal, after: int, last: int) -> list[Segment]:
    return [
        segment for segment in journal.segments if segment.entries and segment.last > after and segment.first <= last
    ]
