"""The time from a publish to the delivery of the message that a streaming query has published in turn.

    python -m bench.spark --only latency

A query reads a stream and publishes each message to another one. The next message is published when the last one has
come back and the batch has ended, so each message waits for one batch. Beside it stands Spark's own source of one row
for each batch, which writes to nowhere: a micro-batch cannot take less in this session.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.report import table
from zambezi.zeps.sync import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAR: Final = 100.0  # milliseconds
WARM: Final = 10
PATIENCE: Final = 60.0
PARTS: Final = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets", "triggerExecution")


def run_latency(spark: SparkSession, work: Path, endpoint: str, rounds: int) -> list[tuple[str, float, float]]:
    """Measure, print, and return the bars."""
    count = WARM + 20 * rounds
    there, parts = round_trips(spark, work / "trips", endpoint, count)
    floor = own_batches(spark, work / "floor", count)
    median = statistics.median(there)
    print("\n### Latency, milliseconds\n")
    rows = [["publish to delivery, p50", f"{median:.0f}"], ["publish to delivery, p90", f"{_p90(there):.0f}"]]
    print(table(["", "measured"], rows))
    print("\nOf a batch, by Spark's own account (medians):\n")
    named = {"zeps to zeps": parts, "Spark's own source to nowhere": floor}
    print(table(["", *PARTS], [[name, *(str(one.get(part, 0)) for part in PARTS)] for name, one in named.items()]))
    return [(f"publish to sink, {BAR:g} ms to its p50", BAR / median, 1.0)]


def _p90(values: list[float]) -> float:
    return sorted(values)[len(values) * 9 // 10]


def round_trips(spark: SparkSession, work: Path, endpoint: str, count: int) -> tuple[list[float], dict[str, int]]:
    """Return milliseconds from publish to delivery, and the parts of a batch."""
    with Client.connect(endpoint) as client:
        source, target = client.stream("asked"), client.stream("answered")
        for stream in (source, target):
            stream.publish("k", b"first")
            stream.flush()
        query = (
            spark.readStream.format("zeps")
            .schema("key string, body binary")
            .options(endpoint=endpoint, stream="asked", startingSequence="latest")
            .load()
            .writeStream.format("zeps")
            .options(endpoint=endpoint, stream="answered", checkpointLocation=str(work))
            .start()
        )
        try:
            with target.subscribe(since="latest") as answers:
                _wait_for_start(query)
                took = []
                for number in range(count):
                    began = time.perf_counter()
                    source.publish("k", b"%d" % number)
                    source.flush()
                    answers.recv(PATIENCE)
                    took.append((time.perf_counter() - began) * 1e3)
                    _wait_for_batch(query, number)
            return took[WARM:], _parts(query)
        finally:
            query.stop()


def _wait_for_start(query: Any) -> None:
    """Wait until the query has looked at its stream once: earlier messages are not for it."""
    deadline = time.monotonic() + PATIENCE
    while query.lastProgress is None and time.monotonic() < deadline:
        time.sleep(0.05)


def _wait_for_batch(query: Any, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        last = query.lastProgress
        if last is not None and last.batchId >= number and last.numInputRows == 0:
            return
        if query.exception() is not None or (last is not None and last.batchId > number):
            return
        time.sleep(0.01)
        if last is not None and last.batchId == number and not query.status["isTriggerActive"]:
            return


def own_batches(spark: SparkSession, work: Path, count: int) -> dict[str, int]:
    """Return the parts of a batch of Spark's own source."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(work)).start()
    try:
        deadline = time.monotonic() + PATIENCE
        while (query.lastProgress is None or query.lastProgress.batchId < count) and time.monotonic() < deadline:
            time.sleep(0.05)
        return _parts(query)
    finally:
        query.stop()


def _parts(query: Any) -> dict[str, int]:
    batches = [one.durationMs for one in query.recentProgress if one.numInputRows][WARM:]
    return {part: round(statistics.median(one.get(part, 0) for one in batches)) for part in PARTS} if batches else {}
