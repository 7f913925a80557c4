"""The writer of an executor: rows to Parquet files, one for each date, and what the log of the table says of each file.

Every file has a new name. If Spark repeats a task, the files of the first attempt stay behind. No commit names them,
and a vacuum removes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError

DATE: Final = "date"  # the column by which tables are partitioned
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
ROW_GROUP: Final = 32 << 20  # bytes of rows before compression
MOST_BUFFERED: Final = 4 * ROW_GROUP  # of all dates
COMPRESSION: Final = "zstd"
LEVEL: Final = 1
SAMPLE: Final = 64 << 10  # bytes that tell whether a column can be compressed
SAMPLE_ROWS: Final = 1000
WORTH: Final = 0.9  # of its size, which a compressed column must not exceed
MOST_OPEN: Final = 64  # files that are open at the same time
_DATA_FILE: Final = re.compile(rf"{DATE}=[^/]+/[0-9a-f]{{32}}\.parquet")


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A new file of a table. `date` is empty if its rows have none."""

    path: str
    size: int
    date: str
    rows: int
    stats: str  # JSON, as the log of the table has it


def is_data_file(path: str) -> bool:
    """Return whether a path in a table is one that this module gives to its files.

    >>> is_data_file("date=2026-11-15/9f3b0c5d1e2f4a6b8c7d9e0f1a2b3c4d.parquet"), is_data_file("photos/p.parquet")
    (True, False)
    """
    return _DATA_FILE.fullmatch(path) is not None


class _File:
    """A Parquet file that is being written."""

    def __init__(self, place: Place, day: date | None, rows: Any) -> None:
        schema = rows.schema
        self.date = "" if day is None else day.isoformat()
        self.path = f"{DATE}={self.date or NO_DATE}/{uuid4().hex}.parquet"
        self.waiting: list[Any] = []
        self.size_waiting = 0
        self._rows = 0
        self._footers: list[Any] = []
        self._stack = ExitStack()
        self._file = self._stack.enter_context(place.create(self.path))
        kinds = {field.name: compression_of(rows.column(field.name)) for field in schema}
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=kinds,
            compression_level={name: LEVEL for name, kind in kinds.items() if kind == COMPRESSION},
            use_dictionary=texts,
            write_statistics=[field.name for field in schema if _has_bounds(field.type)],
            metadata_collector=self._footers,
        )

    def add(self, batch: Any) -> None:
        self.waiting.append(batch)
        self.size_waiting += batch.nbytes

    def write(self) -> None:
        """Write the waiting rows as a row group."""
        if self.waiting:
            rows = pa.Table.from_batches(self.waiting)
            self._rows += rows.num_rows
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
            self.waiting, self.size_waiting = [], 0

    def close(self) -> AddedFile:
        """Write the rest of the file, and return what the log of the table says of it."""
        with self._stack:
            try:
                self.write()
                self._writer.close()
            except BaseException:
                self._give_up()
                raise
            size = self._file.tell()
        return AddedFile(self.path, size, self.date, self._rows, statistics_of(self._footers[0]))

    def abandon(self, error: BaseException) -> None:
        """Close a file that nobody will use."""
        self._give_up()
        self._stack.__exit__(type(error), error, error.__traceback__)

    def _give_up(self) -> None:
        """Let the writer of pyarrow not write its footer: it would fail again, and that error would hide the first."""
        self._writer.is_open = False


