"""The cost of `sync = "always"` beside `sync = "interval"`: a flood, the time of a flush, and publishers that flush.

    python -m bench.durability [--rounds 3]

Each measurement starts a new broker with an empty directory. `flood` is one publisher that sends as fast as it can and
flushes at the end. `flush` is one publisher that flushes after each message. `publishers` are 50 connections that all
flush after each message; the broker answers many of them after one fsync, and the table says after how many. The two
policies take turns, and each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any, Final, Literal, TypeAlias

from bench.report import environment, table
from zambezi.server.process import keep_memory
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.broker import Broker
from zambezi.zeps.journal import Policy

Sync: TypeAlias = Literal["always", "interval"]
Measure: TypeAlias = Callable[[Client], Coroutine[Any, Any, float]]

POLICIES: Final[tuple[Sync, ...]] = ("always", "interval")
BODY: Final = bytes(100)
FLOOD: Final = 1_000_000
PART: Final = 1000  # messages of one call
FLUSHES: Final = 500
PUBLISHERS: Final = 50

_fork = multiprocessing.get_context("fork")


async def _serve(directory: str, sync: Sync, pipe: Connection) -> None:
    async with Broker(directory, policy=Policy(sync=sync)) as broker:
        pipe.send(broker.bind("tcp://127.0.0.1:*"))
        await asyncio.to_thread(pipe.recv)
        pipe.send(broker.syncs)


def serve(directory: str, sync: Sync, pipe: Connection) -> None:
    """Run a broker until the parent process says that it is enough."""
    keep_memory()
    asyncio.run(_serve(directory, sync, pipe))


async def flood(client: Client) -> float:
    """Return the messages per second of one publisher."""
    stream = client.stream("flood")
    began = time.perf_counter()
    for _ in range(FLOOD // PART):
        await stream.publish_many([("key", BODY)] * PART)
    await stream.flush()
    return FLOOD / (time.perf_counter() - began)


async def _flushes(stream: Stream, count: int) -> list[float]:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await stream.publish("key", BODY)
        await stream.flush()
        took.append(time.perf_counter() - began)
    return took


async def flush(client: Client) -> float:
    """Return the median time of a flush in milliseconds."""
    stream = client.stream("flush")
    await _flushes(stream, 10)
    return statistics.median(await _flushes(stream, FLUSHES)) * 1000


async def publishers(client: Client) -> float:
    """Return the messages per second of many publishers that flush each message."""
    streams = [client.stream("shared") for _ in range(PUBLISHERS)]
    await asyncio.gather(*[_flushes(stream, 2) for stream in streams])
    began = time.perf_counter()
    await asyncio.gather(*[_flushes(stream, FLUSHES) for stream in streams])
    return PUBLISHERS * FLUSHES / (time.perf_counter() - began)


def measured(measure: Measure, sync: Sync) -> tuple[float, int]:
    """Return a figure, and the number of fsyncs."""

    async def run(endpoint: str) -> float:
        async with Client.connect(endpoint) as client:
            return await measure(client)

    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        ours, theirs = _fork.Pipe()
        process = _fork.Process(target=serve, args=(directory, sync, theirs), daemon=True)
        process.start()
        try:
            found = asyncio.run(run(ours.recv()))
            ours.send(None)
            return found, int(ours.recv())
        finally:
            process.join(10)
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the median")
    arguments = parser.parse_args()
    print(environment({}))
    rows = []
    measures: dict[str, Measure] = {
        "flood, messages/s": flood,
        "flush of one message, ms": flush,
        f"{PUBLISHERS} publishers that flush each message, messages/s": publishers,
    }
    for name, measure in measures.items():
        found: dict[Sync, list[tuple[float, int]]] = {sync: [] for sync in POLICIES}
        for _ in range(arguments.rounds):
            for sync in POLICIES:
                found[sync].append(measured(measure, sync))
        for sync in POLICIES:
            figure = statistics.median(one for one, _ in found[sync])
            syncs = statistics.median(count for _, count in found[sync])
            rows.append([name, sync, f"{figure:,.2f}" if figure < 100 else f"{figure:,.0f}", f"{syncs:,.0f}"])
    print(table(["measurement", "sync", "result", "fsyncs"], rows))


if __name__ == "__main__":
    main()
