"""Twenty sensors: nodes of the mesh that find the server, publish readings, and send messages to each other."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Self

from zambezi.zeps.asyncio import Client, Stream
from zambezi.zre.asyncio import Node

GROUP = "sensors"
KINDS = ("temperature", "humidity", "pressure")


class Sensors:
    """All sensors, in this process. Each has its own node and its own connections."""

    def __init__(self, count: int, beacon_port: int) -> None:
        self._nodes = [
            Node(f"sensor-{number}", interface="lo", beacon_port=beacon_port, groups=[GROUP], log=True)
            for number in range(count)
        ]
        self._streams: list[Stream] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._pause = asyncio.Event()
        self._pause.set()
        self.published = 0

    async def __aenter__(self) -> Self:
        for node in self._nodes:
            await self._stack.enter_async_context(node)
            self._spawn(self._listen(node))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def find_each_other(self, patience: float) -> None:
        """Wait until each sensor has found all others and the server."""
        async with asyncio.timeout(patience):
            while any(len(node.peers) < len(self._nodes) for node in self._nodes):  # noqa: ASYNC110 - 20 nodes, no single event
                await asyncio.sleep(0.02)

    async def find_streams(self, patience: float) -> None:
        """Let each sensor find the broker by its node, and start to publish."""
        async with asyncio.timeout(patience):
            for number, node in enumerate(self._nodes):
                client = await self._stack.enter_async_context(Client.connect(node))
                stream = client.stream("telemetry")
                await stream.publish(f"sensor-{number}.hello", b"{}")
                await stream.flush()
                self.published += 1
                self._streams.append(stream)
                self._spawn(self._publish(number, stream))
                self._spawn(self._chat(node))

    async def _publish(self, number: int, stream: Stream) -> None:
        chance = random.Random(number)
        level = {kind: chance.uniform(10, 30) for kind in KINDS}
        while True:
            await self._pause.wait()
            for kind in KINDS:
                level[kind] += chance.gauss(0, 0.1)
                reading = {"sensor": number, "value": round(level[kind], 2)}
                await stream.publish(f"sensor-{number}.{kind}", json.dumps(reading).encode())
                self.published += 1
            await asyncio.sleep(chance.uniform(0.02, 0.08))

    async def _chat(self, node: Node) -> None:
        """Send a message to the group or to another sensor from time to time."""
        while True:
            await asyncio.sleep(random.uniform(0.2, 1.0))
            if random.random() < 0.2:
                await node.shout(GROUP, b"how warm is it where you are?")
            elif node.peers:
                await node.whisper(random.choice(node.peers).uuid, b"it is warm here")

    async def _listen(self, node: Node) -> None:
        async for _ in node:
            pass

    async def flush(self, patience: float) -> None:
        """Wait until the broker has confirmed all published messages."""
        async with asyncio.timeout(patience):
            for stream in self._streams:
                await stream.flush()

    async def stop_publishing(self) -> None:
        self._pause.clear()
        await self.flush(30.0)

    async def go_on_publishing(self) -> None:
        self._pause.set()