class TableWriter:
    """The files that a task writes. Rows of a date go to one file, in the order in which they came."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: dict[date | None, _File] = {}
        self._done: list[AddedFile] = []

    def add(self, batch: Any) -> None:
        """Write a record batch with a column `date`."""
        dates = batch.column(DATE)
        rows = valid_text(batch.drop_columns([DATE]))
        found = pc.unique(dates).to_pylist()
        for day in found:
            part = rows if len(found) == 1 else rows.filter(_is(dates, day))
            self._file(day, part).add(part)
        self._write_buffered()

    def _file(self, day: date | None, rows: Any) -> _File:
        """Return the file of a date, which can be a new one; `rows` are its next ones."""
        file = self._open.pop(day, None)
        if file is None:
            if len(self._open) >= MOST_OPEN:  # the one that has waited for rows for the longest time
                self._done.append(self._open.pop(next(iter(self._open))).close())
            file = _File(self._place, day, rows)
        self._open[day] = file
        return file

    def _write_buffered(self) -> None:
        for file in self._open.values():
            if file.size_waiting >= ROW_GROUP:
                file.write()
        while sum(file.size_waiting for file in self._open.values()) > MOST_BUFFERED:
            max(self._open.values(), key=lambda file: file.size_waiting).write()

    def close(self) -> list[AddedFile]:
        """Return all files."""
        while self._open:
            day = next(iter(self._open))
            self._done.append(self._open[day].close())
            del self._open[day]
        return self._done

    def abandon(self, error: BaseException) -> None:
        """Close and remove all files: the task has failed. Those that cannot be removed are unused, and vacuum does."""
        for file in self._open.values():
            with suppress(Exception):  # the first error counts
                file.abandon(error)
        for path in [*(file.path for file in self._open.values()), *(file.path for file in self._done)]:
            with suppress(TableError):
                self._place.remove(path)
        self._open.clear()
        self._done.clear()


def write_files(place: Place, batches: Iterable[Any]) -> list[AddedFile]:
    """Write record batches to files of a table, and return the files."""
    writer = TableWriter(place)
    try:
        for batch in batches:
            if batch.num_rows:
                writer.add(batch)
        return writer.close()
    except BaseException as error:
        writer.abandon(error)
        raise


def _is(dates: Any, day: date | None) -> Any:
    return pc.is_null(dates) if day is None else pc.equal(dates, pa.scalar(day, pa.date32()))


def valid_text(batch: Any) -> Any:
    """Return a record batch whose texts are UTF-8: readers of Parquet refuse a whole file for one bad character."""
    for number, field in enumerate(batch.schema):
        if pa.types.is_string(field.type):
            column = batch.column(number)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                octets = as_binary(column).to_pylist()
                fixed = [None if one is None else one.decode("utf-8", "replace") for one in octets]
                batch = batch.set_column(number, field, pa.array(fixed, pa.string()))
    return batch


def as_binary(column: Any) -> Any:
    """Return a column of texts as one of bytes, without a copy."""
    return pa.Array.from_buffers(pa.binary(), len(column), column.buffers(), offset=column.offset)


def compression_of(column: Any) -> str:
    """Return how to compress a column, by its first rows: bodies that do not become smaller stay as they are.

    That is so for images, and for what is encrypted or compressed already; to try it takes longer than to write them.
    """
    if not pa.types.is_binary(column.type) or not len(column):
        return COMPRESSION
    octets = b"".join(one for one in column.slice(0, SAMPLE_ROWS).to_pylist() if one is not None)[:SAMPLE]
    packed = pa.Codec(COMPRESSION, compression_level=LEVEL).compress(octets, asbytes=True)
    return "none" if octets and len(packed) > WORTH * len(octets) else COMPRESSION


def _has_bounds(kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
    )


def statistics_of(footer: Any) -> str:
    """Return the number of rows and the bounds of columns, from the footer of a Parquet file, as the log has them."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None or found.null_count is None:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max:
                lowest[name] = min(found.min, lowest.get(name, found.min))
                highest[name] = max(found.max, highest.get(name, found.max))
            elif found.null_count < row_group.num_rows:
                unknown.add(name)
    return json.dumps(
        {
            "numRecords": footer.num_rows,
            "minValues": {name: _as_json(value) for name, value in lowest.items() if name not in unknown},
            "maxValues": {name: _as_json(value) for name, value in highest.items() if name not in unknown},
            "nullCount": {name: count for name, count in nulls.items() if name not in unknown},
        }
    )


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value
