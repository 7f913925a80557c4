"""Small tables for tests, which need no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import write_files

SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("sequence", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("body", pa.binary()),
        ("incarnation", pa.string()),
        ("key_bytes", pa.binary()),
        ("date", pa.date32()),
    ]
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = NOON.date()


def rows(stream: str, sequences: Iterable[int], day: date | None = DAY, body: bytes = b"x") -> Any:
    """A record batch with messages of one stream."""
    numbers = list(sequences)
    count = len(numbers)
    columns = [
        pa.array([stream] * count, pa.string()),
        pa.array(numbers, pa.int64()),
        pa.array([NOON] * count, pa.timestamp("us", "UTC")),
        pa.array([f"k{number % 10}" for number in numbers], pa.string()),
        pa.array([body] * count, pa.binary()),
        pa.array(["one"] * count, pa.string()),
        pa.nulls(count, pa.binary()),
        pa.array([day] * count, pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def opened(root: Path | str, options: dict[str, str] | None = None, name: str = "archive") -> LakeTable:
    """A table that exists."""
    table = LakeTable(Place(str(root), options), name)
    table.create(SCHEMA)
    return table


def add(table: LakeTable, stream: str, sequences: Iterable[int], day: date | None = DAY, **state: Any) -> State:
    """Add a batch in the same steps as a run."""
    last = table.state
    added = write_files(table.place, [rows(stream, sequences, day)])
    numbers = [one.rows for one in added]
    now = State(0 if last is None else last.batch + 1, rows=sum(numbers), **state)
    table.append(added, now)
    return now
