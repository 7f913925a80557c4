"""Programs for a network of namespaces: a broker that publishes, and many readers whose network loses and reorders.

Run as `python -m tests.zeps.multicast.actors broker|readers OPTIONS`. The options are JSON; the lines that a program
reads are its commands, and the lines that it writes are its events. Every message says in its body which one it
is, so that a reader notices at once if one is missing, repeated or damaged.
"""

import asyncio
import json
import random
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.multicast import group_subscription, reception
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.receiver import GroupReceiver, Receive, join_group
from zambezi.zmtp import Backoff
from zambezi.zmtp.reactor import Reactor

STREAM = "s"
LARGE = 5000  # more than a datagram takes
QUICK = Backoff(0.02, 0.2)


def body(number: int) -> bytes:
    """Return the body of message `number`: most are short, some need fragments."""
    return (b"%d." % number).ljust(LARGE if number % 40 == 0 else 30 + number % 90, b"x")


def key(number: int) -> str:
    return f"k{number % 4}"


def tell(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def commands() -> AsyncIterator[list[Any]]:
    lines = asyncio.StreamReader(limit=1 << 20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async for line in lines:
        yield json.loads(line)
    transport.close()


# The broker


async def serve(options: dict[str, Any]) -> None:
    def start() -> BrokerService:
        broker = BrokerService(
            options["data"],
            multicast={STREAM: options["group"]},
            group_key=bytes.fromhex(options.get("key", "")),
        )
        broker.bind(options["endpoint"])
        return broker

    broker = start()
    published = 0
    async with Client.connect(options["endpoint"], backoff=QUICK) as client:
        stream = client.stream(STREAM)
        tell("Serving")
        async for command, *arguments in commands():
            if command == "publish":
                count, at_once = arguments
                for first in range(published + 1, published + count + 1, at_once):
                    numbers = range(first, min(first + at_once, published + count + 1))
                    await stream.publish_many([(key(number), body(number)) for number in numbers])
                    await stream.flush()
                    await asyncio.sleep(0.002)  # a rate that a test can watch
                published += count
                tell("Published", last=published)
            elif command == "restart":
                await broker.close()
                broker = start()
                tell("Restarted")
            elif command == "look":
                readers = [info for info in await client.clients() if info.patterns and info.stream == STREAM]
                tell("Looked", subscribers=len(readers), feed=asdict(broker.feeds[STREAM]))
    await broker.close()


# The readers


class Weather:
    """The losses and delays of the datagrams to one reader."""

    def __init__(self, loss: float, seed: int) -> None:
        self._chance = random.Random(seed)
        self._loss = loss
        self._late: list[bytes] = []

    def __call__(self, datagrams: list[bytes]) -> list[bytes]:
        if not self._loss:
            return datagrams
        chance = self._chance
        kept = [one for one in datagrams if chance.random() >= self._loss]
        kept += [one for one in kept if chance.random() < 0.2]  # some are repeated
        kept += self._late  # some are late
        chance.shuffle(kept)
        self._late = [kept.pop() for _ in range(len(kept) // 4)]
        return kept


class Check:
    """The check that one reader gets all published messages, once and in order."""

    def __init__(self, name: str, since: int, pattern: str) -> None:
        self.name = name
        self._last = since
        self._pattern = pattern
        self.counters: Any = None

    def take(self, batch: MessageBatch) -> int:
        for message in batch:
            expected = self._last + 1
            while self._pattern and key(expected) != self._pattern:
                expected += 1
            if message.sequence != expected or message.body != body(expected) or message.key != key(expected):
                tell("Wrong", reader=self.name, expected=expected, came=message.sequence)
                raise SystemExit(1)
            self._last = expected
        return self._last

    def told(self, last: int) -> None:
        tell("Reached", reader=self.name, last=last, counters=asdict(self.counters))


def spoil(loss: float, seed: int) -> None:
    """Let the group lose datagrams for every reader of this process separately, and be tried again soon."""
    reception.FIRST_PENALTY, reception.MOST_PENALTY = 0.01, 0.05  # type: ignore[misc]
    seeds = iter(range(seed, seed + 1_000_000))

    def under_way(reactor: Reactor, group: Group, receive: Receive) -> GroupReceiver:
        weather = Weather(loss, next(seeds))

        def arrive(datagrams: list[bytes]) -> None:
            receive(weather(datagrams))

        return join_group(reactor, group, arrive)

    setattr(group_subscription, "join_group", under_way)  # noqa: B010  # it is not for everybody


async def read(options: dict[str, Any]) -> None:
    tasks = []
    goals: dict[str, int] = {}
    stalled: dict[str, asyncio.Event] = {}
    options_of_client: dict[str, Any] = {"backoff": QUICK, "group_key": bytes.fromhex(options.get("key", ""))}

    async def follow(client: Client, check: Check, since: int, window: int | None) -> None:
        subscription = client.stream(STREAM).subscribe(
            check._pattern and f"exact:{check._pattern}",
            since=since,
            window=window,
            multicast=True,
            interface=options["interface"],
        )
        check.counters = subscription.counters
        await subscription.ready()
        tell("Ready", reader=check.name)
        async for batch in subscription.batches():
            if check.name in stalled:
                tell("Stalls", reader=check.name)
                await stalled.pop(check.name).wait()
            if check.take(batch) >= goals.get(check.name, 1 << 60):
                check.told(goals.pop(check.name))

    def block(client: sync.Client, check: Check, since: int, loop: asyncio.AbstractEventLoop) -> None:
        subscription = client.stream(STREAM).subscribe(
            since=since, multicast=True, interface=options["interface"], window=None
        )
        check.counters = subscription.counters
        with subscription:
            tell("Ready", reader=check.name)
            for batch in subscription.batches():
                if check.take(batch) >= goals.get(check.name, 1 << 60):
                    check.told(goals.pop(check.name))

    spoil(options.get("loss", 0.0), options.get("seed", 1))
    gates: dict[str, asyncio.Event] = {}
    blocking = sync.Client.connect(options["endpoint"], **options_of_client)
    async with Client.connect(options["endpoint"], **options_of_client) as client:
        async for command, *arguments in commands():
            if command == "join":
                name, settings = arguments
                check = Check(name, settings.get("since", 0), settings.get("pattern", ""))
                goals[name] = settings["goal"]
                if settings.get("stall"):
                    stalled[name] = gates[name] = asyncio.Event()
                if settings.get("blocking"):
                    thread = threading.Thread(
                        target=block, args=(blocking, check, check._last, asyncio.get_running_loop()), daemon=True
                    )
                    thread.start()
                else:
                    tasks.append(asyncio.create_task(follow(client, check, check._last, settings.get("window"))))
            elif command == "go":
                gates[arguments[0]].set()
    blocking.close()
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    role, given = sys.argv[1], json.loads(sys.argv[2])
    asyncio.run(serve(given) if role == "broker" else read(given))
