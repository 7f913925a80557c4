"""`traffic`: it counts the messages of streams by key, and finds gaps in their sequences.

The table has a row for each window, stream and key, with the number of messages, the bytes of their bodies, and the
first and last sequence. The reports on prefixes, on the keys with the most messages, and on gaps are computed from it.
`baselines` finds prefixes with more or less messages than usual, `silences` finds keys that have none any more.

There is a gap if a window has fewer messages than sequences between its first and its last, or if it does not begin
right after the last sequence of the window before. This locates a gap to within a window, gives the exact number of
missing messages, and does not need to sort all messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.pipelines import baselines, silences
from zambezi.spark.pipelines.drawing import heard_bars, rate_figure, timeline_figure
from zambezi.spark.pipelines.pipeline import (
    Cache,
    Pipeline,
    Report,
    Settings,
    percent,
    rate,
    seconds_between,
    start_of,
    uncached,
    utc_date,
)
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted, day_of, duration, epoch
from zambezi.spark.report.charts import MOST_LINES
from zambezi.spark.report.page import Figure

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
            rate(
                sql.sum("messages"),
                sql.greatest(sql.lit(1.0), seconds_between(sql.min("first_at"), sql.max("last_at"))),
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
        .withColumn("per_s", rate(sql.col("messages"), sql.lit(settings.window)))
        .orderBy(sql.desc("start"), "stream", sql.desc("messages"), "prefix")
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
        .orderBy(sql.desc("start"), "stream", "after")
    )


def end_of(table: DataFrame, settings: Settings) -> float:
    """Return the time, since 1970, up to which messages were read: that of the newest message if it is not known."""
    if settings.read_up_to:
        return settings.read_up_to
    newest = table.agg(sql.unix_micros(sql.max("last_at"))).first()
    return int(newest[0] or 0) / 1e6 if newest is not None else 0.0


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:
    """Return the reports."""
    end = end_of(table, settings)
    by_prefix = cache(windows(table, settings))
    by_key = cache(silences.keys(table, settings, end))
    states = {str(row["state"]): int(row["count"]) for row in by_key.groupBy("state").count().collect()}
    return (
        Report("traffic-streams", "Traffic: streams", totals(table)),
        Report(
            "traffic-keys",
            f"Traffic: keys that are late or silent at {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}",
            by_key.where("state in ('silent', 'late')"),
            (_states(states),) if states else (),
        ),
        Report(
            "traffic-prefixes",
            f"Traffic: prefixes and their baselines, the last {duration(settings.limits.traffic.recent)}",
            baselines.prefixes(by_prefix, settings, end),
            ("a prefix is new until it has 20 windows before that time",),
        ),
        Report("traffic-windows", f"Traffic: windows of {settings.window:g} s by prefix", by_prefix),
        Report("traffic-heavy", "Traffic: the keys with the most messages", heavy_hitters(table, settings)),
        Report(
            "traffic-gaps",
            "Traffic: gaps in the sequences",
            gaps(table),
            ("a gap is located to within a window; if only some keys were read, the other messages count as gaps",),
        ),
    )


def _states(counts: Mapping[str, int]) -> str:
    """Return how many keys are in each state, in words."""
    told = {
        "silent": "silent",
        "late": "late",
        "alive": "alive",
        "gone": "gone for longer than the limit",
        "irregular": "seen in too few windows to judge",
        "asleep": "usually silent at this hour",
    }
    return f"{counted(sum(counts.values()), 'key')}: " + ", ".join(
        f"{counts[state]:,} {text}" for state, text in told.items() if counts.get(state)
    )


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge streams: keys must not be silent, prefixes must be near their baselines, and no sequence may be missing."""
    streams = found["traffic-streams"].records()
    messages = sum(row["messages"] for row in streams)
    least = settings.limits.traffic.messages
    reasons = [
        *_few(messages, least, settings),
        *(_silent(row) for row in found["traffic-keys"].records() if row["state"] == "silent"),
        *(_abnormal(row) for row in found["traffic-prefixes"].records() if row["state"] in ("surge", "drop")),
        *_missing(found, settings),
    ]
    return Verdict.of(TRAFFIC.name, reasons, f"{counted(len(streams), 'stream')}, {counted(messages, 'message')}")


