"""The reader of an executor: files of a table to record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import explained
from zambezi.spark.lake.table import LakeTable, TableFile
from zambezi.spark.lake.writing import DATE

_ROWS: Final = 1 << 15  # of a record batch
_AHEAD: Final = 2  # record batches that are read in advance


def read_file(place: Place, path: str, columns: Sequence[str], where: Any = None) -> Iterator[Any]:
    """Yield the rows of a file for which a condition (an expression of pyarrow) is true."""
    with explained(f"{place}/{path}"):
        fragment = ds.ParquetFileFormat().make_fragment(path, place.files)
        yield from fragment.to_batches(
            columns=list(columns), filter=where, batch_size=_ROWS, batch_readahead=_AHEAD, use_threads=False
        )


def rows_of_file(place: Place, path: str, day: str, schema: Any) -> Iterator[Any]:
    """Yield the rows of a file with the columns of a schema of pyarrow, which can have the column `date`."""
    columns = [field.name for field in schema if field.name != DATE]
    value = pa.scalar(date.fromisoformat(day) if day else None, pa.date32())
    for batch in read_file(place, path, columns):
        arrays = [
            pa.repeat(value, batch.num_rows) if field.name == DATE else batch.column(field.name).cast(field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def groups_of(files: Sequence[TableFile], count: int) -> list[list[TableFile]]:
    """Divide files into at most `count` groups of about the same size, in their order."""
    if not files:
        return []
    whole = sum(one.size for one in files) or 1
    groups: list[list[TableFile]] = [[] for _ in range(min(count, len(files)))]
    passed = 0
    for one in files:
        groups[min(len(groups) - 1, passed * len(groups) // whole)].append(one)
        passed += one.size
    return [group for group in groups if group]


def sorted_files(table: LakeTable) -> list[TableFile]:
    """Return the files of a table by date, then by the first stream that they have."""
    return sorted(table.files(), key=lambda one: (one.date, str(one.lowest.get("stream") or ""), one.path))
