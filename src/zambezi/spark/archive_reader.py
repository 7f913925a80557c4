"""The messages of an archive, for batch queries: `option("archive", URI)`.

An archive knows how far it has read each stream: all messages up to this position are in it, and none after. So a query
over an archive and a broker reads each message once: those of the archive, and those of the broker after the position.
The position is that of one version of the table, and the files of this version stay for days, whatever a run of
`archive` or a compaction does meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition

from zambezi.spark.backend import StreamState
from zambezi.spark.columns import Array, KeyTest, RecordBatch
from zambezi.spark.errors import OptionError, SparkError
from zambezi.spark.filters import NO_LIMIT, PushedFilters
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.reading import groups_of, read_file, sorted_files
from zambezi.spark.lake.table import LakeTable, TableFile
from zambezi.spark.offsets import Offsets, Position
from zambezi.spark.options import Options
from zambezi.spark.plan import partition_count
from zambezi.wire.text import as_bytes
from zambezi.zeps.matchers import Matchers

ARCHIVE: Final = "archive"  # the pipeline that makes archives
_EXPANSION: Final = 4  # how much smaller a file is than the messages in it, about
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ArchivePartition(InputPartition):
    """Files of an archive, and the condition on their rows."""

    def __init__(self, paths: tuple[str, ...], where: Any) -> None:
        super().__init__((paths, where))

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.value[0])

    @property
    def where(self) -> Any:
        return self.value[1]


class Archive:
    """One version of an archive, and the streams of it that a query selects."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._place = place_of(options)
        self._table = LakeTable(self._place, ARCHIVE)
        state = self._table.state
        if state is None:
            raise SparkError(f"option 'archive': there is no archive in {self._place}")
        if state.pattern and state.pattern != options["pattern"]:
            raise OptionError(
                f"option 'archive': {self._place} has only messages whose keys match {state.pattern!r}: set the option "
                "'pattern' to the same"
            )
        self._all = Offsets.from_json(state.offsets)
        self.positions = {name: one for name, one in self._all.items() if self._is_selected(name)}

    def _is_selected(self, name: str) -> bool:
        if self._options["stream"] is not None:
            return bool(name == self._options["stream"])
        if self._options["streams"] is not None:
            return name in self._options["streams"]
        return bool(Matchers().parse(self._options["streamPattern"])(as_bytes(name)))

    @property
    def streams(self) -> list[str]:
        """The names of all streams in the archive."""
        return list(self._all)

    def partitions(self, filters: PushedFilters, cores: int) -> list[ArchivePartition]:
        """Return partitions with the files that can have messages for the query."""
        wanted = [name for name in self.positions if filters.allow_name(name)]
        files = [one for one in sorted_files(self._table) if self._can_match(one, set(wanted), filters)]
        size = sum(one.size for one in files) * _EXPANSION
        count = partition_count(size, self._options["minPartitions"], cores)
        where = self._condition(filters)
        return [ArchivePartition(tuple(one.path for one in group), where) for group in groups_of(files, count)]

    def _can_match(self, file: TableFile, names: set[str], filters: PushedFilters) -> bool:
        """Return whether a file can have messages for the query, from the bounds of its columns."""
        low, high = file.lowest, file.highest
        if low.get("stream") is not None and not any(low["stream"] <= name <= high["stream"] for name in names):
            return False
        first, last = _limits(self._options, "Timestamp", filters.min_time, filters.max_time)
        if low.get("timestamp") is not None and (high["timestamp"] < _time(first) or low["timestamp"] > _time(last)):
            return False
        return low.get("sequence") is None or (
            high["sequence"] >= filters.min_sequence and low["sequence"] <= filters.max_sequence
        )

    def _condition(self, filters: PushedFilters) -> Any:
        """Return the condition on the rows of the archive, except that on keys, as an expression of pyarrow."""
        stream, incarnation = pc.field("stream"), pc.field("incarnation")
        terms = []
        if len(self.positions) < len(self._all):
            terms.append(stream.isin(list(self.positions)))
        for kind, value in filters.streams:
            terms.append(stream.isin(sorted(value)) if kind == "in" else pc.starts_with(stream, value))
        terms += [incarnation.isin(sorted(allowed)) for allowed in filters.incarnations]
        terms += _between("sequence", filters.min_sequence, filters.max_sequence)
        terms += _between("timestamp", filters.min_time, filters.max_time)
        for option, column, is_start in (
            ("startingSequence", "sequence", True),
            ("endingSequence", "sequence", False),
            ("startingTimestamp", "timestamp", True),
            ("endingTimestamp", "timestamp", False),
        ):
            terms += _option_terms(self._options[option], column, is_start)
        return reduce(and_, terms) if terms else None


