"""zambezi.spark.base_reader: which streams a reader selects, where it begins, and how it reads a partition."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from tests.spark.journal import numbered, write
from tests.spark.readers import batch_reader, read, rows, sequences
from tests.spark.schemas import schema_of
from tests.spark.test_journal_backend import SMALL, trim
from zambezi.spark.base_reader import open_backend, value_for
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.errors import OptionError, Trimmed, Vanished
from zambezi.spark.journal_backend import JournalBackend
from zambezi.spark.options import BATCH, Options
from zambezi.spark.shared_backend import SharedBackend
from zambezi.zeps.journal import Store


def test_the_options_choose_the_backend(tmp_path: Path) -> None:
    Store(tmp_path).close()
    files = open_backend(Options({"path": str(tmp_path), "stream": "s"}, BATCH))
    assert isinstance(files, JournalBackend)
    assert not files.filters_keys
    for place, filters_keys in (("executor", False), ("broker", True)):
        given = {"endpoint": "tcp://127.0.0.1:1", "stream": "s", "filterAt": place}
        broker = open_backend(Options(given, BATCH))
        assert isinstance(broker, SharedBackend)
        assert broker.filters_keys == filters_keys


def test_a_reader_is_pickled_without_its_backend(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(3))
    reader = batch_reader(tmp_path)
    partitions = reader.partitions()
    assert list(reader.backend.streams()) == ["s"]  # it is open
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.__dict__["_backend"] is None
    assert len(rows(copy, partitions)) == 3


def test_the_value_of_an_option_for_a_stream() -> None:
    assert value_for("s", 7, "default") == 7
    assert value_for("s", None, "default") == "default"
    assert value_for("s", {"s": 7}, "default") == 7
    assert value_for("t", {"s": 7}, "default") == "default"


def test_the_options_select_streams(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        write(tmp_path, name, numbered(2))
    assert read(batch_reader(tmp_path, streams="b1, a1")) == [("b1", 1), ("b1", 2), ("a1", 1), ("a1", 2)]
    assert read(batch_reader(tmp_path, streamPattern="glob:a?")) == [("a1", 1), ("a1", 2), ("a2", 1), ("a2", 2)]
    assert len(read(batch_reader(tmp_path, streamPattern=""))) == 6
    assert read(batch_reader(tmp_path, streamPattern="none")) == []


@pytest.mark.parametrize("pattern", ["k7", "exact:k7", "glob:?7", "regex:7$"])
def test_patterns_on_keys(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "s", numbered(25))
    assert sequences(batch_reader(tmp_path, pattern=pattern)) == [7, 17]


def test_columns_are_left_out_by_the_schema(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(2))
    options = Options({"path": str(tmp_path), "stream": "s"}, BATCH)
    reader = BatchReader(schema_of("key binary, sequence long"), options)
    assert rows(reader, reader.partitions()) == [{"key": b"k1", "sequence": 1}, {"key": b"k2", "sequence": 2}]


def test_the_options_limit_partitions(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100))
    assert len(batch_reader(tmp_path).partitions()) == 1
    assert len(batch_reader(tmp_path, minPartitions="7").partitions()) == 7
    partitions = batch_reader(tmp_path, maxMessagesPerPartition="30").partitions()
    assert [partition.count for partition in partitions] == [25, 25, 25, 25]  # type: ignore[attr-defined]
    for options in ({"minPartitions": "7"}, {"maxMessagesPerPartition": "30"}):
        assert sequences(batch_reader(tmp_path, **options)) == list(range(1, 101))


def test_a_partition_of_another_source_has_no_rows(tmp_path: Path) -> None:
    Store(tmp_path).open("s")
    assert list(batch_reader(tmp_path).read(InputPartition(None))) == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_messages_that_are_trimmed_between_planning_and_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fail: str
) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    reader = batch_reader(tmp_path, failOnDataLoss=fail)
    partitions = reader.partitions()
    oldest = trim(tmp_path, 40)
    if fail == "true":
        with pytest.raises(Trimmed, match="failOnDataLoss=false to continue"):
            rows(reader, partitions)
    else:
        assert [row["sequence"] for row in rows(reader, partitions)] == list(range(oldest, 96))
        assert "not kept any more" in caplog.text


def test_a_stream_that_is_deleted_between_planning_and_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "s", numbered(5))
    reader = batch_reader(tmp_path, failOnDataLoss="false")
    partitions = reader.partitions()
    with Store(tmp_path) as store:
        store.delete("s")
    with caplog.at_level(logging.WARNING):
        assert rows(reader, partitions) == []
    assert "stream 's' does not exist any more" in caplog.text
    with pytest.raises(Vanished):
        rows(batch_reader(tmp_path), partitions)


def test_a_start_in_the_future_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))
    with pytest.raises(OptionError, match="is in the future"):
        batch_reader(tmp_path, startingTimestamp="2999-01-01").partitions()
