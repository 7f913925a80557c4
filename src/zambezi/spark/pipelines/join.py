"""`join`: it matches the messages of two streams by key, within a time, and tells how long the second one takes.

The table has a row for each message of the two streams, without its body. The matches are computed from all of them, so
a message can be matched with one of a later batch. `joining` has the rule: each left message gets at most one right
message, which comes at the same time or later. The key is the key of the message, or any expression of SQL.

Times are those of the journals: the messages of one batch of the broker have the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.lake.frames import arrow_schema
from zambezi.spark.pipelines.drawing import distribution_figure, rate_figure
from zambezi.spark.pipelines.joining import LEFT, MATCHED, RIGHT, UNKNOWN, UNMATCHED, WAITING, Event, Outcome, match
from zambezi.spark.pipelines.pipeline import Cache, Pipeline, Report, Settings, percent, start_of, uncached, utc_date
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted, duration
from zambezi.spark.report.page import Figure

COLUMNS: Final = "side string, stream string, key string, timestamp timestamp, sequence long, octets long"
_OUTCOMES: Final = "side string, key string, timestamp timestamp, sequence long, state string, latency double"
_BATCH: Final = 10_000  # rows


def prepare(messages: DataFrame, settings: Settings) -> DataFrame:
    """Keep the messages of the two streams, with their side and key."""
    side = sql.when(sql.col("stream") == settings.left, LEFT).when(sql.col("stream") == settings.right, RIGHT)
    return messages.select(
        side.alias("side"),
        "stream",
        sql.make_valid_utf8(sql.expr(settings.by).cast("string")).alias("key"),
        "timestamp",
        "sequence",
        sql.length("body").cast("long").alias("octets"),
    ).where("side is not null")


def reduce(events: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `reduce`
    """Keep each message."""
    return events.withColumn("date", utc_date("timestamp"))


def outcomes(table: DataFrame, settings: Settings) -> DataFrame:
    """Return what became of each message that has a key. `latency` of a matched left message is in seconds."""
    found = table.where("key is not null")
    ends = found.agg(
        sql.unix_micros(sql.max("timestamp")).alias("newest"),
        sql.unix_micros(sql.min("timestamp")).alias("oldest"),
        sql.min(sql.when(sql.col("side") == LEFT, sql.col("sequence"))).alias("first"),
    ).first()
    newest, oldest, first = ends if ends is not None else (None, None, None)
    within = round(settings.within * 1e6)
    read_up_to = int(settings.read_up_to * 1e6) or int(newest or 0)
    # If the first message of the left stream was read, nothing is before it.
    known_from = 0 if first == 1 else int(oldest or 0) + within
    schema = arrow_schema(_OUTCOMES)

    def matched(batches: Iterator[Any]) -> Iterator[Any]:
        rows: list[Outcome] = []
        for outcome in match(_events(batches), within, read_up_to, known_from):
            rows.append(outcome)
            if len(rows) >= _BATCH:
                yield _batch(rows, schema)
                rows = []
        yield _batch(rows, schema)

    ordered = (
        found.select("key", "timestamp", "side", "sequence")
        .repartition("key")
        .sortWithinPartitions("key", "timestamp", "side", "sequence")
    )
    return ordered.mapInArrow(matched, _OUTCOMES)


def _events(batches: Iterator[Any]) -> Iterator[Event]:
    for batch in batches:
        keys, sides, sequences = (batch.column(name).to_pylist() for name in ("key", "side", "sequence"))
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        yield from map(Event, keys, times, sides, sequences)


def _batch(rows: Sequence[Outcome], schema: Any) -> Any:
    columns = (
        [one.event.side for one in rows],
        [one.event.key for one in rows],
        [one.event.at for one in rows],
        [one.event.sequence for one in rows],
        [one.state for one in rows],
        [None if one.latency is None else one.latency / 1e6 for one in rows],
    )
    return pa.RecordBatch.from_arrays(
        [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)], schema=schema
    )


def sides(found: DataFrame, table: DataFrame, settings: Settings) -> DataFrame:
    """Return both streams: how many messages were matched, were not, can still be, or cannot be known.

    `no_key` is the number of messages without a key, which cannot be matched.
    """
    names = sql.when(sql.col("side") == LEFT, sql.lit(settings.left)).otherwise(sql.lit(settings.right))
    counts = found.groupBy("side").agg(
        sql.count("*").alias("messages"),
        sql.countDistinct("key").alias("keys"),
        *[_count(sql.col("state") == state).alias(state) for state in (MATCHED, UNMATCHED, WAITING, UNKNOWN)],
    )
    keyless = table.where("key is null").groupBy("side").agg(sql.count("*").alias("no_key"))
    judged = sql.nullif(sql.col(MATCHED) + sql.col(UNMATCHED), sql.lit(0))
    return (
        counts.join(keyless, "side", "full")
        .na.fill(0)
        .withColumn("of_unmatched", percent(sql.col(UNMATCHED), judged))
        .select(
            "side",
            names.alias("stream"),
            "messages",
            "keys",
            MATCHED,
            UNMATCHED,
            "of_unmatched",
            WAITING,
            UNKNOWN,
            "no_key",
        )
        .orderBy("side")
    )


def latency(found: DataFrame) -> DataFrame:
    """Return how long the right message took after the left one, in seconds."""
    shares = sql.percentile_approx("latency", sql.array(*map(sql.lit, (0.5, 0.9, 0.95, 0.99))), 10_000)
    return (
        found.where("latency is not null")
        .agg(
            sql.count("*").alias("pairs"),
            sql.min("latency").alias("fastest_s"),
            shares.alias("_shares"),
            sql.max("latency").alias("slowest_s"),
        )
        .where("pairs > 0")
        .select(
            "pairs",
            sql.round("fastest_s", 6).alias("fastest_s"),
            *[
                sql.round(sql.col("_shares")[place], 6).alias(name)
                for place, name in enumerate(("median_s", "p90_s", "p95_s", "p99_s"))
            ],
            sql.round("slowest_s", 6).alias("slowest_s"),
        )
    )


def keys(found: DataFrame) -> DataFrame:
    """Return the keys, those with the most unmatched messages first."""
    is_left = sql.col("side") == LEFT
    is_unmatched = sql.col("state") == UNMATCHED
    return (
        found.groupBy("key")
        .agg(
            _count(is_left).alias("left"),
            _count(~is_left).alias("right"),
            _count(is_left & (sql.col("state") == MATCHED)).alias("pairs"),
            _count(is_left & is_unmatched).alias("left_unmatched"),
            _count(~is_left & is_unmatched).alias("right_unmatched"),
            sql.round(sql.percentile_approx("latency", 0.5, 1000), 6).alias("median_s"),
            sql.round(sql.max("latency"), 6).alias("slowest_s"),
        )
        .orderBy(sql.desc(sql.col("left_unmatched") + sql.col("right_unmatched")), sql.desc("slowest_s"), "key")
    )


def unmatched(found: DataFrame) -> DataFrame:
    """Return the messages that were not matched, the newest first."""
    return (
        found.where(sql.col("state") == UNMATCHED)
        .select("timestamp", "side", "key", "sequence")
        .orderBy(sql.desc("timestamp"), "side", sql.desc("sequence"))
    )


def _count(condition: Column) -> Column:
    return sql.sum(condition.cast("long"))


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:
    """Return the reports."""
    found = cache(outcomes(table, settings))
    return (
        Report(
            "join-sides",
            f"Join: messages of {settings.left}, and of {settings.right} up to {settings.within:g} s later",
            sides(found, table, settings),
        ),
        Report("join-latency", "Join: how long the right message took", latency(found)),
        Report("join-keys", "Join: keys", keys(found)),
        Report("join-unmatched", "Join: messages without a match", unmatched(found)),
    )


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge a join: the shares of unmatched messages, and the time that 95 % of the pairs take."""
    limits = settings.limits.join
    rows = found["join-sides"].records()
    newest = {row["side"]: str(row["timestamp"]) for row in reversed(found["join-unmatched"].records())}
    reasons = [
        Reason(
            about=row["stream"],
            kind="unmatched",
            text=(
                f"{counted(row[UNMATCHED], 'message')} of {row['stream']} ({row['of_unmatched']:g} %) had no match "
                f"within {duration(settings.within)}"
            ),
            since=newest.get(row["side"], ""),
            values={"unmatched": row[UNMATCHED], "of_unmatched": row["of_unmatched"]},
        )
        for row in rows
        if row[UNMATCHED] and row["of_unmatched"] > (limits.left if row["side"] == LEFT else limits.right)
    ]
    for row in found["join-latency"].records():
        if limits.p95 and row["p95_s"] > limits.p95:
            text = f"5 % of the pairs took longer than {duration(row['p95_s'])} (at most {duration(limits.p95)})"
            reasons.append(Reason(f"{settings.left} {settings.right}", "slow", text, values={"p95_s": row["p95_s"]}))
    pairs = sum(row["pairs"] for row in found["join-latency"].records())
    return Verdict.of(JOIN.name, reasons, f"{counted(pairs, 'pair')} of {settings.left} and {settings.right}")


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:
    """Return the charts: how long the right message took, and matched and unmatched messages over time."""
    found = cache(outcomes(table, settings))
    counts = found.select(
        start_of(sql.col("timestamp"), settings.window).alias("start"),
        sql.concat("side", sql.lit(": "), "state").alias("label"),
        sql.lit(1).alias("messages"),
    )
    pairs = found.where("latency is not null").select(sql.col("latency").alias("seconds"))
    return (
        distribution_figure(f"From {settings.left} to {settings.right}", pairs, "pairs"),
        rate_figure("Messages by side and outcome", counts, settings),
    )


JOIN: Final = Pipeline(
    name="join",
    summary="two streams by key within a time: pairs, how long the second message takes, messages without a match",
    prepare=prepare,
    reduce=reduce,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    table="join",
    fixed=("left", "right", "by"),
)
