"""`fleet-audit`: it reports the requests to a fleet and the replies, from the stream `mcollective`.

The content of a message says whether it is a request or a reply, and the id of the request joins them. Two kinds of
content are known: the JSON of Zambezi's fleets (docs/fleet.md), and the envelopes of Ruby programs. Other messages are
counted by topic, as requests or replies according to the form of the topic, and cannot be joined. No message ends the
job, whatever bytes it has.

A node is silent if it should have answered a request, and its reply has not come within the patience. A node should
have answered if the request named it. It also should have answered a request to all nodes with an agent, if it is known
to have the agent: it answered for the agent before, or listed it in a ping. A node that never sent a message cannot be
missed. A node that has answered Ruby programs only is not expected to read Zambezi's JSON, nor the other way round.
Requests of Ruby programs that want no reply or select nodes by a filter are not judged: the audit does not know
the classes and facts of nodes. All this needs replies in the journal: `journal = ["*"]` in the configuration of the
middleware.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.mcollective.fleet import DISCOVERY
from zambezi.mcollective.ruby.envelope import MAX_NAME, MAX_TEXT
from zambezi.spark.decoders import mcollective, ruby_envelopes, text_of
from zambezi.spark.pipelines.drawing import distribution_figure, matrix_figure, timeline_figure
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
from zambezi.spark.report.page import Figure

COLUMNS: Final = (
    "sequence long, timestamp timestamp, topic string, kind string, format string, id string, agent string, "
    "action string, caller string, sender string, sent timestamp, ttl long, collective string, asked string, "
    "filter string, wants_reply boolean, node string, status string, error string, took double, octets long, "
    "agents array<string>"
)
_CONTENT: Final = (
    "zambezi int, request string, reply string, agent string, action string, caller string, node string, "
    "status string, error string, took double, result string"
)
_REPLY_TOPIC: Final = r"^(\S+ reply) .*$"
_OF_REQUESTS: Final = ("caller", "sender", "agent", "action", "filter", "wants_reply", "is_ruby")
_OUTCOMES: Final = {"ok": "ok", "errors": "error", "refused": "refused"}
_NODE_TOPIC: Final = r"^\S+ nodes (.+)$"


def prepare(messages: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `prepare`
    """Decode messages, and add their kind and the id of their request."""
    decoded = ruby_envelopes(mcollective(messages.withColumn("octets", sql.length("body").cast("long"))), "ruby")
    # Text that is not JSON gives nulls. The result of an action can be any JSON value, so it stays a string.
    said = sql.from_json(text_of(sql.get("content", sql.lit(0))), _CONTENT)
    topic = text_of(sql.coalesce("topic", "key"))
    is_ours = sql.col("said.zambezi").isNotNull()
    is_request = is_ours & sql.col("said.request").isNotNull()
    is_reply = is_ours & sql.col("said.reply").isNotNull()
    kind = (
        sql.when(sql.col("headers").isNull(), "other")
        .when(is_request, "request")
        .when(is_reply, "reply")
        .when(sql.col("ruby").isNotNull(), sql.col("ruby.kind"))
        .when(topic.rlike(_REPLY_TOPIC), "foreign reply")
        .otherwise("foreign request")
    )
    agents = sql.map_keys(sql.from_json(sql.get_json_object(sql.col("said.result"), "$.agents"), "map<string,string>"))
    frame = decoded.withColumn("said", said).withColumn("topic", topic).withColumn("kind", kind)
    is_ruby_reply = sql.col("ruby.kind") == "reply"
    return frame.select(
        "sequence",
        "timestamp",
        sql.regexp_replace("topic", _REPLY_TOPIC, "$1 *").alias("topic"),
        "kind",
        sql.when(is_request | is_reply, "json").otherwise(sql.col("ruby.format")).alias("format"),
        _either(sql.when(is_request, sql.col("said.request")).when(is_reply, sql.col("said.reply")), "id"),
        _either(sql.col("said.agent"), "agent"),
        _either(sql.col("said.action"), "action"),
        _either(sql.col("said.caller"), "caller"),
        sql.col("ruby.sender").alias("sender"),
        sql.col("ruby.time").alias("sent"),
        sql.col("ruby.ttl").alias("ttl"),
        sql.col("ruby.collective").alias("collective"),
        sql.when(sql.col("kind") == "request", _extracted(sql.col("topic"), _NODE_TOPIC)).alias("asked"),
        sql.col("ruby.filter").alias("filter"),
        sql.col("ruby.wants_reply").alias("wants_reply"),
        sql.when(is_reply, _short(sql.col("said.node"))).when(is_ruby_reply, sql.col("ruby.sender")).alias("node"),
        _either(sql.col("said.status"), "status"),
        _either(sql.col("said.error"), "error", MAX_TEXT),
        sql.col("said.took").alias("took"),
        "octets",
        sql.when(is_reply, agents).alias("agents"),
    )


def _either(ours: Column, name: str, longest: int = MAX_NAME) -> Column:
    """Return a column of a fleet's JSON, or the field of that name of a Ruby program."""
    return sql.coalesce(_short(ours, longest), sql.col(f"ruby.{name}")).alias(name)


