"""Compaction: many small files of a day become a few, sorted by stream; and old files are removed.

A batch adds a file or two, so a table that follows its streams would get thousands of files a day. When a day has more
than `MOST_SMALL` small files, the smallest are merged, up to the first one that is larger than all smaller ones
together. So the sizes of the files that stay at least double from one to the next: there are few of them, and a row is
written again only as often as its file doubles.

Spark is not needed: a process reads the small files, sorts their rows, and writes them with pyarrow.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from zambezi.spark.lake.problems import explained
from zambezi.spark.lake.table import LakeTable, TableFile
from zambezi.spark.lake.writing import DATE, AddedFile, write_files

MOST_SMALL: Final = 32  # files of a day
TARGET: Final = 128 << 20  # bytes: a larger file is not merged again
MOST_ROWS: Final = 512 << 20  # bytes of rows, before compression, that are merged at once
KEEP_HOURS: Final = 7 * 24  # of files that no reader of the current version needs
LEAST_HOURS: Final = 24  # a batch must be committed by then
_ORDER: Final = ("stream", "incarnation", "sequence")
_SLICE: Final = 1 << 16  # rows
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction."""

    merged: int = 0  # files that were replaced
    written: int = 0  # files that replaced them
    removed: int = 0  # old files


def choose(files: Iterable[TableFile], most: int = MOST_SMALL) -> list[list[TableFile]]:
    """Return the files of each day that are to be merged; none of a day that has few small files.

    >>> sizes = [1, 1, 1, 1, 3, 40]
    >>> files = [TableFile(str(number), size, "", 1, {}, {}) for number, size in enumerate(sizes)]
    >>> [[one.size for one in group] for group in choose(files, most=5)]
    [[1, 1, 1, 1, 3]]
    """
    by_date: dict[str, list[TableFile]] = {}
    for one in files:
        if one.size < TARGET:
            by_date.setdefault(one.date, []).append(one)
    chosen = []
    for small in by_date.values():
        if len(small) > most:
            small.sort(key=lambda one: (one.size, one.path))
            count = total = 0
            for number, one in enumerate(small):
                if one.size <= total or number == 0:
                    count = number + 1
                total += one.size
            chosen.append(small[:count])
    return chosen


def compact(table: LakeTable, dates: Collection[str] | None = None, *, most: int = MOST_SMALL) -> Compacted:
    """Merge small files, of each day that has more than `most` of them. `dates` are the days to look at, if not all."""
    merged = written = 0
    for group in choose(table.files(dates), most):
        for files in _divide(table, group):
            new = _merge(table, files)
            if exchange_files(table, files, new):
                merged += len(files)
                written += len(new)
    return Compacted(merged, written)


def exchange_files(table: LakeTable, old: Sequence[TableFile], new: Sequence[AddedFile]) -> bool:
    """Commit a merge. If other commits come between, try again, as long as all old files are in the table."""
    for _ in range(_TRIES):
        if table.exchange(old, new):
            return True
        if not {one.path for one in old} <= {one.path for one in table.files()}:
            return False  # another program has merged them
    return False


def _divide(table: LakeTable, files: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    """Divide files so that the rows of each part fit in memory."""
    part: list[TableFile] = []
    size = 0
    for one in files:
        rows = size_of_rows(table, one)
        if part and size + rows > MOST_ROWS:
            if len(part) > 1:
                yield part
            part, size = [], 0
        part.append(one)
        size += rows
    if len(part) > 1:
        yield part


def size_of_rows(table: LakeTable, file: TableFile) -> int:
    """Return the size of the rows of a file before compression, in bytes."""
    with explained(f"{table.place}/{file.path}"):
        footer = pq.read_metadata(file.path, filesystem=table.place.files)
    return int(sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups)))


def _merge(table: LakeTable, files: Sequence[TableFile]) -> list[AddedFile]:
    schema = pa.schema([field for field in table.schema if field.name != DATE])
    parts, filled = [], set(schema.names)
    for one in files:
        with explained(f"{table.place}/{one.path}"):
            own = pq.read_schema(one.path, filesystem=table.place.files)
            parts.append(pq.read_table(one.path, filesystem=table.place.files, schema=schema, partitioning=None))
        filled &= {field.name for field in own if not field.nullable}
    rows = pa.concat_tables(parts).cast(without_nulls(schema, filled))
    return write_files(table.place, with_date(sorted_rows(rows), files[0].date))


def without_nulls(schema: Any, names: Collection[str]) -> Any:
    """Return a schema that says that some columns have no nulls: a merged file says what all its parts say."""
    return pa.schema([field.with_nullable(field.nullable and field.name not in names) for field in schema])


def sorted_rows(rows: Any) -> Iterator[Any]:
    """Yield record batches with the rows of a table: messages by stream and sequence, others as they are."""
    order = [name for name in _ORDER if name in rows.column_names]
    if len(order) < len(_ORDER):
        yield from rows.to_batches()
        return
    places = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in order])
    for start in range(0, len(places), _SLICE):
        yield from rows.take(places.slice(start, _SLICE)).combine_chunks().to_batches()


def with_date(batches: Iterable[Any], day: str) -> Iterator[Any]:
    """Yield record batches with the column of the date."""
    for batch in batches:
        value = pa.scalar(day or None, pa.string()).cast(pa.date32())
        yield batch.append_column(pa.field(DATE, pa.date32()), pa.repeat(value, batch.num_rows))


def maintain(table: LakeTable, *, hours: int = KEEP_HOURS, most: int = 1) -> Compacted:
    """Merge all small files of each day, and remove the files that no version of the last hours has."""
    done = compact(table, most=most)
    return Compacted(done.merged, done.written, table.vacuum(max(LEAST_HOURS, hours)))


def is_vacuum_due(vacuumed: int, now: float | None = None) -> bool:
    """Return whether a day has passed since a time in microseconds."""
    return (time.time() if now is None else now) - vacuumed / 1e6 > 86400
