"""zambezi.spark.stream_reader: offsets, limits, and streams that are trimmed, replaced or deleted."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tests.spark.journal import BEGINNING, Message, numbered, write
from tests.spark.readers import Clock, read_batch, stream_reader
from tests.spark.schemas import COLUMNS
from tests.spark.test_journal_backend import SMALL, trim
from tests.zeps.serving import serving
from zambezi.spark.errors import Replaced, SparkError, Trimmed, Vanished
from zambezi.spark.options import STREAM, Options
from zambezi.spark.stream_reader import StreamReader
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.sync import Client

ALL = ReadAllAvailable()


def s(*numbers: int) -> list[tuple[str, int]]:
    """Messages of stream `s`."""
    return [("s", number) for number in numbers]


def test_a_stream_is_followed(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(3))
    reader = stream_reader(tmp_path, startingSequence="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert read_batch(reader, start, end) == s(2, 3)
    assert reader.latestOffset(end, ALL) == end
    write(tmp_path, "s", numbered(2, 4))
    later = reader.latestOffset(end, ALL)
    assert read_batch(reader, end, later) == s(4, 5)
    reader.commit(later)
    assert reader.reportLatestOffset()["streams"]["s"]["sequence"] == 5  # type: ignore[index]
    reader.stop()


@pytest.mark.parametrize(
    ("options", "first"),
    [({}, 4), ({"startingSequence": "earliest"}, 1), ({"startingTimestamp": "1"}, 1), ({"startingSequence": "3"}, 3)],
)
def test_the_options_set_the_start(tmp_path: Path, options: dict[str, str], first: int) -> None:
    write(tmp_path, "s", numbered(3))
    reader = stream_reader(tmp_path, **options)
    start = reader.initialOffset()
    write(tmp_path, "s", numbered(1, 4))
    assert read_batch(reader, start, reader.latestOffset(start, ALL))[0] == ("s", first)


def test_a_new_reader_plans_a_batch_from_offsets_alone(tmp_path: Path) -> None:
    """After a restart, Spark can first ask for the partitions of a batch."""
    write(tmp_path, "s", numbered(30))
    before = stream_reader(tmp_path, startingSequence="5")
    start = before.initialOffset()
    end = before.latestOffset(start, ReadMaxRows(10))
    assert read_batch(stream_reader(tmp_path), start, end) == s(*range(5, 15))


def test_a_query_can_begin_after_offsets(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(25))
    before = stream_reader(tmp_path, startingSequence="5", maxMessagesPerTrigger="10")
    end = before.latestOffset(before.initialOffset(), before.getDefaultReadLimit())
    reader = stream_reader(tmp_path, startingOffsets=json.dumps(end))
    start = reader.initialOffset()
    assert start == end
    later = reader.latestOffset(start, ReadAllAvailable())
    assert read_batch(reader, start, later) == [("s", number) for number in range(15, 26)]
    with Store(tmp_path) as store:
        store.delete("s")
    write(tmp_path, "s", numbered(3))
    with pytest.raises(Replaced, match="is not the stream that the query has read"):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(SparkError, match="is not an offset of the source"):
        stream_reader(tmp_path, startingOffsets='{"s": 7}').initialOffset()


def test_a_stream_that_is_made_later_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "other", numbered(1))
    reader = stream_reader(tmp_path, streamPattern="")
    start = reader.initialOffset()
    write(tmp_path, "s", numbered(3))
    end = reader.latestOffset(start, ALL)
    assert read_batch(reader, start, end) == s(1, 2, 3)
    named = stream_reader(tmp_path, stream="later")
    assert named.initialOffset() == {}
    assert named.latestOffset({}, ALL) == {}
    assert "stream 'later' does not exist yet" in caplog.text
    write(tmp_path, "later", numbered(1))
    assert read_batch(named, {}, named.latestOffset({}, ALL)) == [("later", 1)]


def test_limits_on_messages(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(90))
    write(tmp_path, "t", numbered(10))
    reader = stream_reader(tmp_path, streams="s,t", startingSequence="earliest", maxMessagesPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    offset = reader.initialOffset()
    counts = []
    found = []
    while (after := reader.latestOffset(offset, ReadMaxRows(20))) != offset:
        batch = read_batch(reader, offset, after)
        counts.append(len(batch))
        found += batch
        offset = after
    assert counts == [20, 20, 20, 20, 20]
    assert sorted(found) == s(*range(1, 91)) + [("t", number) for number in range(1, 11)]
    assert len(read_batch(reader, reader.initialOffset(), reader.latestOffset(reader.initialOffset(), ALL))) == 100


def test_limits_on_bytes(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100, size=100))
    reader = stream_reader(tmp_path, startingSequence="earliest", maxBytesPerTrigger="3000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(3000)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxBytes(3000))
    assert 20 <= len(read_batch(reader, start, end)) <= 30
    assert (
        len(read_batch(reader, start, reader.latestOffset(start, ReadMaxBytes(1)))) == 1
    )  # otherwise the query would never continue


def test_both_limits_hold(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100, size=100))
    options = {"startingSequence": "earliest", "maxBytesPerTrigger": "1m"}
    reader = stream_reader(tmp_path, maxMessagesPerTrigger="7", **options)
    start = reader.initialOffset()
    assert len(read_batch(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))) == 7
    reader = stream_reader(tmp_path, maxMessagesPerTrigger="70", **(options | {"maxBytesPerTrigger": "1000"}))
    assert len(read_batch(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit()))) < 10


def test_a_batch_waits_for_enough_messages_but_not_for_ever(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(3))
    clock = Clock()
    options = {"startingSequence": "earliest", "minMessagesPerTrigger": "5", "maxTriggerDelay": "10s"}
    reader = stream_reader(tmp_path, clock, **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit) == start
    clock.now = 9.0
    assert reader.latestOffset(start, limit) == start
    clock.now = 10.0
    end = reader.latestOffset(start, limit)
    assert read_batch(reader, start, end) == s(1, 2, 3)
    assert reader.latestOffset(end, limit) == end  # no messages, so there is nothing to wait for
    write(tmp_path, "s", numbered(5, 4))
    assert read_batch(reader, end, reader.latestOffset(end, limit)) == s(4, 5, 6, 7, 8)


def test_available_now_ends_with_the_messages_at_its_start(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(10))
    reader = stream_reader(tmp_path, streamPattern="", startingSequence="earliest", minMessagesPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, "s", numbered(10, 11))
    write(tmp_path, "t", numbered(10))
    start = reader.initialOffset()
    del start["t"]
    first = reader.latestOffset(start, ReadMaxRows(6))
    second = reader.latestOffset(first, ReadMaxRows(6))
    assert read_batch(reader, start, first) + read_batch(reader, first, second) == s(*range(1, 11))
    assert reader.latestOffset(second, ReadMaxRows(6)) == second


def replace(path: Path, messages: list[Message]) -> None:
    with Store(path) as store:
        store.delete("s")
    write(path, "s", messages)


def test_a_replaced_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(10))
    strict = stream_reader(tmp_path, startingSequence="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadMaxRows(5))
    replace(tmp_path, numbered(3))
    with pytest.raises(Replaced, match=r"not the stream that the query has read: .* read up to 5"):
        strict.latestOffset(end, ALL)
    with pytest.raises(Replaced):
        strict.partitions(start, end)
    lenient = stream_reader(tmp_path, failOnDataLoss="false")
    after = lenient.latestOffset(end, ALL)
    assert read_batch(lenient, end, after) == s(1, 2, 3)  # all messages of the new stream,
    assert read_batch(lenient, start, end) == []  # and none of them in place of the old ones
    assert "is not the stream that the query has read" in caplog.text
    assert lenient.latestOffset(after, ALL) == after


def test_a_batch_of_a_new_incarnation_is_repeated_with_the_same_messages(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(10))
    reader = stream_reader(tmp_path, startingSequence="earliest", failOnDataLoss="false")
    old = reader.latestOffset(reader.initialOffset(), ALL)
    replace(tmp_path, numbered(4))
    end = reader.latestOffset(old, ReadMaxRows(2))
    assert read_batch(reader, old, end) == s(1, 2)
    assert read_batch(stream_reader(tmp_path), old, end) == s(
        1, 2
    )  # another run; it can be strict, because it loses nothing


def test_a_trimmed_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    strict = stream_reader(tmp_path, startingSequence="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadMaxRows(5))
    oldest = trim(tmp_path, 40)
    with pytest.raises(Trimmed, match=f"sequences 6 to {oldest - 1} are not kept any more"):
        strict.latestOffset(end, ALL)
    with pytest.raises(Trimmed):
        strict.partitions(start, end)
    lenient = stream_reader(tmp_path, failOnDataLoss="false")
    assert read_batch(lenient, end, lenient.latestOffset(end, ALL)) == s(*range(oldest, 96))
    assert read_batch(lenient, start, end) == []
    assert f"sequences 6 to {oldest - 1}" in caplog.text


def test_a_deleted_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(5))
    strict = stream_reader(tmp_path, startingSequence="earliest")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    with Store(tmp_path) as store:
        store.delete("s")
    with pytest.raises(Vanished, match="stream 's' does not exist any more"):
        strict.latestOffset(end, ALL)
    lenient = stream_reader(tmp_path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert lenient.latestOffset(end, ALL) == end
        assert lenient.latestOffset(end, ALL) == end
        assert read_batch(lenient, start, end) == []
    assert caplog.text.count("stream 's' does not exist any more") == 1


def test_a_journal_that_lost_its_end_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(5))
    reader = stream_reader(tmp_path, failOnDataLoss="false")
    ahead = {"s": {**reader.initialOffset()["s"], "sequence": 9}}
    with pytest.raises(Replaced, match="ends at 5, but the query has read up to 9"):
        reader.latestOffset(ahead, ALL)


@pytest.mark.parametrize("where", ["path", "endpoint"])
def test_the_progress_of_a_query_tells_how_far_it_is_behind(tmp_path: Path, where: str) -> None:
    write(tmp_path, "s", numbered(30))
    with contextlib.ExitStack() as stack:
        origin = {"path": str(tmp_path)}
        if where == "endpoint":
            origin = {"endpoint": stack.enter_context(serving(tmp_path))[1]}
        options = Options({**origin, "stream": "s", "startingSequence": "earliest"}, STREAM)
        reader = StreamReader(COLUMNS, options, now=lambda: BEGINNING + 60.0)
        stack.callback(reader.stop)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(14))
        report = reader.reportLatestOffset()
        assert report is not None
        # The first unread message is the 15th, of the second batch, which is a second after the first.
        assert (report["behindMessages"], report["behindSeconds"], report["lostMessages"]) == (16, 59.0, 0)
        assert report["description"].startswith(f"1 stream at {next(iter(origin.values()))}: 16 messages and 59 s")
        reader.latestOffset(end, ALL)
        report = reader.reportLatestOffset()
        assert report is not None
        assert (report["behindMessages"], report["behindSeconds"]) == (0, 0.0)


def test_the_broker_shows_how_far_a_query_is_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "s", numbered(30))
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:

        def shown() -> list[tuple[str, int, int, bool]]:
            return [(one.reader, one.position, one.lag, one.behind > 0) for one in client.readers("s")]

        options = {"endpoint": endpoint, "stream": "s", "startingSequence": "earliest", "reader": "archive"}
        reader = StreamReader(COLUMNS, Options(options, STREAM))
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(14))
        assert shown() == [("archive", 0, 30, True)]
        end = reader.latestOffset(end, ALL)  # Spark asks for the next batch when the one before is done
        assert shown() == [("archive", 14, 16, True)]
        reader.latestOffset(end, ALL)
        assert shown() == [("archive", 30, 0, False)]
        reader.stop()

        # Another program reads under the name: the query goes on, and says so once.
        with client.stream("s").subscribe(name="billing", since=7) as subscription:
            subscription.recv(60)
            reader = StreamReader(COLUMNS, Options(options | {"reader": "billing"}, STREAM))
            end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(14))
            assert reader.latestOffset(end, ALL)["s"]["sequence"] == 30
            reader.stop()
    (told,) = caplog.messages
    assert told.startswith("the broker does not show how far the query is behind as reader 'billing' (1 streams, for ")
    assert "the reader billing is in use by" in told


def test_lost_messages_are_counted(tmp_path: Path) -> None:
    small = Policy(segment=400, keep_bytes=800)
    write(tmp_path, "s", numbered(5), policy=small)
    reader = stream_reader(tmp_path, startingSequence="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    write(tmp_path, "s", numbered(90, 6), policy=small)
    with Store(tmp_path, policy=small) as store:
        store.open("s").retain(BEGINNING)
        oldest = store.open("s").first
    reader.latestOffset(start, ALL)
    report = reader.reportLatestOffset()
    assert report is not None
    assert report["lostMessages"] == oldest - 1 > 0


def test_a_first_run_has_a_limit_by_default(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(100, size=80))
    reader = stream_reader(tmp_path, startingSequence="earliest")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(4 << 30)
    start = reader.initialOffset()
    assert read_batch(reader, start, reader.latestOffset(start, ReadMaxBytes(4 << 30))) == s(*range(1, 101))
    end = reader.latestOffset(start, ReadMaxBytes(5000))
    assert 40 <= len(read_batch(reader, start, end)) <= 60
    assert stream_reader(tmp_path, maxBytesPerTrigger="none").getDefaultReadLimit() == ReadAllAvailable()
    limited = stream_reader(tmp_path, startingSequence="earliest", maxMessagesPerTrigger="70")
    assert limited.getDefaultReadLimit() == ReadMaxRows(70)
