"""`fleet-audit`: what was asked of a fleet and what it answered, from the stream `mcollective`.

Requests and replies are told apart by what is in them (docs/fleet.md), and joined by the id of the request. What other
programs put into their messages is not known here: such messages count by topic, as requests or replies by the form of
their topic, and cannot be joined.

A node did not answer a request if it should have, and no reply of it is there when the patience is over. Who should
have: whoever was asked by name; and of those who were asked as all nodes with an agent, the nodes that are known to
have it: they answered for it at some time, or said in answer to a ping that they have it. A node that was never heard
of cannot be missed. All this needs replies in the journal: `journal = ["*"]` in the configuration of the middleware.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from zambezi.mcollective.fleet import DISCOVERY
from zambezi.spark.decoders import mcollective
from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings, Share, seconds_between, unshared

COLUMNS: Final = (
    "sequence long, timestamp timestamp, topic string, kind string, id string, agent string, action string, "
    "caller string, asked string, node string, status string, error string, took double, octets long, "
    "agents array<string>"
)
_CONTENT: Final = (
    "zambezi int, request string, reply string, agent string, action string, caller string, node string, "
    "status string, error string, took double, result string"
)
_REPLY_TOPIC: Final = r"^(\S+ reply) .*$"
_OUTCOMES: Final = {"ok": "ok", "errors": "error", "refused": "refused"}
_NODE_TOPIC: Final = r"^\S+ nodes (.+)$"


def prepare(messages: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `prepare`
    """Messages as columns: what kind they are, and of which request."""
    found = mcollective(messages.withColumn("octets", sql.length("body").cast("long")))
    text = sql.decode(sql.col("content").getItem(0), "UTF-8")
    # What Spark's parser of JSON does with what is no JSON is nulls; the result of an action may be anything.
    said = sql.from_json(text, _CONTENT)
    topic = sql.coalesce("topic", "key")
    is_ours = sql.col("said.zambezi").isNotNull()
    is_request = is_ours & sql.col("said.request").isNotNull()
    is_reply = is_ours & sql.col("said.reply").isNotNull()
    kind = (
        sql.when(sql.col("headers").isNull(), "other")
        .when(is_request, "request")
        .when(is_reply, "reply")
        .when(topic.rlike(_REPLY_TOPIC), "foreign reply")
        .otherwise("foreign request")
    )
    agents = sql.map_keys(sql.from_json(sql.get_json_object(sql.col("said.result"), "$.agents"), "map<string,string>"))
    return found.withColumn("said", said).select(
        "sequence",
        "timestamp",
        sql.regexp_replace(topic, _REPLY_TOPIC, "$1 *").alias("topic"),
        kind.alias("kind"),
        sql.when(is_request, sql.col("said.request")).when(is_reply, sql.col("said.reply")).alias("id"),
        sql.col("said.agent").alias("agent"),
        sql.col("said.action").alias("action"),
        sql.col("said.caller").alias("caller"),
        sql.when(is_request, _extracted(topic, _NODE_TOPIC)).alias("asked"),
        sql.when(is_reply, sql.col("said.node")).alias("node"),
        sql.col("said.status").alias("status"),
        sql.col("said.error").alias("error"),
        sql.col("said.took").alias("took"),
        "octets",
        sql.when(is_reply, agents).alias("agents"),
    )


def _extracted(text: Column, pattern: str) -> Column:
    """What a pattern has in its parentheses, null where it does not match."""
    return sql.when(text.rlike(pattern), sql.regexp_extract(text, pattern, 1))


def reduce(events: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `reduce`
    """The messages of a fleet are few: each is kept."""
    return events.withColumn("date", sql.to_date("timestamp"))


def topics(table: DataFrame) -> DataFrame:
    """Messages by topic; the topics of replies, of which every caller has one, are one."""
    return (
        table.groupBy("topic", "kind")
        .agg(
            sql.count("*").alias("messages"),
            sql.sum("octets").alias("octets"),
            sql.min("timestamp").alias("from"),
            sql.max("timestamp").alias("to"),
        )
        .orderBy(sql.desc("messages"), "topic", "kind")
    )


def requests(table: DataFrame) -> DataFrame:
    """Requests, each once: one that asks several nodes by name is sent to each of them."""
    return (
        table.where("kind = 'request'")
        .groupBy("id")
        .agg(
            sql.min("timestamp").alias("time"),
            sql.min_by("caller", "sequence").alias("caller"),
            sql.min_by("agent", "sequence").alias("agent"),
            sql.min_by("action", "sequence").alias("action"),
            sql.array_sort(sql.collect_set("asked")).alias("asked"),
        )
    )


def answers(table: DataFrame, asked: DataFrame) -> DataFrame:
    """Replies, the first of each node to each request, with how long it took by the journal: `latency`."""
    first = Window.partitionBy("id", "node").orderBy("sequence")
    replies = (
        table.where("kind = 'reply'")
        .withColumn("_place", sql.row_number().over(first))
        .where("_place = 1")
        .select("id", "node", "status", "error", "took", "agents", sql.col("timestamp").alias("answered"))
    )
    return replies.join(asked, "id").withColumn("latency", seconds_between(sql.col("time"), sql.col("answered")))


def roster(replied: DataFrame) -> DataFrame:
    """Which nodes are known to have which agents, and since when. Every node that is known has the agent of pings."""
    answered = replied.where("status <> 'refused'").select("node", "agent", sql.col("answered").alias("known"))
    listed = replied.where("agents is not null").select(
        "node", sql.explode("agents").alias("agent"), sql.col("answered").alias("known")
    )
    anybody = replied.select("node", sql.lit(DISCOVERY).alias("agent"), sql.col("answered").alias("known"))
    every = answered.unionByName(listed).unionByName(anybody)
    return every.groupBy("node", "agent").agg(sql.min("known").alias("known"))


def judged(table: DataFrame, asked: DataFrame, replied: DataFrame, settings: Settings) -> DataFrame:
    """Who should have answered which request and who did, of requests that are old enough to be judged."""
    # A fleet that is asked nothing more journals nothing more: what was read up to a time has been silent since.
    read = sql.timestamp_micros(sql.lit(int(settings.read_up_to * 1e6)))
    newest = table.agg(sql.greatest(sql.max("timestamp"), read).alias("_newest"))
    is_over = seconds_between(sql.col("time"), sql.col("_newest")) >= settings.patience
    old = asked.crossJoin(newest).where(is_over).drop("_newest")
    by_name = old.where(sql.size("asked") > 0).select("id", sql.explode("asked").alias("node"))
    # A node that was not heard of before the request may not have been there.
    by_agent = (
        old.where(sql.size("asked") == 0)
        .join(roster(replied), "agent")
        .where(sql.col("known") <= sql.col("time"))
        .select("id", "node")
    )
    answered = replied.select("id", "node", sql.lit(True).alias("answered"))
    should = by_name.unionByName(by_agent).distinct().join(answered, ["id", "node"], "full")
    return old.join(should, "id").withColumn("answered", sql.coalesce("answered", sql.lit(False)))


def calls(asked: DataFrame, replied: DataFrame, judgement: DataFrame) -> DataFrame:
    """Every request and what became of it, the newest first; `silent` is null while there is still time to answer."""
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
            "agent",
            "action",
            sql.when(sql.size("asked") == 0, "all").otherwise(sql.array_join("asked", ", ")).alias("asked"),
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
    """How long answers took, by agent and action: by the journal, from the request to the reply, and by the node."""
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


def nodes(replied: DataFrame, judgement: DataFrame) -> DataFrame:
    """Every node: what it answered, and what it did not."""
    outcome = replied.groupBy("node").agg(
        sql.count("*").alias("answered"),
        *[_count(sql.col("status") == status).alias(name) for name, status in _OUTCOMES.items()],
        sql.round(sql.median("latency"), 3).alias("median_s"),
        sql.max("answered").alias("last_answer"),
    )
    silent = judgement.groupBy("node").agg(
        _count(~sql.col("answered")).alias("silent"),
        sql.max(sql.when(~sql.col("answered"), sql.col("time"))).alias("last_silence"),
    )
    counts = [sql.coalesce(name, sql.lit(0)).alias(name) for name in ("answered", "silent", "errors", "refused")]
    return (
        outcome.join(silent, "node", "full")
        .select("node", *counts, "median_s", "last_answer", "last_silence")
        .orderBy(sql.desc("silent"), sql.desc("errors"), "node")
    )


def silences(judgement: DataFrame) -> DataFrame:
    """Nodes that did not answer, request by request, the newest first."""
    return (
        judgement.where(~sql.col("answered"))
        .select("time", "node", "agent", "action", "caller", "id")
        .orderBy(sql.desc("time"), "node", "id")
    )


def reports(table: DataFrame, settings: Settings, share: Share = unshared) -> Sequence[Report]:
    """What people look at."""
    asked = share(requests(table))
    replied = share(answers(table, asked))
    judgement = share(judged(table, asked, replied, settings))
    return (
        Report("fleet-topics", "Fleet: messages by topic", topics(table)),
        Report("fleet-calls", "Fleet: requests and what became of them", calls(asked, replied, judgement)),
        Report("fleet-latency", "Fleet: how long answers took", latency(replied)),
        Report("fleet-nodes", "Fleet: nodes", nodes(replied, judgement)),
        Report(
            "fleet-silences",
            f"Fleet: no answer within {settings.patience:g} s",
            silences(judgement),
            ("a node that was never heard of cannot be missed; replies must be journalled, too",),
        ),
    )


FLEET_AUDIT: Final = Pipeline(
    name="fleet-audit",
    summary="requests and replies of a fleet: by topic, how long they took, who did not answer",
    prepare=prepare,
    reduce=reduce,
    reports=reports,
    columns=COLUMNS,
    table="fleet-audit",
    streams={"stream": "mcollective"},
)
