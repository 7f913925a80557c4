"""zambezi.zeps.multicast.group_subscription: over a group and a broker, programs see one sequence."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.multicast.ether import GROUP, Ether, ether
from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, eventually, in_loop, wait_until
from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client, Stream, Subscription
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import GroupError, Incarnation, ZepsError
from zambezi.zeps.messages import Deliver
from zambezi.zeps.multicast import reception
from zambezi.zeps.multicast.datagram import MAGIC, SEALED
from zambezi.zmtp import Backoff
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveClient, CurveServer

__all__ = ["ether"]

QUICK = Backoff(0.01, 0.05)


def broker_in(path: Path, **options: Any) -> BrokerService:
    return BrokerService(path, multicast={"s": GROUP}, **options)


@contextlib.asynccontextmanager
async def stream_of(path: Path, **options: Any) -> AsyncIterator[tuple[BrokerService, Client, Stream]]:
    async with (
        broker_in(path) as broker,
        Client.connect(broker.bind("tcp://127.0.0.1:*"), backoff=QUICK, **options) as client,
    ):
        yield broker, client, client.stream("s")


async def publish(stream: Stream, count: int, first: int = 1) -> None:
    numbers = range(first, first + count)
    await stream.publish_many([(f"k{number % 3}", b"%d" % number) for number in numbers])
    await stream.flush()


async def take(subscription: Subscription, last: int) -> list[int]:
    """Return the sequences of the next messages, up to `last`."""
    got: list[int] = []
    while not got or got[-1] < last:
        batch = await subscription.recv_batch(PATIENCE)
        assert batch.bodies() == [b"%d" % number for number in batch.sequences()]
        got += batch.sequences()
    return got


def in_group(subscription: Subscription | sync.Subscription) -> bool:
    return "listening to the multicast group" in repr(subscription)


@pytest.mark.spec("ZEP-16")
@in_loop
async def test_history_comes_from_the_broker_and_live_messages_from_the_group(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (broker, _, stream):
        await publish(stream, 100)
        async with stream.subscribe(since="earliest", multicast=True) as subscription:
            assert await take(subscription, 100) == list(range(1, 101))
            await eventually(lambda: in_group(subscription))
            await eventually(lambda: not broker.engine.find("s").subscribers)  # type: ignore[union-attr]
            await publish(stream, 100, 101)
            assert await take(subscription, 200) == list(range(101, 201))
            counters = subscription.counters
            assert (counters.received, counters.multicast.from_group, counters.multicast.from_broker) == (200, 100, 100)
            assert counters.reconnects == 0
        assert not ether.ears, "who has closed has left the group"


@pytest.mark.spec("ZEP-16")
@in_loop
async def test_history_never_goes_to_the_group(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (_, _, stream):
        await publish(stream, 50)
    ether.sent.clear()
    async with stream_of(tmp_path) as (_, _, stream):
        async with stream.subscribe(since="earliest", multicast=True) as subscription:
            assert await take(subscription, 50) == list(range(1, 51))
            await eventually(lambda: in_group(subscription))
        assert {datagram[3] for datagram in ether.sent} == {3}, "nothing but marks"


@pytest.mark.spec("ZEP-16")
@pytest.mark.parametrize("pattern", ["", "k1", "regex:[02]$"])
@in_loop
async def test_loss_is_repaired_from_the_journal(pattern: str, ether: Ether, tmp_path: Path) -> None:
    chance = random.Random(pattern)
    async with stream_of(tmp_path) as (_, _, stream):
        await publish(stream, 30)
        async with stream.subscribe(pattern, since=10, multicast=True) as subscription:
            await eventually(lambda: in_group(subscription))
            await publish(stream, 20, 31)
            await eventually(lambda: subscription.counters.multicast.from_group)
            ether.loses = lambda _: chance.random() < 0.3
            for first in range(51, 631, 20):
                await publish(stream, 20, first)
                await asyncio.sleep(0.005)
            wanted = {"": (0, 1, 2), "k1": (1,), "regex:[02]$": (0, 2)}[pattern]
            expected = [number for number in range(11, 631) if number % 3 in wanted]
            assert await take(subscription, expected[-1]) == expected
            await eventually(lambda: in_group(subscription))
            assert subscription.counters.multicast.falls
            assert subscription.counters.missed == 0


@in_loop
async def test_the_end_is_found_in_the_group_even_if_its_key_does_not_match(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (_, _, stream):
        await publish(stream, 3)
        subscription = stream.subscribe("k1", since=0, until=9, multicast=True)
        await eventually(lambda: in_group(subscription) or subscription.position)
        await publish(stream, 6, 4)
        assert [message.sequence async for message in subscription] == [1, 4, 7]
        past = stream.subscribe("k1", since=0, until=8, multicast=True)
        assert [message.sequence async for message in past] == [1, 4, 7]


@in_loop
async def test_a_time_to_end_at_comes_while_the_group_carries_it(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (_, _, stream):
        await publish(stream, 3)
        end = datetime.now(UTC) + timedelta(seconds=0.5)
        subscription = stream.subscribe(since="earliest", until=end, multicast=True)
        await eventually(lambda: in_group(subscription))
        await publish(stream, 3, 4)
        async with asyncio.timeout(PATIENCE):
            assert [message.sequence async for message in subscription] == [1, 2, 3, 4, 5, 6]


@in_loop
async def test_since_a_time_the_first_message_tells_where_we_stand(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (_, _, stream):
        await publish(stream, 3)
        since = datetime.now(UTC) - timedelta(hours=1)
        async with stream.subscribe("k0", since=since, multicast=True) as subscription:
            assert await take(subscription, 3) == [3]
            for first in range(4, 24):
                await publish(stream, 1, first)
            assert await take(subscription, 21) == [6, 9, 12, 15, 18, 21]


@in_loop
async def test_a_group_that_falls_silent_is_left_and_found_again(
    ether: Ether, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "SILENCE", 0.3)
    async with stream_of(tmp_path) as (_, _, stream), stream.subscribe(multicast=True) as subscription:
        await publish(stream, 10)
        assert await take(subscription, 10) == list(range(1, 11))
        ether.loses = lambda _: True
        await publish(stream, 10, 11)
        assert await take(subscription, 20) == list(range(11, 21))
        assert not in_group(subscription)
        ether.loses = lambda _: False
        await publish(stream, 10, 21)
        assert await take(subscription, 30) == list(range(21, 31))
        monkeypatch.setattr(reception, "SILENCE", 30)
        await eventually(lambda: in_group(subscription))


@in_loop
async def test_a_program_that_does_not_read_holds_no_more_than_its_window(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (_, _, stream), stream.subscribe(window=2000, multicast=True) as subscription:
        await eventually(lambda: in_group(subscription))
        for first in range(1, 3001, 20):
            await publish(stream, 20, first)
        size = len(Deliver(1, "k1", b"1").encode()[0])
        assert subscription.counters.received * size < 2000 + 1400
        assert not in_group(subscription)
        (ear,) = ether.ears
        assert ear.paused
        assert await take(subscription, 3000) == list(range(1, 3001))
        await eventually(lambda: in_group(subscription))
        assert not ear.paused


@in_loop
async def test_another_incarnation_is_the_same_error_as_without_a_group(
    ether: Ether, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "SILENCE", 0.3)
    first = broker_in(tmp_path / "one")
    endpoint = first.bind("tcp://127.0.0.1:*")
    async with Client.connect(endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        async with stream.subscribe(multicast=True) as subscription:
            await publish(stream, 10)
            await take(subscription, 10)
            await first.close()
            async with broker_in(tmp_path / "two") as second:
                second.bind(endpoint)
                await stream.publish_many([("k", b"")] * 20)
                with pytest.raises(Incarnation):
                    await subscription.recv(PATIENCE)


@in_loop
async def test_a_broker_that_is_restarted_goes_on_in_the_group(ether: Ether, tmp_path: Path) -> None:
    first = broker_in(tmp_path)
    endpoint = first.bind("tcp://127.0.0.1:*")
    async with Client.connect(endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        async with stream.subscribe(multicast=True) as subscription:
            await publish(stream, 10)
            await eventually(lambda: in_group(subscription))
            await first.close()
            async with broker_in(tmp_path) as second:
                second.bind(endpoint)
                await publish(stream, 10, 11)
                assert await take(subscription, 20) == list(range(1, 21))
                assert subscription.counters.multicast.falls == 0


@in_loop
async def test_a_stream_without_a_group_is_read_from_the_broker(
    ether: Ether, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerService(tmp_path) as broker, Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
        stream = client.stream("s")
        with caplog.at_level(logging.WARNING, "zambezi.zeps"):
            async with stream.subscribe("k1", multicast=True) as subscription:
                await publish(stream, 9)
                assert await take(subscription, 7) == [1, 4, 7]
        assert "has no multicast group" in caplog.text
        assert subscription.counters.received == 3
        assert not ether.ears


@pytest.mark.spec("ZEP-16")
@in_loop
async def test_an_encrypted_stream_goes_out_sealed_or_not_at_all(ether: Ether, tmp_path: Path) -> None:
    server, key = KeyPair.generate(), bytes(range(32))
    with pytest.raises(GroupError, match="would carry it in clear"):
        broker_in(tmp_path, security=CurveServer(server))
    security = CurveClient(server.public, KeyPair.generate())
    async with broker_in(tmp_path, security=CurveServer(server), group_key=key) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
        async with (
            Client.connect(endpoint, security=security, group_key=key) as client,
            Client.connect(endpoint, security=security) as stranger,
            client.stream("s").subscribe(multicast=True) as subscription,
            stranger.stream("s").subscribe(multicast=True) as other,
        ):
            (info,) = await client.streams()
            assert info.sealed
            await eventually(lambda: in_group(subscription))
            await publish(client.stream("s"), 10)
            assert await take(subscription, 10) == await take(other, 10) == list(range(1, 11))
            assert subscription.counters.multicast.from_group == 10
            assert other.counters.multicast.from_group == 0
        assert all(datagram.startswith(MAGIC + SEALED) for datagram in ether.sent)


@in_loop
async def test_wrong_arguments_raise_at_once(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (_, client, stream):
        with pytest.raises(GroupError, match="write it like"):
            stream.subscribe(multicast="udp://10.0.0.1:5")
        with pytest.raises(GroupError, match="there is no interface 'nowhere7'"):
            stream.subscribe(multicast=True, interface="nowhere7")
        with pytest.raises(GroupError, match="there is no interface 'nowhere7'"):
            stream.subscribe(multicast="udp://239.77.1.1:5680?interface=nowhere7")
        with pytest.raises(GroupError, match="only together with multicast="):
            stream.subscribe(interface="lo")
        with pytest.raises(ZepsError, match="32 bytes"):
            Client.connect("tcp://127.0.0.1:1", group_key=b"short")
        assert not client._subscriptions


@in_loop
async def test_the_description_of_a_stream_has_its_group(ether: Ether, tmp_path: Path) -> None:
    async with stream_of(tmp_path) as (broker, client, stream):
        await publish(stream, 10)
        (info,) = await client.streams()
        assert info.multicast == "udp://239.77.1.1:5680"
        assert not info.sealed
        assert info.feed["messages"] == broker.feeds["s"].messages == 10
        assert broker.groups == {"s": "udp://239.77.1.1:5680"}


def test_the_blocking_face_does_the_same(ether: Ether, tmp_path: Path) -> None:
    chance = random.Random(1)
    with serving(tmp_path, broker_in) as (_, endpoint), sync.Client.connect(endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        stream.publish_many([("k", b"%d" % number) for number in range(1, 101)])
        stream.flush(PATIENCE)
        with stream.subscribe(since="earliest", until=1100, multicast=True) as subscription:
            wait_until(lambda: in_group(subscription))
            stream.publish_many([("k", b"%d" % number) for number in range(101, 121)])
            wait_until(lambda: subscription.counters.multicast.from_group)
            ether.loses = lambda _: chance.random() < 0.2
            for first in range(121, 1101, 20):
                stream.publish_many([("k", b"%d" % number) for number in range(first, first + 20)])
                stream.flush(PATIENCE)
            assert [int(message.body) for message in subscription] == list(range(1, 1101))
    assert not ether.ears
