"""`network-health`: it analyses a mesh by the logs of its nodes, from the stream `zrelog`.

Nodes log their events (ZRE/LOG): a peer entered or left, they joined a group, they sent or received a message. From
these logs it computes when each node was there (`mesh_nodes`); events by window, level and node; sessions, from ENTER
to EXIT of a peer as one node saw it; peers that come and go too often; which nodes talk to each other; and messages
that were sent but not logged as received.

What the analysis cannot know: the logs identify nodes by hashes of 2 bytes. Two nodes with the same hash appear as one,
and no analysis can separate them. `ambiguity` gives the probability for a mesh of this size, and lists hashes that show
signs of it: two names, or two ENTER without EXIT. Logs are sent by PUB, which can lose some: if something is missing,
it may be the log and not the message. And times come from the clocks of the nodes: if a time differs from the journal's
by more than half of the allowed delay, the time of the journal is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.spark.decoders import zrelog
from zambezi.spark.pipelines.drawing import heard_bars, matrix_figure, rate_figure, timeline_figure
from zambezi.spark.pipelines.mesh_nodes import LEFT, nodes, presence, timeline
from zambezi.spark.pipelines.pipeline import (
    Cache,
    Pipeline,
    Report,
    Settings,
    seconds_between,
    start_of,
    uncached,
    utc_date,
)
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted, day_of, duration, epoch
from zambezi.spark.report.page import Figure
from zambezi.zre.log import Level, What

HASHES: Final = 65_535  # possible hashes; zero means "no peer"
WRONG_CLOCK: Final = 1000  # milliseconds; a larger difference is reported
COLUMNS: Final = (
    "start timestamp, level string, event string, node string, peer string, subject string, at timestamp, "
    "events long, sequence long, slowest long, fastest long"
)
SESSION_EVENTS: Final = (What.ENTER.name, What.EXIT.name)
_MOST_NAMES: Final = 5_000  # of a chart
_MESSAGE_EVENTS: Final = (What.SEND.name, What.RECV.name)


def prepare(messages: DataFrame, settings: Settings) -> DataFrame:
    """Decode logs, and add `at`, the time to use, and `off`, the error of the node's clock in milliseconds."""
    off = sql.unix_millis("time") - sql.unix_millis("timestamp")
    is_plausible = sql.abs(off) <= round(settings.delay * 500)
    return (
        zrelog(messages)
        .withColumn("off", off)
        .withColumn("at", sql.when(is_plausible, sql.col("time")).otherwise(sql.col("timestamp")))
        .withColumn("subject", _subject())
    )


def _subject() -> Column:
    """Return the text if it is a subject: a group, a name, a reason; for messages, how they were sent."""
    text = sql.col("text")
    is_known = (text == "WHISPER") | text.startswith("SHOUT ")
    return sql.when(~sql.col("event").isin(*_MESSAGE_EVENTS) | is_known, text)


def reduce(events: DataFrame, settings: Settings) -> DataFrame:
    """Count events by window, level, event, node, peer and subject. Keep each ENTER and EXIT, with its time."""
    is_single = sql.col("event").isin(*SESSION_EVENTS)
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
        .withColumn("date", utc_date("start"))
    )


