"""`sessions`: it cuts the messages of each key into sessions, at every silence that is longer than a gap.

The table has partial sessions: the sessions of each batch. Two of them that are not further apart than the gap are one,
so `merged` makes the whole sessions from any partial ones, in any order: late messages can join two sessions. The key
is the key of the message, or any expression of SQL over its columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.drawing import distribution_figure, timeline_figure
from zambezi.spark.pipelines.pipeline import (
    Cache,
    Pipeline,
    Report,
    Settings,
    now_or,
    seconds_between,
    uncached,
    utc_date,
)
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted, duration
from zambezi.spark.report.charts import MOST_LINES
from zambezi.spark.report.page import Figure

COLUMNS: Final = (
    "stream string, key string, began timestamp, ended timestamp, messages long, octets long, first long, last long"
)


def reduce(messages: DataFrame, settings: Settings) -> DataFrame:
    """Cut the messages of a batch into sessions. Messages without a key are counted in a row without a key."""
    events = messages.select(
        "stream",
        sql.make_valid_utf8(sql.expr(settings.by).cast("string")).alias("key"),
        sql.col("timestamp").alias("began"),
        sql.col("timestamp").alias("ended"),
        sql.lit(1).cast("long").alias("messages"),
        sql.length("body").cast("long").alias("octets"),
        sql.col("sequence").alias("first"),
        sql.col("sequence").alias("last"),
    )
    return merged(events, settings.gap).withColumn("date", utc_date("began"))


def merged(parts: DataFrame, gap: float) -> DataFrame:
    """Return whole sessions from parts of sessions, of which none is longer interrupted than the gap.

    Parts without a key become one row, whatever lies between them.
    """
    order = Window.partitionBy("stream", "key").orderBy("began", "ended")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    silence = sql.unix_micros("began") - sql.max(sql.unix_micros("ended")).over(before)
    is_new = (sql.coalesce(silence > round(gap * 1e6), sql.lit(True)) & sql.col("key").isNotNull()).cast("long")
    return (
        parts.withColumn("_new", is_new)
        .withColumn("_number", sql.sum("_new").over(order))
        .groupBy("stream", "key", "_number")
        .agg(
            sql.min("began").alias("began"),
            sql.max("ended").alias("ended"),
            sql.sum("messages").alias("messages"),
            sql.sum("octets").alias("octets"),
            sql.min("first").alias("first"),
            sql.max("last").alias("last"),
        )
        .drop("_number")
    )


def sessions(table: DataFrame, settings: Settings) -> DataFrame:
    """Return all sessions with their length. `state` is open if the next message could still belong to the session."""
    newest = table.agg(sql.max("ended").alias("_last")).select(now_or(sql.col("_last"), settings).alias("_newest"))
    is_open = seconds_between(sql.col("ended"), sql.col("_newest")) <= settings.gap
    return (
        merged(table.where("key is not null"), settings.gap)
        .crossJoin(newest)
        .select(
            "stream",
            "key",
            "began",
            "ended",
            sql.round(seconds_between(sql.col("began"), sql.col("ended")), 3).alias("seconds"),
            "messages",
            "octets",
            sql.when(is_open, "open").otherwise("closed").alias("state"),
            "first",
            "last",
        )
    )


def newest(found: DataFrame) -> DataFrame:
    """Return sessions, the newest first."""
    return found.orderBy(sql.desc("began"), "stream", "key")


def longest(found: DataFrame) -> DataFrame:
    """Return sessions, the longest first."""
    return found.orderBy(sql.desc("seconds"), sql.desc("messages"), "stream", "key", "began")


def by_stream(found: DataFrame) -> DataFrame:
    """Return the number of sessions and keys of each stream, and how long sessions are."""
    return _summary(found, "stream", keys=sql.countDistinct("key")).orderBy(sql.desc("sessions"), "stream")


def by_key(found: DataFrame) -> DataFrame:
    """Return the sessions of each key, those with the most sessions first."""
    return _summary(found, "stream", "key").orderBy(sql.desc("sessions"), sql.desc("messages"), "stream", "key")


def _summary(found: DataFrame, *columns: str, **more: Column) -> DataFrame:
    shares = sql.percentile_approx("seconds", sql.array(sql.lit(0.5), sql.lit(0.95)), 1000)
    return (
        found.groupBy(*columns)
        .agg(
            sql.count("*").alias("sessions"),
            *[one.alias(name) for name, one in more.items()],
            sql.sum("messages").alias("messages"),
            sql.sum("octets").alias("octets"),
            sql.sum((sql.col("state") == "open").cast("long")).alias("open"),
            shares.alias("_shares"),
            sql.max("seconds").alias("longest_s"),
            sql.max("ended").alias("last"),
        )
        .select(
            *columns,
            "sessions",
            *more,
            "open",
            "messages",
            "octets",
            sql.round(sql.col("_shares")[0], 3).alias("median_s"),
            sql.round(sql.col("_shares")[1], 3).alias("p95_s"),
            "longest_s",
            "last",
        )
    )


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:
    """Return the reports."""
    found = cache(sessions(table, settings))
    keyless = table.where("key is null").agg(sql.sum("messages")).first()
    without = int(keyless[0] or 0) if keyless is not None else 0
    note = (f"{counted(without, 'message')} without a key ({settings.by} is null) are not in sessions",)
    return (
        Report(
            "sessions-streams",
            f"Sessions: a silence of more than {settings.gap:g} s ends a session",
            by_stream(found),
            note if without else (),
        ),
        Report("sessions-keys", "Sessions: keys", by_key(found)),
        Report("sessions-longest", "Sessions: the longest", longest(found)),
        Report("sessions-newest", "Sessions: the newest", newest(found)),
    )


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge sessions: none may be longer than the limit, if there is one."""
    most = settings.limits.sessions.longest
    reasons = [
        Reason(
            about=row["key"],
            kind="long session",
            text=f"{row['key']} ({row['stream']}) has a session of {duration(row['seconds'])} since {row['began']}",
            since=str(row["began"]),
            values={"stream": row["stream"], "seconds": row["seconds"], "messages": row["messages"]},
        )
        for row in found["sessions-longest"].records()
        if most and row["seconds"] > most
    ]
    streams = found["sessions-streams"].records()
    total = counted(sum(row["sessions"] for row in streams), "session")
    return Verdict.of(SESSIONS.name, reasons, f"{total} of {counted(sum(row['keys'] for row in streams), 'key')}")


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:
    """Return the charts: the sessions of the busiest keys, and how long sessions are."""
    found = cache(sessions(table, settings))
    keys = by_key(found)
    busiest = keys.select("stream", "key").limit(MOST_LINES)
    lines = found.join(sql.broadcast(busiest), ["stream", "key"]).select(
        _label().alias("label"),
        "began",
        "ended",
        sql.when(sql.col("state") == "open", "warn").otherwise("plot").alias("kind"),
        sql.concat(sql.format_number("messages", 0), sql.lit(" messages")).alias("text"),
    )
    return (
        timeline_figure(
            "Sessions of the keys with the most sessions",
            lines,
            {"plot": "a session", "warn": "a session that may go on"},
            settings,
            of=keys.count(),
        ),
        distribution_figure("How long sessions are", found.select("seconds"), "sessions"),
    )


def _label() -> Column:
    return sql.concat("stream", sql.lit(": "), "key")


SESSIONS: Final = Pipeline(
    name="sessions",
    summary="the messages of each key in sessions, which end with a silence longer than a gap",
    reduce=reduce,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    table="sessions",
    time="timestamp",
    fixed=("gap", "by"),
    streams={"streamPattern": ""},
)
