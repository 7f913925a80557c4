"""A group of programs that share the messages of a stream and acknowledge each one, with the Python client of a broker.

The stream is filled before the measurement. Each member is a process of its own; it writes the number of messages that
it has acknowledged to shared memory, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, MutableSequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.brokers.body import KEY, Case
from bench.brokers.drain import PATIENCE
from bench.brokers.jetstream import STREAM, JetStream
from bench.brokers.run import Failed, Figures, Worker, raw_publish
from bench.brokers.streams import RedisStreams
from bench.brokers.system import System
from bench.brokers.zambezi import Zambezi
from zambezi.zeps import sync

with suppress(ImportError):  # `System.missing` says so
    import nats
    import redis
    from nats.js import api

GROUP: Final = "workers"
BATCH: Final = 500  # messages that the other clients ask for at once; more or less is not faster
KEYS: Final = 1000  # distinct keys: Zambezi gives the messages of a key to one member
_LOOK: Final = 0.001  # seconds between looks whether all messages are acknowledged


class Team(ABC):
    """A broker, and the members of a group as programs with its Python client are."""

    system: ClassVar[System]
    weight: ClassVar[int] = 1  # how many times as many messages it gets, so that all are busy for the same time

    @property
    def name(self) -> str:
        return self.system.name

    def fill(self, port: int, case: Case) -> None:
        """Publish the messages."""
        raw_publish(self.system, port, case, lambda: None)

    def prepare(self, port: int) -> None:  # noqa: B027
        """Create the group, if that must be done before the members join."""

    @abstractmethod
    def work(self, port: int, ready: Callable[[], object], count: Callable[[int], object]) -> None:
        """Be a member: acknowledge each message, and count them."""

    @abstractmethod
    def is_settled(self, port: int) -> bool:
        """Return whether the broker has all acknowledgements."""


class ZambeziTeam(Team):
    system = Zambezi()
    weight = 12

    def fill(self, port: int, case: Case) -> None:
        with sync.Client.connect(f"tcp://127.0.0.1:{port}") as client:
            stream = client.stream(KEY)
            bodies = enumerate(case.bodies())
            while part := list(islice(bodies, 1000)):
                stream.publish_many([(f"{KEY}{number % KEYS:03d}", body) for number, body in part])
            stream.flush()

    def work(self, port: int, ready: Callable[[], object], count: Callable[[int], object]) -> None:
        with sync.Client.connect(f"tcp://127.0.0.1:{port}") as client:
            stream = client.stream(KEY)
            ready()
            subscription = stream.subscribe(shared=GROUP, since="earliest", ack="manual")
            for batch in subscription.batches():
                for message in batch:
                    assert message.body
                    subscription.ack(message)
                count(len(batch))

    def is_settled(self, port: int) -> bool:
        with sync.Client.connect(f"tcp://127.0.0.1:{port}") as client:
            (group,) = client.readers(KEY)
            return group.lag == 0


class JetStreamTeam(Team):
    system = JetStream()

    def prepare(self, port: int) -> None:
        asyncio.run(self._create(port))

    async def _create(self, port: int) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        await client.jetstream().add_consumer(
            STREAM,
            api.ConsumerConfig(durable_name=GROUP, ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=20_000),
        )
        await client.close()

    def work(self, port: int, ready: Callable[[], object], count: Callable[[int], object]) -> None:
        asyncio.run(self._work(port, ready, count))

    async def _work(self, port: int, ready: Callable[[], object], count: Callable[[int], object]) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        subscription = await client.jetstream().pull_subscribe_bind(GROUP, stream=STREAM)
        await asyncio.to_thread(ready)
        while True:
            messages = await subscription.fetch(BATCH, timeout=PATIENCE)
            for message in messages:
                assert message.data
                await message.ack()
            count(len(messages))

    def is_settled(self, port: int) -> bool:
        return asyncio.run(self._is_settled(port))

    async def _is_settled(self, port: int) -> bool:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        info = await client.jetstream().consumer_info(STREAM, GROUP)
        await client.close()
        return bool(info.num_ack_pending == 0 and info.num_pending == 0)


class RedisTeam(Team):
    system = RedisStreams()
    weight = 4

    def prepare(self, port: int) -> None:
        with redis.Redis(port=port) as client:
            client.xgroup_create(KEY, GROUP, id="0", mkstream=True)

    def work(self, port: int, ready: Callable[[], object], count: Callable[[int], object]) -> None:
        with redis.Redis(port=port) as client:
            client.ping()
            ready()
            while True:
                found: Any = client.xreadgroup(GROUP, str(os.getpid()), {KEY: ">"}, count=BATCH, block=0)
                entries = found[0][1]
                pipeline = client.pipeline(transaction=False)
                for entry, fields in entries:
                    assert fields[b"b"]
                    pipeline.xack(KEY, GROUP, entry)
                pipeline.execute()
                count(len(entries))

    def is_settled(self, port: int) -> bool:
        with redis.Redis(port=port) as client:
            return bool(client.xpending(KEY, GROUP)["pending"] == 0)


def measure_team(team: Team, case: Case) -> Figures:
    """Fill the stream, and measure until the members have acknowledged all messages."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = stack.enter_context(team.system.serve(directory))
        team.fill(server.port, case)
        team.prepare(server.port)
        done = multiprocessing.get_context("fork").RawArray("q", case.subscribers)
        members = [
            stack.enter_context(Worker(partial(_member, team, server.port, done, number)))
            for number in range(case.subscribers)
        ]
        for member in members:
            member.answer()
        used, spent = server.processor(), _processor(members)
        began = time.monotonic()
        for member in members:
            member.go()
        while sum(done) < case.count:
            time.sleep(_LOOK)
            if time.monotonic() - began > PATIENCE:
                raise Failed(f"only {sum(done)} of {case.count} messages were acknowledged in {PATIENCE:g} s")
        ended, used, spent = time.monotonic(), server.processor() - used, _processor(members) - spent
        while not team.is_settled(server.port):
            if time.monotonic() - began > PATIENCE:
                raise Failed("the broker does not have all acknowledgements")
        return Figures(case, ended - began, used, clients=spent)


def _processor(members: Iterable[Worker]) -> float:
    return sum(member.processor() for member in members)


def _member(team: Team, port: int, done: MutableSequence[int], number: int, ready: Callable[[], None]) -> None:
    def count(messages: int) -> None:
        done[number] += messages

    team.work(port, ready, count)
