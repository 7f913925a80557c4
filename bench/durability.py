"""The cost of `sync = "always"` beside `sync = "interval"`: a flood, the time of a flush, and publishers that flush.

    python -m bench.durability [--rounds 3] [--only flood flush publishers]

Each measurement starts a new broker with an empty directory. `flood` is one publisher that sends as fast as it can and
flushes at the end. `flush` is one publisher that flushes after each message. `publishers` are 50 connections that all
flush after each message; the broker answers many of them after one fsync, and the table says after how many.

`always, plain` is the same with publishers that do not count their messages (without RESUME), as other clients do it:
then the journal has one file less to sync. Redis (`appendfsync always`) and JetStream (`sync_interval: always`) answer
each message when their disk has it; both have asyncio clients here. JetStream can do that since version 2.10. `bare` is
a program that only writes, syncs and answers: the floor of Python, with a sync in a thread or in the loop.

All of them take turns, and each figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from bench.brokers.bare import DONE
from bench.brokers.body import KEY as SUBJECT
from bench.brokers.jetstream import JetStream
from bench.brokers.streams import RedisStreams
from bench.brokers.synced import BareSync
from bench.brokers.system import System, processor_time
from bench.report import Bars, environment, table
from zambezi.memory import keep_memory
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.client import publisher_connection
from zambezi.zeps.journal import Policy
from zambezi.zeps.messages import ONCE

with suppress(ImportError):  # `System.missing` says so
    import nats
    import redis.asyncio

Sync: TypeAlias = Literal["always", "interval"]
Post: TypeAlias = Callable[[], Awaitable[object]]  # publish a message, and wait until the broker has confirmed it

KEY: Final = "key"
BODY: Final = bytes(100)
FLOOD: Final = 1_000_000
PART: Final = 1000  # messages of one call
FLUSHES: Final = 500
PUBLISHERS: Final = 50
ALWAYS: Final = "always"
RIVALS: Final = ("Redis, always", "JetStream, always")
FLUSHING: Final = ("flush", "publishers")
COUNTS: Final = {"flood": FLOOD, "flush": FLUSHES, "publishers": PUBLISHERS * FLUSHES}  # messages
_NOT_KNOWN: Final = -1  # the number of fsyncs of other brokers

_fork = multiprocessing.get_context("fork")


class Figures(NamedTuple):
    """The result of a measurement."""

    result: float  # milliseconds, or messages per second
    syncs: int
    clients: float  # processor time of the clients, in seconds
    broker: float  # processor time of the broker, in seconds


class Way(ABC):
    """A broker that confirms messages when its disk has them, or earlier."""

    name: str

    def missing(self) -> str:
        """Return why it cannot be measured here, or "" if it can."""
        return ""

    def versions(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def flood(self) -> Figures | None:
        """Return the messages per second of one publisher; None if it is not measured."""

    @abstractmethod
    def measure(self, measure: Measure) -> Figures:
        """Return a figure of publishers that flush each message."""


@dataclass(frozen=True)
class Ours(Way):
    """Our broker with a policy, and whether publishers count their messages."""

    name: str
    sync: Sync
    counts: bool = True

    def flood(self) -> Figures:
        return self._run(_flood)

    def measure(self, measure: Measure) -> Figures:
        async def run(clients: list[Client]) -> float:
            return await measure([partial(_publish_and_flush, client.stream("shared")) for client in clients])

        return self._run(run)

    def _run(self, use: Callable[[list[Client]], Awaitable[float]]) -> Figures:
        async def run(endpoint: str) -> float:
            async with AsyncExitStack() as stack:
                return await use([await stack.enter_async_context(Client.connect(endpoint)) for _ in range(PUBLISHERS)])

        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            ours, theirs = _fork.Pipe()
            process = _fork.Process(target=serve, args=(directory, self.sync, theirs), daemon=True)
            process.start()
            try:
                vars(publisher_connection)["ONCE"] = ONCE if self.counts else ""
                endpoint = ours.recv()
                assert process.pid is not None
                found, clients, broker = _timed(partial(run, endpoint), process.pid)
                ours.send(None)
                return Figures(found, int(ours.recv()), clients, broker)
            finally:
                process.join(10)
                process.kill()


def _timed(use: Callable[[], Coroutine[None, None, float]], broker: int) -> tuple[float, float, float]:
    """Return a result, and the processor times that it took: of this process, and of the broker with this pid."""
    began = time.process_time(), processor_time(broker)
    found = asyncio.run(use())
    return found, time.process_time() - began[0], processor_time(broker) - began[1]


async def _serve(directory: str, sync: Sync, pipe: Connection) -> None:
    async with BrokerService(directory, policy=Policy(sync=sync)) as broker:
        pipe.send(broker.bind("tcp://127.0.0.1:*"))
        await asyncio.to_thread(pipe.recv)
        pipe.send(broker.syncs.count)


def serve(directory: str, sync: Sync, pipe: Connection) -> None:
    """Run a broker until the parent process says that it is enough."""
    keep_memory()
    asyncio.run(_serve(directory, sync, pipe))


async def _publish_and_flush(stream: Stream) -> None:
    await stream.publish(KEY, BODY)
    await stream.flush()


async def _flood(clients: list[Client]) -> float:
    stream = clients[0].stream("flood")
    began = time.perf_counter()
    for _ in range(FLOOD // PART):
        await stream.publish_many([(KEY, BODY)] * PART)
    await stream.flush()
    return FLOOD / (time.perf_counter() - began)


class Rival(Way):
    """Another broker whose answer to each message waits for the disk."""

    def __init__(self, name: str, system: System) -> None:
        self.name = name
        self.system = system

    def missing(self) -> str:
        return self.system.missing()

    def versions(self) -> dict[str, str]:
        return self.system.versions()

    def flood(self) -> None:
        return None

    def measure(self, measure: Measure) -> Figures:
        async def run(port: int) -> float:
            async with self.posts(port) as posts:
                return await measure(posts)

        with tempfile.TemporaryDirectory(prefix="bench-") as directory, self.system.serve(Path(directory)) as server:
            found, clients, broker = _timed(partial(run, server.port), server.pid)
            return Figures(found, _NOT_KNOWN, clients, broker)

    @abstractmethod
    def posts(self, port: int) -> AbstractAsyncContextManager[list[Post]]:
        """Connect all publishers, until the end of the `async with` block."""


class RedisAlways(Rival):
    @asynccontextmanager
    async def posts(self, port: int) -> AsyncIterator[list[Post]]:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(redis.asyncio.Redis(port=port)) for _ in range(PUBLISHERS)]
            yield [partial(client.xadd, KEY, {"b": BODY}) for client in clients]


class JetStreamAlways(Rival):
    def missing(self) -> str:
        if found := super().missing():
            return found
        version = self.versions()["nats-server"]
        is_able = tuple(map(int, version.split(".")[:2])) >= (2, 10)
        return "" if is_able else f"nats-server {version} cannot sync each message; 2.10 can"

    @asynccontextmanager
    async def posts(self, port: int) -> AsyncIterator[list[Post]]:
        clients: list[Any] = [await nats.connect(f"nats://127.0.0.1:{port}") for _ in range(PUBLISHERS)]
        yield [partial(client.jetstream().publish, SUBJECT, BODY) for client in clients]
        for client in clients:
            await client.close()


class BareAlways(Rival):
    """A program without a protocol, which only syncs and answers: the floor of brokers and clients on asyncio."""

    @asynccontextmanager
    async def posts(self, port: int) -> AsyncIterator[list[Post]]:
        async def post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(BODY)
            await reader.readexactly(len(DONE))

        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(PUBLISHERS)]
        yield [partial(post, *stream) for stream in streams]
        for _, writer in streams:
            writer.close()


class _Redis(RedisStreams):
    fsync = "always"


class _JetStream(JetStream):
    settings = ", sync_interval: always"


WAYS: Final[tuple[Way, ...]] = (
    Ours(ALWAYS, "always"),
    Ours("always, plain", "always", False),
    Ours("interval", "interval"),
    RedisAlways(RIVALS[0], _Redis()),
    JetStreamAlways(RIVALS[1], _JetStream()),
    BareAlways("bare, a thread syncs", BareSync("thread")),
    BareAlways("bare, the loop syncs", BareSync("loop")),
)


async def _times(post: Post, count: int) -> list[float]:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await post()
        took.append(time.perf_counter() - began)
    return took


async def flush(posts: Sequence[Post]) -> float:
    """Return the median time of a flush in milliseconds."""
    await _times(posts[0], 10)
    return statistics.median(await _times(posts[0], FLUSHES)) * 1000


async def publishers(posts: Sequence[Post]) -> float:
    """Return the messages per second of many publishers that flush each message."""
    await asyncio.gather(*[_times(post, 2) for post in posts])
    began = time.perf_counter()
    await asyncio.gather(*[_times(post, FLUSHES) for post in posts])
    return len(posts) * FLUSHES / (time.perf_counter() - began)


Measure: TypeAlias = Callable[[Sequence[Post]], Awaitable[float]]
MEASURES: Final[dict[str, tuple[str, Measure | None]]] = {
    "flood": ("flood, messages/s", None),
    "flush": ("flush of one message, ms", flush),
    "publishers": (f"{PUBLISHERS} publishers that flush each message, messages/s", publishers),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the median")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES))
    arguments = parser.parse_args()
    ways: list[Way] = []
    versions: dict[str, str] = {}
    for way in WAYS:
        if problem := way.missing():
            print(f"left out: {way.name}: {problem}")
        else:
            ways.append(way)
            versions |= way.versions()
    print(environment(versions))
    bars = Bars("durability")
    rows = []
    for short in arguments.only:
        name, measure = MEASURES[short]
        found: dict[Way, list[Figures]] = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way in ways:
                if one := way.flood() if measure is None else way.measure(measure):
                    found[way].append(one)
        rows += [_row(name, way.name, figures, COUNTS[short]) for way, figures in found.items() if figures]
        if short in FLUSHING:
            every = {way.name: figures for way, figures in found.items()}
            _judge(bars, name, every, COUNTS[short], is_time=short == "flush")
    print(table(["measurement", "sync", "result", "fsyncs", "clients us", "broker us"], rows))
    bars.show()


def _judge(bars: Bars, name: str, every: Mapping[str, list[Figures]], count: int, *, is_time: bool) -> None:
    """Add a row for each rival: ahead of it is a shorter time, or a higher rate."""
    ours = _median(every[ALWAYS], "result")
    for rival in RIVALS:
        figures = every.get(rival, [])
        theirs = _median(figures, "result")
        ratio = ours / theirs if is_time else theirs / ours
        beside = f"{rival} {_shown(theirs)}" if figures else rival
        processor = " beside ".join([_processor(one, count) for one in (every[ALWAYS], figures) if one])
        bars.at_most(name, ratio, 1.0, result=_shown(ours), beside=beside, processor=processor)


def _processor(found: Sequence[Figures], count: int) -> str:
    """Return the processor time of a message, of the clients and the broker together."""
    return f"{(_median(found, 'clients') + _median(found, 'broker')) / count * 1e6:.0f} us"


def _median(found: Sequence[Figures], field: str) -> float:
    return statistics.median(getattr(one, field) for one in found) if found else math.nan


def _shown(figure: float) -> str:
    return f"{figure:,.2f}" if figure < 100 else f"{figure:,.0f}"


def _row(name: str, way: str, found: Sequence[Figures], count: int) -> list[str]:
    syncs = _median(found, "syncs")
    costs = [f"{_median(found, field) / count * 1e6:.2f}" for field in ("clients", "broker")]
    return [name, way, _shown(_median(found, "result")), f"{syncs:,.0f}" if syncs != _NOT_KNOWN else "", *costs]


if __name__ == "__main__":
    main()
