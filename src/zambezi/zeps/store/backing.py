"""The store behind a journal that is a cache: it loads the messages that the disk does not have, a piece at a time.

A piece becomes a segment of the journal, so everything that reads a journal reads it as any other message. The methods
that block run on threads of the broker: how many of these there are bounds the memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from zambezi.zeps.errors import JournalError, JournalFull, StoreDamaged, StoreError
from zambezi.zeps.journal.backing import Extent
from zambezi.zeps.journal.changing import ChangingJournal
from zambezi.zeps.journal.disk_cache import DiskCache
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.journal.loaded import clip, write_segment
from zambezi.zeps.journal.reading import JournalReading
from zambezi.zeps.journal.segment import Segment
from zambezi.zeps.store.commands import Procedure
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.pieces import LoadedPiece, read_piece
from zambezi.zeps.store.reader import LogReader, OpenedPart
from zambezi.zeps.store.stream_log import StreamLog

T = TypeVar("T")
AHEAD: Final = 4  # pieces that are loaded ahead of a reader
PIECE: Final = 8 << 20  # bytes that are loaded at once
PATIENCE: Final = 2.0  # seconds that a thread waits for a store that fails; then other readers get it
_NEARLY: Final = 0.25  # of a piece: sizes tell only about where a piece begins
_IDLE: Final = 32  # readers of logs that keep what they know of a log, of all streams


class ProcedureRunner(Protocol):
    """A store that runs procedures: an `ObjectStore`."""

    def run(self, procedure: Procedure[T], patience: float) -> T:
        """Return the result of a procedure; raise `StoreError` if the store fails for so many seconds. Blocks."""


@dataclass(slots=True)
class LoadCounters:
    """Counters of what was loaded from the store."""

    pieces: int = 0
    octets: int = 0


class ReaderPool:
    """Readers of logs that are not in use, so that a reader that goes on need not look at the log again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[LogReader] = deque(maxlen=_IDLE)

    @contextmanager
    def reader(self, place: StreamPlace) -> Iterator[LogReader]:
        """Lend a reader of a log. One that fails is not used again."""
        with self._lock:
            found = next((one for one in reversed(self._idle) if one.place == place), None)
            if found is not None:
                self._idle.remove(found)
        reader = found or LogReader(place)
        yield reader
        with self._lock:
            self._idle.append(reader)


