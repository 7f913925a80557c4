"""The common base of the batch reader and the stream reader: which streams to read, and how to read a partition.

Spark plans partitions in the driver and reads them on executors. It pickles a reader to send it there. So a reader
keeps options and filters, and opens files or connections only in the process that uses them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

from zambezi.spark.archive_reader import ArchivePartition, read_archive
from zambezi.spark.backend import Backend, Request, SequenceRange, SizeIndex, StreamState, trimmed_error
from zambezi.spark.columns import KeyTest, RecordBatch, RecordBatchBuilder, join_small
from zambezi.spark.errors import DataLoss, OptionError
from zambezi.spark.filters import PushedFilters, all_of, pattern_test
from zambezi.spark.journal_backend import JournalBackend
from zambezi.spark.options import EARLIEST, LATEST, Options, SequenceOption
from zambezi.spark.plan import (
    StreamPartition,
    default_cores,
    partition_count,
    split_into_partitions,
    uniform_size_index,
)
from zambezi.spark.shared_backend import SharedBackend
from zambezi.spark.store_backend import StoreBackend, is_store
from zambezi.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("zambezi.spark")

ADVICE: Final = "begin a new checkpoint, or set failOnDataLoss=false to continue with the messages that remain"
_SMALL_RANGE: Final = 2000  # messages; a range of this size is not worth a request to the index
_STEPS: Final = 8  # places in a partition where the index is asked for the size
_MIN_STEP: Final = 1 << 12  # bytes
_NEEDS_LOG: Final = frozenset({"key", "body"})  # columns that the index of the journal does not have


def open_backend(options: Options) -> Backend:
    """Open the data directory, the object store or the connection to the broker that the options name."""
    if options["path"] is not None and is_store(options["path"]):
        return StoreBackend(options["path"], options["storeOptions"] or {}, verify=options["verify"])
    if options["path"] is not None:
        return JournalBackend(options["path"], verify=options["verify"])
    return SharedBackend(
        options["endpoint"], options.security(), options["timeout"], filters_keys=options["filterAt"] == "broker"
    )


class BaseReader:
    """The methods that the batch reader and the stream reader share."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.options = options
        self.pushed_filters = PushedFilters()
        self.archived: frozenset[str] = frozenset()  # the streams that an archive has
        self.lost = 0  # messages that were lost before they were read, as far as their number is known
        self._schema = schema
        self._backend: Backend | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_backend": None}

    @property
    def backend(self) -> Backend:
        """The backend of this process, opened when it is first used."""
        if self._backend is None:
            self._backend = open_backend(self.options)
        return self._backend

    def close(self) -> None:
        """Close the backend."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    @property
    def has_backend(self) -> bool:
        """Whether the options name a broker or its data: an archive can be read without."""
        return "path" in self.options or "endpoint" in self.options

    @property
    def cores(self) -> int:
        """The cores of the cluster."""
        return self.options["cores"] or default_cores()

    def named_streams(self) -> tuple[str, ...] | None:
        """Return the streams that the options name; None if the options have a pattern instead."""
        if self.options["stream"] is not None:
            return (self.options["stream"],)
        names: tuple[str, ...] | None = self.options["streams"]
        return names

    def streams(self) -> dict[str, StreamState]:
        """Return the streams that the options select and that exist now."""
        names = self.named_streams()
        if names is not None:
            return self.backend.streams(names)
        return self.backend.streams(pattern=self.options["streamPattern"])

    def missing_streams(self, present: Container[str]) -> list[str]:
        """Return the streams that the options name, and that do not exist now."""
        return [name for name in self.named_streams() or () if name not in present]

    def handle_data_loss(self, loss: DataLoss) -> None:
        """Raise the error if `failOnDataLoss` is set, otherwise log a warning."""
        if self.options["failOnDataLoss"]:
            loss.args = (f"{loss}; {ADVICE}",)
            raise loss
        self.lost += loss.count
        _log.warning("%s; the query continues with the messages that remain", loss)

    def starting_sequences(self, streams: dict[str, StreamState], default: str) -> dict[str, int]:
        """Return, for each stream, the sequence after which the options begin to read."""
        times = self.options["startingTimestamp"]
        if times is not None:
            self.check_stream_names("startingTimestamp", times, streams)
            if max(times.values() if isinstance(times, dict) else [times], default=0) > time.time() * 1e6:
                raise OptionError("option 'startingTimestamp' is in the future: it must be a time in the past")
            found = self.last_before(streams, times)
            return {name: max(state.first - 1, found.get(name, 0)) for name, state in streams.items()}
        starts = self.options["startingSequence"]
        self.check_stream_names("startingSequence", starts, streams)
        return {
            name: self._starting_sequence(state, value_for(name, starts, default)) for name, state in streams.items()
        }

    def _starting_sequence(self, state: StreamState, start: SequenceOption | None) -> int:
        if start == LATEST:
            return state.last
        if start in (EARLIEST, None):
            return state.first - 1
        after = max(0, int(start or 0) - 1)
        if after > state.last:
            raise OptionError(
                f"option 'startingSequence' is {start} for stream {state.name!a}, and its last sequence is "
                f"{state.last}: it must be at most {state.last + 1}"
            )
        if after + 1 < state.first:
            self.handle_data_loss(trimmed_error(state.name, after, state.first))
            return state.first - 1
        return after

    def last_before(self, streams: Iterable[str], times: Any) -> dict[str, int]:
        """Return the last sequence before a time: one time for all streams, or one for each, if it has any."""
        by_stream = {name: value_for(name, times, None) for name in streams}
        return self.backend.last_before({name: time for name, time in by_stream.items() if time is not None})

    def check_stream_names(self, option: str, value: Any, streams: dict[str, StreamState]) -> None:
        """Raise OptionError if the JSON of an option names a stream that is not read."""
        unknown = sorted(value.keys() - streams.keys() - self.archived) if isinstance(value, dict) else []
        if unknown and self.named_streams() is not None:
            unknown = [name for name in unknown if name not in (self.named_streams() or ())]
        if unknown:
            raise OptionError(
                f"option {option!r} names {', '.join(map(ascii, unknown))}, and the streams to read are "
                f"{', '.join(map(ascii, streams)) or 'none'}"
            )

    def plan_partitions(
        self, ranges: Sequence[SequenceRange], streams: dict[str, StreamState]
    ) -> list[StreamPartition]:
        """Return partitions that cover the ranges."""
        return split_into_partitions(
            self.sized_ranges(ranges, streams),
            min_partitions=self.options["minPartitions"],
            max_messages=self.options["maxMessagesPerPartition"],
            cores=self.cores,
        )

    def sized_ranges(
        self, ranges: Sequence[SequenceRange], streams: Mapping[str, StreamState]
    ) -> list[tuple[SequenceRange, SizeIndex]]:
        """Return ranges with their sizes. Those that are certainly small are estimated, and the others asked for."""
        min_partitions = self.options["minPartitions"]
        estimates = [uniform_size_index(one, streams[one.stream]) for one in ranges]
        total = sum(index.size for index in estimates)
        step = max(_MIN_STEP, total // partition_count(total, min_partitions, self.cores) // _STEPS)
        asked = [
            number
            for number, one in enumerate(ranges)
            if min_partitions is not None
            or (one.count > _SMALL_RANGE and not (one.covers(streams[one.stream]) and estimates[number].size < step))
        ]
        found = self.backend.size_indexes([ranges[number] for number in asked], step)
        for number, index in zip(asked, found, strict=True):
            estimates[number] = index or estimates[number]
        return list(zip(ranges, estimates, strict=True))

    def read_partition(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the messages of a partition. Spark calls this on an executor."""
        prepare_worker()
        try:
            yield from join_small(self._record_batches(partition))
        finally:
            self.close()

    def _record_batches(self, partition: InputPartition) -> Iterator[RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if isinstance(partition, ArchivePartition):
            yield from read_archive(self.options, partition, schema, all_of(self._key_tests()))
            return
        pattern, key_tests = self._key_conditions()
        bare = not key_tests and not pattern and _NEEDS_LOG.isdisjoint(schema.names) and not self.options["verify"]
        builder: RecordBatchBuilder | None = None
        of_builder: tuple[str, str] | None = None
        ranges = partition.ranges if isinstance(partition, StreamPartition) else ()
        for wanted, found in self.backend.read(ranges, Request(pattern, bare)):
            if isinstance(found, DataLoss):
                self.handle_data_loss(found)
                continue
            if builder is None or of_builder != (wanted.stream, wanted.incarnation):
                of_builder = wanted.stream, wanted.incarnation
                builder = RecordBatchBuilder(schema, *of_builder, all_of(key_tests))
            yield from builder.build(found, wanted.after, wanted.last)

    def _key_conditions(self) -> tuple[str, list[KeyTest]]:
        """Return the pattern for the backend, and the tests that the executor makes on keys."""
        key_tests = self._key_tests()
        pattern: str = self.options["pattern"]
        if not self.backend.filters_keys:
            return "", key_tests
        return pattern or self.pushed_filters.key_pattern(), key_tests

    def _key_tests(self) -> list[KeyTest]:
        key_tests = self.pushed_filters.key_tests()
        test = pattern_test(self.options["pattern"])
        if test is not None:
            key_tests.append(test)
        return key_tests


def value_for(stream: str, value: Any, default: Any) -> Any:
    """Return the value of an option for a stream. The option has one value for all streams, or one for each."""
    if isinstance(value, dict):
        return value.get(stream, default)
    return default if value is None else value
