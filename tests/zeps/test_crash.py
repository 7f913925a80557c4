"""A broker that is killed again and again under load: each message is in the stream once, and clients recover."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.order import Order
from tests.zmtp.waiting import PATIENCE, eventually
from zambezi.zeps.asyncio import Client, Stream
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.verify import Checked, verify
from zambezi.zeps.messages import Deliver
from zambezi.zmtp.backoff import Backoff

KILLS = 24
PUBLISHERS = 3
PARCEL = 100
PROGRESS = 2_000  # messages that must be confirmed before the next kill
FAST = Backoff(0.01, 0.05)


@dataclass
class Story:
    """The events of a run."""

    published: list[int] = field(default_factory=list)  # by each publisher
    seen: list[tuple[int, str, bytes]] = field(default_factory=list)
    some: list[tuple[int, str, bytes]] = field(default_factory=list)


async def publish(stream: Stream, name: int, chance: random.Random, enough: asyncio.Event) -> int:
    """Publish numbers until the end, and return how many."""
    count = 0
    while not enough.is_set():
        await stream.publish_many([(f"p{name}", b"%d" % n) for n in range(count, count + PARCEL)], PATIENCE)
        count += PARCEL
        if chance.random() < 0.02:
            await stream.flush(PATIENCE)
            assert stream.unconfirmed == 0
        await asyncio.sleep(0.001)
    await stream.flush(PATIENCE)
    assert stream.counters.confirmed == count
    return count


async def follow(client: Client, pattern: str, seen: list[tuple[int, str, bytes]]) -> None:
    async with client.stream("s").subscribe(pattern, since="earliest") as subscription:
        async for batch in subscription.batches():
            seen += zip(batch.sequences(), batch.keys(), batch.bodies(), strict=True)


async def run(
    broker: BrokerProcess,
    data: Path,
    chance: random.Random,
    kills: int = KILLS,
    progress: int = PROGRESS,
    after_kill: Callable[[], object] = lambda: None,
) -> Story:
    story = Story()
    readers = Client.connect(broker.endpoint, backoff=FAST)
    clients = [Client.connect(broker.endpoint, backoff=FAST, bound=1 << 20) for _ in range(PUBLISHERS)]
    streams = [client.stream("s") for client in clients]
    enough = asyncio.Event()
    tasks = [asyncio.ensure_future(publish(stream, name, chance, enough)) for name, stream in enumerate(streams)]
    reading = [
        asyncio.ensure_future(follow(readers, "", story.seen)),
        asyncio.ensure_future(follow(readers, "regex:[12]$", story.some)),
    ]

    def confirmed() -> int:
        return sum(stream.counters.confirmed for stream in streams)

    for _ in range(kills):
        wanted = confirmed() + progress
        await eventually(lambda wanted=wanted: confirmed() >= wanted)  # type: ignore[misc]
        await asyncio.sleep(chance.random() * 0.02)
        broker.kill()
        after_kill()
        await asyncio.to_thread(broker.start)
    enough.set()
    story.published = await asyncio.gather(*tasks)
    with Store(data, write=False) as store:
        last = store.open("s").last
    await eventually(lambda: len(story.seen) == last)
    await eventually(lambda: story.some[-1][0] == max(sequence for sequence, key, _ in story.seen if key != "p0"))
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    for client in (*clients, readers):
        await client.close()
    return story


@pytest.mark.spec("ZEP-06", "ZEP-09", "ZEP-15", "ZEP-17")
def test_each_message_is_in_the_stream_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(7)
    with BrokerProcess(tmp_path, sync="interval", segment=1 << 20) as broker:

        async def story() -> Story:
            async with asyncio.timeout(200):
                return await run(broker, tmp_path, chance)

        told = asyncio.run(story())
    check(told, tmp_path)


def check(told: Story, data: Path) -> None:
    """Check that each message is in the journal once and in order, and that readers got exactly that."""
    with Store(data, write=False) as store:
        journal = store.open("s")
        assert all(isinstance(found, Checked) for found in verify(journal))
        reader = journal.reader(0)
        kept: list[tuple[int, str, bytes]] = []
        while (span := reader.peek(1 << 20)) is not None:
            reader.skip(span)
            messages = [Deliver.decode(body) for body in span.read().bodies]
            kept += [(message.sequence, message.key, message.body) for message in messages]
    # No gap and no repeat, and each reader got exactly that, once and in order.
    assert [sequence for sequence, _, _ in kept] == list(range(1, len(kept) + 1))
    assert told.seen == kept
    assert told.some == [one for one in kept if one[1] != "p0"]
    for name, published in enumerate(told.published):
        order = Order(f"p{name}")
        for _, key, body in kept:
            if key == f"p{name}":
                order.take(int(body))
        order.check_end(published)
