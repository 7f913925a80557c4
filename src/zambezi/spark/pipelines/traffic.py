"""`traffic`: it counts the messages of streams by key, and finds gaps in their sequences.

The table has a row for each window, stream and key, with the number of messages, the bytes of their bodies, and the
first and last sequence. The reports on prefixes, on the keys with the most messages, and on gaps are computed from it.

There is a gap if a window has fewer messages than sequences between its first and its last, or if it does not begin
right after the last sequence of the window before. This locates a gap to within a window, gives the exact number of
missing messages, and does not need to sort all messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import (
    Cache,
    Pipeline,
    Report,
    Settings,
    percent,
    seconds_between,
    start_of,
    uncached,
    utc_date,
)
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted

COLUMNS: Final = (
    "start timestamp, stream string, incarnation string, key string, messages long, octets long, first long, "
    "last long, first_at timestamp, last_at timestamp"
)
_PART: Final = r"[^./:\s]*"
_BETWEEN: Final = r"[./:\s]"


def reduce(messages: DataFrame, settings: Settings) -> DataFrame:
    """Count messages by window, stream and key."""
    start = start_of(sql.col("timestamp"), settings.window)
    return (
        messages.groupBy(start.alias("start"), "stream", "incarnation", "key")
        .agg(
            sql.count("*").alias("messages"),
            sql.sum(sql.length("body")).cast("long").alias("octets"),
            sql.min("sequence").alias("first"),
            sql.max("sequence").alias("last"),
            sql.min("timestamp").alias("first_at"),
            sql.max("timestamp").alias("last_at"),
        )
        .withColumn("date", utc_date("start"))
    )


def prefix(key: Column, depth: int) -> Column:
    """Return the first parts of a key. Parts end at a dot, a slash, a colon or a space."""
    return sql.regexp_extract(key, f"^{_PART}(?:{_BETWEEN}{_PART}){{0,{max(1, depth) - 1}}}", 0)


def totals(table: DataFrame) -> DataFrame:
    """Return the totals of each stream."""
    return (
        table.groupBy("stream")
        .agg(
            sql.sum("messages").alias("messages"),
            sql.sum("octets").alias("octets"),
            sql.countDistinct("key").alias("keys"),
            sql.countDistinct("incarnation").alias("incarnations"),
            sql.min("first_at").alias("from"),
            sql.max("last_at").alias("to"),
            sql.round(
                sql.sum("messages")
                / sql.greatest(sql.lit(1.0), seconds_between(sql.min("first_at"), sql.max("last_at"))),
                1,
            ).alias("per_s"),
        )
        .orderBy(sql.desc("messages"), "stream")
    )


def windows(table: DataFrame, settings: Settings) -> DataFrame:
    """Return messages, bytes and distinct keys by window and prefix, the newest window first."""
    return (
        table.groupBy("start", "stream", prefix(sql.col("key"), settings.depth).alias("prefix"))
        .agg(
            sql.sum("messages").alias("messages"),
            sql.sum("octets").alias("octets"),
            sql.countDistinct("key").alias("keys"),
        )
        .withColumn("per_s", sql.round(sql.col("messages") / settings.window, 1))
        .orderBy(sql.desc("start"), "stream", sql.desc("messages"), "prefix")
    )


def rates(table: DataFrame, settings: Settings) -> DataFrame:
    """Return messages and bytes by window and stream, the newest window first."""
    return (
        table.groupBy("start", "stream")
        .agg(sql.sum("messages").alias("messages"), sql.sum("octets").alias("octets"))
        .withColumn("per_s", sql.round(sql.col("messages") / settings.window, 1))
        .orderBy(sql.desc("start"), "stream")
    )


def heavy_hitters(table: DataFrame, settings: Settings) -> DataFrame:
    """Return the keys with the most messages, and their percentage of the stream."""
    stream = Window.partitionBy("stream")
    by_key = table.groupBy("stream", "key").agg(
        sql.sum("messages").alias("messages"), sql.sum("octets").alias("octets")
    )
    return (
        by_key.withColumn("of_messages", percent(sql.col("messages"), sql.sum("messages").over(stream)))
        .withColumn("of_octets", percent(sql.col("octets"), sql.greatest(sql.lit(1), sql.sum("octets").over(stream))))
        .select("stream", "key", "messages", "of_messages", "octets", "of_octets")
        .orderBy(sql.desc("messages"), sql.desc("octets"), "stream", "key")
        .limit(settings.top)
    )


def gaps(table: DataFrame) -> DataFrame:
    """Return where sequences are missing, and how many. `repeated` is the number of messages that occur twice."""
    spans = table.groupBy("stream", "incarnation", "start").agg(
        sql.sum("messages").alias("messages"), sql.min("first").alias("first"), sql.max("last").alias("last")
    )
    before = sql.lag("last").over(Window.partitionBy("stream", "incarnation").orderBy("first"))
    inside = sql.col("last") - sql.col("first") + 1 - sql.col("messages")
    within = spans.select(
        "stream",
        "incarnation",
        "start",
        sql.col("first").alias("after"),
        sql.col("last").alias("before"),
        inside.alias("missing"),
    )
    between = (
        spans.withColumn("after", before)
        .where("after is not null")
        .select(
            "stream",
            "incarnation",
            "start",
            "after",
            sql.col("first").alias("before"),
            (sql.col("first") - sql.col("after") - 1).alias("missing"),
        )
    )
    return (
        within.unionByName(between)
        .where("missing <> 0")
        .select(
            "stream",
            "incarnation",
            "start",
            "after",
            "before",
            sql.greatest("missing", sql.lit(0)).alias("missing"),
            sql.greatest(-sql.col("missing"), sql.lit(0)).alias("repeated"),
        )
        .orderBy("stream", "start", "after")
    )


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:  # noqa: ARG001 - the signature of `reports`
    """Return the reports."""
    return (
        Report("traffic-streams", "Traffic: streams", totals(table)),
        Report("traffic-windows", f"Traffic: windows of {settings.window:g} s by prefix", windows(table, settings)),
        Report("traffic-heavy", "Traffic: the keys with the most messages", heavy_hitters(table, settings)),
        Report(
            "traffic-gaps",
            "Traffic: gaps in the sequences",
            gaps(table),
            ("a gap is located to within a window; if only some keys were read, the other messages count as gaps",),
        ),
    )


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge streams: no sequence must be missing."""
    limits = settings.limits.traffic
    streams = found["traffic-streams"].records()
    messages = sum(row["messages"] for row in streams)
    reasons = []
    if messages < limits.messages:
        reasons.append(Reason("", "few", f"{counted(messages, 'message')} of at least {limits.messages:,} were read"))
    for row in found["traffic-gaps"].records():
        if row["missing"] > limits.missing:
            text = f"{row['stream']} misses {counted(row['missing'], 'message')} after {row['after']}"
            reasons.append(Reason(row["stream"], "missing", text, f"{row['incarnation']} {row['after']}"))
    return Verdict.of(TRAFFIC.name, reasons, f"{counted(len(streams), 'stream')}, {counted(messages, 'message')}")


TRAFFIC: Final = Pipeline(
    name="traffic",
    summary="messages, octets and keys by window and key prefix, the busiest keys, gaps in the sequences",
    reduce=reduce,
    reports=reports,
    judge=judge,
    columns=COLUMNS,
    table="traffic",
    windowed=True,
    streams={"streamPattern": ""},
)
