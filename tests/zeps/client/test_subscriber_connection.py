"""zambezi.zeps.client.subscriber_connection: where a subscription begins and ends, and what it asks the broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.zeps.faces import QUICK, TCP, bodies, connected, fill
from tests.zeps.scripted import Scripted
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker
from zambezi.zeps.errors import BrokerError, Incarnation
from zambezi.zeps.messages import Deliver, Subscribe


async def later_moment() -> datetime:
    """Return a time after all messages so far, and before all that follow. Subscriptions use milliseconds."""
    moment = datetime.now(UTC) + timedelta(milliseconds=2)
    await eventually(lambda: datetime.now(UTC) > moment + timedelta(milliseconds=2))
    return moment


@pytest.mark.spec("ZEP-10")
@in_loop
async def test_places_in_a_stream(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        stream = client.stream("s")
        before = datetime.now(UTC)
        await fill(stream, 50)
        middle = await later_moment()
        await fill(stream, 50, start=50)
        after = await later_moment()
        for since, until, expected in (
            ("earliest", 30, range(30)),
            (0, "now", range(100)),
            (70, "now", range(70, 100)),
            (20, 40, range(20, 40)),
            (before, "now", range(100)),
            (middle, "now", range(50, 100)),
            (before, middle, range(50)),
            ("earliest", middle, range(50)),
            ("earliest", after, range(100)),
            ("earliest", before - timedelta(hours=1), range(0)),
            (timedelta(hours=1), "now", range(100)),
            (timedelta(0), "now", range(0)),
            ("latest", "now", range(0)),
        ):
            for pattern in ("", "k3", "exact:k7", "glob:*[23]", "nothing has this"):
                wanted = {"": "0123456789", "k3": "3", "exact:k7": "7", "glob:*[23]": "23"}.get(pattern, "")
                async with asyncio.timeout(PATIENCE):
                    found = await bodies(stream.subscribe(pattern, since=since, until=until))  # type: ignore[arg-type]
                assert found == [number for number in expected if str(number)[-1] in wanted], (since, until, pattern)


@in_loop
async def test_an_end_in_the_future(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        later = datetime.now(UTC) + timedelta(seconds=0.3)
        subscriptions = [
            stream.subscribe(pattern, since="earliest", until=until)
            for pattern, until in (("", 15), ("k3", 15), ("k4", 15), ("", later), ("k3", later))
        ]
        for subscription in subscriptions:
            await subscription.ready(PATIENCE)
        await fill(stream, 10, start=10)
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.gather(*map(bodies, subscriptions))
        assert found == [list(range(15)), [3, 13], [4, 14], list(range(20)), [3, 13]]


@pytest.mark.parametrize("name", ["x" * 255, "exact:x", "a/../b", "caf\u00e9 \udcff", "glob:*"])
@in_loop
async def test_a_subscription_to_a_stream_of_any_name(name: str, tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        stream = client.stream(name)
        await fill(stream, 3)
        await fill(client.stream("x"), 5)
        assert await bodies(stream.subscribe(since="earliest", until="now")) == [0, 1, 2]
        assert name in {info.stream for info in await client.streams(PATIENCE)}


@in_loop
async def test_another_stream_of_the_same_name_is_an_error(tmp_path: Path) -> None:
    async with Broker(tmp_path / "one") as broker:
        endpoint = broker.bind(TCP)
        client = Client.connect(endpoint, backoff=QUICK)
        stream = client.stream("s")
        await fill(stream, 10)
        subscription = stream.subscribe(since="earliest")
        assert (await subscription.recv(PATIENCE)).sequence == 1
    async with Broker(tmp_path / "two") as broker:
        broker.bind(endpoint)
        await fill(stream, 50)
        with pytest.raises(Incarnation, match="incarnation"):
            await asyncio.wait_for(bodies(subscription), PATIENCE)
        await client.close()


@in_loop
async def test_a_window_bounds_the_memory_for_a_slow_reader(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        stream = client.stream("s")
        await stream.publish_many([("k", bytes(1000))] * 1000)
        await stream.flush(PATIENCE)
        subscription = stream.subscribe(since="earliest", window=10_000)
        size = len(Deliver(1, "k", bytes(1000)).encode()[0])
        await eventually(lambda: subscription.counters.received * size >= 10_000)
        found = 0
        while found < 1000:
            assert (subscription.counters.received - found) * size < 10_000 + size
            found += len(await subscription.recv_batch(PATIENCE))
        await subscription.close()


@in_loop
async def test_a_broker_that_does_not_describe_its_streams_is_enough() -> None:
    async with Scripted(describes=False) as broker, Client.connect(broker.endpoint) as client:
        subscription = client.stream("s").subscribe("tea")
        who, subscribe = await broker.subscribed()
        assert subscribe == Subscribe("tea", (1 << 63) - 1)
        await broker.say(who, Deliver(7, "tea", b"4.20"))
        assert (await subscription.recv(PATIENCE)).sequence == 7
        broker.cut()
        _, subscribe = await broker.subscribed()
        assert subscribe == Subscribe("tea", 7)
        reading = asyncio.create_task(bodies(client.stream("s").subscribe(until="now")))
        await broker.attached()
        hearing = asyncio.create_task(broker.recv())
        with pytest.raises(BrokerError, match="by a sequence"):
            await reading
        hearing.cancel()
