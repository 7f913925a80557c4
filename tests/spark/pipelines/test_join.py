"""`join`, on small tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.pipelines.frames import NOON, messages, stream, table
from zambezi.spark.limits import JoinLimits, Limits
from zambezi.spark.pipelines import join
from zambezi.spark.pipelines.pipeline import Cache, Settings
from zambezi.spark.pipelines.results import compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = Settings(left="orders", right="invoices", within=5, read_up_to=NOON + 100)
ROWS = stream([(0, "a", b""), (1, "b", b""), (2, "c", b""), (98, "d", b"")], "orders")
ROWS += stream([(0.25, "a", b""), (4, "b", b""), (9, "c", b""), (10, "nobody", b"")], "invoices")
ROWS += stream([(0, "a", b"")], "unrelated")


def test_pairs_unmatched_messages_latency_and_the_verdict(spark: SparkSession, cache: Cache) -> None:
    reduced = cache(join.reduce(join.prepare(messages(spark, ROWS), SETTINGS), SETTINGS))
    results = compute(join.reports(reduced, SETTINGS, cache))
    found = {one.name: one.found for one in results}
    assert [list(row.values()) for row in found["join-sides"].records()] == [
        ["left", "orders", 4, 4, 2, 1, 33.3, 1, 0, 0],
        ["right", "invoices", 4, 4, 2, 2, 50.0, 0, 0, 0],
    ]
    (latency,) = found["join-latency"].records()
    assert (latency["pairs"], latency["fastest_s"], latency["slowest_s"]) == (2, 0.25, 3.0)
    assert [row[1:] for row in found["join-unmatched"].rows] == [
        ["right", "nobody", 4],
        ["right", "c", 3],
        ["left", "c", 3],
    ]
    assert found["join-keys"].rows[0] == ["c", 1, 1, 0, 1, 1, None, None]
    assert join.judge(found, SETTINGS).lines() == [
        "healthy: no, because 1 message of orders (33.3 %) had no match within 5 s",
        "  and 2 messages of invoices (50 %) had no match within 5 s",
    ]
    slow = Settings(left="orders", right="invoices", limits=Limits(join=JoinLimits(left=50.0, right=50.0, p95=1.0)))
    assert join.judge(found, slow).lines() == [
        "healthy: no, because 5 % of the pairs took longer than 3 s (at most 1 s)"
    ]
    lengths, rates = join.figures(reduced, SETTINGS, cache)
    assert "2 pairs" in lengths.chart.notes[0]
    assert "left: waiting" in rates.chart.svg
    assert rates.notes == ()


def test_a_right_message_before_the_first_left_one_is_not_judged(spark: SparkSession, cache: Cache) -> None:
    rows = stream([(3, "a", b"")], "orders", first=7) + stream([(1, "b", b"")], "invoices", first=7)
    rows += stream([(50, "c", b"")], "invoices", first=8)
    settings = Settings(left="orders", right="invoices", within=5, by="nullif(key, 'c')", read_up_to=NOON + 100)
    reduced = cache(join.prepare(messages(spark, rows), settings))
    found = join.outcomes(reduced, settings)
    counted = table(join.sides(found, reduced, settings), "side", "unmatched", "of_unmatched", "unknown", "no_key")
    assert counted == [("left", 1, 100.0, 0, 0), ("right", 0, None, 1, 1)]
