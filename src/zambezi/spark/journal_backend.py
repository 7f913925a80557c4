"""Streams as files: the journals of a broker, on a disk or a file system that the executors share.

Nothing is locked and nothing is written; the broker may be running, or not. What is indexed is there, and what is not
is not: so a reader never sees half a batch. A segment that retention removes while it is read stays open until it has
been read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from zambezi.spark.backend import WINDOW, Marks, Slice, StreamState, marks_of, trimmed
from zambezi.spark.columns import Numbers, Octets, Window
from zambezi.spark.errors import DamagedLog, Replaced, SparkError, Vanished
from zambezi.zeps.errors import JournalError, OutOfRange
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.journal.entry import SIZE
from zambezi.zeps.journal.identity import read_identity
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.journal.segment import Files, Segment
from zambezi.zeps.layout import ENTRY_FIELDS

# An entry of the index, as numpy sees it.
ENTRY: Final = np.dtype([(name, f">u{size}") for name, size in ENTRY_FIELDS.items()])
_PAGE: Final = 4096  # entries of the index that are read at once
_SAMPLES: Final = 16384  # entries of a segment that are looked at to cut it

assert ENTRY.itemsize == SIZE


class JournalBackend:
    """The streams in a data directory."""

    filters = False

    def __init__(self, path: str, *, verify: bool = False) -> None:
        self._path = Path(path)
        self._verify = verify
        self._buffer = bytearray()  # one for all windows: memory that is new takes longer than reading
        try:
            self._store = Store(path, write=False)
        except JournalError as error:
            raise SparkError(f"option 'path': {error}") from None

    def streams(self, wanted: Iterable[str] | None = None) -> dict[str, StreamState]:
        found = {}
        for name in self._store.names() if wanted is None else wanted:
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
        """The journal as it is now; None if there is none."""
        directory = self._path / directory_of(name)
        try:
            journal = self._store.open(name, create=False)
            journal.refresh()
        except (JournalError, OSError) as error:
            if not directory.is_dir():
                return None
            raise SparkError(str(error)) from None
        return journal

    def _journal(self, piece: Slice) -> Journal:
        journal = self._open(piece.stream)
        if journal is None:
            raise Vanished(f"stream {piece.stream!a} is not in {self._path} any more")
        if str(journal.incarnation) != piece.incarnation:
            raise Replaced(f"stream {piece.stream!a} is {journal.incarnation} now and was {piece.incarnation}")
        return journal

    def before(self, stream: str, time: int) -> int:
        journal = self._open(stream)
        return 0 if journal is None else journal.before(time)

    def marks(self, piece: Slice) -> Marks:
        journal = self._journal(piece)
        firsts: list[Numbers] = []
        starts: list[Numbers] = []
        end, before = piece.after + 1, 0
        for segment in _segments(journal, piece.after, piece.last):
            files = self._files(journal, segment, piece, piece.after)
            number = max(0, segment.locate(files, piece.after + 1))
            stop = segment.locate(files, piece.last) + 1
            octets = np.frombuffer(mmap.mmap(files.index, stop * SIZE, access=mmap.ACCESS_READ), ENTRY)
            entries = octets[number : stop : max(1, (stop - number) // _SAMPLES)]
            offset = int(entries[0]["offset"])
            firsts.append(entries["first"].astype(np.int64))
            starts.append(entries["offset"].astype(np.int64) - offset + before)
            last = octets[stop - 1]
            end = int(last["first"]) + int(last["count"])
            before += int(last["offset"]) + int(last["length"]) - offset
        if not firsts:
            raise trimmed(piece.stream, piece.after, journal.first)
        return marks_of(np.concatenate(firsts), np.append(np.concatenate(starts), np.int64(before)), end, piece)

    def windows(self, piece: Slice, pattern: str, *, timed: bool) -> Iterator[Window]:
        journal = self._journal(piece)
        after = piece.after
        if after + 1 < journal.first:
            raise trimmed(piece.stream, after, journal.first)
        for segment in _segments(journal, after, piece.last):
            files = self._files(journal, segment, piece, after)
            yield from self._segment(segment, files, max(after, segment.first - 1), piece.last)
            after = segment.last

    def _files(self, journal: Journal, segment: Segment, piece: Slice, after: int) -> Files:
        """The files of a segment, of the incarnation that is asked for."""
        try:
            files = journal.files(segment)
        except OutOfRange as error:
            raise trimmed(piece.stream, after, error.oldest) from None
        except JournalError as error:
            raise SparkError(str(error)) from None
        # They are open now. If the stream is still the one that it was, so are they.
        try:
            now = str(read_identity(journal.directory).incarnation)
        except JournalError:
            return files  # deleted meanwhile: what is open can be read
        if now != piece.incarnation:
            raise Replaced(f"stream {piece.stream!a} became {now} while {piece.incarnation} was read")
        return files

    def _segment(self, segment: Segment, files: Files, after: int, last: int) -> Iterator[Window]:
        number = max(0, segment.locate(files, after + 1))
        while number < segment.entries:
            entries = np.frombuffer(files.read_entries(number, min(_PAGE, segment.entries - number)), ENTRY)
            self._check_chain(segment, entries)
            ends = (entries["offset"] + entries["length"]).astype(np.int64)
            offsets = entries["offset"].astype(np.int64)
            firsts = entries["first"].astype(np.int64)
            times = entries["time"].astype(np.int64)
            start = 0
            while start < len(entries):
                if firsts[start] > last:
                    return
                stop = max(start + 1, int(np.searchsorted(ends, offsets[start] + WINDOW, "right")))
                stop = min(stop, start + max(1, int(np.searchsorted(firsts[start:], last, "right"))))
                octets = self._read(segment, files, int(offsets[start]), int(ends[stop - 1]))
                if self._verify:
                    self._check_sums(segment, octets, entries[start:stop])
                yield Window(octets, int(firsts[start]), firsts[start:stop], times[start:stop])
                start = stop
            number += len(entries)

    def _read(self, segment: Segment, files: Files, start: int, end: int) -> Octets:
        """Octets of a log: valid until the next call."""
        size = end - start
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        octets = memoryview(self._buffer)[:size]
        filled = 0
        while filled < size:
            count = os.preadv(files.log, [octets[filled:]], start + filled)
            if not count:
                raise DamagedLog(f"{segment.path}.log ends before octet {end}: `zambezi journal verify` says more")
            filled += count
        return np.frombuffer(octets, np.uint8)

    def _check_chain(self, segment: Segment, entries: npt.NDArray[np.void]) -> None:
        """Each entry must begin where the one before it ends."""
        ends = np.stack([entries["first"] + entries["count"], entries["offset"] + entries["length"]])
        begins = np.stack([entries["first"], entries["offset"]])
        if (ends[:, :-1] != begins[:, 1:]).any() or not entries["count"].all():
            raise DamagedLog(f"{segment.path}.idx is damaged: `zambezi journal verify` says more")

    def _check_sums(self, segment: Segment, octets: Octets, entries: npt.NDArray[np.void]) -> None:
        view = octets.data
        begin = int(entries[0]["offset"])
        for entry in entries:
            start = int(entry["offset"]) - begin
            if crc32(view[start : start + int(entry["length"])]) != entry["crc"]:
                raise DamagedLog(
                    f"{segment.path}.log: the batch at octet {int(entry['offset'])}, sequence {int(entry['first'])}, "
                    "does not have its CRC: `zambezi journal verify` says more"
                )

    def close(self) -> None:
        self._store.close()


def _segments(journal: Journal, after: int, last: int) -> list[Segment]:
    return [
        segment for segment in journal.segments if segment.entries and segment.last > after and segment.first <= last
    ]
