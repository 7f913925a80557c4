"""zambezi.zeps.asyncio: publishers and subscribers over connections that come and go, by a real broker and a script."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.zeps.client.scripted import Scripted, cut
from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS, guard
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client, Stream, Subscription
from zambezi.zeps.broker import Broker
from zambezi.zeps.client.connection import BrokerConnection
from zambezi.zeps.errors import BrokerError, ClientClosed, Incarnation, QueueFull, TimedOut, ZepsError
from zambezi.zeps.messages import (
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Detach,
    DetachOk,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
    Zeps,
)
from zambezi.zmtp import Backoff, CurveClient, CurveServer
from zambezi.zmtp.asyncio import Dealer

QUICK = Backoff(0.01, 0.05)
NOWHERE = "tcp://127.0.0.1:1"


@asynccontextmanager
async def both(path: Path, where: str = "tcp://127.0.0.1:*") -> AsyncIterator[tuple[Broker, Client]]:
    async with Broker(path) as broker:
        endpoint = broker.bind(where)
        async with Client.connect(endpoint, backoff=QUICK) as client:
            yield broker, client


async def fill(stream: Stream, count: int, start: int = 0) -> None:
    await stream.publish_many([(f"k{number % 10}", b"%d" % number) for number in range(start, start + count)])
    await stream.flush(PATIENCE)


async def later_moment() -> datetime:
    """A time after all that was until now, and before all that follows. Times are told in milliseconds."""
    moment = datetime.now(UTC) + timedelta(milliseconds=2)
    await eventually(lambda: datetime.now(UTC) > moment + timedelta(milliseconds=2))
    return moment


async def flood(stream: Stream, size: int, timeout: float | None = None) -> None:
    """Publish far more than fits."""
    for _ in range(1000):
        await stream.publish("k", bytes(size), timeout)


async def bodies(subscription: Subscription) -> list[int]:
    return [int(message.body) async for message in subscription]


# Publish, and read again


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:*", "inproc://zeps-client", "ipc"])
@in_loop
async def test_what_is_published_is_read(where: str, tmp_path: Path) -> None:
    async with both(tmp_path / "data", f"ipc://{tmp_path}/socket" if where == "ipc" else where) as (_, client):
        stream = client.stream("prices")
        await stream.publish("tea", b"4.20")
        await stream.publish("coffee", bytearray(b"3.10"))
        stream.publish_nowait("tea", memoryview(b"4.30"))
        await stream.publish_many([("milk", b"1.00"), ("tea", b"4.40")])
        await stream.flush(PATIENCE)
        found = [message async for message in stream.subscribe(since="earliest", until="now")]
        assert [(one.sequence, one.key, one.body, one.stream) for one in found] == [
            (1, "tea", b"4.20", "prices"),
            (2, "coffee", b"3.10", "prices"),
            (3, "tea", b"4.30", "prices"),
            (4, "milk", b"1.00", "prices"),
            (5, "tea", b"4.40", "prices"),
        ]
        assert stream.unconfirmed == 0
        assert stream.counters.confirmed == 5


@in_loop
async def test_it_is_the_same_in_boxes(tmp_path: Path) -> None:
    async with Broker(tmp_path, security=CurveServer(SERVER_KEYS), authenticator=guard("CURVE")) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
        security = CurveClient(SERVER_KEYS.public, CLIENT_KEYS)
        async with Client.connect(endpoint, security=security) as client:
            stream = client.stream("s")
            await fill(stream, 3000)
            assert await bodies(stream.subscribe(since="earliest", until="now")) == list(range(3000))


@in_loop
async def test_a_live_subscriber_sees_what_is_published_after_it(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe() as subscription:
            await fill(stream, 5, start=10)
            assert [int((await subscription.recv(PATIENCE)).body) for _ in range(5)] == [10, 11, 12, 13, 14]
            assert subscription.position == 15


@in_loop
async def test_one_by_one_and_by_batches_are_the_same(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        for number in range(5000):
            await stream.publish("k", b"%d" % number)
        await stream.flush(PATIENCE)
        by_batches = stream.subscribe(since="earliest", until="now")
        found = [int(body) async for batch in by_batches.batches() for body in batch.bodies()]
        assert found == await bodies(stream.subscribe(since="earliest", until="now")) == list(range(5000))


@pytest.mark.parametrize("name", ["x" * 255, "exact:x", "a/../b", "caf\u00e9 \udcff", "glob:*"])
@in_loop
async def test_any_name_will_do(name: str, tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream(name)
        await fill(stream, 3)
        await fill(client.stream("x"), 5)
        assert await bodies(stream.subscribe(since="earliest", until="now")) == [0, 1, 2]
        assert name in {info.stream for info in await client.streams(PATIENCE)}


@in_loop
async def test_who_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        await fill(stream, 100)
        subscription = stream.subscribe(since="earliest", until="now")
        found = []
        async for message in subscription:
            found.append(message.sequence)
            if len(found) == 10:
                break
        found.append((await subscription.recv(PATIENCE)).sequence)
        found += (await subscription.recv_batch(PATIENCE)).sequences()
        async for batch in subscription.batches():
            found += batch.sequences()
        assert found == list(range(1, 101))
        with pytest.raises(ClientClosed, match="end"):
            await subscription.recv(PATIENCE)
        with pytest.raises(ClientClosed, match="end"):
            await subscription.recv_batch(PATIENCE)


@in_loop
async def test_tasks_that_share_a_subscription_get_each_message_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        await fill(stream, 2000)
        subscription = stream.subscribe(since="earliest", until="now", window=2000)

        async def read() -> list[int]:
            found = []
            async for message in subscription:
                found.append(message.sequence)
                await asyncio.sleep(0)
            return found

        shares = await asyncio.gather(*(read() for _ in range(3)))
        assert sorted(itertools.chain(*shares)) == list(range(1, 2001))
        assert all(share == sorted(share) for share in shares)


# Where to begin and to end


@pytest.mark.spec("ZEP-10")
@in_loop
async def test_places_in_a_stream(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
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
async def test_an_end_that_is_still_to_come(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
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


# Connections that break


@pytest.mark.spec("ZEP-15")
@pytest.mark.parametrize("where", ["tcp://127.0.0.1:*", "inproc://zeps-breaks"])
@in_loop
async def test_a_publisher_loses_nothing_when_its_connections_break(where: str, tmp_path: Path) -> None:
    async with both(tmp_path, where) as (broker, client):
        stream = client.stream("s", bound=20_000)
        for number in range(6000):
            await stream.publish("k", b"%d" % number)
            if number % 1000 == 500:
                cut(broker)
        await stream.flush(PATIENCE)
        assert stream.counters.reconnects > 0
        found = [int(one.body) async for one in stream.subscribe(since="earliest", until="now")]
        firsts = list(dict.fromkeys(found))
        assert firsts == list(range(6000)), "in order, and nothing is missing"
        assert len(found) - 6000 <= stream.counters.republished
        assert stream.counters.confirmed == 6000


@pytest.mark.spec("ZEP-10")
@pytest.mark.parametrize("pattern", ["", "k3", "regex:[37]$"])
@in_loop
async def test_a_subscriber_misses_nothing_when_its_connections_break(pattern: str, tmp_path: Path) -> None:
    async with both(tmp_path) as (broker, client):
        stream = client.stream("s")
        wanted = {"": "0123456789", "k3": "3"}.get(pattern, "37")
        expected = [number for number in range(5000) if str(number)[-1] in wanted]
        subscription = stream.subscribe(pattern, since="earliest", window=5000)

        async def publish() -> None:
            for start in range(0, 5000, 100):
                await fill(stream, 100, start)

        publishing = asyncio.create_task(publish())
        found = []
        async with asyncio.timeout(2 * PATIENCE):
            async for message in subscription:
                found.append(int(message.body))
                if len(found) % (len(expected) // 5) == 1:
                    cut(broker)
                if len(found) == len(expected):
                    break
            await publishing
        assert found == expected
        assert subscription.counters.reconnects > 0
        assert subscription.counters.missed == 0
        await subscription.close()


@in_loop
async def test_a_broker_that_is_restarted_is_found_again(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
        client = Client.connect(endpoint, backoff=QUICK)
        stream = client.stream("s")
        subscription = stream.subscribe(since="earliest")
        await fill(stream, 100)
        for number in range(100, 200):
            await stream.publish("k", b"%d" % number)
    # It said DETACH, and what was under way was confirmed before we parted.
    for number in range(200, 300):
        await stream.publish("k", b"%d" % number)
    with pytest.raises(TimedOut, match="refused"):
        await stream.flush(0.2)
    async with Broker(tmp_path) as broker:
        broker.bind(endpoint)
        await stream.flush(PATIENCE)
        found = [int((await subscription.recv(PATIENCE)).body) for _ in range(300)]
        assert found == list(range(300))
        assert stream.counters.republished == 0
        await client.close()


@in_loop
async def test_a_broker_that_moves_is_followed(tmp_path: Path) -> None:
    """A service that is found by a mesh may come back at another port."""
    services: dict[UUID, str] = {}

    class Node:
        def services(self, service: str) -> dict[UUID, str]:
            return services if service == "X-ZEPS" else {}

    async with Client.connect(Node(), backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("k", b"0")
        with pytest.raises(TimedOut, match="no broker was found"):
            await stream.flush(0.01)
        for number in range(2):
            async with Broker(tmp_path) as broker:
                services.clear()
                services[uuid4()] = broker.bind("tcp://127.0.0.1:*")
                await stream.publish("k", b"1")
                await stream.flush(PATIENCE)
                assert stream.counters.confirmed == number + 2


@in_loop
async def test_whoever_knows_the_broker_may_be_mistaken_for_a_while(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        answers = iter([None, "nonsense", RuntimeError("not now"), broker.bind("tcp://127.0.0.1:*")])

        def find() -> str | None:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with Client.connect(find) as client:
            await fill(client.stream("s"), 1)


@in_loop
async def test_a_stream_that_is_stopped_is_told_and_left() -> None:
    """INVALID, then DETACH: and whatever is asked then is refused, too."""
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        who = await broker.attached()
        flushing = asyncio.create_task(stream.flush(PATIENCE))
        await broker.expect(Ping, who)
        await broker.say(who, Invalid("the stream is stopped"), Detach())
        with pytest.raises(BrokerError, match="stopped"):
            await flushing
        await broker.expect(Ping, who)
        await broker.say(who, Invalid("the stream is stopped"))
        await broker.expect(DetachOk, who)
        broker.cut()
        again = await broker.attached()
        assert await broker.recv() == (again, Publish("k", b"1"))
        await broker.expect(Ping, again)
        await broker.say(again, PingOk())
        await eventually(lambda: stream.unconfirmed == 0)
        with pytest.raises(BrokerError, match="stopped"):
            await stream.flush(PATIENCE)
        await stream.flush(PATIENCE)
        assert stream.counters.refused == 2


@in_loop
async def test_an_endpoint_may_be_awaited(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")

        async def find() -> str:
            await asyncio.sleep(0)
            return endpoint

        for given in (find, find(), lambda: endpoint):
            async with Client.connect(given) as client:
                await fill(client.stream("s"), 1)


@in_loop
async def test_another_stream_of_the_same_name_is_told(tmp_path: Path) -> None:
    async with Broker(tmp_path / "one") as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
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


# What the broker tells


@in_loop
async def test_what_the_broker_tells(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        await fill(client.stream("one"), 10)
        await fill(client.stream("two"), 20)
        async with client.stream("two").subscribe("k1"):
            told = {info.stream: info for info in await client.streams(PATIENCE)}
            assert {name: (info.first, info.last, info.messages) for name, info in told.items()} == {
                "one": (1, 10, 10),
                "two": (1, 20, 20),
            }
            assert UUID(told["one"].incarnation) != UUID(told["two"].incarnation)
            connections = await client.clients(PATIENCE)
            assert [one.patterns for one in connections if one.gear == "live"] == [("k1",)]
        index = await client.index("two", timeout=PATIENCE)
        assert sum(entry.count for entry in index) == 20
        assert await client.index("two", after=20, timeout=PATIENCE) == []
        with pytest.raises(BrokerError, match="three"):
            await client.index("three", timeout=PATIENCE)


# The bound


@pytest.mark.spec("ZEP-15")
@in_loop
async def test_at_the_bound_a_publisher_waits_for_a_broker(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
    async with Client.connect(endpoint, bound=1000, backoff=QUICK) as client:
        stream = client.stream("s")
        with pytest.raises(TimedOut, match="no room"):
            await flood(stream, 10, timeout=0.05)
        taken = stream.unconfirmed
        assert 0 < taken < 100
        with pytest.raises(TimedOut, match="no room for 10 of 10"):
            await stream.publish_many([("k", bytes(600))] * 10, timeout=0.05)
        waiting = asyncio.create_task(stream.publish("k", bytes(500)))
        await asyncio.sleep(0)
        assert not waiting.done()
        async with Broker(tmp_path) as broker:
            broker.bind(endpoint)
            await waiting
            await stream.flush(PATIENCE)
            last = stream.subscribe(since="earliest", until="now")
            assert [one.body async for one in last][-1] == bytes(500)


@in_loop
async def test_who_waits_for_room_and_is_cancelled_has_published_nothing() -> None:
    client = Client.connect(NOWHERE, bound=1000)
    stream = client.stream("s")
    await stream.publish("k", bytes(900))
    waiting = [asyncio.create_task(stream.publish("k", bytes(500))) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert stream.unconfirmed == 1
    with pytest.raises(TimedOut, match="1 messages of 's' are not confirmed"):
        await client.close(0)
    assert stream.counters.unconfirmed == 1


@in_loop
async def test_what_is_confirmed_while_a_goodbye_waits_its_turn_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Scripted() as broker:
        client = Client.connect(broker.endpoint)
        stream = client.stream("s")
        await stream.publish("k", b"")
        flushing = asyncio.create_task(stream.flush(PATIENCE))
        who = await broker.attached()
        await broker.expect(Ping, who)
        connection = stream._connection
        assert connection is not None
        with monkeypatch.context() as patch:
            # As if much were in line before the goodbye, so that the connection stays.
            patch.setattr(BrokerConnection, "close", lambda self, linger: setattr(self.transport, "closing", True))
            connection.close(None)
        assert (stream.counters.confirmed, stream.counters.unconfirmed) == (0, 1)
        await broker.say(who, PingOk())
        await eventually(lambda: stream.counters.confirmed)
        assert (stream.counters.confirmed, stream.counters.unconfirmed) == (1, 0)
        connection.transport.closing = False
        await client.close(0)
        await asyncio.gather(flushing, return_exceptions=True)


@pytest.mark.spec("ZEP-15")
@in_loop
async def test_other_strategies_at_the_bound() -> None:
    client = Client.connect(NOWHERE, bound=1000)
    raising, dropping = client.stream("a", on_full="raise"), client.stream("b", on_full="drop-oldest")
    with pytest.raises(QueueFull):
        await flood(raising, 100)
    await flood(dropping, 100)
    assert dropping.counters.dropped >= 990
    assert dropping.counters.dropped + dropping.unconfirmed == 1000
    waiting = client.stream("c")
    waiting.publish_nowait("k", bytes(900))
    with pytest.raises(QueueFull):
        waiting.publish_nowait("k", bytes(900))
    with pytest.raises(TimedOut):
        await client.close(0)


@in_loop
async def test_a_window_bounds_what_is_held_for_a_slow_reader(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        await stream.publish_many([("k", bytes(1000))] * 1000)
        await stream.flush(PATIENCE)
        subscription = stream.subscribe(since="earliest", window=10_000)
        engine = subscription._connection.engine
        await eventually(lambda: engine._unread >= 10_000)
        found = 0
        while found < 1000:
            assert engine._unread <= 10_000 + 1100
            found += len(await subscription.recv_batch(PATIENCE))
        await subscription.close()


# What a broker can say: by a script


@in_loop
async def test_what_a_publisher_says_and_hears() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("tea", b"4.20")
        who, attach = await broker.expect(Attach)
        assert attach.stream == "s"
        await broker.say(who, AttachOk())
        flushing = asyncio.create_task(stream.flush(PATIENCE))
        assert await broker.recv() == (who, Publish("tea", b"4.20"))
        assert await broker.recv() == (who, Ping())
        # It is long in coming, and meanwhile all goes on, on the same connection.
        await stream.publish("tea", b"4.30")
        assert await broker.recv() == (who, Publish("tea", b"4.30"))
        assert not flushing.done()
        await broker.say(who, Ping())
        await broker.expect(PingOk, who)
        await broker.say(who, PingOk())
        await flushing
        assert stream.unconfirmed == 1
        assert await broker.recv() == (who, Ping()), "what came later is asked for, too"
        await broker.say(who, PingOk())
        await eventually(lambda: stream.unconfirmed == 0)
        assert stream.counters.reconnects == 0


@pytest.mark.spec("ZEP-07")
@in_loop
async def test_detach_is_answered_and_then_it_comes_back() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        who = await broker.attached()
        assert await broker.recv() == (who, Publish("k", b"1"))
        await broker.say(who, Detach())
        # What was sent is asked for before we part; what was not sent stays here.
        assert await broker.recv() == (who, Ping())
        await stream.publish("k", b"2")
        await broker.say(who, PingOk())
        assert await broker.recv() == (who, DetachOk())
        broker.cut()
        again = await broker.attached()
        assert again != who
        assert await broker.recv() == (again, Publish("k", b"2"))
        await broker.expect(Ping, again)
        await broker.say(again, PingOk())
        await stream.flush(PATIENCE)
        assert (stream.counters.reconnects, stream.counters.republished) == (1, 0)


@in_loop
async def test_a_broker_that_says_detach_and_does_not_close_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.client.connection.DETACH_PATIENCE", 0.05)
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        subscription = client.stream("s").subscribe(since="earliest")
        who, _ = await broker.subscribed()
        await broker.say(who, Detach())
        await broker.expect(DetachOk, who)
        again, _ = await broker.subscribed()
        assert again != who
        await subscription.close()


@in_loop
async def test_a_stream_that_is_not_granted_is_told() -> None:
    async with Scripted() as broker:
        client = Client.connect(broker.endpoint)
        stream = client.stream("s")
        await stream.publish("k", b"1")
        who, _ = await broker.expect(Attach)
        await broker.say(who, Invalid("there are too many streams"))
        with pytest.raises(BrokerError, match="too many streams"):
            await stream.flush(PATIENCE)
        with pytest.raises(BrokerError, match="too many streams"):
            await stream.publish("k", b"2")
        reading = asyncio.create_task(bodies(stream.subscribe()))
        who, _ = await broker.expect(Attach)
        await broker.say(who, Invalid("you may not"))
        with pytest.raises(BrokerError, match="you may not"):
            await reading
        with pytest.raises(BrokerError, match="too many streams"):
            await client.close()


@in_loop
async def test_what_is_refused_is_told_by_flush() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        who = await broker.attached()
        flushing = asyncio.create_task(stream.flush(PATIENCE))
        await broker.expect(Ping, who)
        await broker.say(who, Invalid("you may not publish"), PingOk())
        with pytest.raises(BrokerError, match="may not publish"):
            await flushing
        await stream.flush(PATIENCE)
        assert stream.counters.refused == 1


@in_loop
async def test_a_broker_that_tells_nothing_of_its_streams_will_do() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint) as client:
        broker._tell = lambda who, message: broker.say(who, Invalid("what is that?"))  # type: ignore[method-assign]
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


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"rubbish",
        b"\xaa\xa5\xff",
        Deliver(9, "k", b"body").encode()[0][:-1],
        b"\xaa\xa5\x07",
        Invalid("why").encode()[0] + b"x",
    ],
)
@in_loop
async def test_what_is_no_message_ends_the_connection_and_not_the_subscription(octets: bytes) -> None:
    async with Scripted(last=10) as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        subscription = client.stream("s").subscribe(since="earliest")
        who, _ = await broker.subscribed()
        await broker.say(who, Deliver(1, "k", b""), octets, Deliver(2, "k", b""))
        again, subscribe = await broker.subscribed()
        assert subscribe.latest <= 1
        await broker.say(again, *(Deliver(sequence, "k", b"") for sequence in range(subscribe.latest + 1, 4)))
        assert [(await subscription.recv(PATIENCE)).sequence for _ in range(3)] == [1, 2, 3]
        assert subscription.counters.malformed == 1
        assert subscription.counters.reconnects == 1


@in_loop
async def test_commands_between_deliveries_are_heard() -> None:
    async with Scripted(last=10) as broker, Client.connect(broker.endpoint) as client:
        subscription = client.stream("s").subscribe(since="earliest", until=4)
        who, _ = await broker.subscribed()
        await broker.say(who, *(Deliver(1, "k", b""), Ping(), Deliver(2, "k", b""), Deliver(3, "k", b""), Ping()))
        await broker.say(who, Deliver(4, "k", b""))
        assert [one.sequence async for one in subscription] == [1, 2, 3, 4]
        await broker.expect(PingOk, who)
        await broker.expect(PingOk, who)
        await broker.expect(Detach, who)


# Closing


@in_loop
async def test_close_confirms_what_is_under_way(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
        async with Client.connect(endpoint) as client:
            stream = client.stream("s")
            for number in range(1000):
                stream.publish_nowait("k", b"%d" % number)
        assert stream.counters.confirmed == 1000
        assert client.closed
        with pytest.raises(ClientClosed):
            await stream.publish("k", b"")
        with pytest.raises(ClientClosed):
            await stream.publish_many([("k", b"")])
        with pytest.raises(ClientClosed):
            await stream.flush()
        with pytest.raises(ClientClosed):
            stream.publish_nowait("k", b"")
        with pytest.raises(ClientClosed):
            stream.subscribe()
        with pytest.raises(ClientClosed):
            client.stream("t")
        with pytest.raises(ClientClosed):
            await client.streams()
        await client.close()
        await eventually(lambda: not broker.engine.sessions)


@in_loop
async def test_who_waits_is_told_that_the_client_is_closed() -> None:
    client = Client.connect(NOWHERE, bound=100)
    stream = client.stream("s")
    await stream.publish("k", bytes(80))
    subscription = stream.subscribe()
    waiting = [
        asyncio.create_task(stream.publish("k", bytes(80))),
        asyncio.create_task(stream.flush()),
        asyncio.create_task(client.streams()),
        asyncio.create_task(subscription.recv()),
        asyncio.create_task(subscription.ready()),
    ]
    iterating = asyncio.create_task(bodies(subscription))
    await asyncio.sleep(0)
    with pytest.raises(TimedOut):
        await client.close(0)
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, ClientClosed)
    assert await iterating == []


@in_loop
async def test_who_leaves_by_an_error_keeps_it() -> None:
    async def fail() -> None:
        async with Client.connect(NOWHERE) as client:
            await client.stream("s").publish("k", b"")
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await fail()
    assert any("not confirmed" in note for note in caught.value.__notes__)


@in_loop
async def test_what_came_can_be_read_after_the_end(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        subscription = stream.subscribe(since="earliest")
        await eventually(lambda: subscription.position == 10)
        await subscription.close()
        assert await bodies(subscription) == list(range(10))
        assert not client._subscriptions


@in_loop
async def test_a_subscription_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    async with both(tmp_path) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)
        for _ in range(5):
            await bodies(stream.subscribe(since="earliest", until="now"))
        await eventually(lambda: not client._subscriptions)
        await eventually(lambda: len(broker.engine.sessions) == 1)


@in_loop
async def test_a_receive_that_times_out_or_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, client):
        stream = client.stream("s")
        async with stream.subscribe() as subscription:
            for _ in range(50):
                with pytest.raises(TimedOut, match="no message"):
                    await subscription.recv(0)
            assert len(subscription._waiter._futures) == 0
            found = []
            for number in range(50):
                waiting = asyncio.create_task(subscription.recv())
                await asyncio.sleep(0)
                await fill(stream, 1, start=number)
                waiting.cancel()
                try:
                    found.append(int((await waiting).body))
                except asyncio.CancelledError:
                    found.append(int((await subscription.recv(PATIENCE)).body))
            assert found == list(range(50))


@in_loop
async def test_a_client_that_is_forgotten_says_so() -> None:
    def forget() -> None:
        Client.connect(NOWHERE).stream("s")
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed <Client"):
        forget()


@in_loop
async def test_mistakes_are_told_at_once() -> None:
    async with Client.connect(NOWHERE) as client:
        stream = client.stream("s")
        with pytest.raises(ZepsError, match="in use"):
            client.stream("s", bound=7)
        with pytest.raises(ZepsError, match="reserved"):
            await client.stream("$streams").publish("k", b"")
        with pytest.raises(ZepsError, match="encode text"):
            await stream.publish("k", "text")  # type: ignore[arg-type]
        with pytest.raises(ZepsError, match="since"):
            stream.subscribe(since="tomorrow")  # type: ignore[arg-type]
        assert repr(client) == f"<Client of {NOWHERE}>"
        assert repr(stream) == "<Stream 's'>"
        assert "not connected" in repr(stream.subscribe())
        with pytest.raises(TimedOut, match="did not answer"):
            await client.streams(0.01)


# One connection for both


@pytest.mark.spec("ZEP-14")
@in_loop
async def test_a_client_subscribes_and_publishes_on_one_connection(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, Dealer() as dealer:
        dealer.connect(broker.bind("tcp://127.0.0.1:*"))

        async def say(*messages: Zeps) -> None:
            await dealer.send_batch([message.encode()[0] for message in messages])

        heard: list[Zeps] = []

        async def hear(count: int) -> list[Zeps]:
            while len(heard) < count:
                heard.append(Zeps.decode((await dealer.recv(PATIENCE))[0]))
            return heard

        await say(Attach("s"), Publish("a", b"1"), Subscribe("", 0), Credit(10_000), Publish("b", b"2"), Ping())
        await say(Publish("c", b"3"), Ping())
        found = await hear(7)
        assert [one for one in found if isinstance(one, Deliver)] == [
            Deliver(1, "a", b"1"),
            Deliver(2, "b", b"2"),
            Deliver(3, "c", b"3"),
        ]
        assert [one for one in found if not isinstance(one, Deliver)] == [
            AttachOk(),
            SubscribeOk(),
            PingOk(),
            PingOk(),
        ]
