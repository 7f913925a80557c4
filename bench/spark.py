"""The Spark source and sink beside Parquet and JSON lines, in one session, over the same messages of 100 octets.

    python -m bench.spark [--messages 5000000] [--rounds 3] [--cores 2] [--only sink|queries|lake|latency|small]

Count, groupBy(key), a scan of all columns to nowhere, and a write to Parquet, from the source by path and by endpoint
(a broker in a process of its own), from Parquet and from JSON lines that have the same rows, and from a source that has
its rows ready (bench.spark_floor), which no source in Python can pass. Then decoding alone on one core, the sink beside
our own client's batched publish, a streaming query over everything, how long a small batch takes, Delta tables
(bench.spark_lake), the time from publish to sink (bench.spark_latency), and small batches, many streams and CURVE
(bench.spark_small). Each figure is the median of the rounds, which take turns; the bars are those of the design. The
sink's figures include the processor time of each process, which says more than the clock if other programs use the
machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyspark
from pyspark.sql import DataFrame, SparkSession  # noqa: TC002 - what is measured

from bench.report import Bars, environment, table
from bench.spark_broker import broker
from bench.spark_floor import ReadyBatches, ready_rows
from bench.spark_latency import run_latency
from zambezi.spark import session
from zambezi.spark.columns import BatchTimes, EncodedMessages, RecordBatchBuilder
from zambezi.spark.source import SCHEMA
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Store
from zambezi.zeps.sync import Client

STREAM = "readings"
SIZE = 100
BATCH = 8192
READY = "ready batches (the floor of Python sources)"
OWN = "our client, publish_many"
SINK = "sink"  # of rows in memory, as our client has them
PARQUET = "sink, from Parquet"
SMALL = "sink, from Parquet, small rows"
LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = ("sink", "queries", "lake", "latency", "small")
FEW = "sequence long, timestamp timestamp, key string, body binary"


def frames(start: int, count: int) -> list[bytes]:
    """PUBLISH messages: 100 keys in turn, bodies of 100 octets."""
    head = b"\xaa\xa5\x06\x0asensor.%03d" + SIZE.to_bytes(4, "big") + b"%b"
    return [head % (number % 100, body) for number, body in enumerate(bodies(start, count), start)]


def bodies(start: int, count: int) -> list[bytes]:
    """Text as random as base64: what compresses to nothing would be a gift to Parquet, and is nobody's telemetry."""
    text = b64encode(Random(start).randbytes(count * SIZE * 3 // 4))
    return [text[place : place + SIZE] for place in range(0, count * SIZE, SIZE)]


def fill(path: Path, messages: int) -> None:
    with Store(path) as store:
        journal = store.open(STREAM)
        for start in range(0, messages, BATCH):
            made = deliver(frames(start, min(BATCH, messages - start)), journal.last + 1)
            journal.append(made, 1_700_000_000 + start / 1_000_000)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def decode_alone(rounds: int) -> list[list[str]]:
    """One core, no Spark: a window of the log to a record batch."""
    schema = pa.schema(
        [
            ("sequence", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("key", pa.string()),
            ("body", pa.binary()),
        ]
    )
    alike = frames(0, 2 * BATCH)
    varied = [frame[:4] + frame[4 : 4 + frame[3]] + (SIZE - n % 40).to_bytes(4, "big") + frame[-(SIZE - n % 40) :]
              for n, frame in enumerate(alike)]  # fmt: skip
    rows = []
    for name, some in (("all of one size", alike), ("of 60 to 100 octets", varied)):
        window = EncodedMessages(deliver(some, 1).octets, 1, BatchTimes(np.array([1]), np.array([1])))
        shaper = RecordBatchBuilder(schema, STREAM, "")
        took = statistics.median(
            timed(lambda window=window, shaper=shaper: list(shaper.build(window, 0, 1 << 62)))  # type: ignore[misc]
            for _ in range(20 * rounds)
        )
        rows.append([name, f"{len(some) / took / 1e6:.1f}"])
    return rows


class Measured:
    """Seconds by work and origin."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[float]] = {}

    def add(self, work: str, origin: str, seconds: float) -> None:
        self.seconds.setdefault((work, origin), []).append(seconds)

    def __getitem__(self, key: tuple[str, str]) -> float:
        return statistics.median(self.seconds[key])


def queries(
    spark: SparkSession, origins: dict[str, Callable[[], DataFrame]], work: Path, rounds: int, measured: Measured
) -> None:
    out = str(work / "out")
    tasks: dict[str, Callable[[DataFrame], object]] = {
        "count": lambda frame: frame.count(),
        "groupBy(key)": lambda frame: frame.groupBy("key").count().collect(),
        "full scan": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "write Parquet": lambda frame: frame.write.mode("overwrite").parquet(out),
    }
    for turn in range(rounds + 1):
        for name, origin in origins.items():
            for task, run in tasks.items():
                seconds = timed(lambda run=run, origin=origin: run(origin()))  # type: ignore[misc]
                if turn:  # the first round is for the JVM to get warm
                    measured.add(task, name, seconds)
    shutil.rmtree(out, ignore_errors=True)


def client_rate(endpoint: str, messages: int) -> float:
    """Messages per second of our own client, published in batches, up to the barrier."""
    items = [(f"sensor.{number % 100:03d}", body) for number, body in enumerate(bodies(0, messages))]
    with Client.connect(endpoint) as client:
        stream = client.stream("client")
        start = time.perf_counter()
        stream.publish_many(items)
        stream.flush()
        return messages / (time.perf_counter() - start)


def sink_rate(rows: DataFrame, endpoint: str, messages: int) -> float:
    options = {"endpoint": endpoint, "stream": "sink"}
    return messages / timed(lambda: rows.write.format("zeps").options(**options).mode("append").save())


def processor_times(broker: int) -> dict[str, float]:
    """Seconds of processor, so far, of Java, of the Python workers below it, and of the broker."""
    found: dict[int, tuple[str, int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition(" (")[2].rpartition(") ")
            fields = rest.split()
            counted = fields[11:13] if name == "java" else fields[11:15]  # with workers that have ended
            found[int(stat.parent.name)] = (name, int(fields[1]), sum(map(int, counted)) / TICKS)
    sums = {"java": 0.0, "python": 0.0, "broker": found[broker][2]}
    for pid, (name, parent, seconds) in found.items():
        above = parent
        while above in found and above != os.getpid():
            above = found[above][1]
        if above == os.getpid() and pid != broker:
            sums["java" if name == "java" else "python"] += seconds
    return sums


class Sinks:
    """Our own client, the sink, and the sink for rows that are known to be small, in turns."""

    def __init__(self, spark: SparkSession, files: Path, endpoint: str, broker: int, messages: int) -> None:
        self.spark, self.endpoint, self.broker, self.messages = spark, endpoint, broker, messages
        self.files = spark.read.parquet(str(files)).select("key", "body")
        self.rows = self.files.where("key <> ''").cache()  # a plan of its own: the files are not cached
        self.rows.count()
        self.rates: dict[str, list[float]] = {OWN: [], SINK: [], PARQUET: [], SMALL: []}
        self.times: dict[str, list[dict[str, float]]] = {SINK: [], PARQUET: [], SMALL: []}

    def measure(self, rounds: int) -> None:
        for turn in range(rounds + 2):  # the first two are for the JVM to get warm
            taken = {
                OWN: client_rate(self.endpoint, max(1, self.messages // 4)),
                SINK: self._sink(SINK, self.rows),
                PARQUET: self._sink(PARQUET, self.files),
            }
            # Without a limit in octets Spark does not add up the size of a batch after each row.
            self.spark.conf.set(LIMIT, str((1 << 31) - 1))
            taken[SMALL] = self._sink(SMALL, self.files)
            self.spark.conf.unset(LIMIT)
            if turn > 1:
                for name, rate in taken.items():
                    self.rates[name].append(rate)
            else:
                self.times = {SINK: [], PARQUET: [], SMALL: []}

    def _sink(self, name: str, rows: DataFrame) -> float:
        before = processor_times(self.broker)
        rate = sink_rate(rows, self.endpoint, self.messages)
        after = processor_times(self.broker)
        self.times[name].append({what: after[what] - before[what] for what in after})
        return rate

    def rate(self, name: str) -> float:
        return statistics.median(self.rates[name])

    def processor_table(self) -> str:
        """Microseconds of processor for each row."""
        kinds = ["java", "python", "broker"]
        rows = []
        for name, times in self.times.items():
            each = [statistics.median(one[kind] for one in times) / self.messages * 1e6 for kind in kinds]
            rows.append([name, *(f"{figure:.2f}" for figure in (*each, sum(each)))])
        return table(["us/row of processor", *kinds, "sum"], rows)

    def bars(self) -> list[tuple[str, float, float]]:
        return [(f"{name}, to our client", self.rate(name) / self.rate(OWN), 0.9) for name in (SINK, SMALL)]


def streaming(spark: SparkSession, options: dict[str, str], work: Path, messages: int) -> float:
    query = (
        spark.readStream.format("zeps")
        .schema(FEW)
        .options(**options, startingSequence="earliest", maxMessagesPerTrigger=str(max(1, messages // 4)))
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(work / "streaming"))
        .trigger(availableNow=True)
    )
    seconds = timed(lambda: query.start().awaitTermination())
    shutil.rmtree(work / "streaming", ignore_errors=True)
    return messages / seconds


def latency(spark: SparkSession, endpoint: str, work: Path, rounds: int) -> list[float]:
    """Milliseconds that a batch of one message takes, by Spark's own account."""
    with Client.connect(endpoint) as client:
        stream = client.stream("small")
        stream.publish("k", b"first")
        stream.flush()
        query = (
            spark.readStream.format("zeps")
            .options(endpoint=endpoint, stream="small")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(work / "small"))
            .start()
        )
        try:
            took: list[float] = []
            deadline = time.monotonic() + 120
            while len(took) < 5 * rounds + 3 and time.monotonic() < deadline:
                known = len(query.recentProgress)
                stream.publish("k", b"one")
                stream.flush()
                patience = time.monotonic() + 5  # the query may have begun after this message
                while time.monotonic() < min(deadline, patience):
                    found = [one for one in query.recentProgress[known:] if one.numInputRows]
                    if found:
                        took.append(float(found[-1].durationMs["triggerExecution"]))
                        break
                    time.sleep(0.01)
            return took[3:]
        finally:
            query.stop()


def main() -> None:
    from bench.spark_lake import run_lake  # noqa: PLC0415 - it needs the messages of this module
    from bench.spark_small import run_small  # noqa: PLC0415 - so does it

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (the median counts)")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--only", choices=("sink", "queries", "lake", "latency", "small"), help="a part of the measurements"
    )
    arguments = parser.parse_args()
    messages, rounds = arguments.messages, arguments.rounds
    print(environment({"Spark": pyspark.__version__, "Arrow": pa.__version__, "numpy": np.__version__}), flush=True)
    rows = Bars("spark")
    bars: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        fill(work / "data", messages)
        settings = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.log.level": "ERROR"}
        spark = session(f"local[{arguments.cores}]", name="bench", settings=settings)
        read(spark, work).write.parquet(str(work / "parquet"))
        with broker(work / "data") as (where, pid):
            endpoint = where["endpoint"]
            if arguments.only in (None, "queries"):
                run_queries(spark, work, endpoint, messages, rounds, rows)
            if arguments.only in (None, "sink"):
                bars += run_sink(spark, work, endpoint, pid, messages, rounds)
            if arguments.only in (None, "lake"):
                bars += run_lake(spark, work, STREAM, messages, rounds)
            if arguments.only in (None, "latency"):
                bars += run_latency(spark, work, endpoint, rounds)
            if arguments.only in (None, "small"):
                run_small(spark, work, rounds, rows)
        spark.stop()
    for bar in bars:
        rows.at_least(*bar)
    rows.show()


def read(spark: SparkSession, work: Path, schema: str = SCHEMA, **options: str) -> DataFrame:
    """Return the table of all messages, by path unless there is an endpoint."""
    where = options or {"path": str(work / "data")}
    return spark.read.format("zeps").schema(schema).options(stream=STREAM, **where).load()


def run_queries(spark: SparkSession, work: Path, endpoint: str, messages: int, rounds: int, bars: Bars) -> None:
    print("\n### Decode alone, one core\n")
    print(table(["messages", "million/s (bar 8)"], decode_alone(rounds)), flush=True)

    text = [f"cast({name} as string) as {name}" if name == "body" else name for name in read(spark, work).columns]
    read(spark, work).selectExpr(*text).write.json(str(work / "json"))
    columns = SCHEMA.replace("body binary", "body string")
    origins: dict[str, Callable[[], DataFrame]] = {
        "path": lambda: read(spark, work),
        "path, four columns": lambda: read(spark, work, FEW),
        "endpoint": lambda: read(spark, work, endpoint=endpoint),
        "Parquet": lambda: spark.read.parquet(str(work / "parquet")),
        "JSON lines": lambda: spark.read.schema(columns).json(str(work / "json")),
        READY: lambda: ready_rows(spark, messages),
    }
    spark.dataSource.register(ReadyBatches)
    measured = Measured()
    queries(spark, origins, work, rounds, measured)
    for _ in range(rounds):  # without the log
        seconds = timed(lambda: read(spark, work, "sequence long").count())
        measured.add("count", "path, sequence only", seconds)
    tasks = ["count", "groupBy(key)", "full scan", "write Parquet"]
    print(f"\n### {messages} messages of {SIZE} octets, million rows/s\n")
    rows = [[name, *(f"{messages / measured[task, name] / 1e6:.2f}" for task in tasks)] for name in origins]
    print(table(["", *tasks], rows), flush=True)
    through = statistics.median(streaming(spark, {"path": str(work / "data"), "stream": STREAM}, work, messages)
                                for _ in range(rounds))  # fmt: skip
    small = latency(spark, endpoint, work, rounds)
    print("\n### Streaming\n")
    rows = [
        ["streaming by path, 4 batches, to nowhere", f"{through / 1e6:.2f} million/s"],
        ["a batch of one message, by endpoint", f"{statistics.median(small):.0f} ms" if small else "none came"],
    ]
    print(table(["", "median"], rows), flush=True)

    def compare(name: str, task: str, ours: str, other: str, bar: float, *beside: str) -> None:
        rates = {origin: f"{messages / measured[task, origin] / 1e6:.2f}" for origin in (ours, other, *beside)}
        bars.at_least(
            name,
            measured[task, other] / measured[task, ours],
            bar,
            result=f"{rates.pop(ours)} million rows/s",
            beside=", ".join(f"{origin} {rate}" for origin, rate in rates.items()),
        )

    compare("path, count, to JSON lines", "count", "path", "JSON lines", 1.3)
    compare("path, count of sequences, to Parquet", "count", "path, sequence only", "Parquet", 0.5)
    compare("path, full scan, to Parquet", "full scan", "path", "Parquet", 1.0, READY)
    compare("path, write Parquet, to Parquet", "write Parquet", "path", "Parquet", 0.9)
    compare("endpoint to path, full scan", "full scan", "endpoint", "path", 0.6)


def run_sink(
    spark: SparkSession, work: Path, endpoint: str, broker: int, messages: int, rounds: int
) -> list[tuple[str, float, float]]:
    sinks = Sinks(spark, work / "parquet", endpoint, broker, messages)
    sinks.measure(rounds)
    print(f"\n### Sink, {messages} rows\n")
    print(table(["", "median"], [[name, f"{sinks.rate(name) / 1e6:.2f} million/s"] for name in sinks.rates]))
    print()
    print(sinks.processor_table(), flush=True)
    return sinks.bars()


if __name__ == "__main__":
    main()
