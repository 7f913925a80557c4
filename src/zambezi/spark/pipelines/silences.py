"""Silent keys of `traffic`: keys that had messages regularly, and have none now.

Each key has its own rhythm: 90 % of the gaps between its messages are not longer than its usual gap. So a key with a
burst of messages in each hour has a usual gap of an hour. A key is late after some usual gaps without a message, and
silent after more of them (`late_gaps`, `silent_gaps`).

Only gaps between windows are known. A gap within a window is shorter than the window, and the shortest silence that is
reported is longer (`silent`). A key that was seen in a few windows only has no rhythm, and is not judged. A key that
sleeps at night is not judged at night: after three days, it must have been active at this hour on most days.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Settings, seconds_between

DAY: Final = 86400
MIN_DAYS: Final = 3  # before the hour of the day matters
STATES: Final = ("silent", "late", "alive", "gone", "irregular", "asleep")


def keys(table: DataFrame, settings: Settings, end: float) -> DataFrame:
    """Return the state of each key, the worst first. `end` is the time, since 1970, up to which messages were read.

    A key is `silent`, `late` or `alive`; or it is not judged: it is `irregular` (seen in too few windows), `asleep`
    (seldom active at this hour) or `gone` (silent for so long that it will not come back).
    """
    limits = settings.limits.traffic
    now = sql.timestamp_micros(sql.lit(int(end * 1e6)))
    hour = int(end % DAY // 3600)
    windows = table.groupBy("stream", "key", "start").agg(
        sql.sum("messages").alias("messages"),
        sql.min("first_at").alias("first_at"),
        sql.max("last_at").alias("last_at"),
    )
    before = sql.lag("last_at").over(Window.partitionBy("stream", "key").orderBy("start"))
    is_now = sql.floor(sql.pmod(sql.unix_seconds("start"), sql.lit(DAY)) / 3600) == hour
    found = (
        windows.withColumn("gap", seconds_between(before, sql.col("first_at")))
        .withColumn("day", sql.when(is_now, sql.floor(sql.unix_seconds("start") / DAY)))
        .groupBy("stream", "key")
        .agg(
            sql.sum("messages").alias("messages"),
            sql.count("*").alias("windows"),
            sql.percentile("gap", sql.lit(0.9)).alias("_usual"),
            sql.countDistinct("day").alias("_days"),
            sql.min("first_at").alias("_first"),
            sql.max("last_at").alias("last"),
        )
        .withColumn("silent_s", seconds_between(sql.col("last"), now))
        .withColumn("_mean", _mean_gap())
        .withColumn("usual_gap_s", sql.greatest("_usual", "_mean"))
    )
    # Only a key of several windows is judged, and it has a mean gap.
    age = sql.floor(seconds_between(sql.col("_first"), now) / DAY)
    silence = sql.col("silent_s")
    state = (
        sql.when(silence > limits.gone, "gone")
        .when(sql.col("windows") < limits.windows, "irregular")
        .when(silence <= sql.greatest(sql.lit(limits.silent), sql.col("usual_gap_s") * limits.late_gaps), "alive")
        .when((age >= MIN_DAYS) & (sql.col("_days") * 2 < age), "asleep")
        .when(silence > sql.col("usual_gap_s") * limits.silent_gaps, "silent")
        .otherwise("late")
    )
    rank = sql.array_position(sql.array(*map(sql.lit, STATES)), sql.col("state"))
    return (
        found.withColumn("state", state)
        .withColumn("expected", sql.floor(silence / sql.nullif("_mean", sql.lit(0.0))).cast("long"))
        .orderBy(rank, sql.desc("expected"), "stream", "key")
        .select(
            "stream",
            "key",
            "state",
            sql.round("silent_s", 1).alias("silent_s"),
            sql.round("usual_gap_s", 1).alias("usual_gap_s"),
            "expected",
            "messages",
            "last",
        )
    )


def _mean_gap() -> Column:
    return seconds_between(sql.col("_first"), sql.col("last")) / sql.nullif(sql.col("messages") - 1, sql.lit(0))