def _short(text: Column, longest: int = MAX_NAME) -> Column:
    return sql.substring(text, 1, longest)


def _extracted(text: Column, pattern: str) -> Column:
    """Return the group of a pattern; null if the pattern does not match."""
    return sql.when(text.rlike(pattern), sql.regexp_extract(text, pattern, 1))


def reduce(events: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `reduce`
    """Keep each message, because a fleet has few."""
    return events.withColumn("date", utc_date("timestamp"))


def topics(table: DataFrame) -> DataFrame:
    """Return messages by topic. Each caller has its own topic for replies; these count as one topic."""
    return (
        table.groupBy("topic", "kind", "format")
        .agg(
            sql.count("*").alias("messages"),
            sql.sum("octets").alias("octets"),
            sql.min("timestamp").alias("from"),
            sql.max("timestamp").alias("to"),
        )
        .orderBy(sql.desc("messages"), "topic", "kind", "format")
    )


def requests(table: DataFrame) -> DataFrame:
    """Return each request once: a request that names several nodes is sent to each of them."""
    return (
        table.where("kind = 'request'")
        .withColumn("is_ruby", _is_ruby())
        .groupBy("id")
        .agg(
            sql.min("timestamp").alias("time"),
            *[sql.min_by(name, "sequence").alias(name) for name in _OF_REQUESTS],
            sql.array_sort(sql.collect_set("asked")).alias("asked"),
        )
    )


def _is_ruby() -> Column:
    """Return whether a message is one of Ruby programs: Marshal or YAML, which they both read."""
    return sql.col("format") != "json"


def answers(table: DataFrame, asked: DataFrame) -> DataFrame:
    """Return the first reply of each node to each request. `latency` is the time between them in the journal."""
    first = Window.partitionBy("id", "node").orderBy("sequence")
    replies = (
        table.where("kind = 'reply'")
        .withColumn("_number", sql.row_number().over(first))
        .where("_number = 1")
        .select("id", "node", "status", "error", "took", "agents", sql.col("timestamp").alias("answered"))
    )
    return replies.join(asked, "id").withColumn("latency", seconds_between(sql.col("time"), sql.col("answered")))


def roster(replied: DataFrame) -> DataFrame:
    """Return which nodes are known to have which agents, and since when. Every known node has the agent for pings."""
    # The status of an encrypted reply is not known, but the node has the agent.
    answered = replied.where("status is null or status <> 'refused'").select(
        "node", "agent", sql.col("answered").alias("known")
    )
    listed = replied.where("agents is not null").select(
        "node", sql.explode("agents").alias("agent"), sql.col("answered").alias("known")
    )
    pingable = replied.select("node", sql.lit(DISCOVERY).alias("agent"), sql.col("answered").alias("known"))
    every = answered.unionByName(listed).unionByName(pingable)
    return every.groupBy("node", "agent").agg(sql.min("known").alias("known"))


def _can_read(should: DataFrame, table: DataFrame) -> DataFrame:
    """Keep the nodes that have sent replies of the kind of the request, and those that never sent any."""
    replies = table.where("kind = 'reply'").select("node", _is_ruby().alias("_is_ruby"))
    spoken = replies.groupBy("node").agg(sql.collect_set("_is_ruby").alias("_spoken"))
    can = sql.col("_spoken").isNull() | sql.array_contains("_spoken", sql.col("is_ruby"))
    return should.join(spoken, "node", "left").where(can).select("id", "node")


def judged(table: DataFrame, asked: DataFrame, replied: DataFrame, settings: Settings) -> DataFrame:
    """Return which nodes should have answered each request, and which did, for requests older than the patience."""
    # A fleet without requests journals nothing: after the newest message, it was silent up to the time of reading.
    newest = table.agg(sql.max("timestamp").alias("_last")).select(now_or(sql.col("_last"), settings).alias("_newest"))
    is_over = seconds_between(sql.col("time"), sql.col("_newest")) >= settings.patience
    is_clear = sql.coalesce("wants_reply", sql.lit(True)) & ((sql.size("asked") > 0) | sql.col("filter").isNull())
    old = asked.crossJoin(newest).where(is_over & is_clear).drop("_newest")
    by_name = old.where(sql.size("asked") > 0).select("id", sql.explode("asked").alias("node"), "is_ruby")
    # A node that was not known before the request may not have existed.
    by_agent = (
        old.where(sql.size("asked") == 0)
        .join(roster(replied), "agent")
        .where(sql.col("known") <= sql.col("time"))
        .select("id", "node", "is_ruby")
    )
    should = _can_read(by_name.unionByName(by_agent), table).distinct()
    answered = replied.select("id", "node", sql.lit(True).alias("answered"))
    judgement = should.join(answered, ["id", "node"], "full")
    return old.join(judgement, "id").withColumn("answered", sql.coalesce("answered", sql.lit(False)))


def calls(asked: DataFrame, replied: DataFrame, judgement: DataFrame) -> DataFrame:
    """Return every request and its outcome, the newest first.

    `silent` is null while nodes can still answer, and for requests that are not judged.
    """
    outcome = replied.groupBy("id").agg(
        sql.count("*").alias("answered"),
        *[_count(sql.col("status") == status).alias(name) for name, status in _OUTCOMES.items()],
        sql.round(sql.median("latency"), 3).alias("median_s"),
        sql.round(sql.max("latency"), 3).alias("slowest_s"),
    )
    silent = judgement.groupBy("id").agg(_count(~sql.col("answered")).alias("silent"))
    counts = [sql.coalesce(name, sql.lit(0)).alias(name) for name in ("answered", *_OUTCOMES)]
    return (
        asked.join(outcome, "id", "left")
        .join(silent, "id", "left")
        .select(
            "time",
            "caller",
            "sender",
            "agent",
            "action",
            sql.when(sql.size("asked") == 0, sql.coalesce("filter", sql.lit("all")))
            .otherwise(sql.array_join("asked", ", "))
            .alias("asked"),
            *counts,
            "silent",
            "median_s",
            "slowest_s",
            "id",
        )
        .orderBy(sql.desc("time"), "id")
    )


def _count(condition: Column) -> Column:
    return sql.sum(condition.cast("long"))


def latency(replied: DataFrame) -> DataFrame:
    """Return the time that answers took, by agent and action: from request to reply in the journal, and in the node."""
    shares = sql.percentile(sql.col("latency"), sql.array(sql.lit(0.5), sql.lit(0.95)))
    return (
        replied.groupBy("agent", "action")
        .agg(
            sql.countDistinct("id").alias("requests"),
            sql.count("*").alias("replies"),
            shares.alias("_shares"),
            sql.max("latency").alias("_slowest"),
            sql.median("took").alias("_took"),
        )
        .select(
            "agent",
            "action",
            "requests",
            "replies",
            sql.round(sql.col("_shares").getItem(0), 3).alias("median_s"),
            sql.round(sql.col("_shares").getItem(1), 3).alias("p95_s"),
            sql.round("_slowest", 3).alias("slowest_s"),
            sql.round("_took", 3).alias("median_in_node_s"),
        )
        .orderBy(sql.desc("replies"), "agent", "action")
    )


def by_caller(asked: DataFrame, replied: DataFrame, judgement: DataFrame, since: Column) -> DataFrame:
    """Return requests and their outcomes by caller, agent and action, the most refused, failed and silent ones first.

    The columns `recent_...` count only requests since a time. The action of an encrypted request is null.
    """
    names = ["caller", "agent", "action", "is_ruby"]
    is_recent = sql.col("time") >= since
    made = asked.groupBy(*names).agg(
        sql.count("*").alias("requests"),
        sql.countDistinct("sender").alias("senders"),
        sql.min("time").alias("first"),
        sql.max("time").alias("last"),
    )
    shares = sql.percentile(sql.when(is_recent, sql.col("latency")), sql.lit(0.95))
    outcome = replied.groupBy(*names).agg(
        sql.count("*").alias("replies"),
        *[_count(sql.col("status") == status).alias(name) for name, status in _OUTCOMES.items()],
        _count(is_recent).alias("recent_replies"),
        _count(is_recent & (sql.col("status") == "error")).alias("recent_errors"),
        _count(is_recent & (sql.col("status") == "refused")).alias("recent_refused"),
        sql.round(sql.median("latency"), 3).alias("median_s"),
        sql.round(shares, 3).alias("recent_p95_s"),
    )
    silent = judgement.groupBy(*names).agg(_count(~sql.col("answered")).alias("silent"))
    counts = ("replies", *_OUTCOMES, "silent", "recent_replies", "recent_errors", "recent_refused")
    return (
        _joined(_joined(made, outcome, names), silent, names)
        .withColumns({name: sql.coalesce(name, sql.lit(0)) for name in counts})
        .orderBy(sql.desc("refused"), sql.desc("errors"), sql.desc("silent"), sql.desc("requests"), *names)
        .select(
            *("caller", "agent", "action", sql.when(sql.col("is_ruby"), "Ruby").otherwise("JSON").alias("format")),
            *("requests", "senders", "replies", "ok", "errors", "refused", "silent", "median_s", "first", "last"),
            *("recent_replies", "recent_errors", "recent_refused", "recent_p95_s"),
        )
    )


def _joined(left: DataFrame, right: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return a left join in which nulls are equal."""
    others = right.withColumnsRenamed({name: f"_{name}" for name in names})
    conditions = [left[name].eqNullSafe(others[f"_{name}"]) for name in names]
    return left.join(others, conditions, "left").drop(*(f"_{name}" for name in names))


def nodes(replied: DataFrame, judgement: DataFrame, since: Column) -> DataFrame:
    """Return the answers and the silences of every node. `recent_silent` counts requests since a time."""
    outcome = replied.groupBy("node").agg(
        sql.count("*").alias("answered"),
        *[_count(sql.col("status") == status).alias(name) for name, status in _OUTCOMES.items()],
        sql.round(sql.median("latency"), 3).alias("median_s"),
        sql.max("answered").alias("last_answer"),
    )
    silent = judgement.groupBy("node").agg(
        _count(~sql.col("answered")).alias("silent"),
        _count(~sql.col("answered") & (sql.col("time") >= since)).alias("recent_silent"),
        sql.min(sql.when(~sql.col("answered") & (sql.col("time") >= since), sql.col("time"))).alias("silent_since"),
        sql.max(sql.when(~sql.col("answered"), sql.col("time"))).alias("last_silence"),
    )
    counted_ones = ("answered", "silent", "recent_silent", "errors", "refused")
    counts = [sql.coalesce(name, sql.lit(0)).alias(name) for name in counted_ones]
    return (
        outcome.join(silent, "node", "full")
        .select("node", *counts, "median_s", "last_answer", "silent_since", "last_silence")
        .orderBy(sql.desc("recent_silent"), sql.desc("silent"), sql.desc("errors"), "node")
    )


def silences(judgement: DataFrame) -> DataFrame:
    """Return the nodes that did not answer, by request, the newest first."""
    return (
        judgement.where(~sql.col("answered"))
        .select("time", "node", "agent", "action", "caller", "id")
        .orderBy(sql.desc("time"), "node", "id")
    )


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:
    """Return the reports."""
    asked = cache(requests(table))
    replied = cache(answers(table, asked))
    judgement = cache(judged(table, asked, replied, settings))
    by_topic = cache(topics(table))
    since = sql.timestamp_micros(sql.lit(int((_end_of(table, settings) - settings.limits.fleet_audit.recent) * 1e6)))
    return (
        Report("fleet-topics", "Fleet: messages by topic", by_topic),
        Report(
            "fleet-callers",
            "Fleet: requests by caller, agent and action",
            by_caller(asked, replied, judgement, since),
            _unread(by_topic),
        ),
        Report("fleet-calls", "Fleet: requests and their outcomes", calls(asked, replied, judgement)),
        Report("fleet-latency", "Fleet: how long answers took", latency(replied)),
        Report("fleet-nodes", "Fleet: nodes", nodes(replied, judgement, since)),
        Report(
            "fleet-silences",
            f"Fleet: no answer within {settings.patience:g} s",
            silences(judgement),
            ("a node that never sent a message cannot be missed; replies must be journalled as well",),
        ),
    )


def _end_of(table: DataFrame, settings: Settings) -> float:
    """Return the time, since 1970, up to which messages were read: that of the newest if it is not known."""
    if settings.read_up_to:
        return settings.read_up_to
    newest = table.agg(sql.unix_micros(sql.max("timestamp"))).first()
    return int(newest[0] or 0) / 1e6 if newest is not None else 0.0


def _unread(by_topic: DataFrame) -> tuple[str, ...]:
    """Return a note on the requests of which only the topic is known."""
    found = by_topic.where("kind = 'foreign request'").agg(sql.sum("messages")).first()
    count = int(found[0] or 0) if found is not None else 0
    if not count:
        return ()
    return (f"the content of {counted(count, 'request')} could not be read: fleet-topics counts them by topic",)


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge a fleet: nodes must answer, without errors and in time, and must not refuse a caller."""
    limits = settings.limits.fleet_audit
    known = found["fleet-nodes"].records()
    callers = found["fleet-callers"].records()
    silent = [
        Reason(
            row["node"],
            "silent",
            f"{row['node']} did not answer {counted(row['recent_silent'], 'request')} "
            f"in the last {duration(limits.recent)}",
            row["silent_since"],
            {"silent": row["recent_silent"], "last_answer": row["last_answer"]},
            f"since {row['last_answer']}",
        )
        for row in known
        if row["recent_silent"] > limits.silent
    ]
    reasons = [*silent, *(reason for row in callers for reason in _caller_reasons(row, settings))]
    requests_made = sum(row["requests"] for row in callers)
    return Verdict.of(FLEET_AUDIT.name, reasons, f"{counted(requests_made, 'request')}, {counted(len(known), 'node')}")


def _caller_reasons(row: Mapping[str, Any], settings: Settings) -> Iterator[Reason]:
    limits = settings.limits.fleet_audit
    what = f"{row['agent']} {row['action'] or '(encrypted)'}"
    who = row["caller"] or "an unknown caller"
    share = 100.0 * row["recent_errors"] / max(1, row["recent_replies"])
    day = str(row["last"])[:10]  # the problems of an action on one day are one incident
    if row["recent_refused"] > limits.refused:
        text = f"nodes refused {what} of {who} {counted(row['recent_refused'], 'time')}"
        values = {"action": what, "refused": row["recent_refused"]}
        yield Reason(who, "refused", text, "", values, f"{what} {day}")
    if share > limits.errors:
        replies = counted(row["recent_replies"], "reply", "replies")
        text = f"{what} of {who} failed in {row['recent_errors']:,} of {replies}"
        yield Reason(what, "errors", text, "", {"caller": who, "errors": row["recent_errors"]}, f"{who} {day}")
    if (row["recent_p95_s"] or 0.0) > limits.slow:
        text = f"{what} of {who} took more than {duration(row['recent_p95_s'])} for 5 % of the replies"
        yield Reason(what, "slow", text, "", {"caller": who, "p95_s": row["recent_p95_s"]}, f"{who} {day}")


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:
    """Return the charts: how long answers took, which nodes answered which requests, and who calls which agent."""
    asked = cache(requests(table))
    replied = cache(answers(table, asked))
    judgement = judged(table, asked, replied, settings).where("node is not null")
    told = sql.concat_ws(" ", "agent", "action")
    bars = judgement.select(
        sql.col("node").alias("label"),
        sql.col("time").alias("began"),
        sql.col("time").alias("ended"),
        sql.when(sql.col("answered"), "good").otherwise("bad").alias("kind"),
        told.alias("text"),
    )
    calls_made = asked.groupBy(
        sql.coalesce("caller", "sender", sql.lit("(unknown)")).alias("row"), told.alias("column")
    )
    return (
        distribution_figure("How long answers took", replied.select(sql.col("latency").alias("seconds")), "answers"),
        timeline_figure(
            "Answers of nodes",
            bars,
            {"good": "answered", "bad": f"no answer within {settings.patience:g} s"},
            settings,
            of=bars.select("label").distinct().count(),
        ),
        matrix_figure(
            "Who calls which action",
            calls_made.agg(sql.count("*").alias("value"), sql.lit(False).alias("marked")),
            "caller",
            "agent and action",
            unit="requests",
        ),
    )


FLEET_AUDIT: Final = Pipeline(
    name="fleet-audit",
    summary="requests and replies of a fleet: by topic, caller and action, how long they took, silent nodes",
    prepare=prepare,
    reduce=reduce,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    table="fleet-audit",
    streams={"stream": "mcollective"},
)
