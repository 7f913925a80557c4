"""zambezi.spark.lake.writing: rows to Parquet files by date, and what the log says of each file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

from tests.spark.lake.tables import DAY, opened, rows
from zambezi.spark.lake import writing
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError, explained
from zambezi.spark.lake.table import State
from zambezi.spark.lake.writing import AddedFile, valid_text, write_files


def mixed(*days: date | None) -> Any:
    """A record batch with a message of each day."""
    return pa.concat_batches([rows("s", [number], day) for number, day in enumerate(days, 1)])


def sequences(root: Path, file: AddedFile) -> list[int]:
    found: list[int] = pq.read_table(root / file.path, partitioning=None).column("sequence").to_pylist()
    return found


def test_rows_of_a_date_are_in_one_file_in_their_order(tmp_path: Path) -> None:
    other = DAY + timedelta(days=1)
    files = write_files(Place(str(tmp_path)), [mixed(DAY, other, DAY), mixed(other), rows("s", [])])
    by_date = {one.date: one for one in files}
    assert {day: sequences(tmp_path, one) for day, one in by_date.items()} == {str(DAY): [1, 3], str(other): [2, 1]}
    assert all((tmp_path / one.path).stat().st_size == one.size for one in files)
    assert by_date[str(DAY)].path.startswith(f"date={DAY}/")
    assert write_files(Place(str(tmp_path)), []) == []


def test_what_the_log_says_of_a_file(tmp_path: Path) -> None:
    (file,) = write_files(Place(str(tmp_path)), [rows("b", [7, 3]), rows("a", [5])])
    stats = json.loads(file.stats)
    assert (file.rows, stats["numRecords"]) == (3, 3)
    assert (stats["minValues"]["sequence"], stats["maxValues"]["sequence"]) == (3, 7)
    assert (stats["minValues"]["stream"], stats["maxValues"]["stream"]) == ("a", "b")
    assert stats["minValues"]["timestamp"] == "2026-01-01T12:00:00.000000Z"
    assert stats["nullCount"]["sequence"] == 0
    assert "body" not in stats["minValues"]


@pytest.mark.parametrize(
    ("bodies", "kind"),
    [
        ([Random(number).randbytes(100) for number in range(50)], "UNCOMPRESSED"),
        ([b'{"celsius": 21.5, "room": "kitchen"}'] * 50, "ZSTD"),
        ([None, b""], "ZSTD"),
        ([b"x"], "UNCOMPRESSED"),
    ],
)
def test_bodies_that_do_not_become_smaller_are_not_compressed(
    tmp_path: Path, bodies: list[bytes | None], kind: str
) -> None:
    batch = rows("s", range(len(bodies)))
    batch = batch.set_column(batch.schema.get_field_index("body"), "body", pa.array(bodies, pa.binary()))
    (file,) = write_files(Place(str(tmp_path)), [batch])
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    found = {
        group.column(number).path_in_schema: group.column(number).compression for number in range(group.num_columns)
    }
    assert found.pop("body") == kind
    assert set(found.values()) == {"ZSTD"}
    assert pq.read_table(tmp_path / file.path, partitioning=None).column("body").to_pylist() == bodies


def test_many_dates_and_much_data_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_OPEN", 2)
    monkeypatch.setattr(writing, "ROW_GROUP", 2000)
    monkeypatch.setattr(writing, "MOST_BUFFERED", 3000)
    days = [DAY + timedelta(days=number) for number in range(3)]
    batches = [rows("s", range(start, start + 20), days[start % 3]) for start in range(0, 120, 20)]
    files = write_files(Place(str(tmp_path)), batches)
    assert sorted(number for one in files for number in sequences(tmp_path, one)) == list(range(120))
    assert len(files) > 3  # a date whose file was closed gets another one
    one = write_files(Place(str(tmp_path)), [rows("s", range(start, start + 20)) for start in range(0, 100, 20)])[0]
    assert pq.read_metadata(tmp_path / one.path).num_row_groups > 1
    assert sequences(tmp_path, one) == list(range(100))


def test_text_that_is_not_utf_8_does_not_spoil_the_file(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"k\xff", b"ok"], pa.binary()).buffers())
    batch = rows("s", [1, 2]).set_column(3, "key", bad)
    assert valid_text(batch).column("key").to_pylist() == ["k�", "ok"]
    table = opened(tmp_path)
    table.append(write_files(table.place, [batch]), State(0))
    assert DeltaTable(tmp_path).to_pyarrow_table().column("key").to_pylist() == ["k�", "ok"]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match="No space left on device"):
        write_files(Place(str(tmp_path)), [rows("s", [1])])
    monkeypatch.undo()
    (tmp_path / "date=2026-01-01").chmod(0o755)
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="a part of the path is a file, not a directory"):
        write_files(Place(str(tmp_path / "file" / "below")), [rows("s", [1])])


def test_a_disk_that_is_full_in_the_middle_of_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        writes = 0

        def write(self, octets: Any) -> int:
            self.writes += 1
            if self.writes == 2:  # later ones are smaller, and have room
                raise OSError(28, "No space left on device")
            return super().write(octets)

    @contextmanager
    def create(_place: Place, path: str) -> Iterator[Full]:
        with explained(path):
            yield Full()

    monkeypatch.setattr(Place, "create", create)
    with pytest.raises(TableError, match="parquet: the disk is full"):
        write_files(Place(str(tmp_path)), [rows("s", [1, 2, 3])])


def test_files_of_a_failed_task_are_closed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> Any:
        yield rows("s", [1])
        yield rows("s", [2], DAY + timedelta(days=1))  # closes the first file
        assert len(list(tmp_path.rglob("*.parquet"))) == 2
        raise RuntimeError("the source failed")

    monkeypatch.setattr(writing, "MOST_OPEN", 1)
    with pytest.raises(RuntimeError, match="the source failed"):
        write_files(Place(str(tmp_path)), batches())
    assert list(tmp_path.rglob("*.parquet")) == []
