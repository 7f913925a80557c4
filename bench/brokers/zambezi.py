"""Zambezi's broker. `python -m bench.brokers.zambezi DIRECTORY SYNC` runs it with its default settings but `sync`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, Literal

from bench.brokers.body import END, KEY, Case, delays, paced, paced_blocking
from bench.brokers.drain import CHUNK, Counted, connect, expect
from bench.brokers.system import System
from zambezi.memory import keep_memory
from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client, Stream, Subscription
from zambezi.zeps.broker import Broker
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.layout import PUBLISH, frame_header
from zambezi.zeps.messages import (
    EARLIEST,
    MARK,
    PUBLISHER,
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Ping,
    PingOk,
    Resume,
    ResumeOk,
    Subscribe,
    SubscribeOk,
)

# ZMTP 3.0, which has no heartbeats: these programs would not answer a PING.
GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_PROPERTY: Final = b"\x0bSocket-Type\0\0\0\x06DEALER"
READY: Final = b"\x04" + bytes((6 + len(_PROPERTY),)) + b"\x05READY" + _PROPERTY
CREDIT: Final = 1 << 60
SUBSCRIPTIONS: Final = 1000  # of one connection, for the measurement of prefixes


def _framed(message: bytes) -> bytes:
    return frame_header(len(message)) + message


class Zambezi(System):
    name = "zambezi"
    sync: ClassVar[Literal["always", "interval"]] = "always"
    raw_weight = 40
    client_weight = 30

    def missing(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        return {}

    def command(self, directory: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "bench.brokers.zambezi", str(directory), self.sync]

    def find_port(self, directory: Path, port: int) -> int | None:
        file = directory / "port"
        return int(file.read_text()) if file.exists() else None

    def publisher(self, port: int) -> socket.socket:
        return self._attach(port)

    def _attach(self, port: int) -> socket.socket:
        sock = connect(port)
        sock.sendall(GREETING)
        while len(sock.recv(64, socket.MSG_PEEK)) < 64:
            pass
        sock.recv(64)
        sock.sendall(READY + _framed(Attach(KEY).encode()[0]))
        expect(sock, _framed(AttachOk().encode()[0]))
        return sock

    def frame(self, key: str, body: bytes) -> bytes:
        name = key.encode()
        size = 8 + len(name) + len(body)
        head = PUBLISH + bytes((len(name),)) + name + len(body).to_bytes(4, "big")
        return frame_header(size) + head + body

    def confirm(self, sock: socket.socket, case: Case) -> None:
        sock.sendall(_framed(Ping().encode()[0]))
        expect(sock, _framed(PingOk().encode()[0]))

    def follow(self, port: int, case: Case) -> Sequence[Counted]:
        return [self._follow(port, case, patterns) for patterns in patterns_of(case)]

    def _follow(self, port: int, case: Case, patterns: Sequence[str]) -> Counted:
        sock = self._attach(port)
        for pattern in patterns:
            sock.sendall(_framed(Subscribe(pattern, EARLIEST).encode()[0]))
            expect(sock, _framed(SubscribeOk().encode()[0]))
        sock.sendall(_framed(Credit(CREDIT).encode()[0]))
        messages = sum(case.share(pattern) for pattern in patterns)
        return Counted(sock, messages * len(_framed(Deliver(1, case.key(0), bytes(case.size)).encode()[0])))

    # With the Python client: many messages per call

    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        asyncio.run(self._publish(port, case, ready))

    async def _publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        async with Client.connect(f"tcp://127.0.0.1:{port}") as client:
            stream = client.stream(KEY)
            await stream.publish(KEY, b"")  # connect before the measurement starts, as the other brokers' clients do
            await stream.flush()
            bodies = case.bodies()
            await asyncio.to_thread(ready)
            if case.rate:
                async for body in paced(case):
                    await stream.publish(KEY, body)
            else:
                await self._flat_out(stream, bodies)
            await stream.flush()

    async def _flat_out(self, stream: Stream, bodies: Iterator[bytes]) -> None:
        while part := list(islice(bodies, CHUNK)):
            await stream.publish_many([(KEY, body) for body in part])

    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        return asyncio.run(self._subscribe(port, case, ready))

    async def _subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        ages: list[float] = []
        async with AsyncExitStack() as stack:
            tasks = []
            for _ in range(case.subscribers):
                client = await stack.enter_async_context(Client.connect(f"tcp://127.0.0.1:{port}"))
                subscription = await stack.enter_async_context(client.stream(KEY).subscribe(since="earliest"))
                tasks.append(asyncio.create_task(self._take(subscription, ages if case.rate else None)))
            await asyncio.to_thread(ready)
            await asyncio.gather(*tasks)
        return ages

    async def _take(self, subscription: Subscription, ages: list[float] | None) -> None:
        async for batch in subscription.batches():
            bodies = batch.bodies()
            if ages is not None:
                for body in bodies:
                    ages += delays(body)
            if bodies[-1].endswith(END):
                return


class ZambeziInterval(Zambezi):
    """A broker that confirms as Redis and NATS do by default: the operating system has it, and a sync follows later."""

    sync = "interval"


class ZambeziAlways(Zambezi):
    """The broker with its default: a confirmation waits for the disk, and the client asks for one every 2 MiB."""

    name = "zambezi, sync always"


class ZambeziOnce(ZambeziInterval):
    """A publisher that counts its messages, as our clients do."""

    name = "zambezi, once"

    def publisher(self, port: int) -> socket.socket:
        sock = self._attach(port)
        sock.sendall(_framed(Resume(os.urandom(PUBLISHER), 1, 0).encode()[0]))
        expect(sock, _framed(ResumeOk(1, 0, 0, bytes(MARK), 0).encode()[0]))
        return sock


class ZambeziFiltered(ZambeziInterval):
    """A subscriber with a pattern that takes the first of the keys."""

    name = "zambezi, filtered"

    def follow(self, port: int, case: Case) -> Sequence[Counted]:
        return [self._follow(port, case, [case.key(0)])]


class ZambeziMessages(ZambeziInterval):
    """The asyncio client with one message per call."""

    name = "zambezi, messages"

    async def _flat_out(self, stream: Stream, bodies: Iterator[bytes]) -> None:
        for body in bodies:
            await stream.publish(KEY, body)

    async def _take(self, subscription: Subscription, ages: list[float] | None) -> None:
        async for message in subscription:
            if ages is not None:
                ages += delays(message.body)
            if message.body.endswith(END):
                return


class ZambeziBlocking(ZambeziInterval):
    """The blocking client with one message per call, and a thread for each subscriber."""

    name = "zambezi, blocking"

    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        with sync.Client.connect(f"tcp://127.0.0.1:{port}") as client:
            stream = client.stream(KEY)
            stream.publish(KEY, b"")
            stream.flush()
            bodies = case.bodies()
            ready()
            for body in paced_blocking(case) if case.rate else bodies:
                stream.publish(KEY, body)
            stream.flush()

    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        ages: list[float] = []

        def take(subscription: sync.Subscription) -> None:
            for message in subscription:
                if case.rate:
                    ages.extend(delays(message.body))
                if message.body.endswith(END):
                    return

        with sync.Client.connect(f"tcp://127.0.0.1:{port}") as client:
            subscriptions = [client.stream(KEY).subscribe(since="earliest") for _ in range(case.subscribers)]
            for subscription in subscriptions:
                subscription.ready()
            threads = [threading.Thread(target=take, args=(one,), daemon=True) for one in subscriptions]
            for thread in threads:
                thread.start()
            ready()
            for thread in threads:
                thread.join()
        return ages


def patterns_of(case: Case) -> list[list[str]]:
    """Return the patterns of each connection."""
    if not case.each:
        return [[KEY if case.prefixes else ""]] * case.subscribers
    keys = [case.key(number) for number in range(case.prefixes)]
    return [keys[start :: case.subscribers] for start in range(case.subscribers)]


async def _serve(directory: Path, sync: str) -> None:
    keep_memory()  # as `zambezi serve` does
    policy = Policy(sync="always" if sync == "always" else "interval")
    async with Broker(directory / "data", policy=policy, limits=Limits(subscriptions=SUBSCRIPTIONS)) as broker:
        port = broker.bind("tcp://127.0.0.1:*").rpartition(":")[2]
        (directory / "port.new").write_text(port)
        (directory / "port.new").rename(directory / "port")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
