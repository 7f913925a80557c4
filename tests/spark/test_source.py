"""The readers, without Spark: which streams, from where to where, in which pieces, and what happens to losses."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan, InputPartition, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

from tests.spark.journal import BEGINNING, Message, numbered, write
from tests.spark.test_journal_backend import SMALL, trim
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.errors import NoSuchStream, OptionError, Replaced, SchemaError, Trimmed, Vanished
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.spark.source import SCHEMA, ZepsDataSource, check_schema
from zambezi.spark.stream_reader import StreamReader
from zambezi.zeps.journal import Store


def typed(ddl: str) -> StructType:
    """A schema, with no session to ask."""
    made = StructType()
    for column in ddl.split(", "):
        name, kind, *never = column.split()
        made = made.add(name, kind, nullable=not never)
    return made


COLUMNS = typed(SCHEMA)
ALL = ReadAllAvailable()


def batch(path: Path, **options: str) -> BatchReader:
    given = {"path": str(path), **options}
    if not given.keys() & {"stream", "streams", "streamPattern"}:
        given["stream"] = "s"
    return BatchReader(COLUMNS, Options(given, BATCH))


def stream(path: Path, **options: str) -> StreamReader:
    given = {"path": str(path), **options}
    if not given.keys() & {"stream", "streams", "streamPattern"}:
        given["stream"] = "s"
    return StreamReader(COLUMNS, Options(given, STREAM), clock=Clock())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rows(reader: BatchReader | StreamReader, parts: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """What executors read, each with a copy of the reader."""
    return [
        row for part in parts for found in pickle.loads(pickle.dumps(reader)).read(part) for row in found.to_pylist()
    ]


def read(reader: BatchReader) -> list[tuple[str, int]]:
    return [(row["stream"], row["sequence"]) for row in rows(reader, reader.partitions())]


def sequences(reader: BatchReader) -> list[int]:
    return [sequence for _, sequence in read(reader)]


def taken(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    return [(row["stream"], row["sequence"]) for row in rows(reader, reader.partitions(start, end))]


def s(*numbers: int) -> list[tuple[str, int]]:
    return [("s", number) for number in numbers]


# Batches


def test_all_of_a_stream(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(25))
    reader = batch(tmp_path)
    found = rows(reader, reader.partitions())
    assert [(row["key"], row["body"]) for row in found] == [(key, body) for key, body in numbered(25)]
    assert {row["incarnation"] for row in found} == {reader.origin.streams()["s"].incarnation}
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
def test_from_where_to_where(tmp_path: Path, options: dict[str, str], first: int, last: int) -> None:
    write(tmp_path, "s", numbered(25))
    assert sequences(batch(tmp_path, **options)) == list(range(first, last + 1))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingSequence": "27"}, "its last sequence is 25: it must be at most 26"),
        ({"endingSequence": "26"}, "its last sequence is 25"),
        ({"startingSequence": "9", "endingSequence": "5"}, "before it begins, at 9"),
        ({"startingSequence": '{"other": 1}'}, "names 'other', and the streams to read are 's'"),
        ({"startingTimestamp": "2999-01-01"}, "is in the future"),
    ],
)
def test_places_that_are_none(tmp_path: Path, options: dict[str, str], told: str) -> None:
    write(tmp_path, "s", numbered(25))
    with pytest.raises(OptionError, match=told):
        batch(tmp_path, **options).partitions()


def test_which_streams(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        write(tmp_path, name, numbered(2))
    assert read(batch(tmp_path, streams="b1, a1")) == [("b1", 1), ("b1", 2), ("a1", 1), ("a1", 2)]
    assert read(batch(tmp_path, streamPattern="glob:a?")) == [("a1", 1), ("a1", 2), ("a2", 1), ("a2", 2)]
    assert len(read(batch(tmp_path, streamPattern=""))) == 6
    assert read(batch(tmp_path, streamPattern="none")) == []
    with pytest.raises(NoSuchStream, match="there is no stream 'c', 'd': there are 'a1', 'a2', 'b1'"):
        batch(tmp_path, streams="c,a1,d").partitions()


@pytest.mark.parametrize("pattern", ["k7", "exact:k7", "glob:?7", "regex:7$"])
def test_patterns_on_keys(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "s", numbered(25))
    assert sequences(batch(tmp_path, pattern=pattern)) == [7, 17]


def test_conditions_are_taken(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(40))
    write(tmp_path, "t", numbered(40))
    reader = batch(tmp_path, streams="s,t")
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


def test_spark_does_not_see_that_conditions_are_taken(tmp_path: Path) -> None:
    """It would refuse to read where nobody has turned conditions on."""
    reader = batch(tmp_path)
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters


def test_columns_are_left_out_by_the_schema(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(2))
    options = Options({"path": str(tmp_path), "stream": "s"}, BATCH)
    reader = BatchReader(typed("key binary, sequence long"), options)
    assert rows(reader, reader.partitions()) == [{"key": b"k1", "sequence": 1}, {"key": b"k2", "sequence": 2}]


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("offset long", "there is no column 'offset': the source zeps has stream, sequence, timestamp"),
        ("sequence integer", "column 'sequence' is bigint, not int"),
        ("key integer", "column 'key' is string or binary, not int"),
    ],
)
def test_schemas_that_cannot_be(ddl: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        check_schema(typed(ddl))


def test_partitions_as_they_are_wished(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100))
    assert len(batch(tmp_path).partitions()) == 1
    assert len(batch(tmp_path, minPartitions="7").partitions()) == 7
    parts = batch(tmp_path, maxMessagesPerPartition="30").partitions()
    assert [part.count for part in parts] == [25, 25, 25, 25]  # type: ignore[attr-defined]
    for options in ({"minPartitions": "7"}, {"maxMessagesPerPartition": "30"}):
        assert sequences(batch(tmp_path, **options)) == list(range(1, 101))


def test_nothing_to_read(tmp_path: Path) -> None:
    Store(tmp_path).open("s")
    reader = batch(tmp_path)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_that_asks_for_what_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    oldest = trim(tmp_path, 40)
    with pytest.raises(Trimmed, match=r"sequences 2 to .* failOnDataLoss=false"):
        batch(tmp_path, startingSequence="2").partitions()
    assert sequences(batch(tmp_path, startingSequence="2", failOnDataLoss="false"))[0] == oldest
    assert "sequences 2 to" in caplog.text
    assert sequences(batch(tmp_path))[0] == oldest  # earliest is what there is


@pytest.mark.parametrize("fail", ["true", "false"])
def test_what_is_trimmed_between_planning_and_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fail: str
) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    reader = batch(tmp_path, failOnDataLoss=fail)
    parts = reader.partitions()
    oldest = trim(tmp_path, 40)
    if fail == "true":
        with pytest.raises(Trimmed):
            rows(reader, parts)
    else:
        assert [row["sequence"] for row in rows(reader, parts)] == list(range(oldest, 96))
        assert "not kept any more" in caplog.text


def test_the_source_makes_readers(tmp_path: Path) -> None:
    source = ZepsDataSource({"path": str(tmp_path), "stream": "s"})
    assert source.name() == "zeps"
    assert source.schema() == SCHEMA
    assert isinstance(source.reader(COLUMNS), BatchReader)
    assert isinstance(source.streamReader(COLUMNS), StreamReader)


# Streams


def test_a_stream_is_followed(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(3))
    reader = stream(tmp_path, startingSequence="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert taken(reader, start, end) == s(2, 3)
    assert reader.latestOffset(end, ALL) == end
    write(tmp_path, "s", numbered(2, 4))
    later = reader.latestOffset(end, ALL)
    assert taken(reader, end, later) == s(4, 5)
    reader.commit(later)
    assert reader.reportLatestOffset()["s"]["sequence"] == 5  # type: ignore[index]
    reader.stop()


@pytest.mark.parametrize(
    ("options", "first"),
    [({}, 4), ({"startingSequence": "earliest"}, 1), ({"startingTimestamp": "1"}, 1), ({"startingSequence": "3"}, 3)],
)
def test_where_a_stream_begins(tmp_path: Path, options: dict[str, str], first: int) -> None:
    write(tmp_path, "s", numbered(3))
    reader = stream(tmp_path, **options)
    start = reader.initialOffset()
    write(tmp_path, "s", numbered(1, 4))
    assert taken(reader, start, reader.latestOffset(start, ALL))[0] == ("s", first)


def test_a_reader_that_starts_cold(tmp_path: Path) -> None:
    """After a restart Spark may ask for the partitions of a batch first."""
    write(tmp_path, "s", numbered(30))
    before = stream(tmp_path, startingSequence="5")
    start = before.initialOffset()
    end = before.latestOffset(start, ReadMaxRows(10))
    assert taken(stream(tmp_path), start, end) == s(*range(5, 15))


def test_a_stream_that_comes_later_is_read_from_its_beginning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "other", numbered(1))
    reader = stream(tmp_path, streamPattern="")
    start = reader.initialOffset()
    write(tmp_path, "s", numbered(3))
    end = reader.latestOffset(start, ALL)
    assert taken(reader, start, end) == s(1, 2, 3)
    named = stream(tmp_path, stream="later")
    assert named.initialOffset() == {}
    assert named.latestOffset({}, ALL) == {}
    assert "stream 'later' is not there yet" in caplog.text
    write(tmp_path, "later", numbered(1))
    assert taken(named, {}, named.latestOffset({}, ALL)) == [("later", 1)]


def test_limits_on_messages(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(90))
    write(tmp_path, "t", numbered(10))
    reader = stream(tmp_path, streams="s,t", startingSequence="earliest", maxMessagesPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    offset = reader.initialOffset()
    counts = []
    found = []
    while (after := reader.latestOffset(offset, ReadMaxRows(20))) != offset:
        part = taken(reader, offset, after)
        counts.append(len(part))
        found += part
        offset = after
    assert counts == [20, 20, 20, 20, 20]
    assert sorted(found) == s(*range(1, 91)) + [("t", number) for number in range(1, 11)]
    assert len(taken(reader, reader.initialOffset(), reader.latestOffset(reader.initialOffset(), ALL))) == 100


def test_limits_on_octets(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100, size=100))
    reader = stream(tmp_path, startingSequence="earliest", maxBytesPerTrigger="3000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(3000)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxBytes(3000))
    assert 20 <= len(taken(reader, start, end)) <= 30
    assert len(taken(reader, start, reader.latestOffset(start, ReadMaxBytes(1)))) == 1  # or it would stand for ever


def test_both_limits_hold(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100, size=100))
    options = {"startingSequence": "earliest", "maxBytesPerTrigger": "1m"}
    reader = stream(tmp_path, maxMessagesPerTrigger="7", **options)
    start = reader.initialOffset()
    assert len(taken(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))) == 7
    reader = stream(tmp_path, maxMessagesPerTrigger="70", **(options | {"maxBytesPerTrigger": "1000"}))
    assert len(taken(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))) < 10


def test_a_batch_waits_for_enough_messages_but_not_for_ever(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(3))
    clock = Clock()
    options = Options(
        {
            "path": str(tmp_path),
            "stream": "s",
            "startingSequence": "earliest",
            "minMessagesPerTrigger": "5",
            "maxTriggerDelay": "10s",
        },
        STREAM,
    )
    reader = StreamReader(COLUMNS, options, clock)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit) == start
    clock.now = 9.0
    assert reader.latestOffset(start, limit) == start
    clock.now = 10.0
    end = reader.latestOffset(start, limit)
    assert taken(reader, start, end) == s(1, 2, 3)
    assert reader.latestOffset(end, limit) == end  # nothing is there: nothing to wait for
    write(tmp_path, "s", numbered(5, 4))
    assert taken(reader, end, reader.latestOffset(end, limit)) == s(4, 5, 6, 7, 8)


def test_a_query_for_what_is_there_now_ends_there(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(10))
    reader = stream(tmp_path, streamPattern="", startingSequence="earliest", minMessagesPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, "s", numbered(10, 11))
    write(tmp_path, "t", numbered(10))
    start = reader.initialOffset()
    del start["t"]
    first = reader.latestOffset(start, ReadMaxRows(6))
    second = reader.latestOffset(first, ReadMaxRows(6))
    assert taken(reader, start, first) + taken(reader, first, second) == s(*range(1, 11))
    assert reader.latestOffset(second, ReadMaxRows(6)) == second


def replace(path: Path, messages: list[Message]) -> None:
    with Store(path) as store:
        store.delete("s")
    write(path, "s", messages)


def test_a_stream_that_was_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(10))
    strict = stream(tmp_path, startingSequence="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadMaxRows(5))
    replace(tmp_path, numbered(3))
    with pytest.raises(Replaced, match=r"not the one that the query has read: .* read up to 5"):
        strict.latestOffset(end, ALL)
    with pytest.raises(Replaced):
        strict.partitions(start, end)
    lenient = stream(tmp_path, failOnDataLoss="false")
    after = lenient.latestOffset(end, ALL)
    assert taken(lenient, end, after) == s(1, 2, 3)  # all of the new one,
    assert taken(lenient, start, end) == []  # and nothing of it for what the old one had
    assert "is not the one that the query has read" in caplog.text
    assert lenient.latestOffset(after, ALL) == after


def test_a_batch_of_a_new_incarnation_is_repeated_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(10))
    reader = stream(tmp_path, startingSequence="earliest", failOnDataLoss="false")
    old = reader.latestOffset(reader.initialOffset(), ALL)
    replace(tmp_path, numbered(4))
    end = reader.latestOffset(old, ReadMaxRows(2))
    assert taken(reader, old, end) == s(1, 2)
    assert taken(stream(tmp_path), old, end) == s(1, 2)  # another run, and nothing is lost any more: it may be strict


def test_a_stream_that_was_trimmed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    strict = stream(tmp_path, startingSequence="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadMaxRows(5))
    oldest = trim(tmp_path, 40)
    with pytest.raises(Trimmed, match=f"sequences 6 to {oldest - 1} are not kept any more"):
        strict.latestOffset(end, ALL)
    with pytest.raises(Trimmed):
        strict.partitions(start, end)
    lenient = stream(tmp_path, failOnDataLoss="false")
    assert taken(lenient, end, lenient.latestOffset(end, ALL)) == s(*range(oldest, 96))
    assert taken(lenient, start, end) == []
    assert f"sequences 6 to {oldest - 1}" in caplog.text


def test_a_stream_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(5))
    strict = stream(tmp_path, startingSequence="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    with Store(tmp_path) as store:
        store.delete("s")
    with pytest.raises(Vanished, match="stream 's' is not there any more"):
        strict.latestOffset(end, ALL)
    lenient = stream(tmp_path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lenient.latestOffset(end, ALL) == end
        assert lenient.latestOffset(end, ALL) == end
        assert taken(lenient, start, end) == []
    assert caplog.text.count("stream 's' is not there any more") == 1


def test_a_journal_that_was_cut_is_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))
    reader = stream(tmp_path, failOnDataLoss="false")
    ahead = {"s": {**reader.initialOffset()["s"], "sequence": 9}}
    with pytest.raises(Replaced, match="ends at 5, and the query has read up to 9"):
        reader.latestOffset(ahead, ALL)
