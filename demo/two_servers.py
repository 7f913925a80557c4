"""Two servers that share a directory as their object store: when one is killed, the other one takes its streams."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from demo.server import PATIENCE, free_port
from demo.told import say
from zambezi.zeps.asyncio import Client

CONFIGURATION = """
[server]
data = "{directory}/{name}"
level = "error"

[zeps]
endpoint = "{endpoint}"

[zeps.store]
url = "{directory}/store"
heartbeat = "1s"  # of 3 s: so the demo waits for some seconds only

[zeps.streams.orders]
sync = "store"

[mcollective]
enabled = false

[zre]
enabled = false

[log]
enabled = false

[console]
enabled = false
"""
ORDERS = 1000  # before the kill, and after it
STREAM = "orders"
LOOK = 0.1  # seconds between two looks


async def a_takeover(directory: Path) -> None:
    """Kill the server that has a stream, and show that the other one goes on with it."""
    async with AsyncExitStack() as stack:
        servers = {}
        for name in ("berlin", "paris"):
            endpoint = f"tcp://127.0.0.1:{free_port()}"
            servers[endpoint] = await _start(stack, directory, name, endpoint)
        say(f"two servers share {directory}/store: the stream {STREAM} is there, and their disks are caches")
        client = await stack.enter_async_context(Client.connect(list(servers)))
        async with asyncio.timeout(PATIENCE):
            while len(await client.brokers(PATIENCE)) < len(servers):  # noqa: ASYNC110 - no event reports them
                await asyncio.sleep(LOOK)
        await _publish(client, range(ORDERS))
        seen: list[int] = []
        reading = asyncio.ensure_future(_read(client, seen))
        stack.callback(reading.cancel)
        owner = await _owner(client)
        say(f"the server at {owner} serves the stream, and has confirmed {ORDERS:,} orders. SIGKILL.")
        servers[owner].kill()
        began = time.monotonic()
        await _publish(client, range(ORDERS, 2 * ORDERS))
        say(f"{time.monotonic() - began:.1f} s later the other server has taken the stream, and confirms new orders")
        async with asyncio.timeout(PATIENCE):
            await reading
        assert seen == list(range(2 * ORDERS)), "the subscriber missed an order, or got one twice"
        say(f"the subscriber got all {len(seen):,} orders, once and in order: it has noticed only a pause")


async def _owner(client: Client) -> str:
    """Return the endpoint of the server that has the stream. While the stream moves, none has it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = next(one for one in await client.streams(PATIENCE) if one.stream == STREAM)
            if found.is_described:
                return found.owner
            await asyncio.sleep(LOOK)


async def _start(stack: AsyncExitStack, directory: Path, name: str, endpoint: str) -> asyncio.subprocess.Process:
    config = directory / f"{name}.toml"
    config.write_text(CONFIGURATION.format(directory=directory, name=name, endpoint=endpoint))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "zambezi", "serve", "--config", str(config)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def stop() -> None:
        if process.returncode is None:
            process.terminate()
        await process.wait()

    stack.push_async_callback(stop)
    return process


async def _publish(client: Client, orders: range) -> None:
    stream = client.stream(STREAM)
    await stream.publish_many([("order", b"%d" % order) for order in orders], PATIENCE)
    await stream.flush(PATIENCE)


async def _read(client: Client, seen: list[int]) -> None:
    async for message in client.stream(STREAM).subscribe(since="earliest"):
        seen.append(int(message.body))
        if len(seen) == 2 * ORDERS:
            return
