"""zambezi.zeps.asyncio and zambezi.zeps.sync: what programs use. Most tests run against both faces."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.zeps.faces import NOWHERE, QUICK, TCP, Connect, bodies, both_faces, connected, fill
from tests.zeps.scripted import cut
from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS, guard
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client, Stream, Subscription
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError, ClientClosed, JournalFull, QueueFull, TimedOut, ZepsError
from zambezi.zeps.journal import Journal
from zambezi.zmtp import CurveClient, CurveServer


async def flood(stream: Stream, size: int, timeout: float | None = None) -> None:
    """Publish far more than fits."""
    for _ in range(1000):
        await stream.publish("k", bytes(size), timeout)


# Publish, and read again


@pytest.mark.parametrize("where", [TCP, "inproc://zeps-client", "ipc"])
@both_faces
@in_loop
async def test_published_messages_are_read(connect: Connect, where: str, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/socket" if where == "ipc" else where
    async with connected(tmp_path / "data", endpoint, connect) as (_, client):
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
async def test_published_messages_are_read_over_curve(tmp_path: Path) -> None:
    async with BrokerService(tmp_path, security=CurveServer(SERVER_KEYS), authenticator=guard("CURVE")) as broker:
        endpoint = broker.bind(TCP)
        security = CurveClient(SERVER_KEYS.public, CLIENT_KEYS)
        async with Client.connect(endpoint, security=security) as client:
            stream = client.stream("s")
            await fill(stream, 3000)
            assert await bodies(stream.subscribe(since="earliest", until="now")) == list(range(3000))


@both_faces
@in_loop
async def test_a_live_subscriber_gets_messages_that_are_published_after_it(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe() as subscription:
            await fill(stream, 5, start=10)
            assert [int((await subscription.recv(PATIENCE)).body) for _ in range(5)] == [10, 11, 12, 13, 14]
            assert subscription.position == 15
            with pytest.raises(TimedOut, match="attached"):
                await subscription.recv(0.01)


@pytest.mark.parametrize("where", [TCP, "inproc://zeps-batches"])
@both_faces
@in_loop
async def test_one_by_one_and_by_batches_are_the_same(connect: Connect, where: str, tmp_path: Path) -> None:
    async with connected(tmp_path, where, connect) as (_, client):
        stream = client.stream("s")
        for number in range(2500):
            await stream.publish("k", b"%d" % number)
        await fill(stream, 2500, start=2500)
        by_batches = stream.subscribe(since="earliest", until="now")
        found = [int(body) async for batch in by_batches.batches() for body in batch.bodies()]
        assert found == await bodies(stream.subscribe(since="earliest", until="now")) == list(range(5000))


@both_faces
@in_loop
async def test_patterns_and_places(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 100)
        assert await bodies(stream.subscribe("k3", since=50, until="now")) == [53, 63, 73, 83, 93]
        assert await bodies(stream.subscribe("exact:k3", since="earliest", until=40)) == [3, 13, 23, 33]


@both_faces
@in_loop
async def test_an_iteration_that_breaks_off_continues_where_it_was(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
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


@both_faces
@in_loop
async def test_readers_that_share_a_subscription_get_each_message_once(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
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


# Connections that break, and brokers that come back


@pytest.mark.spec("ZEP-10")
@pytest.mark.parametrize("pattern", ["", "k3", "regex:[37]$"])
@both_faces
@in_loop
async def test_a_subscriber_misses_nothing_when_its_connections_break(
    connect: Connect, pattern: str, tmp_path: Path
) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        wanted = {"": "0123456789", "k3": "3"}.get(pattern, "37")
        expected = [number for number in range(3000) if str(number)[-1] in wanted]
        subscription = stream.subscribe(pattern, since="earliest", window=5000)

        async def publish() -> None:
            for start in range(0, 3000, 100):
                await fill(stream, 100, start)

        publishing = asyncio.create_task(publish())
        found: list[int] = []
        while len(found) < len(expected):
            found.append(int((await subscription.recv(PATIENCE)).body))
            if len(found) % (len(expected) // 5) == 1:
                # Not the publisher's: what it would publish again comes a second time.
                await eventually(lambda: cut(broker, lambda session: session.cursor is not None))
        await publishing
        assert found == expected
        assert subscription.counters.reconnects > 0
        assert subscription.counters.missed == 0
        await subscription.close()


@both_faces
@in_loop
async def test_a_broker_that_is_restarted_is_found_again(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        client = connect(endpoint, backoff=QUICK)
        stream = client.stream("s")
        subscription = stream.subscribe(since="earliest")
        await fill(stream, 100)
        for number in range(100, 200):
            await stream.publish("k", b"%d" % number)
    # The broker sent DETACH, and confirmed the last messages before the connection ended.
    for number in range(200, 300):
        await stream.publish("k", b"%d" % number)
    problem = ""
    while "refused" not in problem:  # the client may not have tried again yet
        with pytest.raises(TimedOut, match="not connected to") as caught:
            await stream.flush(0.02)
        problem = str(caught.value)
    async with BrokerService(tmp_path) as broker:
        broker.bind(endpoint)
        await stream.flush(PATIENCE)
        found = [int((await subscription.recv(PATIENCE)).body) for _ in range(300)]
        assert found == list(range(300))
        assert stream.counters.republished == 0
        await client.close()


@both_faces
@in_loop
async def test_a_broker_that_moves_is_followed(connect: Connect, tmp_path: Path) -> None:
    """A service that a node finds may come back at another port."""
    services: dict[UUID, str] = {}

    class Node:
        def services(self, service: str) -> dict[UUID, str]:
            return services if service == "X-ZEPS" else {}

    async with connect(Node(), backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("k", b"0")
        with pytest.raises(TimedOut, match="no broker was found"):
            await stream.flush(0.01)
        for number in range(2):
            async with BrokerService(tmp_path) as broker:
                services.clear()
                services[uuid4()] = broker.bind(TCP)
                await stream.publish("k", b"1")
                await stream.flush(PATIENCE)
                assert stream.counters.confirmed == number + 2


@in_loop
async def test_an_endpoint_may_be_awaited(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)

        async def find() -> str:
            await asyncio.sleep(0)
            return endpoint

        for given in (find, find(), lambda: endpoint):
            async with Client.connect(given) as client:
                await fill(client.stream("s"), 1)


# Information about the broker


@both_faces
@in_loop
async def test_information_about_the_broker(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        await fill(client.stream("one"), 10)
        await fill(client.stream("two"), 20)
        async with client.stream("two").subscribe("k1"):
            streams = {info.stream: info for info in await client.streams(PATIENCE)}
            assert {name: (info.first, info.last, info.messages) for name, info in streams.items()} == {
                "one": (1, 10, 10),
                "two": (1, 20, 20),
            }
            assert UUID(streams["one"].incarnation) != UUID(streams["two"].incarnation)
            connections = await client.clients(PATIENCE)
            assert {one.stream for one in connections} >= {"one", "two"}
            assert [one.patterns for one in connections if one.gear == "live"] == [("k1",)]
        index = await client.index("two", timeout=PATIENCE)
        assert sum(entry.count for entry in index) == 20
        assert await client.index("two", after=20, timeout=PATIENCE) == []
        with pytest.raises(BrokerError, match="three"):
            await client.index("three", timeout=PATIENCE)


# The bound


@pytest.mark.spec("ZEP-15")
@both_faces
@in_loop
async def test_at_the_bound_a_publisher_waits_for_a_broker(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
    async with connect(endpoint, bound=1000, backoff=QUICK) as client:
        stream = client.stream("s")
        with pytest.raises(TimedOut, match="no room"):
            await flood(stream, 10, timeout=0.05)
        assert 0 < stream.unconfirmed < 100
        with pytest.raises(TimedOut, match="no room for 10 of 10"):
            await stream.publish_many([("k", bytes(600))] * 10, timeout=0.05)
        waiting = asyncio.create_task(stream.publish("k", bytes(500)))
        await asyncio.sleep(0)
        assert not waiting.done()
        async with BrokerService(tmp_path) as broker:
            broker.bind(endpoint)
            await waiting
            await stream.flush(PATIENCE)
            last = stream.subscribe(since="earliest", until="now")
            assert [one.body async for one in last][-1] == bytes(500)


@pytest.mark.spec("ZEP-15")
@both_faces
@in_loop
async def test_other_strategies_at_the_bound(connect: Connect) -> None:
    client = connect(NOWHERE, bound=1000)
    raising, dropping = client.stream("a", on_full="raise"), client.stream("b", on_full="drop-oldest")
    with pytest.raises(QueueFull):
        await flood(raising, 100)
    await flood(dropping, 100)
    assert dropping.counters.dropped >= 990
    assert dropping.counters.dropped + dropping.unconfirmed == 1000
    largest = client.stream("c", on_full="drop-oldest")
    for _ in range(10):
        await largest.publish("k", bytes(900))
    assert (largest.counters.dropped, largest.unconfirmed) == (9, 1)
    waiting = client.stream("d")
    waiting.publish_nowait("k", bytes(900))
    with pytest.raises(QueueFull):
        waiting.publish_nowait("k", bytes(900))
    with pytest.raises(TimedOut, match=r"\d+ messages of 'a' are not confirmed"):
        await client.close(0)


@in_loop
async def test_a_publish_that_is_cancelled_at_the_bound_has_published_nothing() -> None:
    client = Client.connect(NOWHERE, bound=1000)
    stream = client.stream("s")
    await stream.publish("k", bytes(900))
    waiting = [asyncio.create_task(stream.publish("k", bytes(500))) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert stream.unconfirmed == 1
    with pytest.raises(TimedOut, match="1 message of 's' is not confirmed"):
        await client.close(0)
    assert stream.counters.unconfirmed == 1


# Closing


@both_faces
@in_loop
async def test_close_waits_for_confirmations(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        async with connect(broker.bind(TCP)) as client:
            stream = client.stream("s")
            for number in range(5000):
                stream.publish_nowait("k", b"%d" % number)
        assert stream.counters.confirmed == 5000
        assert client.closed
        assert repr(client) == "<Client, closed>"
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


@both_faces
@in_loop
async def test_calls_that_wait_end_when_the_client_is_closed(connect: Connect) -> None:
    client = connect(NOWHERE, bound=100)
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
    await eventually(lambda: client._questions)
    with pytest.raises(TimedOut):
        await client.close(0)
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, ClientClosed)
    assert await iterating == []


@both_faces
@in_loop
async def test_an_exception_of_the_program_is_kept(connect: Connect) -> None:
    async def fail() -> None:
        async with connect(NOWHERE) as client:
            await client.stream("s").publish("k", b"")
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        await fail()
    assert any("not confirmed" in note for note in caught.value.__notes__)


@both_faces
@in_loop
async def test_received_messages_can_be_read_after_the_end(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        subscription = stream.subscribe(since="earliest")
        await eventually(lambda: subscription.position == 10)
        await subscription.close()
        assert await bodies(subscription) == list(range(10))
        assert not client._subscriptions


@both_faces
@in_loop
async def test_a_subscription_that_has_ended_is_forgotten(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)
        for _ in range(5):
            await bodies(stream.subscribe(since="earliest", until="now"))
        await eventually(lambda: not client._subscriptions)
        await eventually(lambda: len(broker.engine.sessions) == 1)


@in_loop
async def test_a_receive_that_times_out_or_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
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


@both_faces
@in_loop
async def test_a_client_that_is_not_closed_warns(connect: Connect) -> None:
    def forget() -> None:
        connect(NOWHERE).stream("s")
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed <Client"):
        forget()


# Wrong arguments


@both_faces
@in_loop
async def test_wrong_arguments_raise_at_once(connect: Connect) -> None:
    async with connect(NOWHERE) as client:
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
        subscription: Subscription = stream.subscribe()
        assert "not connected" in repr(subscription)
        with pytest.raises(TimedOut, match="did not answer"):
            await client.streams(0.01)


@both_faces
@in_loop
async def test_a_publisher_that_waits_learns_why(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise JournalFull("the disk is full")

    monkeypatch.setattr("zambezi.zeps.administration.asyncio.WHY", PATIENCE)
    monkeypatch.setattr("zambezi.zeps.administration.sync.WHY", PATIENCE)
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", fail)
            await stream.publish("k", b"1")
            with pytest.raises(TimedOut, match="the broker keeps messages waiting: the disk is full"):
                await stream.flush(1.0)
        await stream.flush(PATIENCE)


@both_faces
@in_loop
async def test_a_publisher_that_waits_tells_why_in_the_log(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise JournalFull("the disk is full")

    for face in ("asyncio", "sync"):
        monkeypatch.setattr(f"zambezi.zeps.administration.{face}.WHY", PATIENCE)
        monkeypatch.setattr(f"zambezi.zeps.{face}.QUIET", 0.01)
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", fail)

            async def close_a_stream_that_waits(stream: Stream, close: Callable[[], Awaitable[None]]) -> None:
                caplog.clear()
                await stream.publish("k", b"1")
                flushing = asyncio.ensure_future(stream.flush(PATIENCE))
                await eventually(lambda: "keeps messages of s waiting: the disk is full" in caplog.text)
                unconfirmed = r"1 message of 's' is not confirmed.*The client was .*the disk is full"
                with pytest.raises(TimedOut, match=unconfirmed):
                    await close()
                with pytest.raises((ClientClosed, TimedOut)):
                    await flushing

            await close_a_stream_that_waits(stream, stream.close)
            await close_a_stream_that_waits(client.stream("s"), partial(client.close, 1.0))


@in_loop
async def test_a_broker_that_stops_confirming_after_a_while_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client.connect("tcp://127.0.0.1:1") as client:
        stream = client.stream("s")
        waits: list[float | None] = []
        warned: list[int] = []

        async def until(_attempt: object, timeout: float | None, _what: str) -> bool:
            waits.append(timeout)
            stream.counters.confirmed += len(waits) < 3  # twice the broker was only slow
            if len(waits) < 4:
                raise TimedOut
            return True

        async def warn() -> None:
            warned.append(len(waits))

        monkeypatch.setattr(stream._waiter, "until", until)
        monkeypatch.setattr(stream, "_warn", warn)
        assert await stream._until(lambda: bool(waits) or None, None, "")
        assert (waits, warned) == ([2.0, 2.0, 2.0, None], [3])


@both_faces
@in_loop
async def test_a_closed_stream_can_be_opened_again(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        first = client.stream("s")
        await fill(first, 2)
        await first.close()
        with pytest.raises(ClientClosed):
            await first.publish("k", b"1")
        again = client.stream("s", bound=100_000)
        await fill(again, 2, start=2)
        assert await bodies(again.subscribe(since="earliest", until="now")) == [0, 1, 2, 3]
