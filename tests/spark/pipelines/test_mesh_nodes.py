"""The nodes of a mesh: when they were there, flapping and restarts, on a small table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.frames import NOON, log, messages, stream, table
from zambezi.spark.limits import HealthLimits, Limits
from zambezi.spark.pipelines import mesh_nodes
from zambezi.spark.pipelines import network_health as health
from zambezi.spark.pipelines.pipeline import Settings
from zambezi.zre.log import What

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

END = 2400.0  # seconds after noon
SETTINGS = Settings(flaps=3, flapping=600, limits=replace(Limits(), network_health=HealthLimits(recent=1800)))
ANN, BOB, CAROL, CAROL2, CAROL3, DAVE, TWIN, EVE = range(1, 9)

LOGS = [
    # Two nodes see the others; bob is there all the time.
    log(What.ENTER, ANN, BOB, 0, "bob"),
    log(What.ENTER, BOB, ANN, 0, "ann"),
    # carol is killed and started again, twice: a new hash each time. The old one expires after the new one came.
    log(What.ENTER, ANN, CAROL, 0, "carol"),
    log(What.ENTER, ANN, CAROL2, 600, "carol"),
    log(What.EXIT, ANN, CAROL, 630, "silent for 30 s"),
    log(What.EXIT, ANN, CAROL2, 1200, "it left"),
    log(What.ENTER, ANN, CAROL3, 1210, "carol"),
    # dave comes and goes with the same hash, as both see it.
    *[
        log(what, observer, DAVE, 1200 + 120 * turn + part, text)
        for turn in range(4)
        for part, what, text in ((0, What.ENTER, "dave"), (60, What.EXIT, "silent for 30 s"))
        for observer in (ANN, BOB)
    ],
    # Another node is called bob, too.
    log(What.ENTER, ANN, TWIN, 1000, "bob"),
    # eve logs a session of carol, and is lost herself: the session ends with her.
    log(What.ENTER, ANN, EVE, 0, "eve"),
    log(What.ENTER, EVE, CAROL, 5, "carol"),
    log(What.EXIT, ANN, EVE, 300, "silent for 30 s"),
]


@pytest.fixture(scope="module")
def heard(spark: SparkSession) -> Iterator[DataFrame]:
    rows = sorted(LOGS, key=lambda one: one[0])
    found = health.reduce(health.prepare(messages(spark, stream(rows, "zrelog")), SETTINGS), SETTINGS).persist()
    yield found
    found.unpersist()


def test_when_nodes_were_there(heard: DataFrame) -> None:
    times = mesh_nodes.timeline(mesh_nodes.presence(heard, health.sessions(heard)))
    found = table(times.where("node in ('carol', 'eve')"), "node", "hash", "seconds", "seen_by", "ended")
    assert found == [
        ("carol", "0005", None, 1, None),
        ("carol", "0004", 600.0, 1, "it left"),
        ("carol", "0003", 630.0, 2, "silent for 30 s"),
        ("eve", "0008", 300.0, 1, "silent for 30 s"),
    ]


def test_flapping_is_told_apart_from_restarts(heard: DataFrame) -> None:
    times = mesh_nodes.presence(heard, health.sessions(heard))
    nodes = mesh_nodes.nodes(times, health.flapping(heard, SETTINGS), SETTINGS, NOON + END)
    columns = ("node", "hashes", "state", "restarts", "recent_restarts", "comings", "flapping_seen_by", "namesakes")
    assert table(nodes, *columns, "line") == [
        ("dave", "0006", "flapping", 0, 0, 4, 2, 0, "............+++++......."),
        ("eve", "0008", "lost", 0, 0, None, None, 0, "###....................."),
        ("carol", "0003, 0004, 0005", "here", 2, 2, None, None, 0, "############+###########"),
        ("ann", "0001", "here", 0, 0, None, None, 0, "########################"),
        ("bob", "0002, 0007", "here", 0, 0, None, None, 1, "########################"),
    ]


def test_names_stand_beside_hashes_in_the_order_of_the_report(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(str(number), number) for number in range(9)], "sender string, count int")
    known = spark.createDataFrame([("3", "bob"), ("7", "carol")], "peer string, name string")
    found = health.with_names(frame.orderBy(frame["count"].desc()), known, "sender")
    assert found.columns == ["sender", "sender_name", "count"]
    assert [tuple(row)[:2] for row in found.collect()][:3] == [("8", None), ("7", "carol"), ("6", None)]
