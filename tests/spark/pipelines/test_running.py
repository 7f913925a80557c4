"""Pipelines from journals and brokers to tables: once, in steps, and as messages come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as arrow  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

from tests.spark.journal import numbered, write
from tests.spark.pipelines.frames import NOON, log, table
from tests.zeps.serving import serving
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError
from zambezi.spark.pipelines import PIPELINES, Progress, Run, Settings, restore
from zambezi.spark.pipelines.pipeline import Report
from zambezi.spark.pipelines.results import compute, publish_reports, save
from zambezi.spark.pipelines.running import PipelineError
from zambezi.spark.pipelines.verdict import Verdict
from zambezi.zeps.journal import Store
from zambezi.zeps.sync import Client
from zambezi.zre.log import What

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 90.0


def until(condition: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it does not become so: {run.progress()}"
        time.sleep(0.05)


def messages_in(run: Run) -> int:
    return int(run.table().selectExpr("sum(messages)").collect()[0][0] or 0)


def test_a_run_over_all_messages_replaces_the_last(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", "s", numbered(30))
    run = Run(spark, PIPELINES["traffic"], str(tmp_path / "out"), {"path": str(tmp_path / "data")})
    assert run.once().rows == 30
    write(tmp_path / "data", "s", numbered(5))
    assert run.once().total == 35
    assert messages_in(run) == 35
    with pytest.raises(TableError, match="was written by a run over all messages"):
        run.catch_up()


def test_an_empty_stream_has_empty_results(spark: SparkSession, tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        store.open("s")
    run = Run(spark, PIPELINES["traffic"], str(tmp_path / "out"), {"path": str(tmp_path / "data")})
    assert run.once().rows == 0
    assert [one.found.rows for one in compute(run.reports())] == [[]] * 6
    run.release()


def test_an_incremental_run_reads_new_messages(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", str(tmp_path / "out")

    def catch_up() -> Progress:
        return Run(spark, PIPELINES["traffic"], out, {"path": str(data), "maxMessagesPerTrigger": "20"}).catch_up()

    write(data, "s", numbered(30))
    first = catch_up()
    assert (first.rows, first.batch) == (30, 1)
    assert catch_up().rows == 0
    write(data, "s", numbered(12))
    later = {"path": str(data), "startingTimestamp": "2020-01-01"}
    with pytest.raises(PipelineError, match=r"so a start time \(--since\) would be ignored"):
        Run(spark, PIPELINES["traffic"], out, later).catch_up()
    second = catch_up()
    assert (second.rows, second.total) == (12, 42)
    run = Run(spark, PIPELINES["traffic"], out, {"path": str(data)})
    assert messages_in(run) == 42
    # Each window and key has one row, although several batches added to it.
    sums = DeltaTable(f"{out}/traffic").to_pyarrow_table(columns=["start", "stream", "key"]).to_pylist()
    assert len(sums) == len({tuple(row.values()) for row in sums}) == 10
    with pytest.raises(TableError, match="grows with a streaming query"):
        run.once()
    write(data, "s", numbered(1))
    with pytest.raises(TableError, match="was made with window = 60, which cannot be combined with 10"):
        Run(spark, PIPELINES["traffic"], out, {"path": str(data)}, Settings(window=10)).catch_up()


def test_late_events_are_counted_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", str(tmp_path / "out")
    settings = Settings(window=10, delay=100)

    def catch_up(when: float, *events: tuple[float, str, bytes]) -> Progress:
        write(data, "zrelog", [(key, body) for _, key, body in events], now=NOON + when)
        return Run(spark, PIPELINES["network-health"], out, {"path": str(data)}, settings).catch_up()

    first = catch_up(200, log(What.SEND, 1, 2, 200, "WHISPER"))
    assert first.watermark == (NOON + 100) * 1_000_000
    # Both are believed: their clocks are wrong by less than half of the delay.
    second = catch_up(201, log(What.SEND, 1, 2, 160, "WHISPER"), log(What.SEND, 1, 2, 199, "WHISPER"))
    assert (second.rows, second.late) == (2, 0)
    third = catch_up(400, log(What.SEND, 1, 2, 400, "WHISPER"))
    assert third.watermark == (NOON + 300) * 1_000_000
    # A journal that is slow: the broker stood still, and its clock was set back.
    run = Run(spark, PIPELINES["network-health"], out, {"path": str(data)}, Settings(window=10, delay=400))
    write(data, "zrelog", [log(What.SEND, 1, 2, 210, "WHISPER")[1:]], now=NOON + 401)
    fourth = run.catch_up()
    assert (fourth.rows, fourth.late) == (1, 1)
    assert [row[0] for row in table(run.table().where("node = '0001'").selectExpr("sum(events)"))] == [5]


def test_following(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        behind = [("traffic", 17, 0)]  # at the end
        readings = client.stream("readings")
        readings.publish_many(numbered(10))
        readings.flush()
        options = {"endpoint": endpoint, "streams": "readings", "reader": "traffic"}
        run = Run(spark, PIPELINES["traffic"], str(tmp_path / "out"), options)
        query = run.start(follow=True)
        try:
            until(lambda: run.progress().rows == 10, run)
            readings.publish_many(numbered(7))
            readings.flush()
            until(lambda: run.progress().rows == 17, run)
            assert not run.wait(query, 0.01)
            until(lambda: [(one.reader, one.position, one.lag) for one in client.readers("readings")] == behind, run)
        finally:
            run.stop()
        assert run.progress().rate > 0
        assert table(run.reports()[0].frame, "stream", "messages") == [("readings", 17)]
        run.release()


def test_an_archive_and_back(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "archive"
    write(data, "42", numbered(25))
    write(data, "a b/ü", [("k\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), bytes([0, 255]))])
    run = Run(spark, PIPELINES["archive"], str(out), {"path": str(data)})
    run.catch_up()
    write(data, "42", numbered(5, 26))
    run.catch_up()
    # Other programs see the same, each message once.
    seen = DeltaTable(out).to_pyarrow_table()
    assert sorted(seen.filter(arrow.field("stream") == "42").column("sequence").to_pylist()) == list(range(1, 31))
    assert table(run.reports()[0].frame, "stream", "messages", "first", "last", "missing") == [
        ("42", 30, 1, 30, 0),
        ("a b/ü", 1, 1, 1, 0),
    ]
    run.release()
    with serving(tmp_path / "other") as (_, endpoint), Client.connect(endpoint) as client:
        sink = {"endpoint": endpoint}
        assert restore(spark, str(out), sink) == {"42": 30, "a b/ü": 1}
        for name in ("42", "a b/ü"):
            written = Run(spark, PIPELINES["archive"], str(tmp_path), {"path": str(data)})
            source = written.spark.read.format("zeps").options(path=str(data), stream=name).load()
            expected = [(row["key"], bytes(row["body"])) for row in source.orderBy("sequence").collect()]
            assert [
                (one.key, one.body) for one in client.stream(name).subscribe(since="earliest", until="now")
            ] == expected
        with pytest.raises(PipelineError, match=r"stream '42' has messages already: .* or use --append"):
            restore(spark, str(out), sink, streams=["42"])
        assert restore(spark, str(out), sink, streams=["42"], append=True) == {"42": 30}
        assert restore(spark, str(out), sink, into="all") == {"all": 31}
        with pytest.raises(PipelineError, match="has no stream 'x': it has '42', 'a b/"):
            restore(spark, str(out), sink, streams=["x"])
        with pytest.raises(PipelineError, match="there is no archive in"):
            restore(spark, str(tmp_path / "nowhere"), sink)
    # One table over the archive and the live stream.
    write(data, "42", numbered(3, 31))
    both = spark.read.format("zeps").options(archive=str(out), path=str(data), stream="42")
    found = both.schema("sequence long, key string").load().where("key = 'k1' and sequence > 1")
    assert sorted(row["sequence"] for row in found.collect()) == [11, 21, 31]


def test_errors_of_the_source_have_no_traces(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", "s", numbered(1))
    options = {"path": str(tmp_path / "data"), "streams": "s,t"}
    missing = Run(spark, PIPELINES["traffic"], str(tmp_path / "a"), options)
    with pytest.raises(PipelineError, match=r"^there is no stream 't': there are 's'$"):
        missing.once()
    wrong = Run(spark, PIPELINES["traffic"], str(tmp_path / "b"), {"path": "x", "startingSequence": "y"})
    with pytest.raises(PipelineError, match=r"^option 'startingSequence' is 'y': it must be earliest"):
        wrong.catch_up()


def test_results_as_files_and_as_messages(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("a", 1, 0.5, None)], "name string, count long, part double, nothing string")
    timed = rows.selectExpr("timestamp_seconds(0) as time", "*")
    reports = [Report("one", "The first", timed, ("a note",)), Report("two", "The second", rows.limit(0))]
    save(compute(reports), Verdict("traffic"), Place(str(tmp_path)), 5.0)
    assert json.loads((tmp_path / "one.json").read_text()) == {
        "pipeline": "traffic",
        "time": 5.0,
        "kind": "table",
        "order": 0,
        "title": "The first",
        "columns": ["time", "name", "count#", "part#", "nothing"],
        "rows": [["1970-01-01 00:00:00", "a", 1, 0.5, ""]],
        "notes": ["a note"],
        "more": False,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "traffic-verdict.json", "two.json"]
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        publish_reports(reports, {"endpoint": endpoint, "stream": "reports"}, datetime(2026, 1, 1, tzinfo=UTC))
        found = list(client.stream("reports").subscribe(since="earliest", until="now"))
    assert [one.key for one in found] == ["one"]
    assert json.loads(found[0].body)["count"] == 1
    assert json.loads(found[0].body)["reported"] == "2026-01-01T00:00:00+00:00"
