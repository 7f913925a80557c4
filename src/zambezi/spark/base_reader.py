"""The common base of the batch reader and the stream reader: which streams to read, and how to read a partition.

Spark plans partitions in the driver and reads them on executors. It pickles a reader to send it there. So a reader
keeps options and filters, and opens files or connections only in the process that uses them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

from zambezi.spark.backend import Backend, SequenceRange, SizeIndex, StreamState, trimmed_error
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import KeyTest, RecordBatch, RecordBatchBuilder
from zambezi.spark.errors import DataLoss, OptionError, Trimmed
from zambezi.spark.filters import PushedFilters, all_of, pattern_test
from zambezi.spark.garbage import freeze_imported_objects
from zambezi.spark.journal_backend import JournalBackend
from zambezi.spark.options import EARLIEST, LATEST, Options, SequenceOption
from zambezi.spark.plan import StreamPartition, driver_cores, split_into_partitions, uniform_size_index
from zambezi.spark.store_backend import StoreBackend, is_store
from zambezi.wire.text import as_bytes
from zambezi.zeps.matchers import Matchers

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("zambezi.spark")

_SMALL_RANGE: Final = 2000  # messages; a range of this size is not worth a request to the index


def open_backend(options: Options) -> Backend:
    """Open the data directory, the object store or the connection to the broker that the options name."""
    if options["path"] is not None and is_store(options["path"]):
        return StoreBackend(options["path"], options["storeOptions"] or {}, verify=options["verify"])
    if options["path"] is not None:
        return JournalBackend(options["path"], verify=options["verify"])
    return BrokerBackend(
        options["endpoint"], options.security(), options["timeout"], filters_keys=options["filterAt"] == "broker"
    )


class BaseReader:
    """The methods that the batch reader and the stream reader share."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.options = options
        self.pushed_filters = PushedFilters()
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
        is_selected = Matchers().parse(self.options["streamPattern"])
        return {name: state for name, state in self.backend.streams().items() if is_selected(as_bytes(name))}

    def handle_data_loss(self, loss: DataLoss) -> None:
        """Raise the error if `failOnDataLoss` is set, otherwise log a warning."""
        if self.options["failOnDataLoss"]:
            advice = "begin a new checkpoint, or set failOnDataLoss=false to continue with the messages that remain"
            loss.args = (f"{loss}; {advice}",)
            raise loss
        _log.warning("%s; the query continues with the messages that remain", loss)

    def starting_sequences(self, streams: dict[str, StreamState], default: str) -> dict[str, int]:
        """Return, for each stream, the sequence after which the options begin to read."""
        times = self.options["startingTimestamp"]
        if times is not None:
            self.check_stream_names("startingTimestamp", times, streams)
            if max(times.values() if isinstance(times, dict) else [times], default=0) > time.time() * 1e6:
                raise OptionError("option 'startingTimestamp' is in the future: it must be a time in the past")
            return {
                name: state.first - 1
                if (start_time := value_for(name, times, None)) is None
                else max(state.first - 1, self.backend.last_before(name, start_time))
                for name, state in streams.items()
            }
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

    def check_stream_names(self, option: str, value: Any, streams: dict[str, StreamState]) -> None:
        """Raise OptionError if the JSON of an option names a stream that is not read."""
        unknown = sorted(value.keys() - streams.keys()) if isinstance(value, dict) else []
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
        sized_ranges = [(one, self._size_index_for_plan(one, streams[one.stream])) for one in ranges]
        return split_into_partitions(
            sized_ranges,
            min_partitions=self.options["minPartitions"],
            max_messages=self.options["maxMessagesPerPartition"],
            cores=driver_cores(),
        )

    def _size_index_for_plan(self, wanted: SequenceRange, state: StreamState) -> SizeIndex:
        if wanted.count <= _SMALL_RANGE and self.options["minPartitions"] is None:
            return uniform_size_index(wanted, state.size // max(1, state.last - state.first + 1))
        return self.backend.size_index(wanted)

    def read_partition(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the messages of a partition. Spark calls this on an executor."""
        freeze_imported_objects()
        try:
            for one in partition.ranges if isinstance(partition, StreamPartition) else ():
                yield from self._read_range(one)
        finally:
            self.close()

    def _read_range(self, wanted: SequenceRange) -> Iterator[RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        pattern, key_tests = self._key_conditions()
        builder = RecordBatchBuilder(schema, wanted.stream, wanted.incarnation, all_of(key_tests))
        with_times = "timestamp" in schema.names
        while True:
            try:
                for messages in self.backend.read(wanted, pattern, with_times=with_times):
                    batch = builder.build(messages, wanted.after, wanted.last)
                    if batch is not None:
                        yield batch
                return
            except Trimmed as loss:
                self.handle_data_loss(loss)
                after = max(wanted.after + 1, loss.oldest - 1)
                wanted = SequenceRange(wanted.stream, wanted.incarnation, after, wanted.last)
                if not wanted.count:
                    return
            except DataLoss as loss:
                self.handle_data_loss(loss)
                return

    def _key_conditions(self) -> tuple[str, list[KeyTest]]:
        """Return the pattern for the backend, and the tests that the executor makes on keys."""
        key_tests = self.pushed_filters.key_tests()
        pattern: str = self.options["pattern"]
        test = pattern_test(pattern)
        if test is not None:
            key_tests.append(test)
        # A broker that filters also sends the last message of a range, whatever its key. So the executor tests the
        # keys of filtered messages as well.
        if not self.backend.filters_keys:
            return "", key_tests
        return pattern or self.pushed_filters.key_pattern(), key_tests


def value_for(stream: str, value: Any, default: Any) -> Any:
    """Return the value of an option for a stream. The option has one value for all streams, or one for each."""
    if isinstance(value, dict):
        return value.get(stream, default)
    return default if value is None else value
