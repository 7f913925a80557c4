"""The nodes of a mesh for `network-health`: when each of them was there, and whether it flaps or restarts.

Nodes log the sessions of their peers, so a mesh of n nodes has n² of them. Here, the sessions of one peer are put
together: a node was there while at least one other node had a session with it. A session that has no end lasts until
the node that logged it left the mesh itself, or up to now.

A node that loses its connections comes back with the same UUID, hence the same hash: it flaps. A node that is started
again comes back with another UUID, and usually the same name: it restarts. A node with the same name whose times
overlap by more than `OVERLAP` is another node; less is usual, because peers notice the end of a killed node late.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Settings, seconds_between
from zambezi.zre.log import What

OVERLAP: Final = 60.0  # seconds for which a restarted node and its predecessor can both seem to be there
SLOTS: Final = 24  # parts of the time line of a node
LEFT: Final = "it left"  # the reason of a node that ended as it should
_NEVER: Final = 253_402_214_400  # a time after all others, in seconds since 1970
_FLAPPING_COLUMNS: Final = ("comings", "flapping_seen_by", "last_flap")


def presence(table: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return the times during which each node was there, as its peers saw it. `to` is null if it still is.

    `reason` is that of the last peer that noticed the end.
    """
    each_pair = Window.partitionBy("node", "peer").orderBy("from")
    start = sql.coalesce("began", "ended")
    known = (
        sessions.join(_departed(table), "node", "left")
        .withColumn("from", start)
        .withColumn("_next", sql.lead("from").over(each_pair))
        .withColumn("_gone", sql.when(sql.col("gone") >= sql.col("from"), sql.col("gone")))
    )
    doubled = sql.when(sql.col("state") == "doubled", sql.col("_next"))
    spans = known.withColumn("_to", sql.coalesce("ended", doubled, "_gone", _never()))
    earlier = Window.partitionBy("peer").orderBy("from", "_to").rowsBetween(Window.unboundedPreceding, -1)
    begins = sql.coalesce(sql.col("from") > sql.max("_to").over(earlier), sql.lit(True)).cast("int")
    numbered = spans.withColumn("_begins", begins).withColumn(
        "_number", sql.sum("_begins").over(Window.partitionBy("peer").orderBy("from", "_to"))
    )
    return (
        numbered.groupBy("peer", "_number")
        .agg(
            sql.max("name").alias("name"),
            sql.min("from").alias("from"),
            sql.nullif(sql.max("_to"), _never()).alias("to"),
            sql.countDistinct("node").alias("seen_by"),
            sql.max_by("reason", sql.when(sql.col("reason").isNotNull(), sql.col("_to"))).alias("reason"),
        )
        .withColumn("name", sql.coalesce("name", sql.max("name").over(Window.partitionBy("peer"))))
        .select(sql.col("peer").alias("hash"), "name", "from", "to", "seen_by", "reason")
    )


def _departed(table: DataFrame) -> DataFrame:
    """Return the nodes whose last event, as their peers saw it, is an end, and its time."""
    events = table.where(sql.col("event").isin(What.ENTER.name, What.EXIT.name) & sql.col("peer").isNotNull())
    last = events.groupBy(sql.col("peer").alias("node")).agg(
        sql.max_by("event", sql.struct("at", "sequence")).alias("_event"), sql.max("at").alias("gone")
    )
    return last.where(sql.col("_event") == What.EXIT.name).select("node", "gone")


def _never() -> Column:
    return sql.timestamp_seconds(sql.lit(_NEVER))


def timeline(times: DataFrame) -> DataFrame:
    """Return when each node was there, the newest time first."""
    return times.select(
        label().alias("node"),
        "hash",
        "from",
        "to",
        sql.round(seconds_between(sql.col("from"), sql.col("to")), 3).alias("seconds"),
        "seen_by",
        sql.when(sql.col("to").isNotNull(), sql.col("reason")).alias("ended"),
    ).orderBy(sql.desc("from"), "node", "hash")


def label() -> Column:
    """Return the name of a node, or its hash if no node logged a name."""
    return sql.coalesce(sql.nullif("name", sql.lit("")), "hash")


