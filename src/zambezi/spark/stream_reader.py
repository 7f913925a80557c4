"""The stream reader: how far a query has come, how far its next batch goes, and what happened to the streams meanwhile.

The driver keeps one reader as long as the query runs, and asks it again and again how far there is something to read.
After a restart the first question may be for the partitions of a batch that another reader had planned: offsets alone
must be enough.
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

from zambezi.spark.backend import Slice, StreamState, trimmed
from zambezi.spark.batch_reader import Reader
from zambezi.spark.columns import RecordBatch
from zambezi.spark.errors import Replaced, Vanished
from zambezi.spark.offsets import Offsets, Position
from zambezi.spark.options import LATEST, Options
from zambezi.spark.plan import share

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("zambezi.spark")


class StreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams as they grow. The driver keeps one as long as the query runs."""

    def __init__(self, schema: StructType, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(schema, options)
        self._clock = clock
        self._target: dict[str, StreamState] | None = None  # where a query that takes what is there now shall end
        self._waiting_since: float | None = None
        self._awaited: set[str] = set()  # streams of which it was told that they are not there yet,
        self._missed: set[str] = set()  # and those that are not there any more

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        streams = self.streams()
        self._tell_missing(streams, Offsets({}))
        starts = self.starts(streams, LATEST)
        return Offsets(
            {name: Position(starts[name], known.incarnation, starts[name]) for name, known in streams.items()}
        ).to_json()

    def _tell_missing(self, streams: dict[str, StreamState], offsets: Offsets) -> None:
        for name in self.named() or ():
            if name not in streams and name not in offsets and name not in self._awaited:
                self._awaited.add(name)
                _log.warning("stream %a is not there yet: it will be read from its first message on", name)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.streams()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self.options
        if options["maxMessagesPerTrigger"] is not None:
            return ReadMaxRows(options["maxMessagesPerTrigger"])
        if options["maxBytesPerTrigger"] is not None:
            return ReadMaxBytes(options["maxBytesPerTrigger"])
        if options["minMessagesPerTrigger"] is not None:
            return ReadMinRows(options["minMessagesPerTrigger"])
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return Offsets(
            {name: Position(known.last, known.incarnation, known.first - 1) for name, known in self.streams().items()}
        ).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next batch goes: as far as there is something, and as the limits allow."""
        offsets = Offsets.from_json(start)
        waiting = self._waiting(offsets)
        if not isinstance(limit, ReadAllAvailable) and self._is_too_early(sum(piece.count for piece in waiting)):
            return start
        ends = dict(offsets)
        for piece, taken in zip(waiting, self._taken(waiting, limit), strict=True):
            if taken:
                known = offsets.get(piece.stream)
                begin = known.begin if known and known.incarnation == piece.incarnation else piece.after
                ends[piece.stream] = Position(piece.after + taken, piece.incarnation, begin)
        return Offsets(ends).to_json()

    def _waiting(self, offsets: Offsets) -> list[Slice]:
        """What there is to read, of each stream, after the offsets."""
        streams = self.streams()
        self._tell_missing(streams, offsets)
        for name in offsets:
            if name not in streams:
                self._vanished(name)
        found = []
        for name, known in streams.items():
            last = known.last
            if self._target is not None:
                target = self._target.get(name)
                if target is None or target.incarnation != known.incarnation:
                    continue  # it came after the query began, and the query ends with what was there
                last = min(last, target.last)
            piece = Slice(name, known.incarnation, self._reached(known, offsets.get(name)), last)
            if piece.count:
                found.append(piece)
        return found

    def _vanished(self, name: str) -> None:
        if self.options["failOnDataLoss"] or name not in self._missed:
            self._missed.add(name)
            self.lose(Vanished(f"stream {name!a} is not there any more"))

    def _reached(self, known: StreamState, position: Position | None) -> int:
        """After which sequence the query goes on in a stream."""
        if position is None:
            return known.first - 1
        if position.incarnation != known.incarnation:
            self.lose(_replaced(known, position))
            return known.first - 1
        if position.sequence + 1 < known.first:
            self.lose(trimmed(known.name, position.sequence, known.first))
            return known.first - 1
        if position.sequence > known.last:
            raise Replaced(
                f"stream {known.name!a} ends at {known.last}, and the query has read up to {position.sequence}: the "
                "journal was cut by hand, or is an old copy; restore it, or begin a new checkpoint"
            )
        return position.sequence

    def _is_too_early(self, count: int) -> bool:
        least = self.options["minMessagesPerTrigger"]
        if least is None or self._target is not None or count >= least or not count:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = self._clock()
        if self._clock() - self._waiting_since < self.options["maxTriggerDelay"]:
            return True
        self._waiting_since = None
        return False

    def _taken(self, waiting: Sequence[Slice], limit: ReadLimit) -> list[int]:
        """How many messages of each slice the next batch takes."""
        counts = {str(number): piece.count for number, piece in enumerate(waiting)}
        if isinstance(limit, ReadAllAvailable):
            return list(counts.values())
        messages = limit.max_rows if isinstance(limit, ReadMaxRows) else self.options["maxMessagesPerTrigger"]
        octets = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options["maxBytesPerTrigger"]
        if messages is not None:
            counts = share(counts, messages)
        if octets is not None:
            counts = self._within(waiting, counts, octets)
        return list(counts.values())

    def _within(self, waiting: Sequence[Slice], counts: dict[str, int], octets: int) -> dict[str, int]:
        sizes, marks = {}, {}
        for number, piece in enumerate(waiting):
            marks[str(number)] = self.marks(piece)
            sizes[str(number)] = int(marks[str(number)].before(piece.after + 1 + counts[str(number)]))
        if sum(sizes.values()) <= octets:
            return counts
        shares = share(sizes, octets)
        taken = {
            number: min(counts[number], marks[number].at(size) - waiting[int(number)].after - 1)
            for number, size in shares.items()
        }
        if not any(taken.values()):
            # One message is larger than the limit. It must go all the same, or nothing would ever again.
            taken[max(sizes, key=lambda number: sizes[number])] = 1
        return taken

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The work of one batch. The offsets may be those of another run of the query: nothing is remembered here."""
        begins, ends = Offsets.from_json(start), Offsets.from_json(end)
        streams = self.origin.streams(list(ends))
        slices = []
        for name, position in ends.items():
            begin = begins.get(name)
            after = begin.sequence if begin and begin.incarnation == position.incarnation else position.begin
            if after >= position.sequence:
                continue
            known = streams.get(name)
            if known is None:
                self._vanished(name)
                continue
            if known.incarnation != position.incarnation:
                self.lose(_replaced(known, position))
                continue
            if after + 1 < known.first:
                self.lose(trimmed(known.name, after, known.first))
                after = known.first - 1
            piece = Slice(name, known.incarnation, after, position.sequence)
            if piece.count:
                slices.append(piece)
        return self.parts(slices, streams)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self.read_part(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the journal keeps its messages for everybody, as long as its policy says."""

    def stop(self) -> None:
        self.close()


def _replaced(known: StreamState, position: Position) -> Replaced:
    return Replaced(
        f"stream {known.name!a} is not the one that the query has read: it was {position.incarnation}, read up to "
        f"{position.sequence}, and is {known.incarnation} now, with sequences {known.first} to {known.last}; it was "
        "deleted and made anew, or lost its end"
    )
