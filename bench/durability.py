"""The cost of `sync = "always"` beside `sync = "interval"`: a flood, the time of a flush, and publishers that flush.

    python -m bench.durability [--rounds 3]

Each measurement starts a new broker with an empty directory. `flood` is one publisher that sends as fast as it can and
flushes at the end. `flush` is one publisher that flushes after each message. `publishers` are 50 connections that all
flush after each message; the broker answers many of them after one fsync, and the table says after how many.

`always, plain` is the same with publishers that do not count their messages (without RESUME), as other clients do it:
then the journal has one file less to sync. All of them take turns, and each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from bench.report import environment, table
from zambezi.memory import keep_memory
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.broker import Broker
from zambezi.zeps.client import publisher_connection
from zambezi.zeps.journal import Policy
from zambezi.zeps.messages import ONCE

Sync: TypeAlias = Literal["always", "interval"]
Measure: TypeAlias = Callable[[list[Client]], Coroutine[Any, Any, float]]


class Way(NamedTuple):
    """A policy of the broker, and whether publishers count their messages."""

    name: str
    sync: Sync
    counts: bool = True


WAYS: Final = (Way("always", "always"), Way("always, plain", "always", False), Way("interval", "interval"))
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


async def flood(clients: list[Client]) -> float:
    """Return the messages per second of one publisher."""
    stream = clients[0].stream("flood")
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


async def flush(clients: list[Client]) -> float:
    """Return the median time of a flush in milliseconds."""
    stream = clients[0].stream("flush")
    await _flushes(stream, 10)
    return statistics.median(await _flushes(stream, FLUSHES)) * 1000


async def publishers(clients: list[Client]) -> float:
    """Return the messages per second of many publishers that flush each message."""
    streams = [client.stream("shared") for client in clients]
    await asyncio.gather(*[_flushes(stream, 2) for stream in streams])
    began = time.perf_counter()
    await asyncio.gather(*[_flushes(stream, FLUSHES) for stream in streams])
    return PUBLISHERS * FLUSHES / (time.perf_counter() - began)


def measured(measure: Measure, way: Way) -> tuple[float, int]:
    """Return a figure, and the number of fsyncs."""

    async def run(endpoint: str) -> float:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client.connect(endpoint)) for _ in range(PUBLISHERS)]
            return await measure(clients)

    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        ours, theirs = _fork.Pipe()
        process = _fork.Process(target=serve, args=(directory, way.sync, theirs), daemon=True)
        process.start()
        try:
            vars(publisher_connection)["ONCE"] = ONCE if way.counts else ""
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
        found: dict[Way, list[tuple[float, int]]] = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                found[way].append(measured(measure, way))
        for way in WAYS:
            figure = statistics.median(one for one, _ in found[way])
            syncs = statistics.median(count for _, count in found[way])
            rows.append([name, way.name, f"{figure:,.2f}" if figure < 100 else f"{figure:,.0f}", f"{syncs:,.0f}"])
    print(table(["measurement", "sync", "result", "fsyncs"], rows))


if __name__ == "__main__":
    main()
