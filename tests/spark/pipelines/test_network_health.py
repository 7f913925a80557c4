"""`network-health`, on small tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.frames import NOON, log, messages, stream, table
from zambezi.spark.pipelines import network_health as health
from zambezi.spark.pipelines.pipeline import Cache, Rows, Settings
from zambezi.zre.log import Level, Log, What

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = Settings(window=10, delay=60)
Logged = tuple[float, str, bytes]


def reduced(spark: SparkSession, logs: Sequence[Logged], cut: int = 0) -> DataFrame:
    """The table of logs that come in two batches, if they are cut somewhere."""
    rows = stream(logs, "zrelog")
    batches = [rows[:cut], rows[cut:]] if cut else [rows]
    made = [health.reduce(health.prepare(messages(spark, one), SETTINGS), SETTINGS) for one in batches]
    return made[0] if len(made) == 1 else made[0].unionByName(made[1])


@pytest.mark.parametrize("cut", [0, 3])
def test_events_by_window_level_and_node(spark: SparkSession, cut: int) -> None:
    logs = [
        log(What.ENTER, 0xA, 0xB, 0, "bob"),
        log(What.JOIN, 0xB, 0, 1, "chat"),
        log(What.SEND, 0xB, 0xA, 2, "WHISPER"),
        log(What.SEND, 0xB, 0xA, 3, "WHISPER"),
        log(What.SEND, 0xB, 0xA, 4, "WHISPER", Level.ERROR),
        log(What.EXIT, 0xA, 0xB, 15, "gone"),
        (16, "?", b"no log"),
    ]
    found = health.events_by_window(reduced(spark, logs, cut))
    assert table(found, "level", "node", "name", "events", "enter", "exit", "join", "send") == [
        ("INFO", "000a", None, 1, 0, 1, 0, 0),
        ("ERROR", "000b", "bob", 1, 0, 0, 0, 1),
        ("INFO", "000b", "bob", 3, 0, 0, 1, 2),
        ("INFO", "000a", None, 1, 1, 0, 0, 0),
    ]


def test_sessions(spark: SparkSession) -> None:
    logs = [
        log(What.EXIT, 1, 2, 0, "expired"),
        log(What.ENTER, 1, 2, 10, "bob"),
        log(What.EXIT, 1, 2, 12.5, "gone"),
        log(What.ENTER, 1, 2, 20, "bob"),
        log(What.ENTER, 1, 2, 21, "bob"),
        log(What.ENTER, 3, 2, 30, "bob"),
    ]
    found = health.sessions(reduced(spark, logs))
    assert table(found, "node", "peer", "name", "seconds", "state", "reason") == [
        ("0003", "0002", "bob", None, "open", None),
        ("0001", "0002", "bob", None, "open", None),
        ("0001", "0002", "bob", None, "doubled", None),
        ("0001", "0002", "bob", 2.5, "closed", "gone"),
        ("0001", "0002", None, None, "unseen", "expired"),
    ]


def test_events_that_come_out_of_order_are_put_in_order(spark: SparkSession) -> None:
    logs = [log(What.EXIT, 1, 2, 9, "gone"), log(What.ENTER, 1, 2, 5, "bob")]
    assert table(health.sessions(reduced(spark, logs)), "seconds", "state") == [(4.0, "closed")]


def test_flapping_peers(spark: SparkSession) -> None:
    often = [
        log(what, 1, 2, 10 * turn + part, "x") for turn in range(3) for part, what in ((0, What.ENTER), (4, What.EXIT))
    ]
    seldom = [log(What.ENTER, 1, 3, 20 * turn, "y") for turn in range(3)]
    found = health.flapping(reduced(spark, often + seldom), Settings(flaps=3, flapping=30))
    assert table(found, "peer", "seen_by", "comings", "most", "shortest") == [("0002", "0001", 3, 3, 4.0)]


def test_messages_between_nodes_and_missing_messages(spark: SparkSession, cache: Cache) -> None:
    logs = [
        *[log(What.SEND, 1, 2, 0, "WHISPER") for _ in range(5)],
        *[log(What.RECV, 2, 1, 1, "WHISPER") for _ in range(3)],
        *[log(What.SEND, 1, 0, 0, "SHOUT chat") for _ in range(4)],
        *[log(What.RECV, 2, 1, 1, "SHOUT chat") for _ in range(4)],
        *[log(What.RECV, 3, 1, 1, "SHOUT chat") for _ in range(2)],
        log(What.SEND, 2, 0, 0, "SHOUT empty room"),
        log(What.SEND, 1, 9, 0, "WHISPER"),
        log(What.SEND, 1, 2, 0, "something else"),
    ]
    found = cache(reduced(spark, logs))
    assert table(health.talk(found)) == [
        ("0001", "0002", 5, 3, 2, 4, 1),
        ("0001", "0003", 0, 0, 0, 2, 0),
        ("0001", "0009", 1, 0, None, 0, 0),
    ]
    assert table(health.unreceived(found), "kind", "sender", "to", "sent", "heard", "missing", "note") == [
        ("WHISPER", "0001", "0002", 5, 3, 2, "the whisper or its log was lost"),
        ("SHOUT", "0001", "chat", 4, 2, 2, "the smallest number of 2 receivers"),
        ("WHISPER", "0001", "0009", 1, 0, None, "the receiver logs nothing"),
        ("SHOUT", "0002", "empty room", 1, 0, None, "no node logs one"),
    ]


def test_ambiguous_hashes_are_reported(spark: SparkSession, cache: Cache) -> None:
    logs = [
        log(What.ENTER, 1, 2, 0, "bob"),
        log(What.ENTER, 1, 2, 1, "carol"),
        log(What.ENTER, 3, 3, 1, "dave"),
        log(What.ENTER, 1, 4, 1, "erin"),
    ]
    found = cache(reduced(spark, logs))
    assert table(health.ambiguity(found)) == [
        ("0002", "it entered again 1 times without leaving; nodes that saw it: 1"),
        ("0002", "it entered with the names bob, carol"),
        ("0003", "a node and its peer both have it, in 1 events"),
    ]
    notes = {one.name: one.notes for one in health.reports(found, SETTINGS, cache)}
    assert "4 hashes were seen" in notes["health-ambiguity"][0]


def test_a_wrong_clock_is_reported_and_not_used(spark: SparkSession, cache: Cache) -> None:
    def claimed(node: int, when: float, claim: float) -> Logged:
        body = Log(Level.INFO, What.ENTER, node, 9, round((NOON + claim) * 1000), "x").encode()[0]
        return when, "k", body

    found = cache(reduced(spark, [claimed(1, 0, 0.2), claimed(2, 0, -20), claimed(3, 0, 86_400)]))
    assert table(health.clocks(found), "node", "least_ms", "most_ms") == [
        ("0003", 86_400_000, 86_400_000),
        ("0002", -20_000, -20_000),
    ]
    began = {row["node"]: round(row["began"].timestamp() - NOON, 3) for row in health.sessions(found).collect()}
    assert began == {"0001": 0.2, "0002": -20.0, "0003": 0.0}


def test_messages_that_are_not_logs_are_counted(spark: SparkSession, cache: Cache) -> None:
    found = cache(reduced(spark, [(0, "k", b"nothing"), (0, "k", b"")]))
    reports = {one.name: one for one in health.reports(found, SETTINGS, cache)}
    assert reports["health-events"].notes == ("2 messages of the stream are not logs",)
    assert table(reports["health-events"].frame) == []
    assert table(reports["health-clocks"].frame) == []


NODE = "node hashes state restarts recent_restarts comings flapping_seen_by last_flap seen_by first gone reason"
NOW = "2023-11-15 11:58:00"
BOB = ["bob", "0002", "here", 0, 0, None, None, None, 3, "2023-11-15 10:00:00", None, None]


def reported(*nodes: list[Any], problems: list[list[Any]] = [], clocks: list[list[Any]] = []) -> dict[str, Rows]:  # noqa: B006
    """Return the rows of the reports that are judged."""
    return {
        "health-nodes": Rows(NODE.split(), list(nodes), False, frozenset()),
        "health-events": Rows(["start", "events"], [["2023-11-15 11:59:50", 9]], False, frozenset()),
        "health-problems": Rows(["start", "node", "node_name", "errors"], problems, False, frozenset()),
        "health-clocks": Rows(["node", "node_name", "least_ms", "most_ms"], clocks, False, frozenset()),
    }


def test_a_verdict_names_nodes_and_says_why() -> None:
    found = reported(
        ["dave", "0006", "flapping", 0, 0, 4, 2, NOW, 3, "2023-11-15 10:00:00", None, None],
        ["eve", "0008", "lost", 0, 0, None, None, None, 3, NOW, "2023-11-15 11:55:00", "silent for 30 s"],
        ["carol", "0003, 0004", "here", 9, 3, None, None, None, 3, NOW, None, None],
        BOB,
        problems=[["2023-11-15 11:59:50", "0002", "bob", 2], ["2023-11-15 02:00:00", "0002", "bob", 7]],
        clocks=[["0009", None, -20, 90_000]],
    )
    assert health.judge(found, SETTINGS).lines() == [
        "healthy: no, because dave (0006) came back 4 times within 10 min, as 2 of 3 nodes saw it",
        "  and eve (0008) is lost since 2023-11-15 11:55:00 UTC, for 5 min (silent for 30 s)",
        "  and carol restarted 3 times in the last 1 h",
        "  and bob (0002) logged 2 errors in the last 1 h",
        "  and the clock of node 0009 differs from the journal's by 1.5 min",
    ]


def test_a_node_that_left_or_was_lost_long_ago_is_no_problem() -> None:
    left = ["a", "0001", "left", 0, 0, None, None, None, 3, NOW, "2023-11-15 11:00:00", "it left"]
    lost = [*left[:2], "lost", *left[3:10], "2023-11-10 11:00:00", "silent for 30 s"]
    just = [*left[:2], "lost", *left[3:10], "2023-11-15 11:59:30", "silent for 30 s"]
    for row in (left, lost, just):
        assert health.judge(reported(row, BOB), SETTINGS).lines() == ["healthy: yes (2 nodes, 1 of them there)"]
    assert not health.judge(reported(just, BOB), replace(SETTINGS, read_up_to=NOON + 60)).is_healthy
