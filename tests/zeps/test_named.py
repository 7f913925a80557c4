"""Subscriptions with a name, for both faces: positions, acknowledgements, and who holds the name."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.faces import QUICK, TCP, Connect, both_faces, connected, fill
from tests.zeps.scripted import Serving, cut
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client, Stream, Subscription
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError, ClientClosed, Incarnation, ReaderTaken, TimedOut, ZepsError
from zambezi.zeps.journal.positions import READER, Position


class Failure(Exception):
    """A program fails to handle a message."""


async def some(subscription: Subscription, count: int) -> list[int]:
    return [(await subscription.recv(PATIENCE)).sequence for _ in range(count)]


async def position(client: Client, reader: str = "billing", stream: str = "s") -> int:
    return {one.reader: one.position for one in await client.readers(stream, PATIENCE)}[reader]


async def rest(stream: Stream) -> list[int]:
    """Return the sequences that the reader has not acknowledged."""
    async with stream.subscribe(name="billing", until="now", ack="manual") as subscription:
        return [message.sequence async for message in subscription]


@both_faces
@in_loop
async def test_a_program_that_is_started_again_goes_on_after_its_last_message(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe(name="billing", since="earliest") as subscription:
            assert await some(subscription, 3) == [1, 2, 3]
        assert await position(client) == 3  # the end of the block has acknowledged what the program got
        async with stream.subscribe(name="billing", since="latest") as subscription:
            assert await some(subscription, 2) == [4, 5]
            await subscription.flush(PATIENCE)
            assert await position(client) == 4  # the next recv acknowledges the one before
        assert await rest(stream) == [6, 7, 8, 9, 10]
        (info,) = await client.readers("s", PATIENCE)
        assert (info.reader, info.lag, info.user) == ("billing", 5, "")
        assert datetime.now(UTC) - info.changed_at < timedelta(minutes=5)


@both_faces
@in_loop
async def test_a_program_that_fails_gets_its_message_again(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)

        async def fail(client: Client) -> None:
            async with stream.subscribe(name="billing", since="earliest") as subscription:
                assert await some(subscription, 3) == [1, 2, 3]
                raise Failure

        async def fail_and_close(endpoint: str) -> None:
            async with connect(endpoint) as other:
                subscription = other.stream("s").subscribe(name="billing")
                try:
                    assert await some(subscription, 2) == [3, 4]
                    raise Failure
                finally:
                    await subscription.close()

        with pytest.raises(Failure):
            await fail(client)
        assert await position(client) == 2
        with pytest.raises(Failure):
            await fail_and_close(broker.bind(TCP))
        assert await position(client) == 3


@both_faces
@in_loop
async def test_acknowledgements_by_hand(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe(name="billing", since="earliest", ack="manual") as subscription:
            message = await subscription.recv(PATIENCE)
            assert await some(subscription, 2) == [2, 3]
            subscription.ack(message)
            await subscription.flush(PATIENCE)
            assert await position(client) == 1
            batch = await subscription.recv_batch(PATIENCE)
            assert (batch.first, batch.last) == (4, 10)
            subscription.ack(5)
            subscription.ack(2)  # before the position: nothing changes
            await subscription.flush(PATIENCE)
            assert await position(client) == 5
            for wrong in (11, -1, True, "5", None):
                with pytest.raises(ZepsError, match="up to 10 can be acknowledged"):
                    subscription.ack(wrong)  # type: ignore[arg-type]
            subscription.ack(batch)
        assert await position(client) == 10
        with pytest.raises(ClientClosed):
            subscription.ack(batch)
        with pytest.raises(ZepsError, match="only a subscription with a name"):
            stream.subscribe().ack(3)


@both_faces
@in_loop
async def test_batches_acknowledge_the_batch_before(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe(name="billing", since="earliest") as subscription:
            assert await some(subscription, 4) == [1, 2, 3, 4]
            batch = await subscription.recv_batch(PATIENCE)
            assert (batch.first, batch.last) == (5, 10)
            await subscription.flush(PATIENCE)
            assert await position(client) == 4
            await fill(stream, 5, start=10)
            assert (await subscription.recv_batch(PATIENCE)).first == 11
            await subscription.flush(PATIENCE)
            assert await position(client) == 10
        assert await position(client) == 15


@both_faces
@in_loop
async def test_patterns_times_and_ends_work_with_names(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 50)
        options = {"name": "sevens", "times": True, "until": 30}
        async with stream.subscribe("exact:k7", since="earliest", **options) as subscription:  # type: ignore[arg-type]
            found = [message async for message in subscription]
        assert [message.sequence for message in found] == [8, 18, 28]
        assert all(message.time is not None for message in found)
        assert await position(client, "sevens") == 28
        async with stream.subscribe("exact:k7", name="sevens", until="now") as subscription:
            assert [message.sequence async for message in subscription] == [38, 48]
        async with stream.subscribe("exact:k7", name="sevens", until=40) as subscription:
            assert [message.sequence async for message in subscription] == []
        async with stream.subscribe(name="old", since="earliest", until=datetime.now(UTC)) as subscription:
            assert len([message async for message in subscription]) == 50
        assert await position(client, "old") == 50


@both_faces
@in_loop
async def test_a_reader_ends_at_a_time_that_comes(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 5)
        soon = datetime.now(UTC) + timedelta(milliseconds=50)
        async with stream.subscribe(name="billing", since="earliest", until=soon) as subscription:
            assert [message.sequence async for message in subscription] == [1, 2, 3, 4, 5]
        assert await position(client) == 5


def test_threads_acknowledge_by_hand_and_the_furthest_counts(tmp_path: Path) -> None:
    with Serving(tmp_path) as broker, sync.Client.connect(broker.endpoint) as client:
        stream = client.stream("s")
        stream.publish_many([("k", b"")] * 2000)
        with stream.subscribe(name="billing", since="earliest", ack="manual") as subscription:
            while (subscription.position or 0) < 2000:
                subscription.recv_batch(PATIENCE)

            def acknowledge(start: int) -> None:
                for sequence in range(start, 2001, 4):
                    subscription.ack(sequence)

            threads = [threading.Thread(target=acknowledge, args=(start,)) for start in range(1, 5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [one.position for one in client.readers("s", PATIENCE)] == [2000]


@both_faces
@in_loop
async def test_broken_connections_repeat_and_lose_nothing(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 100)
        found: list[int] = []
        async with stream.subscribe(name="billing", since="earliest", window=500) as subscription:
            while len(found) < 100:
                found += await some(subscription, 10)
                cut(broker, lambda session: session.reader is not None)
            await subscription.flush(PATIENCE)
            assert await position(client) == 99
            assert subscription.counters.reconnects > 0
        assert found == list(range(1, 101))
        assert await position(client) == 100


@both_faces
@in_loop
async def test_the_newest_program_takes_the_name(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        old = stream.subscribe(name="billing", since="earliest")
        assert await some(old, 3) == [1, 2, 3]
        new = stream.subscribe(name="billing", ack="manual")
        first = await new.recv(PATIENCE)
        assert first.sequence in (2, 3)  # the acknowledgement of 2 may be under way
        await eventually(lambda: old._is_lost)
        with pytest.raises(ReaderTaken, match=r"127.0.0.1 has the reader 'billing' of the stream 's'"):
            await old.recv(PATIENCE)
        with pytest.raises(ReaderTaken):
            await old.recv_batch(PATIENCE)
        with pytest.raises(ReaderTaken):
            old.ack(3)
        refused = stream.subscribe(name="billing", if_held="refuse")
        with pytest.raises(ReaderTaken):
            await refused.recv(PATIENCE)
        assert await some(new, 2) == [first.sequence + 1, first.sequence + 2]
        await old.close()


@in_loop
async def test_a_program_that_comes_back_late_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)
        slow = Client.connect(broker.bind(TCP), backoff=QUICK)
        old = slow.stream("s").subscribe(name="billing", since="earliest", window=60)
        assert await some(old, 1) == [1]
        old._connection._finder._locate = lambda: None  # it does not come back at once
        old._connection.suspend()
        async with stream.subscribe(name="billing") as new:
            await some(new, 4)
        old._connection._finder._locate = slow._locate
        old._connection.start()
        with pytest.raises(ReaderTaken, match="another client has, or has had,"):
            await some(old, 10)
        await slow.close()


@both_faces
@in_loop
async def test_a_position_that_is_not_kept_any_more(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        await client.set_reader("s", "billing", 2, timeout=PATIENCE)
        await client.trim("s", 6, timeout=PATIENCE)
        async with stream.subscribe(name="billing") as subscription:
            assert await some(subscription, 5) == [6, 7, 8, 9, 10]
            assert subscription.counters.missed == 3


@both_faces
@in_loop
async def test_truncated_and_deleted_streams(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        subscription = stream.subscribe(name="billing", since="earliest")
        assert await some(subscription, 9) == list(range(1, 10))
        await subscription.flush(PATIENCE)
        await client.truncate("s", 5, timeout=PATIENCE)
        await fill(stream, 10)
        with pytest.raises((BrokerError, Incarnation)):
            await some(subscription, 10)
        await subscription.close()
        assert await position(client) == 5
        await client.delete("s", timeout=PATIENCE)
        with suppress(BrokerError):  # the publisher may learn of the deletion only now
            await fill(client.stream("s"), 3)
        await fill(client.stream("s"), 3)
        assert await client.readers("s", PATIENCE) == []


@in_loop
async def test_acknowledgements_never_reach_another_incarnation(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        subscription = stream.subscribe(name="billing", since="earliest", ack="manual")
        await some(subscription, 10)
        subscription._connection.suspend()
        subscription.ack(9)
        await client.truncate("s", 5, timeout=PATIENCE)
        await fill(stream, 10)
        subscription._connection.start()
        with pytest.raises(Incarnation):
            await subscription.flush(PATIENCE)
        assert await position(client) == 0


@both_faces
@in_loop
async def test_an_operator_sets_and_removes_readers(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        await client.set_reader("s", "billing", 7, timeout=PATIENCE)
        assert await rest(stream) == [8, 9, 10]
        await client.set_reader("s", "billing", "earliest", timeout=PATIENCE)
        assert len(await rest(stream)) == 10
        await client.set_reader("s", "billing", "latest", timeout=PATIENCE)
        assert await rest(stream) == []
        await client.set_reader("s", "billing", timedelta(hours=1), timeout=PATIENCE)
        async with stream.subscribe(name="billing"):
            with pytest.raises(BrokerError, match="in use by"):
                await client.remove_reader("s", "billing", timeout=PATIENCE)
        await client.remove_reader("s", "billing", timeout=PATIENCE)
        with pytest.raises(BrokerError, match="has no reader billing"):
            await client.remove_reader("s", "billing", timeout=PATIENCE)
        with pytest.raises(BrokerError, match="no stream"):
            await client.readers("none", PATIENCE)


@both_faces
@in_loop
async def test_arguments_that_are_not_valid(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        for options, problem in (
            ({"name": ""}, "a reader needs a name"),
            ({"name": 5}, "must be text"),
            ({"name": "n" * 256}, "cannot be sent"),
            ({"name": "\ud800"}, "cannot be sent"),
            ({"name": "n", "ack": "never"}, "'auto' or 'manual'"),
            ({"name": "n", "if_held": "ask"}, "'take' or 'refuse'"),
            ({"name": "n", "multicast": True}, "not both"),
        ):
            with pytest.raises(ZepsError, match=problem):
                stream.subscribe(**options)
        with pytest.raises(ZepsError, match="no named readers"):
            client.stream("$streams").subscribe(name="n")
        with pytest.raises(ZepsError, match="a reader needs a name"):
            await client.remove_reader("s", "")
        future = stream.subscribe(name="n", since=datetime.now(UTC) + timedelta(hours=1))
        with pytest.raises(BrokerError, match="in the future"):
            await future.recv(PATIENCE)


@both_faces
@in_loop
async def test_close_says_that_acknowledgements_are_not_confirmed(tmp_path: Path, connect: Connect) -> None:
    async with BrokerService(tmp_path) as broker, connect(broker.bind(TCP), backoff=QUICK, linger=0.01) as client:
        stream = client.stream("s")
        await fill(stream, 3)
        subscription = stream.subscribe(name="billing", since="earliest")
        assert await some(subscription, 2) == [1, 2]
        await broker.close()
        with pytest.raises(TimedOut, match="acknowledgements"):
            await subscription.close()
        assert subscription._connection.closed


def read_and_die(endpoint: str, count: int) -> None:
    """Read under a name, handle messages one by one, and be killed in the middle of one."""
    with sync.Client.connect(endpoint, backoff=QUICK) as client:
        subscription = client.stream("s").subscribe(name="billing", since="earliest")
        for number, message in enumerate(subscription, 1):
            print(message.sequence, flush=True)  # the message is handled
            if number == count:
                subscription.flush(PATIENCE)
                os.kill(os.getpid(), signal.SIGKILL)


def test_kills_of_both_sides(tmp_path: Path) -> None:
    """Kill the program and the broker by turns: each message is handled, and none that was acknowledged again."""
    spawn = multiprocessing.get_context("forkserver")
    broker = BrokerProcess(tmp_path, sync="never")
    with broker, sync.Client.connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        stream.publish_many([("k", b"%d" % number) for number in range(30)])
        stream.flush(PATIENCE)
        for life in range(3):
            program = spawn.Process(target=read_and_die, args=(broker.endpoint, 5))
            program.start()
            program.join(PATIENCE)
            assert program.exitcode == -signal.SIGKILL
            # The last message of each life was not acknowledged: it comes again.
            assert [one.position for one in client.readers("s", PATIENCE)] == [4 * (life + 1)]
            broker.kill()
            broker.start()
            assert [one.position for one in client.readers("s", PATIENCE)] == [4 * (life + 1)]
        with stream.subscribe(name="billing", until="now") as subscription:
            assert [message.sequence for message in subscription] == list(range(13, 31))


@in_loop
async def test_ten_thousand_names_cost_what_they_use(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)
        positions = broker.engine.find("s").journal.positions  # type: ignore[union-attr]
        positions.write([Position(READER, f"reader {number}", number % 10) for number in range(9_999)])
        async with stream.subscribe(name="billing", since="earliest") as subscription:
            assert await some(subscription, 10) == list(range(1, 11))
        found = await client.readers("s", PATIENCE)
        assert len(found) == 10_000
        with pytest.raises(BrokerError, match="10000 named readers already"):
            await asyncio.wait_for(stream.subscribe(name="one more").recv(), PATIENCE)
