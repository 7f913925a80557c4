"""Request and reply compared with NATS, in one run: round trips one after another, and many at once, on loopback.

    python -m bench.requests [--rounds 5] [--count 3000] [--clients 1000]

Each system has its broker, one process that serves (the reply is the request) and one process that asks, with the
asyncio clients of Python. The systems take turns, in another order in each round, so a machine that slows down affects
both. NATS keeps requests in memory only; Zambezi writes each to the journal of its stream before a server gets it.

`cost` is the processor time of broker, server and client together, for each round trip. The last measurement has many
clients in one process, each with its own connection and ten requests at once.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from bench.brokers.jetstream import INSTALLED, JetStream
from bench.brokers.system import Server, System
from bench.brokers.zambezi import Zambezi
from bench.report import Bars, environment, table
from zambezi.zeps.asyncio import Client

if INSTALLED:
    import nats

KEY: Final = "k"
STREAM: Final = "requests"
BODY: Final = bytes(100)
WARM: Final = 200
AT_ONCE: Final = 10
BAR: Final = 1.5

Ask = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Rival:
    """A system, and how its Python client serves and asks."""

    system: System
    serve: Callable[[int, Event], Awaitable[None]]
    connect: Callable[[int], Awaitable[tuple[Ask, Callable[[], Awaitable[None]]]]]


async def _serve_zambezi(port: int, ready: Event) -> None:
    async with Client.connect(f"tcp://127.0.0.1:{port}") as client:
        await client.create(STREAM)
        async with client.stream(STREAM).serve(KEY) as requests:
            ready.set()
            async for request in requests:
                await request.reply(request.body)


async def _connect_zambezi(port: int) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    client = Client.connect(f"tcp://127.0.0.1:{port}")
    stream = client.stream(STREAM)
    return lambda: stream.request(KEY, BODY, timeout=60), client.close


async def _serve_nats(port: int, ready: Event) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await client.subscribe(KEY, queue="servers", cb=answer)
    await client.flush()
    ready.set()
    await asyncio.Event().wait()


async def _connect_nats(port: int) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    return lambda: client.request(KEY, BODY, timeout=60), client.close


OURS: Final = Rival(Zambezi(), _serve_zambezi, _connect_zambezi)
NATS: Final = Rival(JetStream(), _serve_nats, _connect_nats)


def _run(serve: Callable[[int, Event], Awaitable[None]], port: int, ready: Event) -> None:
    asyncio.run(serve(port, ready))  # type: ignore[arg-type]


@contextmanager
def serving(rival: Rival) -> Iterator[tuple[Server, Server]]:
    """Run the broker of a system, and a server of requests."""
    with tempfile.TemporaryDirectory() as directory, rival.system.serve(Path(directory)) as broker:
        ready = multiprocessing.Event()
        process = multiprocessing.Process(target=_run, args=(rival.serve, broker.port, ready), daemon=True)
        process.start()
        if not ready.wait(20) or process.pid is None:
            raise SystemExit(f"the server of {rival.system.name} did not start")
        try:
            yield broker, Server(process.pid, broker.port)
        finally:
            process.terminate()
            process.join()


async def one_by_one(rival: Rival, port: int, count: int) -> list[float]:
    """Return the times of round trips one after another, in microseconds."""
    ask, close = await rival.connect(port)
    for _ in range(WARM):
        await ask()
    found = []
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        found.append((time.perf_counter() - began) * 1e6)
    await close()
    return found


async def all_at_once(rival: Rival, port: int, clients: int) -> float:
    """Return the round trips per second of many clients with ten requests each."""
    made = [await rival.connect(port) for _ in range(clients)]
    await asyncio.gather(*(ask() for ask, _ in made))
    began = time.perf_counter()
    await asyncio.gather(*(ask() for ask, _ in made for _ in range(AT_ONCE)))
    rate = clients * AT_ONCE / (time.perf_counter() - began)
    for _, close in made:
        await close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each; the result is the median")
    parser.add_argument("--count", type=int, default=3000, help="round trips in each round")
    parser.add_argument("--clients", type=int, default=1000, help="clients of the last measurement")
    arguments = parser.parse_args()
    bars = Bars("requests")
    problem = NATS.system.missing()
    rivals = [OURS] if problem else [OURS, NATS]
    print(environment({name: version for rival in rivals for name, version in rival.system.versions().items()}))
    if problem:
        print(f"NATS is left out: {problem}")
    times: dict[str, list[float]] = {rival.system.name: [] for rival in rivals}
    slow: dict[str, list[float]] = {name: [] for name in times}
    costs: dict[str, list[float]] = {name: [] for name in times}
    rates: dict[str, list[float]] = {name: [] for name in times}
    for turn in range(arguments.rounds):
        for rival in rivals if turn % 2 else rivals[::-1]:
            name = rival.system.name
            with serving(rival) as parts:
                before = sum(part.processor() for part in parts) + time.process_time()
                found = sorted(asyncio.run(one_by_one(rival, parts[0].port, arguments.count)))
                spent = sum(part.processor() for part in parts) + time.process_time() - before
                times[name].append(found[len(found) // 2])
                slow[name].append(found[len(found) * 99 // 100])
                costs[name].append(spent * 1e6 / (arguments.count + WARM))
                rates[name].append(asyncio.run(all_at_once(rival, parts[0].port, arguments.clients)))
    median = statistics.median
    nats_name = rivals[-1].system.name
    rows = [
        [
            name,
            f"{median(times[name]):.0f}",
            f"{median(slow[name]):.0f}",
            f"{median(costs[name]):.0f}",
            f"{median(rates[name]):,.0f}",
            f"{median(times[name]) / median(times[nats_name]):.2f}x",
        ]
        for name in times
    ]
    print()
    print(table(["request and reply", "p50 us", "p99 us", "cost us", "at once, per second", "p50 to NATS"], rows))
    ours = OURS.system.name
    theirs = math.nan if problem else median(times[nats_name])
    bars.at_most(
        "p50 of a round trip",
        median(times[ours]) / theirs,
        BAR,
        result=f"{median(times[ours]):.0f} us",
        beside="NATS" if problem else f"NATS {theirs:.0f} us",
        processor=f"{median(costs[ours]):.0f} us",
    )
    bars.show()


if __name__ == "__main__":
    main()
