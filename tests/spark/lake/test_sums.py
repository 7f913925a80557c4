"""zambezi.spark.lake.sums: partial sums become final ones, and the totals stay."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

from zambezi.spark.lake import sums
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import write_files

DAY = date(2026, 1, 1)
SUMS = {"messages": "sum", "first": "min", "last_at": "max"}
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("start", TIME),
        ("key", pa.string()),
        ("messages", pa.int64()),
        ("first", pa.int64()),
        ("last_at", TIME),
        ("date", pa.date32()),
    ]
)


def at(minute: int, second: int = 0, day: int = 1) -> datetime:
    return datetime(2026, 1, day, 12, minute, second, tzinfo=UTC)


def add(table: LakeTable, *rows: tuple[int, str | None, int, int, int], day: int = 1) -> None:
    """Add a batch. A row has the minute, the key, messages, the first sequence and the second of the last message."""
    made = [
        (at(minute, 0, day), key, count, first, at(minute, second, day), date(2026, 1, day))
        for minute, key, count, first, second in rows
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(zip(*made, strict=True), SCHEMA, strict=True)],
        schema=SCHEMA,
    )
    last = table.state
    table.append(write_files(table.place, [batch]), State(0 if last is None else last.batch + 1))


def opened(path: Path) -> LakeTable:
    table = LakeTable(Place(str(path)), "traffic")
    table.create(SCHEMA)
    return table


def found(path: Path) -> list[tuple[Any, ...]]:
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(
        (row["start"].minute, row["key"] or "", row["messages"], row["first"], row["last_at"].second) for row in rows
    )


@pytest.mark.parametrize("most", [512 << 20, 1])
def test_rows_with_the_same_key_become_one(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_ROWS", most)  # with 1, each file is a part
    table = opened(tmp_path)
    add(table, (1, "a", 3, 10, 5), (1, None, 1, 11, 6), (2, "a", 1, 20, 7))
    add(table, (1, "a", 4, 5, 9), (1, None, 2, 1, 2))
    add(table, (3, "b", 1, 30, 1))
    done = sums.add_up(table, SUMS)
    assert (done.merged, done.written) == (3, 1)
    final = [(1, "", 3, 1, 6), (1, "a", 7, 5, 9), (2, "a", 1, 20, 7), (3, "b", 1, 30, 1)]
    assert found(tmp_path) == final
    assert sums.add_up(table, SUMS).merged == 0
    # The next batch is added to them.
    add(table, (3, "b", 2, 40, 3))
    sums.add_up(table, SUMS)
    assert found(tmp_path) == [*final[:3], (3, "b", 3, 30, 3)]


def test_a_large_day_is_added_up_only_if_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    for day in (1, 2):
        add(table, (1, "a", 1, 1, 1), day=day)
        add(table, (1, "a", 1, 2, 1), day=day)
    monkeypatch.setattr(sums, "TARGET", 1)
    assert sums.add_up(table, SUMS, {"2026-01-02"}).merged == 2
    assert sorted(one.date for one in table.files()) == ["2026-01-01", "2026-01-01", "2026-01-02"]
