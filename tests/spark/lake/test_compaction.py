"""zambezi.spark.lake.compaction: few files of each day, the same rows, and no file removed that a reader needs."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable

from tests.spark.delta import DeltaReader, count
from tests.spark.lake import tables
from tests.spark.lake.tables import DAY, add, opened, rows
from zambezi.spark.lake import compaction
from zambezi.spark.lake.compaction import (
    MOST_SMALL,
    TARGET,
    choose,
    compact,
    is_vacuum_due,
    maintain,
    sorted_rows,
    without_nulls,
)
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.table import LakeTable, TableFile

if TYPE_CHECKING:
    import pytest


def test_a_day_with_many_batches_has_few_files(tmp_path: Path) -> None:
    table = opened(tmp_path)
    most = 0
    for number in range(1, 45):
        add(table, f"s{number % 3}", [number])
        compact(table, {str(DAY)})
        most = max(most, len(table.files()))
    assert most <= MOST_SMALL + 1
    assert sum(DeltaReader(str(tmp_path)).sequences().values(), Counter()) == Counter(range(1, 45))
    state = opened(tmp_path).state
    assert state is not None
    assert state.batch == 43


def test_sizes_of_the_files_that_stay_double() -> None:
    """So a row is written again as often as its file doubles, however many batches there are."""
    chance = random.Random(1)
    files: list[TableFile] = []
    written = most = 0
    for number in range(20_000):
        files.append(TableFile(str(number), chance.randint(1000, 3000), "d", 1, {}, {}))
        for group in choose(files):
            size = sum(one.size for one in group)
            written += size
            files = [one for one in files if one not in group]
            files.append(TableFile(f"m{number}", size, "d", 1, {}, {}))
        most = max(most, len(files))
    assert most <= MOST_SMALL + 1
    assert written < 12 * sum(one.size for one in files)


def test_large_files_and_other_days_stay() -> None:
    large = [TableFile(f"l{number}", TARGET, "a", 1, {}, {}) for number in range(50)]
    other = [TableFile(f"o{number}", 1, "b", 1, {}, {}) for number in range(5)]
    assert choose([*large, *other]) == []
    small = [TableFile(f"s{number}", 1, "a", 1, {}, {}) for number in range(MOST_SMALL + 1)]
    assert [len(group) for group in choose([*large, *other, *small])] == [MOST_SMALL + 1]


def test_a_merged_file_says_which_columns_have_no_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its parts do: programs that read both must not find two types of a column."""
    table = opened(tmp_path)
    monkeypatch.setattr(tables, "SCHEMA", without_nulls(tables.SCHEMA, {"stream", "sequence", "body"}))
    for number in (1, 2):
        add(table, "a", [number])
    (before, _) = [pq.read_schema(tmp_path / one.path) for one in table.files()]
    assert maintain(table).merged == 2
    (merged,) = table.files()
    assert pq.read_schema(tmp_path / merged.path).equals(before)
    monkeypatch.setattr(
        tables, "SCHEMA", pa.schema([field.with_nullable(field.name != "sequence") for field in tables.SCHEMA])
    )
    add(table, "a", [3])
    (mixed,) = compaction._merge(table, table.files())
    found = pq.read_schema(tmp_path / mixed.path)
    assert [field.name for field in found if not field.nullable] == ["sequence"]


