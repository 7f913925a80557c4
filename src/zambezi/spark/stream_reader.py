"""The stream reader: it plans the micro-batches of a streaming query, and finds out what happened to its streams.

The driver keeps one reader for as long as the query runs, and asks it again and again for the latest offset. After a
restart, Spark can first ask for the partitions of a batch that another reader planned: the offsets alone must be enough
to plan them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from zambezi.spark.backend import SequenceRange, StreamState, trimmed_error
from zambezi.spark.base_reader import BaseReader
from zambezi.spark.columns import RecordBatch
from zambezi.spark.errors import Replaced, SparkError, Vanished
from zambezi.spark.offsets import Offsets, Position
from zambezi.spark.options import LATEST, Options
from zambezi.spark.plan import divide_limit, uniform_size_index
from zambezi.spark.progress import progress_report, unread_positions
from zambezi.spark.shared_backend import SharedBackend

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("zambezi.spark")

_STEPS: Final = 64  # places in a batch where the index is asked for the size


class StreamReader(BaseReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader for one streaming query."""

    def __init__(
        self,
        schema: StructType,
        options: Options,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(schema, options)
        self._clock = clock
        self._now = now
        self._planned = Offsets({})  # the end of the batch that was planned last
        self._target: dict[str, StreamState] | None = None  # where a query with trigger `availableNow` ends
        self._streams: dict[str, StreamState] = {}  # when the latest offset was asked for
        self._noted: dict[str, Position] = {}  # what the broker knows of the query
        self._notes = True  # whether the broker is told
        self._has_warned = False  # that it does not take it
        self._waiting_since: float | None = None
        self._reported_missing: set[str] = set()  # streams for which a warning said that they do not exist yet
        self._reported_vanished: set[str] = set()  # and those for which it said that they no longer exist

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        given = self.options["startingOffsets"]
        if given is not None:
            return Offsets.from_json(given).to_json()
        streams = self.streams()
        self._warn_of_missing(streams, Offsets({}))
        starts = self.starting_sequences(streams, LATEST)
        return Offsets(
            {name: Position(starts[name], state.incarnation, starts[name]) for name, state in streams.items()}
        ).to_json()

    def _warn_of_missing(self, streams: dict[str, StreamState], offsets: Offsets) -> None:
        for name in self.named_streams() or ():
            if name not in streams and name not in offsets and name not in self._reported_missing:
                self._reported_missing.add(name)
                _log.warning("stream %a does not exist yet: the query will read it from its first message on", name)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.streams()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self.options
        if options["maxMessagesPerTrigger"] is not None:
            return ReadMaxRows(options["maxMessagesPerTrigger"])
        if options["minMessagesPerTrigger"] is not None and "maxBytesPerTrigger" not in options:
            return ReadMinRows(options["minMessagesPerTrigger"])
        if self._max_bytes is not None:
            return ReadMaxBytes(self._max_bytes)
        if options["minMessagesPerTrigger"] is not None:
            return ReadMinRows(options["minMessagesPerTrigger"])
        return ReadAllAvailable()

    @property
    def _max_bytes(self) -> int | None:
        """The most bytes in a batch. The default is for queries that have no other limit."""
        options = self.options
        if "maxBytesPerTrigger" not in options and options["maxMessagesPerTrigger"] is not None:
            return None
        size: int | None = options["maxBytesPerTrigger"]
        return size

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of the streams, and how far the query is behind them after the batch that is planned.

        Spark shows this in the progress of the query (`sources[].latestOffset`), and uses it for nothing else.
        """
        streams = self._streams or self.streams()  # those of the batch that was just planned
        unread = unread_positions(streams, self._planned)
        times = self.backend.times_after(unread)
        place = self.options["endpoint"] or self.options["path"]
        return progress_report(place, streams, unread, times, self.lost, self._now())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end offset of the next batch: as many messages as exist and the limits allow."""
        offsets = Offsets.from_json(start)
        self._note_positions(offsets)
        unread = self._unread_ranges(offsets)
        if not isinstance(limit, ReadAllAvailable) and self._must_wait(sum(one.count for one in unread)):
            self._planned = offsets
            return start
        ends = dict(offsets)
        for one, count in zip(unread, self._limited_counts(unread, limit), strict=True):
            if count:
                known = offsets.get(one.stream)
                begin = known.begin if known and known.incarnation == one.incarnation else one.after
                ends[one.stream] = Position(one.after + count, one.incarnation, begin)
        self._planned = Offsets(ends)
        return self._planned.to_json()

    def _note_positions(self, done: Offsets) -> None:
        """Show at the broker how far the query has come: all batches before the next one are done."""
        name = self.options["reader"]
        backend = self.backend
        if name is None or not self._notes or not isinstance(backend, SharedBackend):
            return
        moved = {stream: one for stream, one in done.items() if self._noted.get(stream) != one}
        try:
            refused = backend.note_positions(name, moved)
        except SparkError as error:
            self._notes = False  # the broker does not know the request
            refused = dict.fromkeys(moved, str(error))
        self._noted |= moved
        if refused and not self._has_warned:
            self._has_warned = True
            stream, reason = next(iter(refused.items()))
            _log.warning(
                "the broker does not show how far the query is behind as reader %a (%d streams, for example %a): %s",
                *(name, len(refused), stream, reason),
            )

    def _unread_ranges(self, offsets: Offsets) -> list[SequenceRange]:
        """Return the messages of each stream that exist after the offsets."""
        streams = self._streams = self.streams()
        self._warn_of_missing(streams, offsets)
        for name in offsets:
            if name not in streams:
                self._handle_vanished(name)
        ranges = []
        for name, state in streams.items():
            last = state.last
            if self._target is not None:
                target = self._target.get(name)
                if target is None or target.incarnation != state.incarnation:
                    continue  # the stream was made after the query began, so the query ends without it
                last = min(last, target.last)
            unread = SequenceRange(name, state.incarnation, self._position_in(state, offsets.get(name)), last)
            if unread.count:
                ranges.append(unread)
        return ranges

    def _handle_vanished(self, name: str) -> None:
        if self.options["failOnDataLoss"] or name not in self._reported_vanished:
            self._reported_vanished.add(name)
            self.handle_data_loss(Vanished(f"stream {name!a} does not exist any more"))

    def _position_in(self, state: StreamState, position: Position | None) -> int:
        """Return the sequence after which the query continues in a stream."""
        if position is None:
            return state.first - 1
        if position.incarnation != state.incarnation:
            self.handle_data_loss(_replaced_error(state, position))
            return state.first - 1
        if position.sequence + 1 < state.first:
            self.handle_data_loss(trimmed_error(state.name, position.sequence, state.first))
            return state.first - 1
        if position.sequence > state.last:
            raise Replaced(
                f"stream {state.name!a} ends at {state.last}, but the query has read up to {position.sequence}: the "
                "journal was cut by hand, or is an old copy; restore it, or begin a new checkpoint"
            )
        return position.sequence

    def _must_wait(self, count: int) -> bool:
        """Return whether the next batch waits for more messages (`minMessagesPerTrigger`, `maxTriggerDelay`)."""
        minimum = self.options["minMessagesPerTrigger"]
        if minimum is None or self._target is not None or count >= minimum or not count:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = self._clock()
        if self._clock() - self._waiting_since < self.options["maxTriggerDelay"]:
            return True
        self._waiting_since = None
        return False

    def _limited_counts(self, unread: Sequence[SequenceRange], limit: ReadLimit) -> list[int]:
        """Return how many messages of each range the next batch reads."""
        counts = {str(number): one.count for number, one in enumerate(unread)}
        if isinstance(limit, ReadAllAvailable):
            return list(counts.values())
        max_messages = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options["maxMessagesPerTrigger"]
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._max_bytes
        if max_messages is not None:
            counts = divide_limit(counts, max_messages)
        if max_bytes is not None:
            counts = self._limit_bytes(unread, counts, max_bytes)
        return list(counts.values())

    def _limit_bytes(self, unread: Sequence[SequenceRange], counts: dict[str, int], max_bytes: int) -> dict[str, int]:
        if sum(self._streams[one.stream].size for one in unread) <= max_bytes:
            return counts  # even all messages of these streams
        estimates = [uniform_size_index(one, self._streams[one.stream]) for one in unread]
        if "maxBytesPerTrigger" not in self.options and sum(one.size for one in estimates) <= max_bytes // 4:
            return counts  # the default need not be exact
        indexes = {
            str(number): index or estimates[number]
            for number, index in enumerate(self.backend.size_indexes(unread, max(1, max_bytes // _STEPS)))
        }
        sizes = {
            number: int(index.size_before(unread[int(number)].after + 1 + counts[number]))
            for number, index in indexes.items()
        }
        if sum(sizes.values()) <= max_bytes:
            return counts
        limited = {
            number: min(counts[number], indexes[number].sequences_at([size])[0] - unread[int(number)].after - 1)
            for number, size in divide_limit(sizes, max_bytes).items()
        }
        if not any(limited.values()):
            # The next message is larger than the limit. It must be read all the same, or the query never continues.
            limited[max(sizes, key=lambda number: sizes[number])] = 1
        return limited

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of one batch. The offsets can be from another run of the query."""
        begins, ends = Offsets.from_json(start), Offsets.from_json(end)
        streams = self.backend.streams(list(ends))
        ranges = []
        for name, position in ends.items():
            begin = begins.get(name)
            after = begin.sequence if begin and begin.incarnation == position.incarnation else position.begin
            if after >= position.sequence:
                continue
            state = streams.get(name)
            if state is None:
                self._handle_vanished(name)
                continue
            if state.incarnation != position.incarnation:
                self.handle_data_loss(_replaced_error(state, position))
                continue
            if after + 1 < state.first:
                self.handle_data_loss(trimmed_error(state.name, after, state.first))
                after = state.first - 1
            wanted = SequenceRange(name, state.incarnation, after, position.sequence)
            if wanted.count:
                ranges.append(wanted)
        return self.plan_partitions(ranges, streams)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self.read_partition(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the retention policy of the journal alone decides how long messages are kept."""

    def stop(self) -> None:
        self.close()


def _replaced_error(state: StreamState, position: Position) -> Replaced:
    return Replaced(
        f"stream {state.name!a} is not the stream that the query has read: that was {position.incarnation}, read up to "
        f"{position.sequence}; this is {state.incarnation}, with sequences {state.first} to {state.last}; the stream "
        "was deleted and made again, or lost its end"
    )
