"""`sessions`, on small tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.pipelines.frames import NOON, messages, stream, table
from zambezi.spark.limits import Limits, SessionsLimits
from zambezi.spark.pipelines import sessions
from zambezi.spark.pipelines.pipeline import Cache, Settings
from zambezi.spark.pipelines.results import compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = Settings(gap=30, read_up_to=NOON + 240)
ROWS = stream([(0, "a", b"1"), (5, "b", b""), (30, "a", b"12"), (61, "a", b""), (100, "a", b""), (225, "b", b"")])


def test_a_silence_longer_than_the_gap_ends_a_session(spark: SparkSession) -> None:
    whole = sessions.reduce(messages(spark, ROWS), SETTINGS)
    # A message of a later batch can join two sessions of an earlier one: each batch has every second message.
    parts = sessions.reduce(messages(spark, ROWS[::2]), SETTINGS).unionByName(
        sessions.reduce(messages(spark, ROWS[1::2]), SETTINGS)
    )
    for reduced in (whole, parts):
        found = sessions.newest(sessions.sessions(reduced, SETTINGS))
        assert table(found, "key", "seconds", "messages", "octets", "state", "first", "last") == [
            ("b", 0.0, 1, 0, "open", 6, 6),
            ("a", 0.0, 1, 0, "closed", 5, 5),
            ("a", 0.0, 1, 0, "closed", 4, 4),
            ("b", 0.0, 1, 0, "closed", 2, 2),
            ("a", 30.0, 2, 3, "closed", 1, 3),
        ]


def test_a_message_with_a_time_in_the_future_closes_no_session(spark: SparkSession) -> None:
    rows = stream([(230.0, "a", b"")]) + stream([(30 * 86400.0, "b", b"")], "other")
    found = sessions.sessions(sessions.reduce(messages(spark, rows), SETTINGS), SETTINGS)
    assert sorted(table(found, "key", "state")) == [("a", "open"), ("b", "open")]


def test_reports_the_verdict_and_the_charts(spark: SparkSession, cache: Cache) -> None:
    settings = Settings(gap=40, by="nullif(key, 'b')", limits=Limits(sessions=SessionsLimits(longest=60.0)))
    reduced = cache(sessions.reduce(messages(spark, ROWS), settings))
    results = compute(sessions.reports(reduced, settings, cache))
    assert results[0].notes == ("2 messages without a key (nullif(key, 'b') is null) are not in sessions",)
    assert [row["sessions"] for row in results[0].found.records()] == [1]
    found = {one.name: one.found for one in results}
    assert sessions.judge(found, settings).lines() == [
        "healthy: no, because a (s) has a session of 1.7 min since 2023-11-15 12:00:00"
    ]
    assert sessions.judge(found, Settings()).lines() == ["healthy: yes (1 session of 1 key)"]
    lines, lengths = sessions.figures(reduced, settings, cache)
    assert "s: a" in lines.chart.svg
    assert "1 sessions" in lengths.chart.notes[0]