def test_merged_rows_are_sorted_and_have_their_date(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in (3, 1, 2):
        add(table, "b", [number])
        add(table, "a", [number])
        add(table, "a", [number], day=DAY + timedelta(days=1))
        add(table, "c", [number], day=None)
    assert compact(table, {"2030-01-01"}, most=1).merged == 0
    assert len(table.files({"", str(DAY)})) == 9
    done = maintain(table)
    assert (done.merged, done.written, done.removed) == (12, 3, 0)
    (merged,) = [one for one in table.files() if one.date == str(DAY)]
    found = pq.read_table(tmp_path / merged.path, partitioning=None).select(["stream", "sequence"]).to_pylist()
    assert [f"{one['stream']}{one['sequence']}" for one in found] == ["a1", "a2", "a3", "b1", "b2", "b3"]
    assert (merged.rows, merged.lowest["stream"], merged.highest["stream"]) == (6, "a", "b")
    dates = DeltaTable(tmp_path).to_pyarrow_table().column("date").to_pylist()
    assert Counter(dates) == {DAY: 6, DAY + timedelta(days=1): 3, None: 3}
    assert maintain(table).merged == 0


def test_tables_that_are_no_messages_keep_their_order() -> None:
    table = pa.table({"start": [3, 1, 2]})
    assert pa.Table.from_batches(sorted_rows(table)).column(0).to_pylist() == [3, 1, 2]


def test_rows_that_do_not_fit_in_memory_are_merged_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    for number in range(1, 7):
        add(table, "a", [number])
    (one, *_) = table.files()
    footer = pq.read_metadata(tmp_path / one.path)
    monkeypatch.setattr(compaction, "MOST_ROWS", 2 * footer.row_group(0).total_byte_size + 1)
    assert compact(table, most=1).written == 3
    assert DeltaReader(str(tmp_path)).sequences() == {"a": Counter(range(1, 7))}


def test_a_batch_between_the_merge_and_its_commit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = opened(tmp_path), opened(tmp_path)
    for number in (1, 2):
        add(table, "a", [number])
    table, other = opened(tmp_path), opened(tmp_path)
    merge = compaction._merge

    def slow(*arguments: object) -> object:
        found = merge(*arguments)  # type: ignore[arg-type]
        add(other, "a", [3])
        return found

    monkeypatch.setattr(compaction, "_merge", slow)
    assert compact(table, most=1).merged == 2
    assert DeltaReader(str(tmp_path)).sequences() == {"a": Counter([1, 2, 3])}
    assert len(opened(tmp_path).files()) == 2


def test_two_compactions_at_the_same_time_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(tmp_path)
    for number in (1, 2, 3):
        add(first, "a", [number])
    table, other = opened(tmp_path), opened(tmp_path)
    merge = compaction._merge

    def slow(lake: LakeTable, files: list[TableFile]) -> object:
        found = merge(lake, files)
        if lake is table:
            # A compaction by another program: it knows nothing of our transactions.
            DeltaTable(tmp_path).optimize.compact()
            assert compact(other, most=1).merged == 0
        return found

    monkeypatch.setattr(compaction, "_merge", slow)
    assert compact(table, most=1).merged == 0
    assert DeltaReader(str(tmp_path)).sequences() == {"a": Counter([1, 2, 3])}
    assert add(first, "a", [4]).batch == 3  # the run that adds batches goes on


def test_a_vacuum_removes_what_only_old_versions_have(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in (1, 2):
        add(table, "a", [number])
    orphan = tmp_path / "date=2026-01-01" / f"{0:032x}.parquet"  # of a run that was killed
    others = [tmp_path / "notes.txt", tmp_path / "traffic" / "table.parquet", orphan.with_name("mine.parquet")]
    for path in (orphan, *others):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    for _ in range(2):
        assert maintain(table, hours=1).removed == 0  # never what is younger than a day
    files = list(tmp_path.glob("date=*/*.parquet"))
    assert len(files) == 5
    old = time.time() - 8 * 86400
    for path in (*files, *others):
        os.utime(path, (old, old))
    # A replaced file counts from its removal, which was just now.
    assert table.vacuum(24) == 1
    assert not orphan.exists()
    assert all(path.exists() for path in others)  # they are not the table's
    assert DeltaReader(str(tmp_path)).sequences() == {"a": Counter([1, 2])}
    assert list((tmp_path / "_zambezi" / "state").iterdir())
    assert is_vacuum_due(0)
    assert not is_vacuum_due(round(time.time() * 1e6))


def test_the_merged_rows_are_those_that_were_there(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in (1, 2):
        add(table, "a", [number])
    before = DeltaReader(str(tmp_path)).table().sort_by("sequence")
    compact(table, most=1)
    assert DeltaReader(str(tmp_path)).table().sort_by("sequence").equals(before)
    assert rows("a", []).schema.names[:-1] == before.column_names


def test_old_commits_go_with_a_vacuum_and_not_with_a_commit(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for number in range(1, 6):
        add(table, "a", [number])
    log = tmp_path / "_delta_log"
    DeltaTable(tmp_path).create_checkpoint()
    old = time.time() - 3 * 86400
    for path in log.iterdir():
        os.utime(path, (old, old))
    checked = LakeTable(Place(str(tmp_path)), "archive")
    add(checked, "a", [6])
    assert len(list(log.glob("*.json"))) == 7  # to look for old ones at each commit takes long
    checked.vacuum(24)
    assert len(list(log.glob("0*.json"))) < 7
    assert count(DeltaTable(tmp_path).to_pyarrow_table(columns=["stream", "sequence"])) == {"a": Counter(range(1, 7))}
    assert add(LakeTable(Place(str(tmp_path)), "archive"), "a", [7]).batch == 6
