"""A backend that reads streams from an object store, with no broker: `path` is a URL, or a directory with a store.

The driver plans with LISTs: the names of segments have their sequences and sizes. Executors read segments and chunks,
and decode them like bytes of a file. While one object is decoded, threads read the next ones (see `store_objects`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from zambezi.spark.backend import (
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
from zambezi.spark.columns import BareMessages, EncodedMessages, Messages
from zambezi.spark.errors import DamagedLog, DataLoss, Replaced, SparkError, Vanished
from zambezi.spark.store_objects import Wanted, check_sums, entries_between, last_of, times_of, wanted_objects
from zambezi.wire.text import as_bytes
from zambezi.zeps.errors import OutOfRange, StoreDamaged, StoreError
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.store.catalog import StoredStream, check_format, list_streams, open_stream
from zambezi.zeps.store.chunk import UNCHANGED
from zambezi.zeps.store.commands import Procedure, view
from zambezi.zeps.store.names import FORMAT_KEY
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.shell import ObjectStore, is_store_url

T = TypeVar("T")
_AHEAD: Final = 4  # requests that are under way at the same time, or whose bytes wait to be decoded
_LOOKS: Final = 3  # times that nothing could be read, before a stream counts as damaged


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
            self._store = ObjectStore(url, options, create=False)
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
        opened = self._run(open_stream(name))
        if opened is not None:
            self._readers[name] = opened
        return opened

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
        return 0 if part is None else int(entries_between(part, after, after + 1)[0]["time"])

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
        read = self._read_index if request.bare else self._read_messages
        after, looks = wanted.after, 0
        with _translated():
            while after < wanted.last:
                begun = after
                problem = StoreDamaged(f"sequence {after + 1} of {wanted.stream!a} cannot be read")
                try:
                    if self._store.run(reader.retry(after, reader.find_part)) is None:
                        raise Replaced(f"stream {wanted.stream!a} ends at {after} now, and not at {wanted.last}")
                    for messages, last in read(reader, after, wanted.last):
                        yield wanted, messages
                        after = last
                except OutOfRange as error:
                    yield wanted, trimmed_error(wanted.stream, after, error.oldest)
                    after = error.oldest - 1
                except StoreDamaged as error:
                    problem = error
                looks = looks + 1 if after == begun else 0
                if looks == _LOOKS:
                    raise problem
                if after < wanted.last:  # an object was merged: look where its messages are now
                    self._store.run(reader.refresh())

    def _read_index(self, reader: LogReader, after: int, last: int) -> Iterator[tuple[Messages, int]]:
        """Yield what indexes tell about messages, and the last sequence of each. It ends where an object is gone."""
        while after < last and (opened := self._store.run(reader.open(after + 1))) is not None:
            entries = entries_between(opened, after, last)
            after = last_of(entries)
            yield BareMessages(int(entries[0]["first"]), after, times_of(entries)), after

    def _read_messages(self, reader: LogReader, after: int, last: int) -> Iterator[tuple[Messages, int]]:
        """Yield messages, and the last sequence of each. It ends where an object is gone."""
        ahead: deque[tuple[Wanted, Future[bytes | memoryview | None]]] = deque()
        coming = wanted_objects(self._store.run, reader, after, last)
        try:
            while True:
                for wanted in islice(coming, _AHEAD - len(ahead)):
                    getting = view(wanted.part.key, wanted.start, wanted.length)
                    ahead.append((wanted, self._fetchers.submit(self._store.run, getting)))
                if not ahead:
                    return
                wanted, answer = ahead.popleft()
                octets = answer.result()
                if octets is None:
                    return
                for entries, messages in wanted.cut(octets, after, last):
                    if self._verify or not wanted.is_certain:
                        check_sums(wanted.part.key, messages, entries)
                    yield EncodedMessages(messages, int(entries[0]["first"]), times_of(entries)), last_of(entries)
        finally:
            for _, answer in ahead:
                answer.cancel()

    def close(self) -> None:
        self._fetchers.shutdown(cancel_futures=True)
        self._store.close()
