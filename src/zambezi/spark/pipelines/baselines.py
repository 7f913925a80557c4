"""Baselines of `traffic`: how many messages a key prefix usually has in a window, and windows that differ from that.

The baseline of a window is the median of the windows of the same hour of the day, on earlier days; its spread is the
median absolute deviation, times 1.4826, which is the standard deviation if counts are normally distributed. Neither
changes much if some of the earlier windows were anomalies themselves. A window without messages counts as zero. While
there are less than three days of history, the windows of the last day are the baseline, whatever their hour. A prefix
that has less than `MIN_WINDOWS` earlier windows has no baseline, and is not judged.

A steady stream has no deviation at all, so the spread is at least one message, and at least the square root of the
median, which is the deviation of messages that come independently of each other.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Settings

SECOND: Final = 1_000_000  # All times are in microseconds.
DAY: Final = 86400 * SECOND
HOUR: Final = 3600 * SECOND
HISTORY: Final = 28 * DAY  # before the recent time; it can be part of a baseline
MIN_DAYS: Final = 3  # for a baseline of the same hour
MIN_WINDOWS: Final = 20
NORMAL: Final = 1.4826  # the standard deviation of a normal distribution, in median absolute deviations
MAX_RECENT: Final = 5000  # windows that are judged


def prefixes(counts: DataFrame, settings: Settings, end: float) -> DataFrame:
    """Return the state of each prefix in the recent time: surge, drop, normal or new; the worst first.

    `counts` has `start`, `stream`, `prefix` and `messages`. `end` is the time, since 1970, up to which messages were
    read. `messages` and `expected` are those of the anomalous windows of a surge or drop, else of all recent windows;
    `expected` is null if there is no baseline. `deviations` is the worst distance from the median.
    """
    window = max(1, round(settings.window * SECOND))
    limits = settings.limits.traffic
    stop = round(end * SECOND) // window * window  # the newest window is not complete
    recent = min(MAX_RECENT, max(1, round(limits.recent * SECOND) // window))  # windows
    begin = stop - recent * window
    known = counts.withColumn("at", sql.unix_micros("start")).where(sql.col("at") < stop)
    earlier = known.where(sql.col("at") < begin).where(sql.col("at") >= begin - HISTORY)
    seen = known.where(sql.col("at") >= begin - HISTORY).groupBy("stream", "prefix")
    spans = seen.agg(sql.min("at").alias("_from"))
    starts = sql.sequence(sql.lit(begin), sql.lit(stop - window), sql.lit(window))
    judged = (
        spans.withColumn("at", sql.explode(starts))
        .where("at >= _from")
        .withColumn("hour", _hour(sql.col("at")))
        .join(known.select("stream", "prefix", "at", "messages"), ["stream", "prefix", "at"], "left")
        .withColumn("messages", sql.coalesce("messages", sql.lit(0)))
        .join(_same_hour(earlier, spans, begin, stop, window), ["stream", "prefix", "hour"], "left")
        .join(_last_day(earlier, spans, begin, window), ["stream", "prefix"], "left")
        .withColumn("baseline", sql.coalesce("same_hour", "last_day"))
    )
    return _states(judged, limits.deviations, window)


def _states(judged: DataFrame, deviations: float, window: int) -> DataFrame:
    median = sql.col("baseline.median")
    spread = sql.greatest(sql.lit(1.0), sql.sqrt(median), sql.col("baseline.deviation") * NORMAL)
    is_surge, is_drop = sql.col("score") >= deviations, sql.col("score") <= -deviations
    scored = judged.withColumn("score", (sql.col("messages") - median) / spread).withColumn(
        "state", sql.when(median.isNull(), "new").when(is_surge, "surge").when(is_drop, "drop").otherwise("normal")
    )
    by_state = scored.groupBy("stream", "prefix", "state").agg(
        sql.timestamp_micros(sql.min("at")).alias("from"),
        sql.timestamp_micros(sql.max("at") + window).alias("to"),
        sql.count("*").alias("windows"),
        sql.sum("messages").alias("messages"),
        sql.round(sql.sum(median), 1).alias("expected"),
        sql.round(sql.max(sql.abs("score")), 1).alias("deviations"),
        sql.max("baseline.basis").alias("baseline"),
    )
    rank = sql.when(sql.col("state").isin("surge", "drop"), 0).when(sql.col("state") == "normal", 1).otherwise(2)
    # A prefix with an anomaly is not normal, although some of its windows are.
    best = sql.min(rank).over(Window.partitionBy("stream", "prefix"))
    return (
        by_state.withColumn("_rank", rank)
        .withColumn("_best", best)
        .where("_rank = 0 or _rank = _best")
        .orderBy("_rank", sql.desc("deviations"), sql.desc("messages"), "stream", "prefix", "state")
        .drop("_rank", "_best")
    )


def _same_hour(earlier: DataFrame, spans: DataFrame, begin: int, stop: int, window: int) -> DataFrame:
    """Return the baseline of each prefix for each hour of the recent time, if there are enough days."""
    first, last = int(begin // HOUR), int((stop - 1) // HOUR)
    hours = sorted({hour % 24 for hour in range(first, min(last, first + 23) + 1)})
    counts = (
        earlier.withColumn("hour", _hour(sql.col("at")))
        .where(sql.col("hour").isin(hours))
        .groupBy("stream", "prefix", "hour")
        .agg(sql.collect_list("messages").alias("counts"))
    )
    slots = ((_before(sql.lit(begin)) - _before(sql.col("_from"))) / window).cast("int")
    days = (sql.lit(begin) - sql.col("_from")) / DAY
    basis = sql.concat(sql.lit("this hour of "), sql.floor(days).cast("string"), sql.lit(" days"))
    every = spans.withColumn("hour", sql.explode(sql.array(*map(sql.lit, hours))))
    is_enough = (days >= MIN_DAYS) & (slots >= MIN_DAYS) if window <= HOUR else sql.lit(False)
    return (
        every.withColumn("slots", slots)
        .where(is_enough)
        .join(counts, ["stream", "prefix", "hour"], "left")
        .select("stream", "prefix", "hour", _baseline(sql.col("slots"), basis).alias("same_hour"))
    )


def _last_day(earlier: DataFrame, spans: DataFrame, begin: int, window: int) -> DataFrame:
    """Return the baseline of each prefix by all windows of the day before the recent time, if there are enough."""
    day = max(DAY, MIN_WINDOWS * window)
    counts = (
        earlier.where(sql.col("at") >= begin - day)
        .groupBy("stream", "prefix")
        .agg(sql.collect_list("messages").alias("counts"))
    )
    start = sql.greatest(sql.col("_from"), sql.lit(begin - day))
    return (
        spans.withColumn("slots", ((sql.lit(begin) - start) / window).cast("int"))
        .where(sql.col("slots") >= MIN_WINDOWS)
        .join(counts, ["stream", "prefix"], "left")
        .select("stream", "prefix", _baseline(sql.col("slots"), sql.lit("the day before")).alias("last_day"))
    )


def _baseline(slots: Column, basis: Column) -> Column:
    """Return median and deviation of `counts` and of as many zeros as there are slots without a count."""
    counts = sql.coalesce(sql.col("counts"), sql.array().cast("array<bigint>"))
    zeros = sql.array_repeat(sql.lit(0).cast("bigint"), sql.greatest(sql.lit(0), slots - sql.size(counts)).cast("int"))
    values = sql.concat(zeros, counts)
    median = _median(values)
    return sql.struct(
        median.alias("median"),
        _median(sql.transform(values, lambda count: sql.abs(count - median))).alias("deviation"),
        basis.alias("basis"),
    )


def _median(values: Column) -> Column:
    ordered = sql.sort_array(values)
    size = sql.size(values)
    low = sql.get(ordered, ((size - 1) / 2).cast("int"))
    return (low + sql.get(ordered, (size / 2).cast("int"))) / sql.lit(2.0)


def _hour(time: Column) -> Column:
    return sql.floor(sql.pmod(time, sql.lit(DAY)) / HOUR).cast("int")


def _before(time: Column) -> Column:
    """Return how much of the hour `hour` of all days was before a time."""
    today = sql.pmod(time, sql.lit(DAY)) - sql.col("hour") * sql.lit(HOUR)
    return sql.floor(time / DAY) * sql.lit(HOUR) + sql.least(sql.lit(HOUR), sql.greatest(sql.lit(0), today))
