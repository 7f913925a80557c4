"""The time until all streams of a server are served again by others, after the server is killed or ends.

    python -m bench.store_takeover [--streams 1000] [--signals KILL,TERM] [--store weed|directory]

Three `zambezi serve` share a store. One of them has all streams, each with a few messages. A client with one
connection for each stream publishes a message to all streams, and notes when each is confirmed again.

- `first`, `half` and `all`: the seconds from the signal until so many streams were confirmed at another server.
- `servers`, `store`, `client`: the processor time of the two other servers, of the store and of the client for each
  stream, from the signal until all streams were confirmed. Heartbeats and connections are included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from bench.brokers.system import processor_time
from bench.report import environment, table
from tests.zeps.store.kills import Serve
from tests.zeps.store.weed import running_weed, weed_path
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.store.members import Member, Roll
from zambezi.zmtp.backoff import Backoff

SERVERS: Final = 3
MESSAGES: Final = 3  # of each stream
AT_ONCE: Final = 100  # streams that are made at the same time
PATIENCE: Final = 300.0  # seconds
FAST: Final = Backoff(0.01, 0.2)
SIGNALS: Final = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM}


class Moved(NamedTuple):
    """The figures of one signal."""

    seconds: list[float]  # until each stream was confirmed, in order
    servers: float  # ms of processor time for a stream
    store: float
    client: float


def names_at(endpoint: str, endpoints: list[str], count: int) -> list[str]:
    """Return names of streams whose home is one of the servers."""
    roll = Roll(0.0, [Member(one.encode(), (one,), 0.0) for one in endpoints])
    found: list[str] = []
    number = 0
    while len(found) < count:
        number += 1
        home = roll.home(name := f"stream-{number}")
        if home is not None and home.endpoint == endpoint:
            found.append(name)
    return found


def processors(servers: list[Serve], store: int | None) -> list[float]:
    """Return the processor times of the other servers, of the store, and of this process, in seconds."""
    others = sum(processor_time(server.pid) for server in servers[1:])
    return [others, processor_time(store) if store is not None else 0.0, time.process_time()]


async def fill(client: Client, names: list[str]) -> list[Stream]:
    """Make the streams, with a few messages in chunks of their own."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def fill_one(stream: Stream) -> None:
        async with gate:
            for number in range(MESSAGES):
                await stream.publish("key", b"%d" % number)
                await stream.flush(PATIENCE)

    streams = [client.stream(name) for name in names]
    await asyncio.gather(*map(fill_one, streams))
    return streams


async def measure(servers: list[Serve], count: int, kind: signal.Signals, store: int | None) -> Moved:
    """Fill the streams of the first server, end it, and wait until all streams are confirmed again."""
    endpoints = [server.endpoint for server in servers]
    names = names_at(endpoints[0], endpoints, count)
    async with Client.connect(endpoints, backoff=FAST) as client:
        streams = await fill(client, names)
        print(f"{count} streams are filled", flush=True)
        await asyncio.sleep(5.0)
        seconds: list[float] = []
        before = processors(servers, store)
        os.kill(servers[0].pid, kind)
        begun = time.monotonic()
        await until_gone(servers[0].endpoint)

        async def publish(stream: Stream) -> None:
            await stream.publish("key", b"again")
            await stream.flush(PATIENCE)
            seconds.append(time.monotonic() - begun)

        await asyncio.gather(*map(publish, streams))
        spent = [1000 * (now - then) / count for now, then in zip(processors(servers, store), before, strict=True)]
    return Moved(seconds, *spent)


async def until_gone(endpoint: str) -> None:
    """Wait until a server accepts no connections any more: so the messages cannot be confirmed by it."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    with suppress(OSError):
        while True:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await asyncio.sleep(0.005)


def run(count: int, kind: signal.Signals, store: str, base: Path) -> Moved:
    """Start the store and the servers, and measure."""
    with ExitStack() as stack:
        if store == "weed":
            (base / "weed").mkdir()
            weed = stack.enter_context(running_weed(base / "weed"))
            options = StoreOptions(url=weed.url("takeover"), options=weed.options)
            pid = weed.pid
        else:
            options = StoreOptions(url=str(base / "store"))
            pid = None
        servers = []
        for number in range(SERVERS):
            server = Serve(base / f"server-{number}", options)
            stack.callback(server.close)
            servers.append(server)
        time.sleep(10.0)  # so that each knows the others
        return asyncio.run(measure(servers, count, kind, pid))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--signals", default="KILL,TERM")
    parser.add_argument("--store", default="weed" if weed_path() else "directory", choices=("weed", "directory"))
    arguments = parser.parse_args()
    print(environment({}))
    rows = []
    for name in arguments.signals.split(","):
        with tempfile.TemporaryDirectory(prefix="zambezi-takeover-") as base:
            moved = run(arguments.streams, SIGNALS[name], arguments.store, Path(base))
        first, half, last = (moved.seconds[at] for at in (0, len(moved.seconds) // 2, -1))
        times = [f"{seconds:.1f} s" for seconds in (first, half, last)]
        rows.append([f"SIG{name}", *times, *[f"{ms:.1f} ms" for ms in moved[1:]]])
        load = os.getloadavg()[0]
        print(f"{rows[-1]}, load {load:.1f}", flush=True)
    print(table([f"{arguments.streams} streams", "first", "half", "all", "servers", "store", "client"], rows))


if __name__ == "__main__":
    main()