def _few(messages: int, least: int, settings: Settings) -> list[Reason]:
    if messages >= least:
        return []
    text = f"{counted(messages, 'message')} {'was' if messages == 1 else 'were'} found, and at least {least:,} expected"
    return [Reason("", "few", text, values={"messages": messages}, incident=day_of(settings.read_up_to))]


def _silent(row: Mapping[str, Any]) -> Reason:
    name = row["key"] or "the empty key"
    text = (
        f"{name} of {row['stream']} was silent for {duration(row['silent_s'])} "
        f"({counted(row['expected'], 'message')} expected)"
    )
    values = {name: row[name] for name in ("stream", "silent_s", "usual_gap_s", "expected")}
    return Reason(row["key"], "silent", text, row["last"], values, f"{row['stream']} {row['last']}")


def _abnormal(row: Mapping[str, Any]) -> Reason:
    more = "more" if row["state"] == "surge" else "less"
    of = f"prefix {row['prefix']} of {row['stream']}" if row["prefix"] else row["stream"]
    text = (
        f"{of} had {more} messages than usual: {row['messages']:,} in {counted(row['windows'], 'window')}, "
        f"{row['expected']:,.0f} expected"
    )
    values = {name: row[name] for name in ("stream", "messages", "expected", "deviations", "from", "to")}
    # The recent time moves on, and with it the first of its abnormal windows: an hour is one incident.
    return Reason(row["prefix"], row["state"], text, row["from"], values, f"{row['stream']} {row['from'][:13]}")


def _missing(found: Found, settings: Settings) -> list[Reason]:
    """Return the streams that miss sequences within the recent time."""
    if settings.is_partial:  # messages with other keys were left out
        return []
    limits = settings.limits.traffic
    ends = [epoch(row["to"]) for row in found["traffic-streams"].records()]
    recent = (settings.read_up_to or max(ends, default=0.0)) - limits.recent
    gaps_of: dict[str, list[dict[str, Any]]] = {}
    for row in found["traffic-gaps"].records():
        if row["missing"] and epoch(row["start"]) + settings.window >= recent:
            gaps_of.setdefault(row["stream"], []).append(row)
    reasons = []
    for stream, rows in gaps_of.items():
        count = sum(row["missing"] for row in rows)
        if count > limits.missing:
            last = rows[0]
            text = f"{stream} misses {counted(count, 'message')}, the last ones after {last['after']:,}"
            values = {"missing": count, "after": last["after"]}
            incident = f"{last['incarnation']} {last['after']}"
            reasons.append(Reason(stream, "missing", text, last["start"], values, incident))
    return reasons


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:  # noqa: ARG001 - the signature of `figures`
    """Return the charts: messages over time by prefix, and when the busiest keys were heard."""
    label = sql.concat("stream", sql.lit(": "), prefix(sql.col("key"), settings.depth))
    lost = None if settings.is_partial else gaps(table).where("missing > 0")
    key = sql.concat("stream", sql.lit(": "), "key")
    keys = table.groupBy(key.alias("label")).agg(sql.sum("messages").alias("messages"))
    busiest = keys.orderBy(sql.desc("messages"), "label").limit(MOST_LINES).select("label")
    heard = table.select(key.alias("label"), "start").join(sql.broadcast(busiest), "label")
    return (
        rate_figure("Messages by prefix", table.select("start", label.alias("label"), "messages"), settings, lost),
        timeline_figure(
            "When the busiest keys were heard",
            heard_bars(heard, settings),
            {"plot": f"messages in a window of {settings.window:g} s", "track": "silence"},
            settings,
            of=keys.count(),
        ),
    )


TRAFFIC: Final = Pipeline(
    name="traffic",
    summary="messages by window and key prefix, the busiest keys, abnormal prefixes, silent keys, gaps",
    reduce=reduce,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    table="traffic",
    fixed=("window",),
    sums={"messages": "sum", "octets": "sum", "first": "min", "last": "max", "first_at": "min", "last_at": "max"},
    streams={"streamPattern": ""},
)
