"""Queries by endpoint that are hard for a broker: many streams, messages that were published singly, and CURVE.

    python -m bench.spark --only small

10,000 streams of 20 messages; a million messages, each in a batch of its own; and a million in large batches, with
NULL and with CURVE. All columns are read, and the time of the broker's processor is shown beside the clock.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.brokers.system import processor_time
from bench.report import Bars, table
from bench.spark import BATCH
from bench.spark_broker import broker
from bench.spark_tasks import fill, fill_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS: Final = 10_000
MESSAGES: Final = 1_000_000
STREAMS_SECONDS: Final = 30.0  # the bar for all of the streams
SINGLE: Final = 1.0  # million rows per second: the bars
CURVE: Final = 0.8


def scan(spark: SparkSession, path: Path, rows: int, rounds: int, *, curve: bool = False) -> tuple[float, float]:
    """Read all columns of all messages. Return the seconds of a round, by the clock and of the broker's processor."""
    clock, used = [], []
    with broker(path, curve=curve) as (options, pid):
        for _ in range(rounds + 1):
            began, before = time.perf_counter(), processor_time(pid)
            table = spark.read.format("zeps").options(streamPattern="", **options).load()
            found = table.selectExpr("count(body)", "sum(sequence)", "max(key)", "max(stream)").collect()
            clock.append(time.perf_counter() - began)
            used.append(processor_time(pid) - before)
            assert found[0][0] == rows, found
    return statistics.median(clock[1:]), statistics.median(used[1:])  # the first round is for the JVM to get warm


def run_small(spark: SparkSession, work: Path, rounds: int, bars: Bars) -> None:
    """Measure, print, and add the bars."""
    fill(work / "large", MESSAGES, BATCH)
    fill(work / "single", MESSAGES, 1)
    fill_streams(work / "streams", STREAMS)
    streams = scan(spark, work / "streams", 20 * STREAMS, rounds)
    single = scan(spark, work / "single", MESSAGES, rounds)
    large = scan(spark, work / "large", MESSAGES, rounds)
    secret = scan(spark, work / "large", MESSAGES, rounds, curve=True)
    measured = {
        f"{STREAMS:,} streams of 20 messages": (streams, 20 * STREAMS),
        "messages in batches of one": (single, MESSAGES),
        f"messages in batches of {BATCH:,}": (large, MESSAGES),
        "the same, with CURVE": (secret, MESSAGES),
    }
    print("\n### By endpoint: many streams, small batches, CURVE\n")
    rows = [
        [name, f"{clock:.1f}", f"{used:.1f}", f"{count / clock / 1e6:.2f}"]
        for name, ((clock, used), count) in measured.items()
    ]
    print(table(["", "seconds", "of the broker's processor", "million rows/s"], rows), flush=True)
    seconds = STREAMS_SECONDS
    bars.at_most(f"{STREAMS:,} streams by endpoint", streams[0], seconds, " s", processor=f"broker {streams[1]:.1f} s")
    null = f"batches of {BATCH:,}, NULL {MESSAGES / large[0] / 1e6:.2f}"
    for name, found, least in (("batches of one message", single, SINGLE), ("with CURVE", secret, CURVE)):
        processor = f"broker {found[1] / MESSAGES * 1e6:.2f} us/row beside {large[1] / MESSAGES * 1e6:.2f}"
        rate = MESSAGES / found[0] / 1e6
        bars.at_least(f"endpoint, {name}", rate, least, " million rows/s", beside=null, processor=processor)
