"""zambezi.spark.archive_reader: one table over an archive and the live streams, each message once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, StringStartsWith

from tests.spark.journal import BEGINNING, numbered, write
from tests.spark.lake.archiving import archive
from tests.spark.readers import read, rows
from tests.spark.schemas import COLUMNS
from tests.spark.test_journal_backend import SMALL, trim
from zambezi.spark.archive_reader import ArchivePartition
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.errors import NoSuchStream, OptionError, SparkError, Trimmed
from zambezi.spark.lake.compaction import maintain
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.zeps.journal import Store


def reader(out: Path, data: Path | None = None, **options: str) -> BatchReader:
    """A reader of an archive, and of live streams if a data directory is given."""
    live = {} if data is None else {"path": str(data)}
    chosen = {} if options.keys() & {"stream", "streams", "streamPattern"} else {"stream": "s"}
    return BatchReader(COLUMNS, Options({"archive": str(out), **live, **chosen, **options}, BATCH))


def sequences(one: BatchReader) -> list[int]:
    return sorted(sequence for _, sequence in read(one))


def test_each_message_comes_once_from_the_archive_or_the_live_stream(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(25))
    archive(data, out)
    write(data, "s", numbered(10, 26))
    archive(data, out)
    write(data, "s", numbered(5, 36))
    write(data, "new", numbered(3))
    assert sequences(reader(out)) == list(range(1, 36))
    assert sequences(reader(out, data)) == list(range(1, 41))
    assert sequences(reader(out, data, stream="new")) == [1, 2, 3]
    whole = rows(reader(out, data), reader(out, data).partitions())
    live = BatchReader(COLUMNS, Options({"path": str(data), "stream": "s"}, BATCH))
    alone = rows(live, live.partitions())
    assert sorted(whole, key=lambda row: row["sequence"]) == alone
    # A compaction, and a run that adds a batch, change nothing for a query that is planned.
    one = reader(out, data)
    planned = one.partitions()
    archive(data, out)
    maintain(archive(data, out))
    assert sorted(row["sequence"] for row in rows(one, planned)) == list(range(1, 41))
    assert sequences(reader(out, data)) == list(range(1, 41))


def test_history_that_retention_removed_from_the_broker(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(1000, size=100), policy=SMALL)
    archive(data, out)
    trim(data, 600)
    write(data, "s", numbered(10, 1001), policy=SMALL)
    assert sequences(reader(out, data)) == list(range(1, 1011))
    assert sequences(reader(out, data, startingSequence="5")) == list(range(5, 1011))
    assert sequences(reader(out, data, startingSequence="5", endingSequence="9")) == [5, 6, 7, 8, 9]
    assert sequences(reader(out, data, startingSequence="1005")) == list(range(1005, 1011))


def test_messages_that_neither_has_are_a_loss(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(100, size=100), policy=SMALL)
    archive(data, out)
    write(data, "s", numbered(900, 101, size=100), policy=SMALL)
    trim(data, 600)
    with Store(data, write=False) as store:
        oldest = store.open("s", create=False).first
    with pytest.raises(Trimmed, match=f"sequences 101 to {oldest - 1} are not kept any more"):
        reader(out, data).partitions()
    kept = [*range(1, 101), *range(oldest, 1001)]
    assert sequences(reader(out, data, failOnDataLoss="false")) == kept


def test_a_stream_that_was_made_again_is_read_whole(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(4))
    archive(data, out)
    with Store(data) as store:
        store.delete("s")
    write(data, "s", numbered(3, 100))
    found = rows(reader(out, data), reader(out, data).partitions())
    assert sorted(int(row["body"]) for row in found) == [1, 2, 3, 4, 100, 101, 102]
    assert len({row["incarnation"] for row in found}) == 2
    archive(data, out, failOnDataLoss="false")
    again = rows(reader(out, data), reader(out, data).partitions())
    assert sorted(int(row["body"]) for row in again) == [1, 2, 3, 4, 100, 101, 102]


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingTimestamp": str((BEGINNING + 1) * 1000)}, 11, 45),
        ({"endingTimestamp": str((BEGINNING + 1) * 1000)}, 1, 20),
        ({"startingTimestamp": f'{{"s": {(BEGINNING + 1) * 1000}}}'}, 11, 45),
        ({"startingSequence": '{"s": 7}', "endingSequence": '{"s": 30}'}, 7, 30),
        ({"endingSequence": "41"}, 1, 41),
    ],
)
def test_the_options_limit_both(tmp_path: Path, options: dict[str, str], first: int, last: int) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(35))
    archive(data, out)
    write(data, "s", numbered(10, 36), now=BEGINNING + 100)
    assert sequences(reader(out, data, **options)) == list(range(first, last + 1))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(("sequence",), 20), LessThan(("sequence",), 23)], [("s", 21), ("s", 22)]),
        ([EqualTo(("key",), "k3"), LessThan(("sequence",), 14)], [("s", 3), ("s", 13), ("t", 3)]),
        ([In(("key",), ("k1", "k2")), EqualTo(("stream",), "t")], [("t", 1), ("t", 2)]),
        ([StringStartsWith(("stream",), "t")], [("t", 1), ("t", 2), ("t", 3)]),
        ([EqualTo(("incarnation",), "x")], []),
        (
            [GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(BEGINNING + 3, UTC))],
            [("s", number) for number in range(31, 41)],
        ),
    ],
)
def test_pushed_filters_are_applied_to_both(
    tmp_path: Path, filters: list[Filter], expected: list[tuple[str, int]]
) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(35))
    write(data, "t", numbered(3))
    archive(data, out)
    write(data, "s", numbered(5, 36), now=BEGINNING + 5)
    one = reader(out, data, streamPattern="")
    one.pushed_filters.push(filters)
    assert sorted(read(one)) == expected


def test_files_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    for day in range(3):
        write(data, "s", numbered(10, 10 * day + 1), now=BEGINNING + 86400 * day)
        archive(data, out)
    assert len(archive(data, out).files()) == 3

    def planned(**options: str) -> int:
        partitions = reader(out, None, **options).partitions()
        return sum(len(one.paths) for one in partitions if isinstance(one, ArchivePartition))

    assert planned() == 3
    assert planned(startingTimestamp=str((BEGINNING + 86400) * 1000)) == 2
    assert planned(endingTimestamp=str((BEGINNING + 100) * 1000)) == 1
    assert planned(streamPattern="x") == 0


def test_keys_that_are_not_text_come_back_as_they_were(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", [("k\udcff", b"1"), ("é", b"2"), ("", b"3")])
    archive(data, out)
    from pyspark.sql.types import BinaryType, StructType

    binary = StructType().add("key", BinaryType())
    whole = BatchReader(binary, Options({"archive": str(out), "stream": "s"}, BATCH))
    assert [row["key"] for row in rows(whole, whole.partitions())] == [b"k\xff", "é".encode(), b""]
    some = BatchReader(binary, Options({"archive": str(out), "stream": "s", "pattern": "k"}, BATCH))
    assert [row["key"] for row in rows(some, some.partitions())] == [b"k\xff"]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "s", numbered(5))
    with pytest.raises(SparkError, match=f"there is no archive in {out}"):
        reader(out).partitions()
    archive(data, out, pattern="k1")
    with pytest.raises(OptionError, match="has only messages whose keys match 'k1': set the option 'pattern'"):
        reader(out).partitions()
    assert sequences(reader(out, pattern="k1")) == [1]
    with pytest.raises(NoSuchStream, match="there is no stream 'x': there are 's'"):
        reader(out, data, stream="x", pattern="k1").partitions()
    with pytest.raises(OptionError, match="option 'archive' is not for a streaming query"):
        Options({"archive": "a", "path": "p", "stream": "s"}, STREAM)
    with pytest.raises(OptionError, match="'path' and 'endpoint' contradict each other"):
        Options({"archive": "a", "path": "p", "endpoint": "tcp://127.0.0.1:1", "stream": "s"}, BATCH)