def events_by_window(table: DataFrame) -> DataFrame:
    """Return events by window, level and node, the newest window first."""
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
    """Return the sessions of peers as nodes saw them.

    `began` is null if the node logged no ENTER (the peer entered before the logs begin, or a log was lost). `ended` is
    null if it logged no EXIT. `state` is closed, open (no EXIT yet), unseen (no ENTER) or doubled (a second ENTER
    without EXIT: a log was lost, or two peers have the same hash).
    """
    events = table.where(sql.col("event").isin(*SESSION_EVENTS) & sql.col("peer").isNotNull())
    order = Window.partitionBy("node", "peer").orderBy("at", "sequence")
    enter, leave = What.ENTER.name, What.EXIT.name
    paired = (
        events.withColumn("before", sql.lag("event").over(order))
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


def flapping(table: DataFrame, settings: Settings, all_sessions: DataFrame | None = None) -> DataFrame:
    """Return the peers that entered at least `flaps` times within `flapping` seconds, as one node saw it."""
    times = Window.partitionBy("node", "peer").orderBy("second").rangeBetween(-round(settings.flapping), 0)
    enters = (
        table.where((sql.col("event") == What.ENTER.name) & sql.col("peer").isNotNull())
        .withColumn("second", sql.unix_seconds("at"))
        .withColumn("within", sql.sum("events").over(times))
    )
    often = enters.groupBy("node", "peer").agg(
        sql.max("within").alias("most"),
        sql.sum("events").alias("comings"),
        sql.max("subject").alias("name"),
        sql.max(sql.when(sql.col("within") >= settings.flaps, sql.col("at"))).alias("last"),
    )
    lengths = (
        (sessions(table) if all_sessions is None else all_sessions)
        .where("seconds is not null")
        .groupBy("node", "peer")
        .agg(sql.min("seconds").alias("shortest"), sql.median("seconds").alias("median"))
    )
    return (
        often.where(sql.col("most") >= settings.flaps)
        .join(lengths, ["node", "peer"], "left")
        .select("peer", "name", sql.col("node").alias("seen_by"), "comings", "most", "shortest", "median", "last")
        .orderBy(sql.desc("most"), "peer", "seen_by")
    )


def talk(table: DataFrame) -> DataFrame:
    """Return the messages between each pair of nodes, as the sender and as the receiver logged them.

    The log of a sent SHOUT names no receiver, so a SHOUT counts where it was received. `missing` is the number of
    whispers that were sent but not logged as received; null if the receiver logs nothing at all.
    """
    is_sent = sql.col("event") == What.SEND.name
    is_whisper = sql.col("subject") == "WHISPER"
    known = _logs(table).where(sql.col("event").isin(*_MESSAGE_EVENTS) & sql.col("peer").isNotNull())
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
    """Return messages that were sent but not logged as received: whispers by pair, shouts by sender and group.

    `heard` is the smallest number that any receiver logged. The receivers of a SHOUT are not known: the nodes that
    received at least one SHOUT of that sender in that group count. If there are none, the group may have been empty.
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
            sql.when(sql.col("missing").isNull(), "the receiver logs nothing")
            .when(sql.col("whispers_received") == 0, "the receiver logs no whisper of this sender")
            .otherwise("the whisper or its log was lost")
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
            sql.when(sql.col("heard").isNull(), "no node logs one")
            .otherwise(sql.concat(sql.lit("the smallest number of "), "hearers", sql.lit(" receivers")))
            .alias("note"),
        )
    )
    return whispers.unionByName(in_groups).orderBy(sql.desc("missing"), sql.desc("sent"), "sender", "to")


def names(table: DataFrame) -> DataFrame:
    """Return the names of peers by hash: several if a node was renamed, or if several nodes have the hash."""
    return (
        table.where((sql.col("event") == What.ENTER.name) & sql.col("peer").isNotNull())
        .groupBy("peer")
        .agg(sql.array_sort(sql.collect_set("subject")).alias("_names"))
        .select("peer", sql.array_join("_names", ", ").alias("name"), sql.size("_names").alias("names"))
    )


def with_names(frame: DataFrame, known: DataFrame, *columns: str) -> DataFrame:
    """Return a table with a column NAME_name after each column NAME of hashes."""
    order: list[str] = []
    for name in frame.columns:
        order += [name, f"{name}_name"] if name in columns else [name]
    frame = frame.withColumn("_order", sql.monotonically_increasing_id())  # a join does not keep the order
    for name in columns:
        called = known.select(sql.col("peer").alias(name), sql.col("name").alias(f"{name}_name"))
        frame = frame.join(sql.broadcast(called), name, "left")
    return frame.orderBy("_order").select(*order)


def ambiguity(table: DataFrame, all_sessions: DataFrame | None = None) -> DataFrame:
    """Return the hashes that seem to belong to more than one node, and why."""
    by_name = (
        names(table)
        .where("names > 1")
        .select(sql.col("peer").alias("hash"), sql.concat(sql.lit("it entered with the names "), "name").alias("why"))
    )
    doubled = (
        (sessions(table) if all_sessions is None else all_sessions)
        .where("state = 'doubled'")
        .groupBy(sql.col("peer").alias("hash"))
        .agg(sql.count("*").alias("times"), sql.countDistinct("node").alias("nodes"))
        .select(
            "hash",
            sql.concat(
                sql.lit("it entered again "), "times", sql.lit(" times without leaving; nodes that saw it: "), "nodes"
            ).alias("why"),
        )
    )
    itself = (
        _logs(table)
        .where(sql.col("node") == sql.col("peer"))
        .groupBy(sql.col("node").alias("hash"))
        .agg(sql.sum("events").alias("times"))
        .select(
            "hash",
            sql.concat(sql.lit("a node and its peer both have it, in "), "times", sql.lit(" events")).alias("why"),
        )
    )
    return by_name.unionByName(doubled).unionByName(itself).orderBy("hash", "why")


def clocks(table: DataFrame) -> DataFrame:
    """Return the nodes whose clocks differ from the journal's by more than a second. Logs that waited in a queue also
    look slow."""
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
    """Return the probability that at least two of `nodes` nodes have the same hash.

    >>> round(likelihood(10), 4), round(likelihood(302), 2), likelihood(1)
    (0.0007, 0.5, 0.0)
    """
    return abs(math.expm1(-nodes * (nodes - 1) / 2 / HASHES))


def end_of(table: DataFrame, settings: Settings) -> float:
    """Return the time, since 1970, up to which logs were read: that of the newest window if it is not known."""
    if settings.read_up_to:
        return settings.read_up_to
    newest = table.agg(sql.unix_micros(sql.max("start"))).first()
    return int(newest[0]) / 1e6 + settings.window if newest is not None and newest[0] is not None else 0.0


def problems(table: DataFrame) -> DataFrame:
    """Return the windows in which nodes logged errors and warnings, the newest first."""
    is_error = sql.col("level") == Level.ERROR.name
    return (
        _logs(table)
        .where(sql.col("level").isin(Level.ERROR.name, Level.WARNING.name))
        .groupBy("start", "node")
        .agg(_sum(is_error).alias("errors"), _sum(~is_error).alias("warnings"))
        .orderBy(sql.desc("start"), sql.desc("errors"), "node")
    )


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:
    """Return the reports."""
    end = end_of(table, settings)
    all_sessions = cache(sessions(table))
    known = cache(names(table))
    flaps = cache(flapping(table, settings, all_sessions))
    times = cache(presence(table, all_sessions))
    hashes = (
        _logs(table).select(sql.explode(sql.array("node", "peer")).alias("hash")).where("hash is not null").distinct()
    ).count()
    invalid = table.where("event is null").agg(sql.sum("events")).first()
    discarded = int(invalid[0] or 0) if invalid is not None else 0
    chance = likelihood(hashes)
    note = f"{hashes} hashes were seen: the probability that two of as many nodes have the same hash is {chance:.1%}"
    often = f"{settings.flaps} times or more within {duration(settings.flapping)}"
    return (
        Report(
            "health-nodes",
            f"Mesh: nodes up to {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}",
            nodes(times, flaps, settings, end),
            (
                "line: from the first log to now; # the node was there, + for a part of the time, . it was not",
                f"a flapping node came back {often} with the same hash; a restarted node has a new one",
            ),
        ),
        Report("health-timeline", "Mesh: when nodes were there", timeline(times)),
        Report(
            "health-events",
            f"Mesh: events in windows of {settings.window:g} s",
            events_by_window(table),
            (f"{discarded} messages of the stream are not logs",) if discarded else (),
        ),
        Report("health-problems", "Mesh: errors and warnings", with_names(problems(table), known, "node")),
        Report("health-flapping", f"Mesh: peers that entered {often}", with_names(flaps, known, "seen_by")),
        Report("health-talk", "Mesh: who talks to whom", with_names(talk(table), known, "sender", "receiver")),
        Report(
            "health-unreceived",
            "Mesh: sent, but not logged as received",
            with_names(unreceived(table), known, "sender", "to"),
            ("logs can be lost as well as messages: a missing message may have been received",),
        ),
        Report(
            "health-ambiguity",
            "Mesh: hashes that may belong to several nodes",
            ambiguity(table, all_sessions),
            (note,),
        ),
        Report(
            "health-clocks", "Mesh: clocks that differ from the journal's", with_names(clocks(table), known, "node")
        ),
    )


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge a mesh: nodes must not be lost, flap or restart often, log errors, or have wrong clocks."""
    limits = settings.limits.network_health
    known = found["health-nodes"].records()
    logs = sum(row["events"] for row in found["health-events"].records())
    ends = [epoch(row["start"]) + settings.window for row in found["health-events"].records()]
    end = settings.read_up_to or max(ends, default=0.0)
    reasons: list[Reason] = []
    if logs < limits.logs:
        text = f"{counted(logs, 'log')} {'was' if logs == 1 else 'were'} found, and at least {limits.logs:,} expected"
        reasons.append(Reason("", "few", text, values={"logs": logs}, incident=day_of(end)))
    for row in known:
        reasons += _node_reasons(row, settings, end)
    errors: dict[str, int] = {}
    for row in found["health-problems"].records():
        if epoch(row["start"]) + settings.window >= end - limits.recent:
            name = _called(row["node_name"], row["node"])
            errors[name] = errors.get(name, 0) + row["errors"]
    hour = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H")
    for name, count in errors.items():
        if count > limits.errors:
            text = f"{name} logged {counted(count, 'error')} in the last {duration(limits.recent)}"
            reasons.append(Reason(name, "errors", text, "", {"errors": count}, hour))
    for row in found["health-clocks"].records():
        worst = max(abs(row["least_ms"]), abs(row["most_ms"])) / 1000
        if worst > limits.clock:
            name = _called(row["node_name"], row["node"])
            text = f"the clock of {name} differs from the journal's by {duration(worst)}"
            reasons.append(Reason(name, "clock", text, "", {"seconds": worst}, row["node"]))
    here = sum(row["gone"] is None for row in known)
    return Verdict.of(NETWORK_HEALTH.name, reasons, f"{counted(len(known), 'node')}, {here:,} of them there")


def _node_reasons(row: Mapping[str, Any], settings: Settings, end: float) -> Iterator[Reason]:
    limits = settings.limits.network_health
    name = _called(row["node"], row["hashes"])
    if row["state"] == "flapping":
        text = (
            f"{name} came back {row['comings']} times within {duration(settings.flapping)}, "
            f"as {row['flapping_seen_by']} of {counted(row['seen_by'], 'node')} saw it"
        )
        last = row["last_flap"]  # the problems of an hour are one incident
        yield Reason(row["node"], "flapping", text, last, {"comings": row["comings"]}, f"{row['hashes']} {last[:13]}")
    silence = end - epoch(row["gone"])
    if row["gone"] is not None and row["reason"] != LEFT and limits.lost <= silence <= limits.forgotten:
        why = f" ({row['reason']})" if row["reason"] else ""
        text = f"{name} is lost since {row['gone']} UTC, for {duration(silence)}{why}"
        yield Reason(row["node"], "lost", text, row["gone"], {"gone": row["gone"], "reason": row["reason"]})
    if row["recent_restarts"] > limits.restarts:
        text = f"{name} restarted {row['recent_restarts']} times in the last {duration(limits.recent)}"
        yield Reason(row["node"], "restarts", text, "", {"restarts": row["recent_restarts"]}, row["hashes"])


def _called(name: str | None, hashes: str) -> str:
    """Return a node for a sentence: its name, and its hash if there is only one."""
    if not name or name == hashes:
        return f"node {hashes}"
    return name if "," in hashes else f"{name} ({hashes})"


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:
    """Return the charts: who talks to whom, when each node was heard, and events over time."""
    called = cache(
        names(table).where("names = 1").select("peer", sql.concat("name", sql.lit(" "), "peer").alias("name"))
    )
    logs = _logs(table).join(called.withColumnRenamed("peer", "node"), "node", "left")
    heard = logs.select(sql.coalesce("name", "node").alias("label"), "start")
    labels = {row["peer"]: row["name"] for row in called.limit(_MOST_NAMES).collect()}
    received = sql.col("whispers_received") + sql.col("shouts_received")
    cells = talk(table).select(
        sql.col("sender").alias("row"),
        sql.col("receiver").alias("column"),
        received.alias("value"),
        (sql.col("missing") > 0).alias("marked"),
    )
    events = logs.select("start", sql.lower("event").alias("label"), sql.col("events").alias("messages"))
    return (
        matrix_figure("Who talks to whom", cells, "sender", "receiver", "whispers are missing", labels),
        timeline_figure(
            "When nodes were heard",
            heard_bars(heard, settings),
            {"plot": f"logs in a window of {settings.window:g} s", "track": "silence"},
            settings,
            of=heard.select("label").distinct().count(),
        ),
        rate_figure("Events of the mesh", events, settings),
    )


def _logs(table: DataFrame) -> DataFrame:
    return table.where("event is not null")


def _sum(condition: Column) -> Column:
    return sql.sum(sql.when(condition, sql.col("events")).otherwise(0))


NETWORK_HEALTH: Final = Pipeline(
    name="network-health",
    summary="a mesh by its logs: when nodes were there, flapping, restarts, who talks to whom, lost messages",
    prepare=prepare,
    reduce=reduce,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    table="network-health",
    fixed=("window",),
    sums={"events": "sum", "slowest": "min", "fastest": "max"},
    streams={"stream": "zrelog"},
    time="at",
)
