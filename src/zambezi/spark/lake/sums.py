"""Final sums: of a table whose batches add partial sums, the rows with the same key become one.

A batch counts its own messages only, so a window that spans several batches has several rows. A program that reads the
table without adding them up would show each of them as if it were the whole. So the rows of a day are added up: when a
run ends, and from time to time while it follows the streams. The new files replace the old ones in one commit. A reader
sees the partial sums or the final ones, and both have the same total.

A day that does not fit in memory is read several times, each time for a part of its windows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from zambezi.spark.lake.compaction import MOST_ROWS, TARGET, Compacted, exchange_files, size_of_rows, with_date
from zambezi.spark.lake.problems import explained
from zambezi.spark.lake.table import LakeTable, TableFile
from zambezi.spark.lake.writing import DATE, write_files

START: Final = "start"  # the column by which a large day is divided
_SPREAD: Final = 1_000_003  # a prime number, so that windows of any length are spread over all parts


def add_up(table: LakeTable, sums: Mapping[str, str], dates: Collection[str] | None = None) -> Compacted:
    """Add up the rows of each day that has several files. `sums` has sum, min or max for each column that is no key.

    `dates` are days that a run has changed. Other days are added up only if they are small: that costs little, and a
    run that was killed may have left partial sums.
    """
    by_date: dict[str, list[TableFile]] = {}
    for one in table.files():
        by_date.setdefault(one.date, []).append(one)
    merged = written = 0
    for day, files in by_date.items():
        is_small = sum(one.size for one in files) < TARGET
        if len(files) < 2 or not (is_small or dates is None or day in dates):
            continue
        new = write_files(table.place, with_date(_added(table, files, sums), day))
        if exchange_files(table, files, new):
            merged += len(files)
            written += len(new)
    return Compacted(merged, written)


def _added(table: LakeTable, files: Sequence[TableFile], sums: Mapping[str, str]) -> Iterator[Any]:
    schema = pa.schema([field for field in table.schema if field.name != DATE])
    parts = -(-sum(size_of_rows(table, one) for one in files) // MOST_ROWS)
    for part in range(max(1, parts)):
        rows = [_part(_read(table, one, schema), part, parts) for one in files]
        yield from grouped(pa.concat_tables(rows), sums).to_batches()


def _read(table: LakeTable, one: TableFile, schema: Any) -> Any:
    with explained(f"{table.place}/{one.path}"):
        return pq.read_table(one.path, filesystem=table.place.files, schema=schema, partitioning=None)


def _part(rows: Any, part: int, parts: int) -> Any:
    """Return the rows whose windows belong to a part."""
    if parts <= 1:
        return rows
    starts = rows.column(START).cast(pa.int64()).to_numpy()
    return rows.filter(pa.array((starts // _SPREAD) % parts == part, pa.bool_(), from_pandas=False))


def grouped(rows: Any, sums: Mapping[str, str]) -> Any:
    """Return a table in which the rows with the same values in all other columns are one."""
    keys = [name for name in rows.column_names if name not in sums]
    added = rows.group_by(keys, use_threads=False).aggregate(list(sums.items()))
    renamed = added.rename_columns([*keys, *sums] if added.column_names[0] == keys[0] else [*sums, *keys])
    return renamed.select(rows.column_names).cast(rows.schema)
