"""A backend that reads streams from an object store, with no broker: `path` is a URL, or a directory with a store.

The driver plans with LISTs: the names of segments have their sequences and sizes. Executors read ranges of segments and
chunks, and decode them like bytes of a file. While one piece is decoded, a thread reads the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID
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
from zambezi.spark.columns import BareMessages, BatchTimes, EncodedMessages, Octets
from zambezi.spark.entries import ENTRY, are_consecutive
from zambezi.spark.errors import DamagedLog, DataLoss, Replaced, SparkError, Vanished
from zambezi.wire.text import as_bytes
from zambezi.zeps.errors import OutOfRange, StoreDamaged, StoreError
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.store.catalog import StoredStream, check_format, find_stream, list_streams
from zambezi.zeps.store.chunk import FOOTER, UNCHANGED
from zambezi.zeps.store.commands import Procedure
from zambezi.zeps.store.names import FORMAT_KEY
from zambezi.zeps.store.reader import LogReader, OpenedPart
from zambezi.zeps.store.shell import ObjectStore, is_store_url

T = TypeVar("T")
_AHEAD: Final = 4  # requests that are under way at the same time


def is_store(path: str) -> bool:
    """Return whether an option `path` names a store, and not the data directory of a broker."""
    return is_store_url(path) or (Path(path) / FORMAT_KEY).is_file()


@contextmanager
def _translated() -> Iterator[None]:
    """Raise the errors of the store as errors of the source."""
    try:
        yield
    except StoreDamaged as error:
        raise DamagedLog(f"{error}: `zambezi store verify` says more") from None
    except StoreError as error:
        raise SparkError(f"option 'path': {error}") from None


class StoreBackend:
    """The streams under a prefix of an object store."""

    filters_keys = False

    def __init__(self, url: str, options: Mapping[str, str], *, verify: bool = False) -> None:
        self._verify = verify
        self._fetchers = ThreadPoolExecutor(_AHEAD, "zambezi-spark-store")
        self._readers: dict[str, tuple[StoredStream, LogReader]] = {}
        with _translated():
            self._store = ObjectStore(url, options)
            self._run(check_format(create=False))

    def _run(self, procedure: Procedure[T]) -> T:
        with _translated():
            return self._store.run(procedure)

    def streams(self, names: Iterable[str] | None = None, pattern: str = "") -> dict[str, StreamState]:
        if names is None:
            is_selected = Matchers().parse(pattern)
            stored = [stream.name for stream in self._run(list_streams())]
            names = [name for name in stored if is_selected(as_bytes(name))]
        found = {}
        for name in names:
            opened = self._open(name)
            if opened is not None:
                _, reader = opened
                found[name] = StreamState(
                    name, self._incarnation(*opened), reader.first, reader.last, reader.size, reader.last_time
                )
        return found

    def _open(self, name: str) -> tuple[StoredStream, LogReader] | None:
        """Return a stream in its present state; None if it does not exist."""
        known = self._readers.get(name)
        if known is not None:
            self._run(known[1].refresh())
            if not known[1].is_deleted:
                return known
            del self._readers[name]
        stream = self._run(find_stream(name))
        if stream is None:
            return None
        reader = LogReader(stream.place)
        self._run(reader.refresh())
        self._readers[name] = stream, reader
        return self._readers[name]

    def _incarnation(self, stream: StoredStream, reader: LogReader) -> str:
        return str(stream.incarnation if reader.incarnation == UNCHANGED else UUID(bytes=reader.incarnation))

    def _open_incarnation(self, wanted: SequenceRange) -> LogReader:
        """Return the reader of a range. Raise `Vanished` or `Replaced` if that incarnation does not exist any more."""
        opened = self._open(wanted.stream)
        if opened is None:
            raise Vanished(f"stream {wanted.stream!a} does not exist any more in {self._store.url}")
        incarnation = self._incarnation(*opened)
        if incarnation != wanted.incarnation:
            raise replaced_error(wanted.stream, incarnation, wanted.incarnation)
        return opened[1]

    def last_before(self, times: Mapping[str, int]) -> dict[str, int]:
        return {
            stream: 0 if (opened := self._open(stream)) is None else self._run(opened[1].last_before(time))
            for stream, time in times.items()
        }

    def times_after(self, positions: Mapping[str, int]) -> dict[str, int]:
        return {stream: self._time_after(stream, after) for stream, after in positions.items()}

    def _time_after(self, stream: str, after: int) -> int:
        opened = self._open(stream)
        if opened is None or after >= opened[1].last:
            return 0
        _, reader = opened
        after = max(after, reader.first - 1)
        part = self._run(reader.open_after(after))
        return 0 if part is None else int(self._entries(part, after, after + 1)[0]["time"])

    def size_indexes(self, ranges: Sequence[SequenceRange], step: int) -> list[SizeIndex | None]:
        return [self._size_index(wanted) for wanted in ranges]

    def _size_index(self, wanted: SequenceRange) -> SizeIndex | None:
        """Return the sizes that the names of segments tell; a part of a segment has its share of the bytes."""
        try:
            reader = self._open_incarnation(wanted)
        except DataLoss:
            return None
        parts = [(part.first, part.last, part.octets) for part in reader.segments]
        parts.append((parts[-1][1] + 1 if parts else reader.first, reader.last, reader.tail_size))
        points = []
        sequence, size = max(wanted.after + 1, reader.first), 0.0
        for first, last, octets in parts:  # they can overlap: each counts with the sequences that those before lack
            stop = min(last, wanted.last) + 1
            if sequence < stop:
                points.append((sequence, int(size)))
                size += octets * (stop - sequence) / (last - first + 1)
                sequence = stop
        return size_index_from_points([*points, (sequence, int(size))] if points else [])

    def read(self, ranges: Sequence[SequenceRange], request: Request) -> Iterator[Found]:
        return read_each(ranges, partial(self._read_range, request=request))

    def _read_range(self, wanted: SequenceRange, request: Request) -> Iterator[Found]:
        reader = self._open_incarnation(wanted)
        after = wanted.after
        while after < wanted.last:
            try:
                opened = self._run(reader.open_after(after))
                if opened is None:
                    raise Replaced(f"stream {wanted.stream!a} ends at {after} now, and {wanted.last} was to be read")
                entries = self._entries(opened, after, wanted.last)
                if request.bare:
                    last = int(entries[-1]["first"]) + int(entries[-1]["count"]) - 1
                    yield wanted, BareMessages(int(entries[0]["first"]), last, _times(entries))
                    after = last
                    continue
                for part, octets in self._fetch(opened, entries):
                    if octets is None:  # the object was merged: read the rest from where it is now
                        self._run(reader.refresh())
                        break
                    if self._verify or (not opened.part.is_segment and _can_be_fence(part)):
                        _check_sums(opened.part.key, octets, part)
                    yield wanted, EncodedMessages(octets, int(part[0]["first"]), _times(part))
                    after = int(part[-1]["first"]) + int(part[-1]["count"]) - 1
            except OutOfRange as error:
                yield wanted, trimmed_error(wanted.stream, after, error.oldest)
                after = error.oldest - 1

    def _entries(self, opened: OpenedPart, after: int, last: int) -> npt.NDArray[np.void]:
        """Return the entries of an object for a range of sequences."""
        entries = np.frombuffer(opened.index, ENTRY)
        if not are_consecutive(entries):
            raise DamagedLog(f"{opened.part.key} has a damaged index: `zambezi store verify` says more")
        start = max(0, int(np.searchsorted(entries["first"], after + 1, "right")) - 1)
        return entries[start : max(start + 1, int(np.searchsorted(entries["first"], last, "right")))]

    def _fetch(
        self, opened: OpenedPart, entries: npt.NDArray[np.void]
    ) -> Iterator[tuple[npt.NDArray[np.void], Octets | None]]:
        """Yield entries and their bytes, about `READ_SIZE` at a time; None for bytes that the store does not give.

        Some requests are under way while the bytes of the ones before are used.
        """
        starts = entries["offset"].astype(np.int64)
        ends = starts + entries["length"].astype(np.int64)
        coming: deque[tuple[npt.NDArray[np.void], Future[memoryview | None]]] = deque()
        start = 0
        while start < len(entries) or coming:
            while start < len(entries) and len(coming) < _AHEAD:
                stop = max(start + 1, int(np.searchsorted(ends, starts[start] + READ_SIZE, "right")))
                length = int(ends[stop - 1] - starts[start])
                read = self._fetchers.submit(self._store.read_range, opened.part.key, int(starts[start]), length)
                coming.append((entries[start:stop], read))
                start = stop
            part, read = coming.popleft()
            found = read.result()
            octets = None if found is None else np.frombuffer(found, np.uint8)
            wanted = int(part[-1]["offset"]) + int(part[-1]["length"]) - int(part[0]["offset"])
            yield part, octets if octets is not None and len(octets) == wanted else None
            if octets is None:
                return

    def close(self) -> None:
        self._fetchers.shutdown(cancel_futures=True)
        self._store.close()


def _times(entries: npt.NDArray[np.void]) -> BatchTimes:
    return BatchTimes(entries["first"].astype(np.int64), entries["time"].astype(np.int64))


def _can_be_fence(entries: npt.NDArray[np.void]) -> bool:
    """Return whether the bytes of entries can be those of a fence that has replaced a chunk: they end so early."""
    return int(entries[-1]["offset"]) + int(entries[-1]["length"]) <= FOOTER


def _check_sums(key: str, octets: Octets, entries: npt.NDArray[np.void]) -> None:
    """Check the CRC of each batch."""
    view = octets.data
    begin = int(entries[0]["offset"])
    for entry in entries:
        start = int(entry["offset"]) - begin
        if crc32(view[start : start + int(entry["length"])]) != entry["crc"]:
            raise DamagedLog(
                f"{key}: the batch of sequence {int(entry['first'])} does not match its CRC: `zambezi store verify` "
                "says more"
            )
