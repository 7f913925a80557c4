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
from zambezi.zeps.client.subscriber_connection import MOST_MALFORMED
from zambezi.zeps.errors import BrokerError, Incarnation
from zambezi.zeps.messages import Attach, AttachOk, Deliver, Subscribe, Times
from zambezi.zeps.times import encode_times


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


# Times


@pytest.mark.parametrize("extensions", ["", "once", "once, timesheets"])
@in_loop
async def test_a_broker_that_does_not_tell_times_is_a_clear_error(extensions: str) -> None:
    async with Scripted(extensions=extensions) as broker, Client.connect(broker.endpoint) as client:
        reading = asyncio.create_task(client.stream("s").subscribe(times=True).recv(PATIENCE))
        await broker.attached()
        hearing = asyncio.create_task(broker.recv())
        with pytest.raises(BrokerError, match="does not tell the times of messages: subscribe without times"):
            await reading
        hearing.cancel()


@in_loop
async def test_times_are_asked_for_on_every_connection() -> None:
    async with (
        Scripted(describes=False, extensions="times, once") as broker,
        Client.connect(broker.endpoint, backoff=QUICK) as client,
    ):
        subscription = client.stream("s").subscribe(times=True)
        for number in (7, 8):
            who = await broker.attached()
            _, request = await broker.recv()
            assert request == Times(b"")
            await broker.expect(Subscribe, who)
            moment = datetime(2026, 1, 31, 12, 0, 0, number, UTC)
            await broker.say(who, encode_times([(number, int(moment.timestamp()) * 1_000_000 + number)]))
            await broker.say(who, Deliver(number, "k", b""))
            message = await subscription.recv(PATIENCE)
            assert (message.sequence, message.time) == (number, moment)
            broker.cut()


@pytest.mark.parametrize(
    "wrong",
    [
        [Deliver(7, "k", b"")],
        [Times(b""), Deliver(7, "k", b"")],
        [Times(bytes(17))],
        [encode_times([(8, 1)]), Deliver(7, "k", b"")],
        [encode_times([(8, 1), (8, 2)])],
    ],
)
@in_loop
async def test_a_broker_that_tells_no_valid_times_is_left_and_tried_again(wrong: list[Times | Deliver | bytes]) -> None:
    async with Scripted(extensions="times") as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        subscription = client.stream("s").subscribe(times=True)
        who, _ = await broker.subscribed()
        await broker.say(who, *wrong)
        who, _ = await broker.subscribed()
        await broker.say(who, encode_times([(1, 1 << 63)]), Deliver(9, "k", b""))  # a clock that is wrong by millennia
        assert (await subscription.recv(PATIENCE)).time == datetime.max.replace(tzinfo=UTC)
        assert subscription.counters.malformed == 1
        assert subscription.counters.received == 1


@in_loop
async def test_times_that_were_not_asked_for_are_ignored() -> None:
    async with Scripted(extensions="times") as broker, Client.connect(broker.endpoint) as client:
        subscription = client.stream("s").subscribe()
        who, _ = await broker.subscribed()
        await broker.say(who, AttachOk(), encode_times([(1, 1)]), Times(b"x"), Deliver(9, "k", b""))
        message = await subscription.recv(PATIENCE)
        assert (message.sequence, message.time) == (9, None)
        assert subscription.counters.malformed == 0


@in_loop
async def test_a_server_that_is_no_broker_has_no_damaged_stream() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        subscription = client.stream("$streams/x").subscribe()
        for _number in range(MOST_MALFORMED + 1):
            who, _ = await broker.expect(Attach)
            await broker.say(who, b"rubbish")
        await broker.attached()
        assert subscription.counters.malformed == MOST_MALFORMED + 1


@in_loop
async def test_a_subscription_fails_if_the_same_messages_are_damaged_again_and_again() -> None:
    async with Scripted(last=10) as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        subscription = client.stream("s").subscribe(since="earliest")
        for wrong in range(2):
            who, _ = await broker.subscribed()
            await broker.say(who, *([] if wrong else [Deliver(1, "k", b"")]), b"rubbish")
            assert wrong or (await subscription.recv(PATIENCE)).sequence == 1
        who, _ = await broker.subscribed()
        await broker.say(who, Deliver(2, "k", b""))  # it goes on: what was damaged before does not count any more
        assert (await subscription.recv(PATIENCE)).sequence == 2
        await broker.say(who, b"rubbish")
        for _ in range(MOST_MALFORMED - 1):
            who, subscribe = await broker.subscribed()
            assert subscribe.latest == 2
            await broker.say(who, b"rubbish")
        with pytest.raises(BrokerError, match=r"that are not valid, after sequence 2: its journal is damaged there"):
            await subscription.recv(PATIENCE)
