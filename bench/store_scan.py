"""A full scan by Spark from an object store, beside the same scan from a data directory on the local disk.

    python -m bench.store_scan [--messages 2000000] [--rounds 5] [--cores 2]

The messages have 100 bytes. The stores are `weed` of SeaweedFS on this machine, if it is installed, and a directory. A
scan reads all columns of all messages to nowhere. The scans take turns; the results are medians, and the ratio is the
median of the ratios of a round. The bar: `weed` at least 0.8x of the local disk.

The store shares the cores with Spark here. So the table also has the processor time of both for each message, and the
ratio that the store would have with cores of its own: by the processor time of Spark alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.report import environment, table
from bench.spark import STREAM, fill, processor_times, timed
from tests.zeps.store.weed import running_weed, weed_path
from zambezi.spark import session
from zambezi.zeps.journal import Store
from zambezi.zeps.store.catalog import check_format
from zambezi.zeps.store.copying import copy_stream
from zambezi.zeps.store.shell import ObjectStore

BAR: Final = 0.8
LOCAL: Final = "data directory"


class Scan(NamedTuple):
    """What a scan took, in seconds: by the clock, and of the processor."""

    clock: float
    spark: float
    store: float


def copy(data: Path, url: str, options: dict[str, str]) -> None:
    """Copy the stream to a store."""
    store = ObjectStore(url, options)
    store.run(check_format(create=True))
    with Store(data, write=False) as journals:
        copy_stream(store, journals.open(STREAM, create=False))
    store.close()


def scan(messages: int, rounds: int, cores: int) -> dict[str, list[Scan]]:
    """Return what the scans took, by origin."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-scan-")))
        fill(base / "data", messages)
        origins = {LOCAL: {"path": str(base / "data")}, "directory": {"path": str(base / "store")}}
        copy(base / "data", str(base / "store"), {})
        store = os.getpid()  # without a process of the store: this one has nothing to do
        if weed_path() is not None:
            (base / "weed").mkdir()
            weed = stack.enter_context(running_weed(base / "weed", volumes=100))
            store = weed.pid
            copy(base / "data", weed.url("scan"), weed.options)
            origins["weed"] = {"path": weed.url("scan"), "storeOptions": json.dumps(weed.options)}
        settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.log.level": "ERROR"}
        spark = session(f"local[{cores}]", name="bench", settings=settings)
        stack.callback(spark.stop)
        took: dict[str, list[Scan]] = {name: [] for name in origins}
        for number in range(rounds + 1):
            for name, options in origins.items():
                reading = spark.read.format("zeps").options(**options, stream=STREAM).load().write.format("noop")
                before = processor_times(store)
                seconds = timed(reading.mode("overwrite").save)
                used = {kind: now - before[kind] for kind, now in processor_times(store).items()}
                if number:  # the first round warms up
                    took[name].append(Scan(seconds, used["java"] + used["python"], used["broker"]))
    return took


def ratio_of(took: dict[str, list[Scan]], name: str) -> float:
    """Return how fast an origin is beside the local disk."""
    return statistics.median(local.clock / own.clock for local, own in zip(took[LOCAL], took[name], strict=True))


def median_of(scans: list[Scan]) -> Scan:
    """Return the medians of the figures."""
    return Scan(*(statistics.median(figures) for figures in zip(*scans, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    print(environment({}))
    took = scan(arguments.messages, arguments.rounds, arguments.cores)
    local = median_of(took[LOCAL])
    rows = []
    for name, times in took.items():
        ratio, median = ratio_of(took, name), median_of(times)
        bar = "" if name != "weed" else f">= {BAR}" + ("" if ratio >= BAR else ", missed")
        processor = [f"{seconds / arguments.messages * 1e6:.2f}" for seconds in (median.spark, median.store)]
        rate = arguments.messages / median.clock / 1e6
        rows.append([name, f"{rate:.2f}", f"{ratio:.2f}x", bar, *processor, f"{local.spark / median.spark:.2f}x"])
    head = ["full scan", "million messages/s", "to the data directory", "bar"]
    print(table([*head, "us/message, Spark", "us/message, store", "Spark's processor alone"], rows))


if __name__ == "__main__":
    main()
