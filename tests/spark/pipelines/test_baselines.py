"""Baselines of prefixes, on small tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.spark.pipelines.frames import NOON, at, table
from zambezi.spark.limits import Limits, TrafficLimits
from zambezi.spark.pipelines import baselines
from zambezi.spark.pipelines.pipeline import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86400
WINDOW = 600
SETTINGS = Settings(window=WINDOW, limits=replace(Limits(), traffic=TrafficLimits(recent=3600)))
COLUMNS = "start timestamp, stream string, prefix string, messages long"
Row = tuple[object, str, str, int]


def rows(prefix: str, start: float, counts: list[int]) -> list[Row]:
    """Return windows of a prefix; those without messages have no row."""
    return [(at(start + number * WINDOW), "s", prefix, count) for number, count in enumerate(counts) if count]


def test_states_of_prefixes(spark: SparkSession) -> None:
    # Five days up to an hour before noon; then the hour that is judged.
    per_hour = 3600 // WINDOW
    begin = -5 * DAY
    busy_at_noon = [100 if slot // per_hour == 23 else 4 for slot in range(24 * per_hour)]  # from 11:00 to 12:00
    steady = [50] * (5 * 24 * per_hour)
    found = [
        *rows("daily", begin, busy_at_noon * 5),  # it is as busy as on each day at this hour
        *rows("surge", begin, [*steady[:-per_hour], 50, 50, 400, 300, 50, 50]),
        *rows("drop", begin, [*steady[:-per_hour], 50, 50, 50]),
        *rows("seldom", begin, [1 if slot % 7 == 0 else 0 for slot in range(len(steady))]),  # zero is usual
        *rows("young", -DAY / 2, [50] * (12 * per_hour - 6) + [500] * 6),
        *rows("new", -3600, [9] * 6),
        *rows("incomplete", begin, [*steady, 1]),  # the window at noon is not over
    ]
    counts = spark.createDataFrame(found, COLUMNS)
    states = baselines.prefixes(counts, SETTINGS, NOON + 100)
    columns = ("prefix", "state", "windows", "messages", "expected", "deviations", "baseline")
    assert table(states, *columns) == [
        ("young", "surge", 6, 3000, 300.0, 63.6, "the day before"),
        ("surge", "surge", 2, 700, 100.0, 49.5, "this hour of 4 days"),
        ("drop", "drop", 3, 0, 150.0, 7.1, "this hour of 4 days"),
        ("seldom", "normal", 6, 1, 0.0, 1.0, "this hour of 4 days"),
        ("daily", "normal", 6, 600, 600.0, 0.0, "this hour of 4 days"),
        ("incomplete", "normal", 6, 300, 300.0, 0.0, "this hour of 4 days"),
        ("new", "new", 6, 54, None, None, None),
    ]


def test_windows_of_a_day_and_an_empty_table(spark: SparkSession) -> None:
    settings = replace(SETTINGS, window=DAY)
    days = [(at(-DAY * (25 - day) - DAY / 2), "s", "p", 500 if day == 24 else 50) for day in range(25)]
    states = baselines.prefixes(spark.createDataFrame(days, COLUMNS), settings, NOON - DAY / 2)
    assert table(states, "state", "messages", "expected") == [("surge", 500, 50.0)]
    assert table(baselines.prefixes(spark.createDataFrame([], COLUMNS), SETTINGS, 0.0)) == []


def test_the_time_of_an_hour_before_a_moment(spark: SparkSession) -> None:
    given = [(0, 1800, 1800), (1, 1800, 0), (1, 9000, 3600), (1, DAY + 5000, 5000)]
    rows = [(hour, second * baselines.SECOND, found * baselines.SECOND) for hour, second, found in given]
    frame = spark.createDataFrame(rows, "hour int, time long, found long")
    assert [row[0] == row[1] for row in frame.select(baselines._before(frame["time"]), "found").collect()] == [True] * 4


def test_windows_of_a_fraction_of_a_second(spark: SparkSession) -> None:
    settings = replace(SETTINGS, window=0.1, limits=replace(Limits(), traffic=TrafficLimits(recent=1)))
    found = [(at(-3 + number / 10), "s", "p", 900 if number == 25 else 9) for number in range(30)]
    states = baselines.prefixes(spark.createDataFrame(found, COLUMNS), settings, NOON)
    assert table(states, "state", "windows", "messages", "expected") == [("surge", 1, 900, 9.0)]
