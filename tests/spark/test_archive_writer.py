"""zambezi.spark.archive_writer: tasks that write the messages which they read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.spark.journal import BEGINNING, numbered, write
from tests.spark.lake.tables import SCHEMA
from zambezi.spark.archive_writer import ArchivingBatchReader, ArchivingDataSource, archived
from zambezi.spark.errors import NoSuchStream, OptionError
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError
from zambezi.spark.lake.source import table_options
from zambezi.spark.lake.writing import AddedFile
from zambezi.spark.options import BATCH, Options

DAY = 86_400


def reader(data: Path, out: Path, **options: str) -> ArchivingBatchReader:
    return ArchivingBatchReader(Place(str(out)), Options({"path": str(data), "stream": "s", **options}, BATCH))


def files(one: ArchivingBatchReader) -> list[AddedFile]:
    """The files that the tasks of a query write."""
    found = [batch for partition in one.partitions() for batch in one.read(partition)]
    return [AddedFile(**row) for batch in found for row in batch.to_pylist()]


def test_each_message_is_in_one_file_of_its_date(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    midnight = BEGINNING // DAY * DAY + DAY
    write(data, "s", numbered(30), now=midnight - 1)  # a second between two batches of ten
    added = files(reader(data, out, maxMessagesPerPartition="8"))
    rows = [
        (one.date, *row.values())
        for one in added
        for row in pq.read_table(out / one.path, partitioning=None).to_pylist()
    ]
    day = datetime.fromtimestamp(midnight, UTC)
    assert sorted(row[2] for row in rows) == list(range(1, 31))
    assert {row[0] for row in rows if row[2] <= 10} == {(day - timedelta(days=1)).date().isoformat()}
    assert {row[0] for row in rows if row[2] > 10} == {day.date().isoformat()}
    assert sum(one.rows for one in added) == 30
    assert all((out / one.path).stat().st_size == one.size for one in added)


def test_files_have_the_columns_of_the_table(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write(data, "s", numbered(3))
    (added,) = files(reader(data, out))
    found = pq.read_schema(out / added.path)
    assert found.equals(SCHEMA.remove(SCHEMA.get_field_index("date")))  # whether columns can be null, too


def test_a_query_without_messages_writes_nothing(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write(data, "s", [])
    assert files(reader(data, out)) == []
    assert not out.exists()


def test_keys_that_are_not_utf_8_keep_their_bytes() -> None:
    times = pa.array([0, DAY * 1_000_000], pa.timestamp("us", "UTC"))
    keys = pa.array([b"k\xff", "kö".encode()], pa.binary()).view(pa.string())
    found = archived(pa.RecordBatch.from_arrays([times, keys], names=["timestamp", "key"]))
    assert found.column("key_bytes").to_pylist() == [b"k\xff", None]
    assert found.column("date").to_pylist() == [date(1970, 1, 1), date(1970, 1, 2)]


def test_a_time_after_the_last_day_of_calendars_has_the_last_day() -> None:
    times = pa.array([300_000_000_000_000_000], pa.timestamp("us", "UTC"))
    found = archived(pa.RecordBatch.from_arrays([times, pa.array(["k"])], names=["timestamp", "key"]))
    assert found.column("date").to_pylist() == [date(9999, 12, 31)]


def test_the_source_takes_the_options_of_zeps_and_a_table(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write(data, "s", numbered(3))
    place = table_options(Place(str(out)))

    def source(**options: str) -> ArchivingBatchReader:
        return ArchivingDataSource({"path": str(data), **options, **place}).reader(SCHEMA)

    assert [one.rows for one in files(source(stream="s"))] == [3]
    with pytest.raises(NoSuchStream, match="there is no stream 't'"):
        source(stream="t").partitions()
    with pytest.raises(OptionError, match="'startAt'"):
        source(stream="s", startAt="1")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write(data, "s", numbered(3))
    out.mkdir()
    (out / "date=2023-11-14").write_text("")
    with pytest.raises(TableError, match="a file is where a directory must be"):
        files(reader(data, out))
