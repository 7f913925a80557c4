"""`network-health`: what a mesh says of itself, from the stream `zrelog`.

Nodes report what they do (ZRE/LOG): that a peer came or went, that they joined a group, sent or received. From that:
events by window, level and node; sessions, which are the times from ENTER to EXIT of a peer as one node saw it;
peers that come and go too often; who talks to whom; and what was sent and reported as received by nobody.

What cannot be told. Nodes are named by hashes of 2 octets. Two nodes with the same hash are one here, and no analysis
can part them: `ambiguity` says how likely that is in a mesh of this size, and shows the hashes that give themselves
away, by two names, or by coming twice without going. Logs are sent by PUB, which may lose some: what is missing may be
a log, and not a message. And the clocks are the nodes' own: a time that is further from the journal's than half of the
delay that is allowed is not believed, and the journal's is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.decoders import zrelog
from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings, Share, seconds_between, start_of, unshared
from zambezi.zre.log import What

HASHES: Final = 65_535  # zero is nobody
WRONG_CLOCK: Final = 1000  # milliseconds that are worth telling
COLUMNS: Final = (
    "start timestamp, level string, event string, node string, peer string, subject string, at timestamp, "
    "events long, sequence long, slowest long, fastest long"
)
COMINGS: Final = (What.ENTER.name, What.EXIT.name)
_SAID: Final = (What.SEND.name, What.RECV.name)


def prepare(messages: DataFrame, settings: Settings) -> DataFrame:
    """Logs as columns, with `at`, the time that is believed, and `off`, by how many milliseconds the clock differs."""
    off = sql.unix_millis("time") - sql.unix_millis("timestamp")
    is_believed = sql.abs(off) <= round(settings.delay * 500)
    return (
        zrelog(messages)
        .withColumn("off", off)
        .withColumn("at", sql.when(is_believed, sql.col("time")).otherwise(sql.col("timestamp")))
        .withColumn("subject", _subject())
    )


def _subject() -> Column:
    """The text, where it says what the event is about: a group, a name, a reason; of messages, how they were sent."""
    text = sql.col("text")
    is_known = (text == "WHISPER") | text.startswith("SHOUT ")
    return sql.when(~sql.col("event").isin(*_SAID) | is_known, text)


def reduce(events: DataFrame, settings: Settings) -> DataFrame:
    """Events by window, level, event, node, peer and subject. Comings and goings stay single, with their times."""
    is_single = sql.col("event").isin(*COMINGS)
    start = start_of(sql.col("at"), settings.window)
    return (
        events.withColumn("moment", sql.when(is_single, sql.col("at")))
        .withColumn("place", sql.when(is_single, sql.col("sequence")))
        .groupBy(start.alias("start"), "level", "event", "node", "peer", "subject", "moment", "place")
        .agg(
            sql.count("*").alias("events"),
            sql.min("off").alias("slowest"),
            sql.max("off").alias("fastest"),
        )
        .withColumnsRenamed({"moment": "at", "place": "sequence"})
        .withColumn("date", sql.to_date("start"))
    )


def events_by_window(table: DataFrame) -> DataFrame:
    """Events by window, level and node, the newest window first."""
    counts = [
        sql.sum(sql.when(sql.col("event") == what.name, sql.col("events")).otherwise(0)).alias(what.name.lower())
        for what in What
    ]
    return (
        _logs(table)
        .groupBy("start", "level", "node")
        .agg(sql.sum("events").alias("events"), *counts)
        .join(names(table).select(sql.col("peer").alias("node"), "name"), "node", "left")
        .select("start", "level", "node", "name", "events", *[what.name.lower() for what in What])
        .orderBy(sql.desc("start"), "level", sql.desc("events"), "node")
    )


def sessions(table: DataFrame) -> DataFrame:
    """Sessions of peers as nodes saw them.

    `began` is null where nobody saw the peer come (it was there before the logs begin, or a log was lost), and `ended`
    where nobody saw it go; `state` says what is known: closed, open (it is there still), unseen (no ENTER), doubled
    (it came again without going: a log was lost, or two peers have one hash).
    """
    seen = table.where(sql.col("event").isin(*COMINGS) & sql.col("peer").isNotNull())
    order = Window.partitionBy("node", "peer").orderBy("at", "sequence")
    enter, leave = What.ENTER.name, What.EXIT.name
    paired = (
        seen.withColumn("before", sql.lag("event").over(order))
        .withColumn("next", sql.lead("event").over(order))
        .withColumn("next_at", sql.lead("at").over(order))
        .withColumn("next_subject", sql.lead("subject").over(order))
    )
    is_begun = sql.col("event") == enter
    is_closed = sql.col("next") == leave
    return (
        paired.where(is_begun | sql.col("before").isNull() | (sql.col("before") == leave))
        .select(
            "node",
            "peer",
            sql.when(is_begun, sql.col("subject")).alias("name"),
            sql.when(is_begun, sql.col("at")).alias("began"),
            sql.when(~is_begun, sql.col("at")).when(is_closed, sql.col("next_at")).alias("ended"),
            sql.when(~is_begun, "unseen")
            .when(is_closed, "closed")
            .when(sql.col("next") == enter, "doubled")
            .otherwise("open")
            .alias("state"),
            sql.when(~is_begun, sql.col("subject")).when(is_closed, sql.col("next_subject")).alias("reason"),
        )
        .withColumn("seconds", sql.round(seconds_between(sql.col("began"), sql.col("ended")), 3))
        .select("node", "peer", "name", "began", "ended", "seconds", "state", "reason")
        .orderBy(sql.desc(sql.coalesce("began", "ended")), "node", "peer")
    )


def flapping(table: DataFrame, settings: Settings, seen: DataFrame | None = None) -> DataFrame:
    """Peers that came at least `flaps` times within `flapping` seconds, as one node saw it."""
    times = Window.partitionBy("node", "peer").orderBy("second").rangeBetween(-round(settings.flapping), 0)
    comings = (
        table.where((sql.col("event") == What.ENTER.name) & sql.col("peer").isNotNull())
        .withColumn("second", sql.unix_seconds("at"))
        .withColumn("within", sql.sum("events").over(times))
    )
    often = comings.groupBy("node", "peer").agg(
        sql.max("within").alias("most"), sql.sum("events").alias("comings"), sql.max("subject").alias("name")
    )
    lengths = (
        (sessions(table) if seen is None else seen)
        .where("seconds is not null")
        .groupBy("node", "peer")
        .agg(sql.min("seconds").alias("shortest"), sql.median("seconds").alias("median"))
    )
    return (
        often.where(sql.col("most") >= settings.flaps)
        .join(lengths, ["node", "peer"], "left")
        .select("peer", "name", sql.col("node").alias("seen_by"), "comings", "most", "shortest", "median")
        .orderBy(sql.desc("most"), "peer", "seen_by")
    )


def talk(table: DataFrame) -> DataFrame:
    """Who talks to whom: messages as the sender and as the receiver reported them.

    A SHOUT names no receiver when it is sent, so it counts where it was received. `missing` are whispers that were
    sent and not reported as received; null, if the receiver reports nothing at all, and nobody can know.
    """
    is_sent = sql.col("event") == What.SEND.name
    is_whisper = sql.col("subject") == "WHISPER"
    known = _logs(table).where(sql.col("event").isin(*_SAID) & sql.col("peer").isNotNull())
    pairs = (
        known.withColumn("sender", sql.when(is_sent, sql.col("node")).otherwise(sql.col("peer")))
        .withColumn("receiver", sql.when(is_sent, sql.col("peer")).otherwise(sql.col("node")))
        .groupBy("sender", "receiver")
        .agg(
            _sum(is_sent & is_whisper).alias("whispers_sent"),
            _sum(~is_sent & is_whisper).alias("whispers_received"),
            _sum(~is_sent & sql.col("subject").startswith("SHOUT ")).alias("shouts_received"),
            _sum(sql.col("subject").isNull()).alias("others"),
        )
    )
    reporting = _logs(table).select(sql.col("node").alias("receiver")).distinct().withColumn("reports", sql.lit(True))
    lost = sql.col("whispers_sent") - sql.col("whispers_received")
    return (
        pairs.join(reporting, "receiver", "left")
        .withColumn("missing", sql.when(sql.col("reports"), sql.greatest(lost, sql.lit(0))))
        .select("sender", "receiver", "whispers_sent", "whispers_received", "missing", "shouts_received", "others")
        .orderBy(sql.desc(sql.col("whispers_received") + sql.col("shouts_received")), "sender", "receiver")
    )


def unreceived(table: DataFrame) -> DataFrame:
    """What was sent and not reported as received: whispers by pair, and shouts by sender and group.

    `heard` is the least that any of the receivers reported. Of a SHOUT it is not known who should have heard it: those
    count who heard one of that sender in that group; if there is none, the shouts may have had no listeners.
    """
    whispers = (
        talk(table)
        .where("whispers_sent > whispers_received")
        .select(
            sql.lit("WHISPER").alias("kind"),
            "sender",
            sql.col("receiver").alias("to"),
            sql.col("whispers_sent").alias("sent"),
            sql.col("whispers_received").alias("heard"),
            sql.col("missing").alias("missing"),
            sql.when(sql.col("missing").isNull(), "the receiver reports nothing")
            .when(sql.col("whispers_received") == 0, "the receiver reports no whisper of this sender")
            .otherwise("lost, or its log was")
            .alias("note"),
        )
    )
    shouts = _logs(table).where(sql.col("subject").startswith("SHOUT "))
    sent = (
        shouts.where(sql.col("event") == What.SEND.name)
        .groupBy(sql.col("node").alias("sender"), "subject")
        .agg(sql.sum("events").alias("sent"))
    )
    heard = (
        shouts.where((sql.col("event") == What.RECV.name) & sql.col("peer").isNotNull())
        .groupBy(sql.col("peer").alias("sender"), "subject", "node")
        .agg(sql.sum("events").alias("received"))
        .groupBy("sender", "subject")
        .agg(sql.min("received").alias("heard"), sql.count("*").alias("hearers"))
    )
    in_groups = (
        sent.join(heard, ["sender", "subject"], "left")
        .where(sql.col("heard").isNull() | (sql.col("heard") < sql.col("sent")))
        .select(
            sql.lit("SHOUT").alias("kind"),
            "sender",
            sql.substring("subject", 7, 255).alias("to"),
            "sent",
            sql.coalesce("heard", sql.lit(0)).alias("heard"),
            (sql.col("sent") - sql.col("heard")).alias("missing"),
            sql.when(sql.col("heard").isNull(), "nobody reports one")
            .otherwise(sql.concat(sql.lit("the least of "), "hearers", sql.lit(" hearers")))
            .alias("note"),
        )
    )
    return whispers.unionByName(in_groups).orderBy(sql.desc("missing"), sql.desc("sent"), "sender", "to")


def names(table: DataFrame) -> DataFrame:
    """The names under which peers came, by hash: several, if a node was renamed, or if several nodes have the hash."""
    return (
        table.where((sql.col("event") == What.ENTER.name) & sql.col("peer").isNotNull())
        .groupBy("peer")
        .agg(sql.array_sort(sql.collect_set("subject")).alias("_names"))
        .select("peer", sql.array_join("_names", ", ").alias("name"), sql.size("_names").alias("names"))
    )


def ambiguity(table: DataFrame, seen: DataFrame | None = None) -> DataFrame:
    """Hashes that seem to stand for more than one node, and why."""
    by_name = (
        names(table)
        .where("names > 1")
        .select(sql.col("peer").alias("hash"), sql.concat(sql.lit("it came under the names "), "name").alias("why"))
    )
    doubled = (
        (sessions(table) if seen is None else seen)
        .where("state = 'doubled'")
        .groupBy(sql.col("peer").alias("hash"))
        .agg(sql.count("*").alias("times"), sql.countDistinct("node").alias("nodes"))
        .select(
            "hash",
            sql.concat(sql.lit("it came "), "times", sql.lit(" times without having gone, as seen by "), "nodes").alias(
                "why"
            ),
        )
    )
    itself = (
        _logs(table)
        .where(sql.col("node") == sql.col("peer"))
        .groupBy(sql.col("node").alias("hash"))
        .agg(sql.sum("events").alias("times"))
        .select(
            "hash",
            sql.concat(sql.lit("a node with it met a peer with it, in "), "times", sql.lit(" events")).alias("why"),
        )
    )
    return by_name.unionByName(doubled).unionByName(itself).orderBy("hash", "why")


def clocks(table: DataFrame) -> DataFrame:
    """Nodes whose clocks differ from the journal's by more than a second; logs that wait in a queue look slow, too."""
    return (
        _logs(table)
        .groupBy("node")
        .agg(
            sql.min("slowest").alias("least_ms"), sql.max("fastest").alias("most_ms"), sql.sum("events").alias("events")
        )
        .where(sql.greatest(sql.abs("least_ms"), sql.abs("most_ms")) > WRONG_CLOCK)
        .orderBy(sql.desc(sql.greatest(sql.abs("least_ms"), sql.abs("most_ms"))), "node")
    )


