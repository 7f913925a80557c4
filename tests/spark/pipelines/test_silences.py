"""Late and silent keys, on small tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.spark.pipelines.frames import NOON, at, table
from zambezi.spark.limits import Limits, TrafficLimits
from zambezi.spark.pipelines import silences
from zambezi.spark.pipelines.pipeline import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86400
LIMITS = TrafficLimits(silent=120, late_gaps=3, silent_gaps=6, windows=5, gone=DAY)
SETTINGS = Settings(limits=replace(Limits(), traffic=LIMITS))
COLUMNS = "stream string, key string, start timestamp, messages long, first_at timestamp, last_at timestamp"
Row = tuple[str, str, object, int, object, object]


def steady(key: str, first: int, last: int, every: int, messages: int = 1, lasting: int = 0) -> list[Row]:
    """Return the windows of a key that has messages at regular times, in seconds after noon."""
    return [
        ("s", key, at(when - when % 60), messages, at(when), at(when + lasting))
        for when in range(first, last + 1, every)
    ]


def test_states_of_keys(spark: SparkSession) -> None:
    rows = [
        *steady("sensor-7", -3600, -280, 60, 3, lasting=40),  # every 20 s
        *steady("late", -3600, -240, 60),
        *steady("alive", -3600, -60, 60),
        *steady("hourly bursts", -10 * 3600, -2 * 3600, 3600, 1000),
        *steady("one burst", -7200, -7200, 60, 5000),
        *steady("gone", -3 * DAY, -2 * DAY, 60 * 60),
        # Each day in the afternoon; the night is not alarming.
        *[row for day in range(1, 6) for row in steady("sleeper", -day * DAY + 3600, -day * DAY + 7200, 300)],
    ]
    found = silences.keys(spark.createDataFrame(rows, COLUMNS), SETTINGS, NOON)
    assert table(found, "key", "state", "silent_s", "usual_gap_s", "expected") == [
        ("sensor-7", "silent", 260.0, 20.0, 13),
        ("late", "late", 240.0, 60.0, 4),
        ("hourly bursts", "alive", 7200.0, 3600.0, 2249),
        ("alive", "alive", 60.0, 60.0, 1),
        ("gone", "gone", 172800.0, 3600.0, 48),
        ("one burst", "irregular", 7200.0, 0.0, None),
        ("sleeper", "asleep", 79200.0, 5456.3, 14),
    ]
