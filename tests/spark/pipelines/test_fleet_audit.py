"""`fleet-audit`, on small tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql

from tests.interop.ruby_bodies import BODIES
from tests.spark.pipelines.frames import at, caching, fleet, messages, stream, table
from zambezi.mcollective.fleet import Reply, Request, agent_topic, node_topic, reply_topic
from zambezi.spark.pipelines import fleet_audit as audit
from zambezi.spark.pipelines.pipeline import Cache, Rows, Settings, rows_of
from zambezi.spark.source import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = Settings(patience=10)
HERE = "mcollective"
RUBY = "7a3c3ad3f2d85ecbb3c8e4b5d7b1a002"  # the id of the recorded requests
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
    with caching() as cache:
        yield {one.name: one.frame for one in audit.reports(cache(reduced(spark, FLEET)), SETTINGS, cache)}


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


def test_requests_by_caller_agent_and_action(found: dict[str, DataFrame]) -> None:
    columns = ("caller", "agent", "action", "format", "requests", "replies", "ok", "errors", "silent", "recent_errors")
    assert table(found["fleet-callers"], *columns) == [("ann", "package", "status", "JSON", 4, 4, 3, 1, 2, 1)]


def test_latency(found: dict[str, DataFrame]) -> None:
    assert table(found["fleet-latency"]) == [("package", "status", 3, 4, 0.75, 1.425, 1.5, 0.125)]


def test_pings_tell_which_nodes_have_an_agent(spark: SparkSession, cache: Cache) -> None:
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
    heard = cache(reduced(spark, sent))
    asked = cache(audit.requests(heard))
    judgement = audit.judged(heard, asked, cache(audit.answers(heard, asked)), SETTINGS)
    assert table(audit.silences(judgement), "id", "node") == [("3", "web2"), ("2", "web1")]


def test_the_last_request_is_judged_by_the_time_of_reading(spark: SparkSession, cache: Cache) -> None:
    heard = cache(reduced(spark, [ask(0, "1", node="db1"), ask(0, "1", node="web1"), answer(1, "1", "web1")]))
    asked = cache(audit.requests(heard))
    replied = cache(audit.answers(heard, asked))

    def silent(read_up_to: float) -> list[Any]:
        settings = replace(SETTINGS, read_up_to=read_up_to)
        return table(audit.silences(audit.judged(heard, asked, replied, settings)), "id", "node")

    begun = at(0).timestamp()
    assert silent(0.0) == []
    assert silent(begun + 9.5) == []
    assert silent(begun + 10) == [("1", "db1")]


def ruby(when: float, topic: str, name: str, node: str = "node3.example.net", id: str = RUBY) -> Sent:  # noqa: A002
    """Return a recorded message. `node` and `id` must be as long as those that were recorded."""
    body = BODIES[name].replace(b"node3.example.net", node.encode()).replace(RUBY.encode(), id.encode())
    return fleet(f"{HERE} {topic}", body, when)


def test_requests_of_ruby_programs_and_their_replies(spark: SparkSession, cache: Cache) -> None:
    other = RUBY[::-1]
    sent = [
        ruby(0, "rpcutil", "psk request", "admin.example.net"),
        ruby(1, "reply admin 17", "psk reply", "node1.example.net"),
        ruby(2, "reply admin 17", "ssl yaml error", "node2.example.net"),
        ruby(30, "rpcutil", "aes marshal request", "admin.example.net", other),
        ruby(31, "reply admin 17", "aes marshal reply", "node1.example.net", other),
        fleet(f"{HERE} rpcutil", b"\x04\x08 is not Marshal \xff", 60),
    ]
    heard = cache(reduced(spark, sent))
    reports = audit.reports(heard, SETTINGS, cache)
    found = {one.name: one.frame for one in reports}
    assert reports[1].notes == ("the content of 1 request could not be read: fleet-topics counts them by topic",)
    columns = ("id", "caller", "sender", "agent", "action", "asked", "answered", "ok", "errors", "silent", "slowest_s")
    assert table(found["fleet-calls"], *columns) == [
        (other, "cert=ann", "admin.example.net", "rpcutil", None, "all", 1, 0, 0, 1, 1.0),
        (RUBY, "uid=0", "admin.example.net", "rpcutil", "get_fact", "all", 2, 1, 1, 0, 2.0),
    ]
    assert table(found["fleet-silences"], "id", "node") == [(other, "node2.example.net")]
    by_caller = ("caller", "agent", "action", "format", "requests", "replies", "errors", "silent")
    assert table(found["fleet-callers"], *by_caller) == [
        ("uid=0", "rpcutil", "get_fact", "Ruby", 1, 2, 1, 0),
        ("cert=ann", "rpcutil", None, "Ruby", 1, 1, 0, 1),  # encrypted
    ]
    assert set(table(found["fleet-topics"], "topic", "kind", "format", "messages")) == {
        ("mcollective rpcutil", "request", "marshal", 2),
        ("mcollective reply *", "reply", "marshal", 2),
        ("mcollective reply *", "reply", "yaml", 1),
        ("mcollective rpcutil", "foreign request", None, 1),
    }
    [request] = heard.where(f"id = '{RUBY}' and kind = 'request'").collect()
    assert (request.sent.timestamp(), request.ttl, request.collective) == (1_700_049_600, 60, "mcollective")
    assert [row.error for row in heard.where("status = 'error'").collect()] == ["No such package: über"]


def test_requests_with_a_filter_or_without_replies_are_not_judged(spark: SparkSession, cache: Cache) -> None:
    ids = [character * len(RUBY) for character in "abcd"]
    sent = [
        ruby(0, "rpcutil", "psk request", id=ids[0]),
        ruby(1, "reply admin 17", "psk reply", id=ids[0]),
        ruby(20, "package", "ssl marshal filtered", id=ids[1]),
        ruby(20, "nodes web1", "psk filtered", id=ids[2]),  # to one node, and it should not reply
        ruby(20, "nodes web1", "ssl yaml filtered", id=ids[3]),
        fleet("last", b"", 60),
    ]
    found = {one.name: one.frame for one in audit.reports(cache(reduced(spark, sent)), SETTINGS, cache)}
    assert set(table(found["fleet-calls"], "id", "asked", "silent")) == {
        (ids[0], "all", 0),
        (ids[1], "fact osfamily==Debian, class apache, identity web1, identity /^db/, compound a=1 and not b", None),
        (ids[2], "web1", None),
        (ids[3], "web1", 1),
    }


def test_a_node_is_not_expected_to_read_the_other_format(spark: SparkSession, cache: Cache) -> None:
    """Ruby's nodes and Zambezi's on one middleware: a request reaches all nodes, and some cannot read it."""
    late = RUBY[::-1]
    sent = [
        ruby(0, "discovery", "psk request", "admin.example.net"),
        ruby(1, "reply admin 17", "psk reply", "node1.example.net"),
        ruby(1, "reply admin 17", "psk reply", "node2.example.net"),
        ask(2, "1", "discovery"),
        answer(3, "1", "web1"),
        answer(3, "1", "node2.example.net"),  # it has both programs
        ask(30, "2", "discovery"),
        ask(30, "3", node="node1.example.net"),
        ask(30, "4", node="never.seen"),
        ruby(31, "rpcutil", "psk request", "admin.example.net", late),
        ruby(31, "nodes web1", "ssl yaml filtered", "admin.example.net", "e" * len(RUBY)),
        fleet("last", b"", 60),
    ]
    found = {one.name: one.frame for one in audit.reports(cache(reduced(spark, sent)), SETTINGS, cache)}
    assert set(table(found["fleet-silences"], "id", "node")) == {
        ("2", "web1"),
        ("2", "node2.example.net"),
        ("4", "never.seen"),
        (late, "node1.example.net"),
        (late, "node2.example.net"),
    }


def test_no_bytes_end_the_job(spark: SparkSession, cache: Cache) -> None:
    """Bytes of an attacker in topics, headers, keys, content, and in the places of all of them."""
    bytes_of_an_attacker = [
        b"\xff\xfe",
        b"",
        b"\0" * 40,
        b"\x04\x08" + b"[\x06" * 10_000,
        b"---\n- &1 [*1]\n",
        b'{"zambezi": 1, "request": "\xff", "agent": "\\u0000\\ud800"}',
        b'{"zambezi": 1, "reply": ' + b"[" * 10_000,
        b'{"zambezi": 1, "request": "' + b"x" * 100_000 + b'", "agent": "a", "caller": "' + b"y" * 100_000 + b'"}',
    ]
    frames = [
        [b"\xff", b"MESSAGE", b"TOPIC", b"mcollective \xff", b"", *bytes_of_an_attacker[:1]],
        [b"", b"MESSAGE", b"TOPIC", b"mcollective reply \xff\n\0", b"\xff", b"\xff", b"\xff", b"", b"", b"x"],
        [b"", b"MESSAGE", b"TOPIC", b"mcollective nocontent", b""],
        [b"", b"MESSAGE", b""],
        [b"", b"MESSAGE", *[b"a", b"b"] * 5000, b"", b""],
        *[[b"", b"MESSAGE", b"TOPIC", b"mcollective x", b"", each] for each in bytes_of_an_attacker],
    ]
    bodies = [b"".join(pack(">I", len(frame)) + frame for frame in each) for each in frames] + bytes_of_an_attacker
    made = [("mcollective", number, at(number), b"key \xff\0", body, "one") for number, body in enumerate(bodies, 1)]
    binary = spark.createDataFrame(made, SCHEMA.replace("key string", "key binary"))
    # The source does not check that keys are UTF-8.
    text = binary.withColumn("key", sql.col("key").cast("string"))
    found = cache(audit.reduce(audit.prepare(text, SETTINGS), SETTINGS))
    results = {one.name: rows_of(one.frame, 100) for one in audit.reports(found, SETTINGS, cache)}
    assert sum(row.messages for row in audit.topics(found).collect()) == len(bodies)
    assert max(len(str(cell)) for each in results.values() for row in each.rows for cell in row) <= 255


NODES = "node recent_silent silent_since last_answer"
CALLERS = "caller agent action requests last recent_replies recent_errors recent_refused recent_p95_s"


def reported(nodes: list[list[Any]], callers: list[list[Any]]) -> dict[str, Rows]:
    """Return the rows of the reports that are judged."""
    return {
        "fleet-nodes": Rows(NODES.split(), nodes, False, frozenset()),
        "fleet-callers": Rows(CALLERS.split(), callers, False, frozenset()),
    }


def test_a_verdict_names_nodes_and_callers() -> None:
    day = "2023-11-15 12:00:00"
    found = reported(
        [["db1", 2, day, None], ["web1", 0, None, day]],
        [
            ["mallory", "shell", "run", 3, day, 9, 0, 9, 0.1],
            ["ann", "package", "status", 10, day, 20, 3, 0, 45.0],
            ["cert=bob", "rpcutil", None, 1, day, 10, 1, 0, None],
        ],
    )
    assert audit.judge(found, SETTINGS).lines() == [
        "healthy: no, because db1 did not answer 2 requests in the last 1 d",
        "  and nodes refused shell run of mallory 9 times",
        "  and package status of ann failed in 3 of 20 replies",
        "  and package status of ann took more than 45 s for 5 % of the replies",
    ]
    assert audit.judge(reported([], []), SETTINGS).lines() == ["healthy: yes (0 requests, 0 nodes)"]