def likelihood(nodes: int) -> float:
    """How likely it is that of so many nodes at least two have the same hash.

    >>> round(likelihood(10), 4), round(likelihood(302), 2), likelihood(1)
    (0.0007, 0.5, 0.0)
    """
    return abs(math.expm1(-nodes * (nodes - 1) / 2 / HASHES))


def reports(table: DataFrame, settings: Settings, share: Share = unshared) -> Sequence[Report]:
    """What people look at."""
    seen = share(sessions(table))
    hashes = (
        _logs(table).select(sql.explode(sql.array("node", "peer")).alias("hash")).where("hash is not null").distinct()
    ).count()
    strange = table.where("event is null").agg(sql.sum("events")).first()
    discarded = int(strange[0] or 0) if strange is not None else 0
    chance = likelihood(hashes)
    said = f"{hashes} hashes were seen: the chance that two of so many nodes have the same one is {chance:.1%}"
    return (
        Report(
            "health-events",
            f"Mesh: events in windows of {settings.window:g} s",
            events_by_window(table),
            (f"{discarded} messages of the stream are no logs",) if discarded else (),
        ),
        Report("health-sessions", "Mesh: sessions of peers, as nodes saw them", seen),
        Report(
            "health-flapping",
            f"Mesh: peers that came {settings.flaps} times or more within {settings.flapping:g} s",
            flapping(table, settings, seen),
        ),
        Report("health-talk", "Mesh: who talks to whom", talk(table)),
        Report(
            "health-unreceived",
            "Mesh: sent, and not reported as received",
            unreceived(table),
            ("logs may be lost as messages may: what is missing is a question, not an answer",),
        ),
        Report("health-ambiguity", "Mesh: hashes that may be several nodes", ambiguity(table, seen), (said,)),
        Report("health-clocks", "Mesh: clocks that differ from the journal's", clocks(table)),
    )


def _logs(table: DataFrame) -> DataFrame:
    return table.where("event is not null")


def _sum(condition: Column) -> Column:
    return sql.sum(sql.when(condition, sql.col("events")).otherwise(0))


NETWORK_HEALTH: Final = Pipeline(
    name="network-health",
    summary="a mesh by its logs: events, sessions, flapping peers, who talks to whom, what was not received",
    prepare=prepare,
    reduce=reduce,
    reports=reports,
    columns=COLUMNS,
    table="network-health",
    windowed=True,
    streams={"stream": "zrelog"},
    time="at",
)
