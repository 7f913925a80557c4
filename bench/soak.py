"""A long run of a server with traffic on every service: memory, descriptors and loop lag must not grow.

    python -m bench.soak [--minutes 10]

Twenty sensors publish and send messages in the mesh, subscribers come and go (some read all, some a pattern, one is
slow, some end in the middle), a fleet is called every second, and the benchmark gets the server's state from its
console every two seconds. Everything is on loopback. The benchmark compares the first quarter of the samples with the
last one; the exit status is 1 if something grew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from bench.report import environment, table
from demo.fleet import three_machines
from demo.sensors import Sensors
from demo.server import ServerProcess
from zambezi.errors import ZambeziError
from zambezi.mcollective.asyncio import Connector, Fleet
from zambezi.zeps.asyncio import Client

SENSORS = 20
READERS = 12
EVERY = 2.0
WARM = 30.0  # seconds before the first compared sample
RETENTION = '\n[zeps.journal]\nkeep_bytes = "64M"\nsegment = "16M"\n'


async def read(client: Client, number: int) -> None:
    """Subscribe, read for a while, and end, again and again."""
    chance = random.Random(number)
    patterns = ["", "sensor-1", "glob:*.pressure", "regex:^sensor-[0-9]\\.", "exact:sensor-3.humidity"]
    while True:
        with suppress(ZambeziError, TimeoutError):
            async with asyncio.timeout(chance.uniform(1, 20)):
                since: Any = chance.choice(["earliest", "latest"])
                window = 4096 if number == 0 else 1 << 20
                stream = client.stream("telemetry")
                async with stream.subscribe(chance.choice(patterns), since=since, window=window) as subscription:
                    async for _ in subscription.batches():
                        if number == 0:
                            await asyncio.sleep(0.1)
        await asyncio.sleep(chance.uniform(0, 1))


async def command(endpoint: str) -> None:
    """Call the fleet every second, with a new connection from time to time."""
    while True:
        async with Connector(endpoint) as connector:
            fleet = Fleet(connector)
            for _ in range(20):
                with suppress(ZambeziError):
                    await fleet.call("machine", "uptime", nodes=["web1", "web2", "db1"], timeout=5.0)
                await asyncio.sleep(1.0)


def ask(console: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{console}api/state", timeout=30) as answer:
        state: dict[str, Any] = json.load(answer)
    return state


async def soak(minutes: float, directory: Path) -> list[dict[str, Any]]:
    server = ServerProcess(directory)
    configuration = directory / "zambezi.toml"
    configuration.write_text(configuration.read_text() + RETENTION)
    samples = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        await server.start()
        sensors = await stack.enter_async_context(Sensors(SENSORS, server.beacon_port))
        await sensors.find_each_other(60.0)
        await sensors.find_streams(60.0)
        await three_machines(stack, server.endpoints["mcollective"])
        client = await stack.enter_async_context(Client.connect(server.endpoints["zeps"]))
        tasks = [asyncio.create_task(read(client, number)) for number in range(READERS)]
        tasks.append(asyncio.create_task(command(server.endpoints["mcollective"])))
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            await asyncio.sleep(EVERY)
            samples.append(await asyncio.to_thread(ask, server.console))
            if sys.stderr.isatty():
                print(f"\r{end - time.monotonic():6.0f} s left", end="", file=sys.stderr)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return samples


FIGURES: dict[str, tuple[Callable[[dict[str, Any]], float], Callable[[float], str], Callable[[float], float]]] = {
    # the value in a state, its format, and the largest later value that is not growth
    "memory": (
        lambda state: state["process"]["memory"],
        lambda value: f"{value / 2**20:.1f} MiB",
        lambda before: 1.15 * before + (8 << 20),
    ),
    "descriptors": (
        lambda state: state["process"]["descriptors"],
        lambda value: f"{value:.0f}",
        lambda before: before + 20,
    ),
    "loop lag": (
        lambda state: state["process"]["loop_lag"],
        lambda value: f"{value * 1000:.2f} ms",
        lambda before: 3 * before + 0.02,
    ),
    "published": (lambda state: state["zeps"]["published"], lambda value: f"{value:,.0f}", lambda _: float("inf")),
    "deliveries to the fleet": (
        lambda state: state["mcollective"]["counters"]["deliveries"],
        lambda value: f"{value:,.0f}",
        lambda _: float("inf"),
    ),
    "logs journalled": (
        lambda state: state["log"]["journalled"],
        lambda value: f"{value:,.0f}",
        lambda _: float("inf"),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to run (default: 10)")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="zambezi-soak-"))
    try:
        samples = asyncio.run(soak(arguments.minutes, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    began = samples[0]["time"]
    samples = [one for one in samples if one["time"] >= began + min(WARM, 15 * arguments.minutes)]
    quarter = max(1, len(samples) // 4)
    grown = []
    rows = []
    for name, (figure, shown, flat) in FIGURES.items():
        before = statistics.median(map(figure, samples[:quarter]))
        after = statistics.median(map(figure, samples[-quarter:]))
        if after > flat(before):
            grown.append(name)
        rows.append([name, shown(before), shown(after)])
    print(environment({}))
    print(f"\n### {arguments.minutes:g} minutes of traffic on every service\n")
    print(table(["figure", "first quarter", "last quarter"], rows))
    print(f"\ngrown: {', '.join(grown) or 'nothing'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
