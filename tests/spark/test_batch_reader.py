"""zambezi.spark.batch_reader: from which message to which a batch query reads, and with which filters."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from tests.spark.journal import BEGINNING, numbered, write
from tests.spark.readers import batch_reader, read, rows, sequences
from tests.spark.test_journal_backend import SMALL, trim
from zambezi.spark.errors import NoSuchStream, OptionError, Trimmed
from zambezi.zeps.journal import Store


def test_a_whole_stream(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(25))
    reader = batch_reader(tmp_path)
    found = rows(reader, reader.partitions())
    assert [(row["key"], row["body"]) for row in found] == [(key, body) for key, body in numbered(25)]
    assert {row["incarnation"] for row in found} == {reader.backend.streams()["s"].incarnation}
    assert found[24]["timestamp"].timestamp() == BEGINNING + 2


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingSequence": "earliest"}, 1, 25),
        ({"startingSequence": "7"}, 7, 25),
        ({"startingSequence": "26"}, 26, 25),
        ({"startingSequence": '{"s": 7}', "endingSequence": '{"s": 9}'}, 7, 9),
        ({"endingSequence": "latest"}, 1, 25),
        ({"endingSequence": "9"}, 1, 9),
        ({"startingTimestamp": str((BEGINNING + 1) * 1000)}, 11, 25),
        ({"startingTimestamp": f'{{"s": {(BEGINNING + 1) * 1000 + 1}}}'}, 21, 25),
        ({"endingTimestamp": str((BEGINNING + 1) * 1000)}, 1, 20),
        ({"endingTimestamp": str(BEGINNING * 1000 - 1)}, 1, 0),
    ],
)
def test_the_options_limit_the_range(tmp_path: Path, options: dict[str, str], first: int, last: int) -> None:
    write(tmp_path, "s", numbered(25))
    assert sequences(batch_reader(tmp_path, **options)) == list(range(first, last + 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingSequence": "27"}, "its last sequence is 25: it must be at most 26"),
        ({"endingSequence": "26"}, "its last sequence is 25"),
        ({"startingSequence": "9", "endingSequence": "5"}, "is 5 for stream 's', before its first sequence to read, 9"),
        ({"startingSequence": '{"other": 1}'}, "names 'other', and the streams to read are 's'"),
    ],
)
def test_positions_that_do_not_exist(tmp_path: Path, options: dict[str, str], message: str) -> None:
    write(tmp_path, "s", numbered(25))
    with pytest.raises(OptionError, match=message):
        batch_reader(tmp_path, **options).partitions()


def test_a_stream_that_does_not_exist(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        write(tmp_path, name, numbered(2))
    with pytest.raises(NoSuchStream, match="there is no stream 'c', 'd': there are 'a1', 'a2', 'b1'"):
        batch_reader(tmp_path, streams="c,a1,d").partitions()


def test_filters_are_pushed(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(40))
    write(tmp_path, "t", numbered(40))
    reader = batch_reader(tmp_path, streams="s,t", pushFilters="true")
    rest = reader.pushFilters(
        [
            EqualTo(("stream",), "t"),
            GreaterThan(("sequence",), 7),
            LessThanOrEqual(("sequence",), 37),
            EqualTo(("key",), "k7"),
        ]
    )
    assert rest == []
    assert read(reader) == [("t", 17), ("t", 27), ("t", 37)]


def test_filters_are_left_to_spark_unless_they_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(40))
    reader = batch_reader(tmp_path)
    filters: list[Filter] = [GreaterThan(("sequence",), 7)]
    assert reader.pushFilters(filters) == filters
    assert sequences(reader) == list(range(1, 41))


def test_spark_does_not_see_that_filters_are_pushed(tmp_path: Path) -> None:
    """Spark would refuse the reader if filter pushdown is off."""
    reader = batch_reader(tmp_path)
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_filters_on_times_and_streams_leave_out_messages(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(40))
    second = datetime.fromtimestamp(BEGINNING + 1, UTC)
    third = datetime.fromtimestamp(BEGINNING + 2, UTC)
    reader = batch_reader(tmp_path, pushFilters="true")
    assert reader.pushFilters([GreaterThanOrEqual(("timestamp",), second), LessThan(("timestamp",), third)]) == []
    assert sequences(reader) == list(range(11, 21))
    reader = batch_reader(tmp_path, pushFilters="true")
    reader.pushFilters([EqualTo(("incarnation",), "another")])
    assert reader.partitions() == []


def test_an_empty_stream_has_no_partitions(tmp_path: Path) -> None:
    Store(tmp_path).open("s")
    assert batch_reader(tmp_path).partitions() == []


def test_a_start_before_the_oldest_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    oldest = trim(tmp_path, 40)
    with pytest.raises(Trimmed, match=r"sequences 2 to .* failOnDataLoss=false"):
        batch_reader(tmp_path, startingSequence="2").partitions()
    assert sequences(batch_reader(tmp_path, startingSequence="2", failOnDataLoss="false"))[0] == oldest
    assert "sequences 2 to" in caplog.text
    assert sequences(batch_reader(tmp_path))[0] == oldest  # earliest is the oldest message that is kept
