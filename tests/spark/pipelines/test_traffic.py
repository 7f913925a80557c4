"""`traffic`, on small tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql

from tests.spark.pipelines.frames import NOON, messages, stream, table
from zambezi.spark.limits import TrafficLimits
from zambezi.spark.pipelines import traffic
from zambezi.spark.pipelines.pipeline import Rows, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = Settings(window=10)


def test_windows_by_prefix_add_up_over_two_batches(spark: SparkSession) -> None:
    rows = stream([(0, "a.x", b"12"), (1, "a.y", b"1"), (2, "b", b""), (11, "a.x", b"123"), (12, "a.x", b"1")])
    whole = traffic.reduce(messages(spark, rows), SETTINGS)
    parts = traffic.reduce(messages(spark, rows[:2]), SETTINGS).unionByName(
        traffic.reduce(messages(spark, rows[2:]), SETTINGS)
    )
    for reduced in (whole, parts):
        found = table(traffic.windows(reduced, SETTINGS), "prefix", "messages", "octets", "keys", "per_s")
        assert found == [("a", 2, 4, 1, 0.2), ("a", 2, 3, 2, 0.2), ("b", 1, 0, 1, 0.1)]
        assert table(traffic.totals(reduced), "stream", "messages", "octets", "keys") == [("s", 5, 7, 3)]
    assert table(whole.select(sql.date_format("date", "yyyy-MM-dd")).distinct()) == [("2023-11-15",)]


@pytest.mark.parametrize(
    ("depth", "found"),
    [
        (1, ["a", "mcollective", "", "b"]),
        (2, ["a.b", "mcollective nodes", "/x", "b"]),
        (9, ["a.b.c", "mcollective nodes web1", "/x/y", "b"]),
    ],
)
def test_the_prefix_of_a_key(spark: SparkSession, depth: int, found: list[str]) -> None:
    keys = spark.createDataFrame([("a.b.c",), ("mcollective nodes web1",), ("/x/y",), ("b",)], "key string")
    assert [row[0] for row in keys.select(traffic.prefix(sql.col("key"), depth)).collect()] == found


def test_heavy_hitters(spark: SparkSession) -> None:
    rows = stream([(0, "often", b"1")] * 3 + [(1, "large", b"x" * 97)]) + stream([(0, "only", b"")], "t")
    reduced = traffic.reduce(messages(spark, rows), SETTINGS)
    assert table(traffic.heavy_hitters(reduced, SETTINGS)) == [
        ("s", "often", 3, 75.0, 3, 3.0),
        ("s", "large", 1, 25.0, 97, 97.0),
        ("t", "only", 1, 100.0, 0, 0.0),
    ]
    assert len(table(traffic.heavy_hitters(reduced, Settings(top=1)))) == 1


def test_gaps_within_a_window_and_between_two(spark: SparkSession) -> None:
    rows = stream([(0, "k", b""), (1, "k", b"")]) + stream([(2, "k", b"")], first=5) + stream([(15, "k", b"")], first=9)
    found = traffic.gaps(traffic.reduce(messages(spark, rows), SETTINGS))
    assert table(found, "stream", "after", "before", "missing", "repeated") == [("s", 5, 9, 3, 0), ("s", 1, 5, 2, 0)]


def test_a_new_incarnation_is_no_gap_and_repeated_messages_are_counted(spark: SparkSession) -> None:
    anew = [("s", 1, 20.0, "k", b"", "two")]
    rows = stream([(0, "k", b""), (1, "k", b"")])
    assert table(traffic.gaps(traffic.reduce(messages(spark, rows + anew), SETTINGS))) == []
    twice = traffic.gaps(traffic.reduce(messages(spark, rows + rows[1:]), SETTINGS))
    assert table(twice, "missing", "repeated") == [(0, 1)]


def rows(columns: str, *found: list[Any]) -> Rows:
    return Rows(columns.split(), list(found), False, frozenset())


def reported(
    streams: list[list[Any]], keys: list[list[Any]], prefixes: list[list[Any]], gaps: list[list[Any]]
) -> dict[str, Rows]:
    """Return the rows of the reports that are judged."""
    return {
        "traffic-streams": rows("stream messages to", *streams),
        "traffic-keys": rows("stream key state silent_s usual_gap_s expected last", *keys),
        "traffic-prefixes": rows("stream prefix state from to windows messages expected deviations", *prefixes),
        "traffic-gaps": rows("stream incarnation start after before missing repeated", *gaps),
    }


S = ["s", 100, "2023-11-15 12:00:00"]


def test_a_verdict_names_silent_keys_abnormal_prefixes_and_gaps() -> None:
    found = reported(
        [S],
        [
            ["s", "sensor-7", "silent", 240.0, 20.0, 12, "2023-11-15 11:56:00"],
            ["s", "sensor-8", "late", 70.0, 20.0, 3, "2023-11-15 11:58:50"],
        ],
        [["s", "room", "surge", "2023-11-15 11:10:00", "2023-11-15 11:12:00", 2, 900, 100.0, 12.5]],
        [["s", "one", "2023-11-15 11:50:00", 17, 20, 2, 0], ["s", "one", "2023-11-15 01:00:00", 5, 9, 3, 0]],
    )
    verdict = traffic.judge(found, SETTINGS)
    assert verdict.lines() == [
        "healthy: no, because sensor-7 of s was silent for 4 min (12 messages expected)",
        "  and prefix room of s had more messages than usual: 900 in 2 windows, 100 expected",
        "  and s misses 2 messages, the last ones after 17",
    ]
    assert [(one.about, one.kind, one.since, one.incident) for one in verdict.reasons] == [
        ("sensor-7", "silent", "2023-11-15 11:56:00", "s 2023-11-15 11:56:00"),
        ("room", "surge", "2023-11-15 11:10:00", "s 2023-11-15 11"),
        ("s", "missing", "2023-11-15 11:50:00", "one 17"),
    ]


def test_limits_and_old_gaps_and_some_keys_only() -> None:
    old = ["s", "one", "2023-11-15 01:00:00", 5, 9, 3, 0]
    assert traffic.judge(reported([S], [], [], [old]), SETTINGS).lines() == ["healthy: yes (1 stream, 100 messages)"]
    found = reported([S], [], [], [["s", "one", "2023-11-15 11:50:00", 17, 20, 2, 0]])
    assert not traffic.judge(found, SETTINGS).is_healthy
    assert traffic.judge(found, replace(SETTINGS, is_partial=True)).is_healthy
    assert traffic.judge(found, replace(SETTINGS, read_up_to=NOON + 7200)).is_healthy
    tolerant = replace(SETTINGS, limits=replace(SETTINGS.limits, traffic=TrafficLimits(missing=2)))
    assert traffic.judge(found, tolerant).is_healthy
    assert traffic.judge(reported([], [], [], []), SETTINGS).lines() == [
        "healthy: no, because 0 messages were found, and at least 1 expected"
    ]
