"""The tasks of the Spark source alone, without the JVM: what a row costs in the task and in the broker.

    python -m bench.spark_tasks [--messages 1000000] [--streams 10000]

Three journals: messages in large batches, messages that were published one by one, and many small streams. Each is
planned and read as a task does it, by path, by endpoint and by endpoint with CURVE. Processor time is what counts on a
machine that others use.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.types import StructType

from bench.brokers.system import processor_time
from bench.report import environment, table
from bench.spark import BATCH, STREAM, frames
from bench.spark_broker import broker
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.options import BATCH as QUERY
from zambezi.spark.options import Options
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Policy, Store

ALL = "stream string, sequence long, timestamp timestamp, key string, body binary, incarnation string"
BARE = "stream string, sequence long, timestamp timestamp"


def schema_of(columns: str) -> StructType:
    schema = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        schema = schema.add(name, kind, nullable=False)
    return schema


def fill(path: Path, messages: int, batch: int) -> None:
    """One stream, `batch` messages to an entry of the index."""
    some = frames(0, BATCH)
    with Store(path, policy=Policy(sync="never")) as store:
        journal = store.open(STREAM)
        while journal.last < messages:
            start = journal.last % BATCH
            made = some[start : start + min(batch, messages - journal.last)]
            journal.append(deliver(made, journal.last + 1), 1_700_000_000 + journal.last / 1e6)


def fill_streams(path: Path, streams: int) -> None:
    """Many streams of 20 messages."""
    some = deliver(frames(0, 20), 1)
    with Store(path, policy=Policy(sync="never")) as store:
        for number in range(streams):
            store.open(f"device/{number:05d}").append(some, 1_700_000_000)


def read(path: Path, way: str, columns: str) -> tuple[int, float, float, float]:
    """Read everything; return the rows, and seconds: by the clock, of the task and of the broker."""
    if way == "path":
        return _read({"path": str(path)}, columns, lambda: 0.0)
    with broker(path, curve="CURVE" in way) as (options, pid):
        return _read(options, columns, lambda: processor_time(pid))


def _read(options: dict[str, str], columns: str, used: Callable[[], float]) -> tuple[int, float, float, float]:
    began, task, other = time.perf_counter(), time.process_time(), used()
    reader = BatchReader(schema_of(columns), Options({"streamPattern": "", **options}, QUERY))
    rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    return rows, time.perf_counter() - began, time.process_time() - task, used() - other


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3, help="the one with the least processor time counts")
    arguments = parser.parse_args()
    print(environment({}), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        fill(work / "large", arguments.messages, BATCH)
        fill(work / "single", arguments.messages, 1)
        fill_streams(work / "streams", arguments.streams)
        rows = []
        for name, columns in (("large", ALL), ("large", BARE), ("single", ALL), ("streams", ALL)):
            for way in ("path", "endpoint", "endpoint, CURVE"):
                every = [read(work / name, way, columns) for _ in range(arguments.rounds)]
                found = min(every, key=lambda one: sum(one[2:]))
                count, clock, task, broker = found
                what = f"{name}, columns of the index" if columns == BARE else name
                figures = (count / clock / 1e6, clock, task / count * 1e6, broker / count * 1e6)
                rows.append([what, way, *(f"{figure:.2f}" for figure in figures)])
                print(rows[-1], flush=True)
    print(table(["journal", "way", "million rows/s", "seconds", "us/row, task", "us/row, broker"], rows))


if __name__ == "__main__":
    main()