def place_of(options: Options) -> Place:
    """Return the place that the option `archive` names."""
    return Place(options["archive"], options["storeOptions"])


def read_archive(
    options: Options, partition: ArchivePartition, schema: Any, key_test: KeyTest | None
) -> Iterator[RecordBatch]:
    """Yield the messages of a partition for which its condition and a test of their keys are true."""
    place = place_of(options)
    columns = list(dict.fromkeys([*schema.names, *(("key",) if key_test is not None else ())]))
    if "key" in columns:
        columns.append("key_bytes")
    for path in partition.paths:
        for batch in read_file(place, path, columns, partition.where):
            yield from _messages(batch, schema, key_test)


def _messages(batch: Any, schema: Any, key_test: KeyTest | None) -> Iterator[RecordBatch]:
    keys: Any = _keys(batch) if "key" in batch.schema.names else None
    if key_test is not None:
        mask = key_test(keys)
        batch, keys = batch.filter(mask), keys.filter(mask)
    if batch.num_rows:
        arrays = [
            _retyped(keys, field.type) if field.name == "key" else batch.column(field.name).cast(field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys(batch: Any) -> Array:
    """Return the keys as they were published."""
    text, octets = batch.column("key"), batch.column("key_bytes")
    keys = text.cast(pa.binary())
    return keys if octets.null_count == len(octets) else pc.coalesce(octets, keys)


def _retyped(keys: Array, kind: Any) -> Array:
    """Return keys as texts without a check: a key that is not UTF-8 stays as it is, as in the journal."""
    return pa.Array.from_buffers(kind, len(keys), keys.buffers(), offset=keys.offset)


def _time(micros: int) -> datetime:
    """Return a time, at the latest in the year 9999."""
    return _BEGINNING + timedelta(microseconds=min(max(micros, 0), 253_402_300_799_000_000))


def _between(column: str, low: int, high: int) -> list[Any]:
    as_value = _time if column == "timestamp" else int
    terms = [pc.field(column) >= pa.scalar(as_value(low), _KINDS[column])] if low > 0 else []
    return terms + ([pc.field(column) <= pa.scalar(as_value(high), _KINDS[column])] if high < NO_LIMIT else [])


_KINDS: Final = {"sequence": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}


def _option_terms(value: Any, column: str, is_start: bool) -> list[Any]:
    """Return the condition of a starting or ending option: one value for all streams, or one for each."""

    def one_term(limit: Any) -> list[Any]:
        if not isinstance(limit, int):  # earliest or latest
            return []
        return _between(column, limit, NO_LIMIT) if is_start else _between(column, 0, limit)

    if not isinstance(value, dict):
        return one_term(value)
    stream = pc.field("stream")
    either = [~stream.isin(list(value))]
    either += [reduce(and_, [stream == name, *one_term(limit)]) for name, limit in value.items()]
    return [reduce(or_, either)]


def _limits(options: Options, kind: str, low: int, high: int) -> tuple[int, int]:
    """Return bounds that the options have for all streams, and the pushed ones."""
    start, end = options[f"starting{kind}"], options[f"ending{kind}"]
    return max(low, start if isinstance(start, int) else 0), min(high, end if isinstance(end, int) else NO_LIMIT)


def join(state: StreamState, position: Position | None) -> tuple[StreamState, int]:
    """Return a stream that begins in an archive and goes on in a broker, and its last sequence in the archive.

    Another incarnation of the stream in the archive is another stream: it is read too, and this one from its beginning.
    """
    if position is None or position.incarnation != state.incarnation:
        return state, 0
    return replace(state, first=min(state.first, position.begin + 1)), position.sequence
