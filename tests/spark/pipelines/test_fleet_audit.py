"""`fleet-audit`, on small tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.frames import at, fleet, messages, stream, table
from zambezi.mcollective.fleet import Reply, Request, agent_topic, node_topic, reply_topic
from zambezi.spark.pipelines import fleet_audit as audit
from zambezi.spark.pipelines.pipeline import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = Settings(patience=10)
HERE = "mcollective"
Sent = tuple[float, str, bytes]


def ask(when: float, id: str, agent: str = "package", node: str = "") -> Sent:  # noqa: A002
    request = Request(id, agent, "status", {}, "ann")
    topic = node_topic(HERE, node) if node else agent_topic(HERE, agent)
    return fleet(topic, request.encode(), when)


def answer(when: float, id: str, node: str, **values: Any) -> Sent:  # noqa: A002
    reply = Reply(id, node, values.pop("status", "ok"), **values)
    return fleet(reply_topic(HERE, "ann", 17), reply.encode(), when)


def reduced(spark: SparkSession, sent: Sequence[Sent]) -> DataFrame:
    found = audit.prepare(messages(spark, stream(sent, "mcollective")), SETTINGS)
    return audit.reduce(found, SETTINGS)


FLEET = [
    ask(0, "1"),
    answer(0.5, "1", "web1", took=0.25),
    answer(1.5, "1", "web2", status="error", error="no such package", took=0.75),
    answer(1.6, "1", "web2"),  # the first of a node counts
    ask(20, "2"),
    answer(21, "2", "web1"),
    ask(40, "3", node="db1"),
    ask(40, "3", node="web1"),
    answer(40.5, "3", "web1"),
    ask(60, "4"),
    fleet(f"{HERE} package", b"a Ruby daemon's own form", 61),
    fleet(reply_topic(HERE, "bob", 3), b"and its answer", 61),
    (62, "nonsense", b"\0"),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    """The reports on the fleet above; what they share is computed once."""
    held: list[DataFrame] = []

    def cache(frame: DataFrame) -> DataFrame:
        held.append(frame.persist())
        return held[-1]

    yield {one.name: one.frame for one in audit.reports(cache(reduced(spark, FLEET)), SETTINGS, cache)}
    for frame in held:
        frame.unpersist()


def test_topics(found: dict[str, DataFrame]) -> None:
    assert set(table(found["fleet-topics"], "topic", "kind", "messages")) == {
        ("mcollective reply *", "reply", 5),
        ("mcollective package", "request", 3),
        ("mcollective nodes db1", "request", 1),
        ("mcollective nodes web1", "request", 1),
        ("mcollective package", "foreign request", 1),
        ("mcollective reply *", "foreign reply", 1),
        ("nonsense", "other", 1),
    }


def test_calls_and_their_outcomes(found: dict[str, DataFrame]) -> None:
    columns = ("id", "caller", "action", "asked", "answered", "ok", "errors", "silent", "median_s", "slowest_s")
    assert table(found["fleet-calls"], *columns) == [
        ("4", "ann", "status", "all", 0, 0, 0, None, None, None),  # there is still time
        ("3", "ann", "status", "db1, web1", 1, 1, 0, 1, 0.5, 0.5),
        ("2", "ann", "status", "all", 1, 1, 0, 1, 1.0, 1.0),
        ("1", "ann", "status", "all", 2, 1, 1, 0, 1.0, 1.5),
    ]


def test_nodes_that_did_not_answer(found: dict[str, DataFrame]) -> None:
    assert table(found["fleet-silences"], "id", "node") == [("3", "db1"), ("2", "web2")]
    assert table(found["fleet-nodes"], "node", "answered", "silent", "errors") == [
        ("web2", 1, 1, 1),
        ("db1", 0, 1, 0),
        ("web1", 3, 0, 0),
    ]


def test_latency(found: dict[str, DataFrame]) -> None:
    assert table(found["fleet-latency"]) == [("package", "status", 3, 4, 0.75, 1.425, 1.5, 0.125)]


def test_pings_tell_which_nodes_have_an_agent(spark: SparkSession) -> None:
    agents = {"agents": {"package": {"summary": ""}, "puppet": {}}}
    sent = [
        ask(0, "1", "discovery"),
        answer(1, "1", "web1", result=agents),
        answer(1, "1", "web2", result={"agents": {}}),
        ask(5, "2", "puppet"),
        ask(30, "3", "discovery"),
        answer(31, "3", "web1", result=agents),
        answer(50, "other", "web1"),
    ]
    heard = reduced(spark, sent)
    asked = audit.requests(heard)
    judgement = audit.judged(heard, asked, audit.answers(heard, asked), SETTINGS)
    assert table(audit.silences(judgement), "id", "node") == [("3", "web2"), ("2", "web1")]


def test_the_last_request_is_judged_by_the_time_of_reading(spark: SparkSession) -> None:
    heard = reduced(spark, [ask(0, "1", node="db1"), ask(0, "1", node="web1"), answer(1, "1", "web1")]).persist()
    asked = audit.requests(heard).persist()
    replied = audit.answers(heard, asked).persist()

    def silent(read_up_to: float) -> list[Any]:
        settings = replace(SETTINGS, read_up_to=read_up_to)
        return table(audit.silences(audit.judged(heard, asked, replied, settings)), "id", "node")

    begun = at(0).timestamp()
    assert silent(0.0) == []
    assert silent(begun + 9.5) == []
    assert silent(begun + 10) == [("1", "db1")]
    for frame in (replied, asked, heard):
        frame.unpersist()
