"""What the batch reader and the stream reader share, and the batch reader itself.

Spark plans in one process and reads in others, and pickles what is here to get it there: readers hold options and
conditions, and open files or connections only where they are used.

Spark refuses a reader that takes conditions while `spark.sql.python.filterPushdown.enabled` is off, which it is unless
somebody turns it on; it finds that out by comparing `reader.pushFilters.__func__` with the method of the base class. So
ours shows that method, and answers calls itself: conditions are taken where they are offered, and where they are not
nothing fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from zambezi.spark.backend import Backend, Marks, Slice, StreamState, trimmed
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import RecordBatch, Shaper
from zambezi.spark.errors import DataLoss, NoSuchStream, OptionError, Trimmed
from zambezi.spark.filters import Narrowed, all_of, pattern_test
from zambezi.spark.garbage import spare_imports
from zambezi.spark.journal_backend import JournalBackend
from zambezi.spark.options import EARLIEST, LATEST, Options, Where
from zambezi.spark.plan import Part, cores, cut, even
from zambezi.wire.text import as_bytes
from zambezi.zeps.matchers import Matchers

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger("zambezi.spark")

_FEW: Final = 2000  # messages that are not worth a question to the index


def open_backend(options: Options) -> Backend:
    """The files or the broker that the options name."""
    if options["path"] is not None:
        return JournalBackend(options["path"], verify=options["verify"])
    return BrokerBackend(
        options["endpoint"], options.security(), options["timeout"], filters=options["filterAt"] == "broker"
    )


class Reader:
    """What the batch reader and the stream reader share: which streams there are, and how a partition is read."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.options = options
        self.narrowed = Narrowed()
        self._schema = schema
        self._opened: Backend | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def origin(self) -> Backend:
        if self._opened is None:
            self._opened = open_backend(self.options)
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

    def streams(self) -> dict[str, StreamState]:
        """The streams that are to be read and are there now."""
        names = self.named()
        if names is not None:
            return self.origin.streams(names)
        is_wanted = Matchers().parse(self.options["streamPattern"])
        return {name: known for name, known in self.origin.streams().items() if is_wanted(as_bytes(name))}

    def lose(self, loss: DataLoss) -> None:
        """Messages are gone: fail, or say so and go on, as `failOnDataLoss` says."""
        if self.options["failOnDataLoss"]:
            advice = "begin a new checkpoint, or set failOnDataLoss=false to go on with what there is"
            loss.args = (f"{loss}; {advice}",)
            raise loss
        _log.warning("%s; going on with what there is", loss)

    def starts(self, streams: dict[str, StreamState], default: str) -> dict[str, int]:
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

    def _start(self, known: StreamState, place: Where | None) -> int:
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
            self.lose(trimmed(known.name, after, known.first))
            return known.first - 1
        return after

    def _check_names(self, option: str, told: Any, streams: dict[str, StreamState]) -> None:
        unknown = sorted(told.keys() - streams.keys()) if isinstance(told, dict) else []
        if unknown and self.named() is not None:
            unknown = [name for name in unknown if name not in (self.named() or ())]
        if unknown:
            raise OptionError(
                f"option {option!r} names {', '.join(map(ascii, unknown))}, and the streams to read are "
                f"{', '.join(map(ascii, streams)) or 'none'}"
            )

    def parts(self, slices: Sequence[Slice], streams: dict[str, StreamState]) -> list[Part]:
        """Slices of streams as partitions."""
        options = self.options
        weighed = []
        for piece in slices:
            known = streams[piece.stream]
            each = known.octets // max(1, known.last - known.first + 1)
            is_small = piece.count <= _FEW and options["minPartitions"] is None
            weighed.append((piece, even(piece, each) if is_small else self.marks(piece)))
        return cut(weighed, least=options["minPartitions"], most=options["maxMessagesPerPartition"], cores=cores())

    def marks(self, piece: Slice) -> Marks:
        return self.origin.marks(piece)

    def read_part(self, part: InputPartition) -> Iterator[RecordBatch]:
        """The messages of a partition, on an executor."""
        spare_imports()
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


class BatchReader(Reader, DataSourceReader):
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

    def _ends(self, streams: dict[str, StreamState]) -> dict[str, int]:
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


def _of(told: Any, name: str, default: Any) -> Any:
    """What an option says of a stream, be it one for all or one for each."""
    if isinstance(told, dict):
        return told.get(name, default)
    return default if told is None else told