def nodes(times: DataFrame, flapping: DataFrame, settings: Settings, end: float) -> DataFrame:
    """Return each node once, the worst first: its hashes, whether it is there, restarts, comings and its time line.

    `flapping` is the result of `network_health.flapping`. `line` divides the time from the first log to `end` into
    parts: # the node was there, + a part of the time, . it was not. `recent_restarts` are those of the recent time.
    """
    of_name = Window.partitionBy("node").orderBy("first", "hash")
    recent = sql.timestamp_micros(sql.lit(int((end - settings.limits.network_health.recent) * 1e6)))
    until = sql.coalesce("to", sql.timestamp_micros(sql.lit(int(end * 1e6))))
    by_hash = (
        times.withColumn("node", label())
        .groupBy("node", "hash")
        .agg(
            sql.min("from").alias("first"),
            sql.max(sql.coalesce("to", _never())).alias("_last"),
            sql.count("*").alias("times"),
            sql.sum(sql.greatest(sql.lit(0.0), seconds_between(sql.col("from"), until))).alias("here_s"),
            sql.max("seen_by").alias("seen_by"),
            sql.max_by("reason", sql.coalesce("to", _never())).alias("reason"),
            sql.collect_list(sql.struct(_second("from").alias("b"), _second(until).alias("e"))).alias("_spans"),
        )
        .withColumn("_before", sql.max("_last").over(of_name.rowsBetween(Window.unboundedPreceding, -1)))
        .withColumn("_overlap", seconds_between(sql.col("first"), sql.col("_before")))
    )
    is_restart = sql.coalesce(sql.col("_overlap") <= OVERLAP, sql.lit(False))
    is_namesake = sql.coalesce(sql.col("_overlap") > OVERLAP, sql.lit(False))
    flaps = flapping.groupBy(sql.col("peer").alias("hash")).agg(
        sql.max("most").alias("comings"),
        sql.countDistinct("seen_by").alias("flapping_seen_by"),
        sql.max("last").alias("last_flap"),
    )
    newest = sql.max_by("hash", "first")
    found = (
        by_hash.join(flaps, "hash", "left")
        .groupBy("node")
        .agg(
            newest.alias("hash"),
            sql.array_join(sql.array_sort(sql.collect_set("hash")), ", ").alias("hashes"),
            sql.nullif(sql.max("_last"), _never()).alias("gone"),
            sql.max_by("reason", "_last").alias("reason"),
            sql.max("seen_by").alias("seen_by"),
            sql.sum(is_restart.cast("int")).alias("restarts"),
            sql.sum((is_restart & (sql.col("first") >= recent)).cast("int")).alias("recent_restarts"),
            sql.sum(is_namesake.cast("int")).alias("namesakes"),
            *[sql.max(name).alias(name) for name in _FLAPPING_COLUMNS],
            sql.round(sql.sum("here_s"), 1).alias("here_s"),
            sql.flatten(sql.collect_list("_spans")).alias("_spans"),
            sql.min("first").alias("first"),
        )
    )
    begin = sql.min(_second("first")).over(Window.partitionBy())
    state = (
        sql.when(sql.col("last_flap") >= recent, "flapping")
        .when(sql.col("gone").isNull(), "here")
        .when(sql.col("reason") == LEFT, "left")
        .otherwise("lost")
    )
    rank = sql.array_position(sql.array(*map(sql.lit, ("flapping", "lost", "here", "left"))), sql.col("state"))
    return (
        found.withColumn("state", state)
        .withColumn("line", _line(begin, end))
        .orderBy(rank, sql.desc("recent_restarts"), sql.desc("gone"), "node")
        .select(
            *("node", "hashes", "state", "line", "restarts", "recent_restarts", "comings", "flapping_seen_by"),
            *("last_flap", "namesakes", "seen_by", "here_s", "first", "gone", "reason"),
        )
    )


def _line(begin: Column, end: float) -> Column:
    """Return the time line of `_spans` as a text."""
    size = sql.greatest(sql.lit(1e-3), (sql.lit(end) - begin) / SLOTS)

    def slot(number: Column) -> Column:
        low, high = begin + size * number, begin + size * (number + 1)
        covered = sql.aggregate(
            "_spans",
            sql.lit(0.0),
            lambda sum_, span: (
                sum_ + sql.greatest(sql.lit(0.0), sql.least(span["e"], high) - sql.greatest(span["b"], low))
            ),
        )
        return sql.when(covered >= size * 0.99, "#").when(covered > 0, "+").otherwise(".")

    return sql.array_join(sql.transform(sql.sequence(sql.lit(0), sql.lit(SLOTS - 1)), slot), "")


def _second(time: Column | str) -> Column:
    return sql.unix_micros(time) / sql.lit(1e6)