class StoreBacking:
    """The messages of one stream in the store. The broker owns the log."""

    def __init__(
        self,
        store: ProcedureRunner,
        log: StreamLog,
        readers: ReaderPool,
        counters: LoadCounters,
        *,
        cache: DiskCache,
        read_ahead: Callable[[JournalReading, Sequence[int]], None],
        piece: int = PIECE,
    ) -> None:
        self._store = store
        self._log = log
        self._readers = readers
        self._counters = counters
        self._cache = cache
        self._read_ahead = read_ahead
        self._piece = piece

    @property
    def first(self) -> int:
        return self._log.first

    @property
    def last(self) -> int:
        return self._log.last

    @property
    def first_time(self) -> int:
        return self._log.extents.first_time

    @property
    def last_time(self) -> int:
        return self._log.last_time

    @property
    def octets(self) -> int:
        return self._log.extents.octets

    def extents(self, after: int, last: int) -> Sequence[Extent]:
        return self._log.extents.between(after, last)

    def read_ahead(self, journal: JournalReading, sequence: int) -> None:
        missing = [one for one in self._upcoming(sequence) if journal.gap_at(one) is not None]
        if missing:
            self._read_ahead(journal, missing)

    def _upcoming(self, sequence: int) -> list[int]:
        """Return a sequence of each of the next pieces, as far as the sizes of the objects tell."""
        found: list[int] = []
        room = 0  # bytes that the last piece has left for small objects
        for extent in self._log.extents.between(sequence - 1, self.last):
            first, last, octets = extent
            if octets <= room:
                room -= octets
                continue
            found.append(max(first, sequence))
            room = self._piece - octets
            if octets > self._piece:  # the middle of a piece is surely in it: messages have different sizes
                each = (last - first + 1) / octets * self._piece
                begun = self._number_in(extent, found[-1])
                numbers = range(begun + 1, min(begun + AHEAD, -(-octets // self._piece)))
                found += [min(last, first + int(each * (number + 0.5))) for number in numbers]
                room = 0
            if len(found) >= AHEAD:
                break
        return found[:AHEAD]

    def _number_in(self, extent: Extent, sequence: int) -> int:
        """Return the number of the piece of a large object that has a sequence, or that begins soon after it."""
        first, last, octets = extent
        return int((sequence - first) * octets / ((last - first + 1) * self._piece) + _NEARLY)

    def piece_of(self, sequence: int) -> tuple[int, int]:
        extent = next(iter(self._log.extents.between(sequence - 1, sequence)), None)
        if extent is None:
            return sequence, -1
        return extent.first, self._number_in(extent, sequence) if extent.octets > self._piece else 0

    def load(self, journal: JournalReading, sequence: int) -> None:
        assert isinstance(journal, ChangingJournal)
        gap = journal.gap_at(sequence)
        if gap is None:
            return
        piece = self._read(sequence)
        entries, octets = clip(piece.entries, piece.octets, *gap)
        if not entries:
            raise StoreDamaged(f"stream {journal.name!a}: the store has no sequence {sequence}, as it should")
        segment = self._write(journal, entries, octets)
        segment.is_ahead = True
        if journal.insert(segment):
            self._counters.pieces += 1
            self._counters.octets += len(octets)
        else:
            segment.remove()  # another thread was faster, or the journal is closed
            if not journal.is_open:
                raise JournalError(f"the journal of stream {journal.name!a} is closed")

    def _write(self, journal: ChangingJournal, entries: Sequence[IndexEntry], octets: bytes | memoryview) -> Segment:
        self._cache.make_room(len(octets))
        directory, revision = str(journal.directory), journal.next_revision()
        try:
            return write_segment(directory, entries, octets, revision)
        except JournalFull:
            if not self._cache.free(2 * len(octets)):
                raise
            return write_segment(directory, entries, octets, revision)

    def _read(self, sequence: int) -> LoadedPiece:
        def read(reader: LogReader) -> Procedure[LoadedPiece | None]:
            if sequence > reader.last:
                yield from reader.refresh()
            return (yield from read_piece(reader, sequence, self._piece))

        with self._readers.reader(self._log.place) as reader:
            piece = self._store.run(read(reader), PATIENCE)
        if piece is None:
            raise StoreError(f"the store does not have sequence {sequence} of {self._log.place.path} yet")
        return piece

    def entries(self, sequence: int) -> Sequence[IndexEntry]:
        def read(reader: LogReader) -> Procedure[OpenedPart | None]:
            if sequence > reader.last:
                yield from reader.refresh()
            return (yield from reader.open_after(sequence - 1))

        with self._readers.reader(self._log.place) as reader:
            opened = self._store.run(read(reader), PATIENCE)
        if opened is None:
            raise StoreError(f"the store does not have sequence {sequence} of {self._log.place.path} yet")
        return [entry._replace(publishers=0, removed=0) for entry in opened.entries]

    def find_before(self, time: int) -> int:
        def find(reader: LogReader) -> Procedure[int]:
            yield from reader.refresh()
            return (yield from reader.last_before(time))

        with self._readers.reader(self._log.place) as reader:
            return self._store.run(find(reader), PATIENCE)

    def backwards(self, after: int, last: int) -> Iterator[tuple[Sequence[IndexEntry], bytes]]:
        while last > after:
            piece = self._read(last)
            entries, octets = clip(piece.entries, piece.octets, after + 1, last)
            if not entries:
                raise StoreDamaged(f"the store has no sequence {last} of {self._log.place.path}, as it should")
            yield entries, bytes(octets)
            last = entries[0].first - 1
