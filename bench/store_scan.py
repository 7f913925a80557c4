"""A full scan by Spark from an object store, beside the same scan from a data directory on the local disk.

    python -m bench.store_scan [--messages 2000000] [--rounds 5] [--cores 2]

The messages have 100 bytes. The stores are `weed` of SeaweedFS on this machine, if it is installed, and a directory. A
scan reads all columns of all messages to nowhere. The scans take turns; the results are medians, and the ratio is the
median of the ratios of a round. The bar: `weed` at least 0.8x of the local disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.report import environment, table
from bench.spark import STREAM, fill, timed
from tests.zeps.store.weed import running_weed, weed_path
from zambezi.spark import session
from zambezi.zeps.journal import Store
from zambezi.zeps.store.catalog import check_format
from zambezi.zeps.store.copying import copy_stream
from zambezi.zeps.store.shell import ObjectStore

BAR: Final = 0.8
LOCAL: Final = "data directory"


def copy(data: Path, url: str, options: dict[str, str]) -> None:
    """Copy the stream to a store."""
    store = ObjectStore(url, options)
    store.run(check_format(create=True))
    with Store(data, write=False) as journals:
        copy_stream(store, journals.open(STREAM, create=False))
    store.close()


def scan(messages: int, rounds: int, cores: int) -> dict[str, list[float]]:
    """Return how many seconds the scans took, by origin."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-scan-")))
        fill(base / "data", messages)
        origins = {LOCAL: {"path": str(base / "data")}, "directory": {"path": str(base / "store")}}
        copy(base / "data", str(base / "store"), {})
        if weed_path() is not None:
            (base / "weed").mkdir()
            weed = stack.enter_context(running_weed(base / "weed", volumes=100))
            copy(base / "data", weed.url("scan"), weed.options)
            origins["weed"] = {"path": weed.url("scan"), "storeOptions": json.dumps(weed.options)}
        settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.log.level": "ERROR"}
        spark = session(f"local[{cores}]", name="bench", settings=settings)
        stack.callback(spark.stop)
        took: dict[str, list[float]] = {name: [] for name in origins}
        for number in range(rounds + 1):
            for name, options in origins.items():
                reading = spark.read.format("zeps").options(**options, stream=STREAM).load().write.format("noop")
                seconds = timed(reading.mode("overwrite").save)
                if number:  # the first round warms up
                    took[name].append(seconds)
    return took


def ratio_of(took: dict[str, list[float]], name: str) -> float:
    """Return how fast an origin is beside the local disk."""
    return statistics.median(local / own for local, own in zip(took[LOCAL], took[name], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    print(environment({}))
    took = scan(arguments.messages, arguments.rounds, arguments.cores)
    rows = []
    for name, times in took.items():
        ratio = ratio_of(took, name)
        bar = "" if name != "weed" else f">= {BAR}" + ("" if ratio >= BAR else ", missed")
        rate = arguments.messages / statistics.median(times)
        rows.append([name, f"{rate / 1e6:.2f}", f"{ratio:.2f}x", bar])
    print(table(["full scan", "million messages/s", "to the data directory", "bar"], rows))


if __name__ == "__main__":
    main()
