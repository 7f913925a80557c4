"""Writing Delta tables: the archive beside Spark's own Parquet writer, and an archive of many streams.

    python -m bench.spark --only lake

The rows are those of the source by path, in all cases. A Delta table is written by one batch query, as Parquet is, and
by the streaming query of `archive`, whose start takes a second or two however few rows there are. Processor times are
of this process, the JVM and the Python workers together: they say more than the clock on a busy machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from bench.report import table
from bench.spark_tasks import fill_streams
from zambezi.spark.pipelines import PIPELINES, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS: Final = 9_990
ARCHIVE_SECONDS: Final = 60.0  # the bar for the archive of all of them
WRITE: Final = 0.9  # the bar for Delta to Parquet


class Costs:
    """Seconds by the clock, and of processors."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.processor: list[float] = []

    def measure(self, work: Any) -> None:
        used, began = processor(), time.perf_counter()
        work()
        self.clock.append(time.perf_counter() - began)
        self.processor.append(processor() - used)

    def row(self, name: str, rows: int) -> list[str]:
        clock, used = statistics.median(self.clock), statistics.median(self.processor)
        return [name, f"{clock:.1f}", f"{used:.1f}", f"{rows / clock / 1e6:.2f}"]


def processor() -> float:
    """Return the seconds of processor of this process and its descendants, those that have ended included."""
    own = psutil.Process(os.getpid())
    found = 0.0
    for one in (own, *own.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def run_lake(
    spark: SparkSession, work: Path, stream: str, messages: int, rounds: int
) -> list[tuple[str, float, float]]:
    """Measure, print, and return the bars."""
    data = {"path": str(work / "data"), "streams": stream}
    parquet, delta, archive, many = Costs(), Costs(), Costs(), Costs()

    def write_parquet() -> None:
        rows = spark.read.format("zeps").options(path=str(work / "data"), stream=stream).load()
        rows.write.mode("overwrite").parquet(str(work / "plain"))

    def write_delta() -> None:
        Run(spark, PIPELINES["archive"], str(work / "lake"), data).once()

    def write_archive() -> None:
        shutil.rmtree(work / "archive", ignore_errors=True)
        Run(spark, PIPELINES["archive"], str(work / "archive"), data).catch_up()

    for turn in range(rounds + 1):
        for costs, action in ((parquet, write_parquet), (delta, write_delta), (archive, write_archive)):
            (costs if turn else Costs()).measure(action)  # the first round is for the JVM to get warm
    fill_streams(work / "many", STREAMS)
    many.measure(lambda: Run(spark, PIPELINES["archive"], str(work / "small"), {"path": str(work / "many")}).catch_up())
    print("\n### Writing tables\n")
    rows = [
        parquet.row("Spark's own Parquet", messages),
        delta.row("a Delta table", messages),
        archive.row("archive, a Delta table by a streaming query", messages),
        many.row(f"archive of {STREAMS:,} streams of 20 messages", 20 * STREAMS),
    ]
    print(table(["", "seconds", "seconds of processors", "million rows/s"], rows), flush=True)
    ratio = statistics.median(parquet.clock) / statistics.median(delta.clock)
    used = statistics.median(parquet.processor) / statistics.median(delta.processor)
    return [
        ("write to Delta, to Parquet", ratio, WRITE),
        ("write to Delta, to Parquet, processor time", used, WRITE),
        (f"archive of {STREAMS:,} streams, {ARCHIVE_SECONDS:g} s to its time", ARCHIVE_SECONDS / many.clock[0], 1.0),
    ]
