"""The data source `zeps`: streams as tables, once or as they grow.

    spark.read.format("zeps").option("path", "data").option("stream", "readings").load()
    spark.readStream.format("zeps").option("endpoint", "tcp://broker:5555").option("stream", "readings").load()

Spark plans in one process and reads in others, and pickles what is here to get it there: readers hold options and
conditions, and open files or connections only where they are used.

Two facts of Spark shape this module. It asks for all columns unless the user gives a schema
(`.schema("sequence long")`), so a schema is how columns are left out. And it refuses a reader that takes conditions
while `spark.sql.python.filterPushdown.enabled` is off, which it is unless somebody turns it on; it finds that out by
comparing `reader.pushFilters.__func__` with the method of the base class. So ours shows that method, and answers calls
itself: conditions are taken where they are offered, and where they are not nothing fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from zambezi.spark.columns import RecordBatch, Shaper
from zambezi.spark.errors import DataLoss, NoSuchStream, OptionError, Replaced, SchemaError, Trimmed, Vanished
from zambezi.spark.filters import Narrowed, all_of, pattern_test
from zambezi.spark.journals import Journals
from zambezi.spark.offsets import Offsets, Position
from zambezi.spark.options import BATCH, EARLIEST, LATEST, SINK, STREAM, Options, Where
from zambezi.spark.origin import Known, Marks, Origin, Slice
from zambezi.spark.plan import Part, cores, cut, even, share
from zambezi.spark.remote import Remote
from zambezi.spark.sink import BatchWriter, StreamWriter
from zambezi.zeps.matchers import Matchers

_log: Final = logging.getLogger("zambezi.spark")

SCHEMA: Final = "stream string, sequence long, timestamp timestamp, key string, body binary, incarnation string"
COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "stream": (StringType,),
    "sequence": (LongType,),
    "timestamp": (TimestampType,),
    "key": (StringType, BinaryType),
    "body": (BinaryType,),
    "incarnation": (StringType,),
}
_FEW: Final = 2000  # messages that are not worth a question to the index


class ZepsDataSource(DataSource):
    """Reads and writes streams. docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "zeps"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(check_schema(schema), Options(self.options, BATCH))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(schema, Options(self.options, SINK), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(schema, Options(self.options, SINK), overwrite)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(check_schema(schema), Options(self.options, STREAM))


def check_schema(schema: StructType) -> StructType:
    """A schema that the source can fill, or SchemaError."""
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise SchemaError(f"there is no column {field.name!r}: the source zeps has {SCHEMA}")
        if type(field.dataType) not in kinds:
            words = " or ".join(kind().simpleString() for kind in kinds)
            raise SchemaError(f"column {field.name!r} is {words}, not {field.dataType.simpleString()}")
    return schema


def open_origin(options: Options) -> Origin:
    """The files or the broker that the options name."""
    if options["path"] is not None:
        return Journals(options["path"], verify=options["verify"])
    return Remote(options["endpoint"], options.security(), options["timeout"], filters=options["filterAt"] == "broker")


class Reading:
    """What the batch reader and the stream reader share: which streams there are, and how a partition is read."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.options = options
        self.narrowed = Narrowed()
        self._schema = schema
        self._opened: Origin | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def origin(self) -> Origin:
        if self._opened is None:
            self._opened = open_origin(self.options)
        return self._opened

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def named(self) -> tuple[str, ...] | None:
        """The streams that the options name, if they name any."""
        if self.options["stream"] is not None:
            return (self.options["stream"],)
        names: tuple[str, ...] | None = self.options["streams"]
        return names

    def streams(self) -> dict[str, Known]:
        """The streams that are to be read and are there now."""
        names = self.named()
        if names is not None:
            return self.origin.streams(names)
        is_wanted = Matchers().parse(self.options["streamPattern"])
        return {
            name: known
            for name, known in self.origin.streams().items()
            if is_wanted(name.encode("utf-8", "surrogateescape"))
        }

    def lose(self, loss: DataLoss) -> None:
        """Messages are gone: fail, or say so and go on, as `failOnDataLoss` says."""
        if self.options["failOnDataLoss"]:
            advice = "begin a new checkpoint, or set failOnDataLoss=false to go on with what there is"
            loss.args = (f"{loss}; {advice}",)
            raise loss
        _log.warning("%s; going on with what there is", loss)

    def starts(self, streams: dict[str, Known], default: str) -> dict[str, int]:
        """After which sequence reading begins, by the options."""
        times = self.options["startingTimestamp"]
        if times is not None:
            self._check_names("startingTimestamp", times, streams)
            if max(times.values() if isinstance(times, dict) else [times], default=0) > time.time() * 1e6:
                raise OptionError("option 'startingTimestamp' is in the future: it must be a time that has come")
            return {
                name: known.first - 1
                if (when := _of(times, name, None)) is None
                else max(known.first - 1, self.origin.before(name, when))
                for name, known in streams.items()
            }
        places = self.options["startingSequence"]
        self._check_names("startingSequence", places, streams)
        return {name: self._start(known, _of(places, name, default)) for name, known in streams.items()}

    def _start(self, known: Known, place: Where | None) -> int:
        if place == LATEST:
            return known.last
        if place in (EARLIEST, None):
            return known.first - 1
        after = max(0, int(place or 0) - 1)
        if after > known.last:
            raise OptionError(
                f"option 'startingSequence' is {place} for stream {known.name!a}, and its last sequence is "
                f"{known.last}: it must be at most {known.last + 1}"
            )
        if after + 1 < known.first:
            self.lose(_trimmed(known, after))
            return known.first - 1
        return after

    def _check_names(self, option: str, told: Any, streams: dict[str, Known]) -> None:
        unknown = sorted(told.keys() - streams.keys()) if isinstance(told, dict) else []
        if unknown and self.named() is not None:
            unknown = [name for name in unknown if name not in (self.named() or ())]
        if unknown:
            raise OptionError(
                f"option {option!r} names {', '.join(map(ascii, unknown))}, and the streams to read are "
                f"{', '.join(map(ascii, streams)) or 'none'}"
            )

    def parts(self, slices: Sequence[Slice], streams: dict[str, Known]) -> list[Part]:
        """Slices of streams as partitions."""
        options = self.options
        weighed = []
        for piece in slices:
            known = streams[piece.stream]
            each = known.octets // max(1, known.last - known.first + 1)
            is_small = piece.count <= _FEW and options["minPartitions"] is None
            weighed.append((piece, even(piece, each) if is_small else self._marks(piece)))
        return cut(weighed, least=options["minPartitions"], most=options["maxMessagesPerPartition"], cores=cores())

    def _marks(self, piece: Slice) -> Marks:
        return self.origin.marks(piece)

    def read_part(self, part: InputPartition) -> Iterator[RecordBatch]:
        """The messages of a partition, on an executor."""
        try:
            for piece in part.slices if isinstance(part, Part) else ():
                yield from self._slice(piece)
        finally:
            self.close()

    def _slice(self, piece: Slice) -> Iterator[RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        pattern, tests = self._key_conditions()
        shaper = Shaper(schema, piece.stream, piece.incarnation, all_of(tests))
        timed = "timestamp" in schema.names
        while True:
            try:
                for window in self.origin.windows(piece, pattern, timed=timed):
                    batch = shaper.shape(window, piece.after, piece.last)
                    if batch is not None:
                        yield batch
                return
            except Trimmed as loss:
                self.lose(loss)
                piece = Slice(piece.stream, piece.incarnation, max(piece.after + 1, loss.oldest - 1), piece.last)
                if not piece.count:
                    return
            except DataLoss as loss:
                self.lose(loss)
                return

    def _key_conditions(self) -> tuple[str, list[Any]]:
        """The pattern that the origin is given, and the tests that are left to do here."""
        tests = self.narrowed.key_tests()
        pattern: str = self.options["pattern"]
        wanted = pattern_test(pattern)
        if wanted is not None:
            tests.append(wanted)
        # The message at the end of a slice comes whatever its key is, so what the broker filters is tested here, too.
        return (pattern or self.narrowed.key_pattern() if self.origin.filters else ""), tests


class _Offer:
    """`pushFilters` as Spark wants to see it; the head of this module says why."""

    def __init__(self, narrowed: Narrowed) -> None:
        self._narrowed = narrowed
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._narrowed.take(filters)


class BatchReader(Reading, DataSourceReader):
    """Reads what is there when the query is planned."""

    @property
    def pushFilters(self) -> _Offer:  # noqa: N802 - Spark's name
        return _Offer(self.narrowed)

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return self._partitions()
        finally:
            self.close()

    def _partitions(self) -> Sequence[InputPartition]:
        streams = self.streams()
        missing = [name for name in self.named() or () if name not in streams]
        if missing:
            raise NoSuchStream(
                f"there is no stream {', '.join(map(ascii, missing))}: "
                f"there are {', '.join(map(ascii, self.origin.streams())) or 'none'}"
            )
        starts = self.starts(streams, EARLIEST)
        ends = self._ends(streams)
        slices = []
        for name, known in streams.items():
            if ends[name] < starts[name] and "endingSequence" in self.options:
                raise OptionError(
                    f"option 'endingSequence' ends stream {name!a} at {ends[name]}, before it begins, at "
                    f"{starts[name] + 1}"
                )
            piece = self._narrow(Slice(name, known.incarnation, starts[name], ends[name]))
            if piece.count:
                slices.append(piece)
        return self.parts(slices, streams)

    def _ends(self, streams: dict[str, Known]) -> dict[str, int]:
        times = self.options["endingTimestamp"]
        if times is not None:
            self._check_names("endingTimestamp", times, streams)
            return {
                name: known.last if (when := _of(times, name, None)) is None else self.origin.before(name, when + 1)
                for name, known in streams.items()
            }
        places = self.options["endingSequence"]
        self._check_names("endingSequence", places, streams)
        ends = {}
        for name, known in streams.items():
            place = _of(places, name, LATEST)
            ends[name] = known.last if place in (LATEST, None) else int(place)
            if ends[name] > known.last:
                raise OptionError(
                    f"option 'endingSequence' is {place} for stream {name!a}, and its last sequence is {known.last}"
                )
        return ends

    def _narrow(self, piece: Slice) -> Slice:
        """As much of a slice as the conditions of the query leave."""
        narrowed = self.narrowed
        if not narrowed.wants(piece.stream, piece.incarnation):
            return Slice(piece.stream, piece.incarnation, 0, 0)
        after, last = max(piece.after, narrowed.low - 1), min(piece.last, narrowed.high)
        blank = Narrowed()
        if narrowed.time_low > blank.time_low:
            after = max(after, self.origin.before(piece.stream, narrowed.time_low))
        if narrowed.time_high < blank.time_high:
            last = min(last, self.origin.before(piece.stream, narrowed.time_high + 1))
        return Slice(piece.stream, piece.incarnation, after, last)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self.read_part(partition)


class StreamReader(Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams as they grow. The driver keeps one as long as the query runs."""

    def __init__(self, schema: StructType, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(schema, options)
        self._clock = clock
        self._target: dict[str, Known] | None = None  # where a query that takes what is there now shall end
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

    def _tell_missing(self, streams: dict[str, Known], offsets: Offsets) -> None:
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

    def _reached(self, known: Known, position: Position | None) -> int:
        """After which sequence the query goes on in a stream."""
        if position is None:
            return known.first - 1
        if position.incarnation != known.incarnation:
            self.lose(_replaced(known, position))
            return known.first - 1
        if position.sequence + 1 < known.first:
            self.lose(_trimmed(known, position.sequence))
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
            marks[str(number)] = self._marks(piece)
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
                self.lose(_trimmed(known, after))
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


def _of(told: Any, name: str, default: Any) -> Any:
    """What an option says of a stream, be it one for all or one for each."""
    if isinstance(told, dict):
        return told.get(name, default)
    return default if told is None else told


def _trimmed(known: Known, after: int) -> Trimmed:
    return Trimmed(
        f"stream {known.name!a}: sequences {after + 1} to {known.first - 1} are not kept any more, the oldest is "
        f"{known.first}",
        known.first,
    )


def _replaced(known: Known, position: Position) -> Replaced:
    return Replaced(
        f"stream {known.name!a} is not the one that the query has read: it was {position.incarnation}, read up to "
        f"{position.sequence}, and is {known.incarnation} now, with sequences {known.first} to {known.last}; it was "
        "deleted and made anew, or lost its end"
    )
