"""Shared subscriptions, for both faces: members of a group, acknowledgements, and messages that come again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.faces import QUICK, TCP, Connect, both_faces, connected, fill
from tests.zeps.scripted import cut
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client, Subscription
from zambezi.zeps.broker.group_member import Member
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.directory import ReaderInfo
from zambezi.zeps.errors import BrokerError, ClientClosed, ZepsError
from zambezi.zeps.letters import Letter


async def some(subscription: Subscription, count: int) -> list[int]:
    return [(await subscription.recv(PATIENCE)).sequence for _ in range(count)]


async def group(client: Client) -> ReaderInfo:
    (info,) = await client.readers("s", PATIENCE)
    return info


@both_faces
@in_loop
async def test_members_share_the_messages_and_go_on_where_the_group_was(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe(shared="workers", since="earliest") as first:
            assert await some(first, 3) == [1, 2, 3]
            await first.flush(PATIENCE)
            assert (await group(client)).position == 2  # the next recv acknowledges the one before
        info = await group(client)  # the end of the block has acknowledged the last one, and given back the others
        assert (info.reader, info.shared, info.position, info.members) == ("workers", True, 3, 0)
        async with stream.subscribe(shared="workers") as first, stream.subscribe(shared="workers") as second:
            await eventually(lambda: sum(len(one.in_flight) for one in members(broker)) == 7)
            shares = [len(one.in_flight) for one in members(broker)]  # in the order of their joining
            found = [await some(first, shares[0]), await some(second, shares[1])]
            assert sorted([*found[0], *found[1]]) == list(range(4, 11))


@both_faces
@in_loop
async def test_messages_have_their_times_also_when_they_come_again(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 300)
        for _ in range(3):  # batches of their own
            await fill(stream, 1)
        plain = stream.subscribe(since="earliest", until=303, times=True)
        expected = {message.sequence: message.time async for message in plain}
        async with stream.subscribe(shared="workers", since="earliest", ack="manual", times=True) as subscription:
            messages = [await subscription.recv(PATIENCE) for _ in range(303)]
            assert {message.sequence: message.time for message in messages} == expected
            for message in messages[::100]:
                subscription.nack(message)
            again = [await subscription.recv(PATIENCE) for _ in range(4)]
            assert [(one.sequence, one.time, one.deliveries) for one in again] == [
                (number, expected[number], 2) for number in (1, 101, 201, 301)
            ]


def members(broker: BrokerService) -> list[Member]:
    stream = broker.engine.find("s")
    assert stream is not None
    found = stream.groups._active.get("workers")
    return list(found.members) if found is not None else []


@both_faces
@in_loop
async def test_acknowledgements_by_hand_and_messages_that_are_given_back(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 6)
        async with stream.subscribe(shared="workers", since="earliest", ack="manual") as subscription:
            messages = [await subscription.recv(PATIENCE) for _ in range(6)]
            assert [message.deliveries for message in messages] == [1] * 6
            subscription.ack(messages[0])
            subscription.ack(3)
            subscription.nack(messages[1])
            again = await subscription.recv(PATIENCE)
            assert (again.sequence, again.body, again.deliveries) == (2, messages[1].body, 2)
            subscription.ack(again)
            subscription.keep(messages[3])
            await subscription.flush(PATIENCE)
            assert (await group(client)).position == 3
            subscription.nack(messages[5], delay=0.01)
            assert await some(subscription, 1) == [6]
            for wrong in (0, -1, True, "5", None):
                with pytest.raises(ZepsError, match="a message, a batch or a sequence"):
                    subscription.ack(wrong)  # type: ignore[arg-type]
        assert (await group(client)).position == 3
        with pytest.raises(ClientClosed):
            subscription.ack(4)


@both_faces
@in_loop
async def test_batches_are_acknowledged_by_the_next_one(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 6)
        async with stream.subscribe(shared="workers", since="earliest", in_flight=3) as subscription:
            batch = await subscription.recv_batch(PATIENCE)
            assert batch.sequences() == [1, 2, 3]
            assert (await subscription.recv_batch(PATIENCE)).sequences() == [4, 5, 6]
            assert (await group(client)).position == 3


@both_faces
@in_loop
async def test_dead_letters_say_where_they_are_from(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await stream.publish("ann", b"two teas")
        await stream.flush(PATIENCE)
        async with (
            stream.subscribe(shared="workers", since="earliest", ack="manual", limit=2, dead="dead") as subscription,
            client.stream("dead").subscribe(since="earliest") as letters,
        ):
            subscription.nack(await subscription.recv(PATIENCE))
            subscription.nack(await subscription.recv(PATIENCE))
            message = await letters.recv(PATIENCE)
            assert message.key == "ann"
            assert Letter.parse(message.body) == (Letter("s", 1, "ann", "workers", 2), b"two teas")


@both_faces
@in_loop
async def test_a_member_whose_connection_is_lost_joins_again(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 4)
        async with stream.subscribe(shared="workers", since="earliest", in_flight=2, ack="manual") as subscription:
            first = await subscription.recv(PATIENCE)
            subscription.ack(first)
            await subscription.flush(PATIENCE)
            cut(broker)
            await eventually(lambda: subscription.counters.reconnects == 1)
            again = await subscription.recv(PATIENCE)  # the rest of its batch was given back
            assert (again.sequence, again.deliveries) == (2, 2)
            subscription.ack(again)
            cut(broker)
            await eventually(lambda: subscription.counters.reconnects == 2)
            with pytest.raises(BrokerError, match="can come again"):
                await subscription.flush(PATIENCE)
            await subscription.flush(PATIENCE)  # it is said once


@both_faces
@in_loop
async def test_arguments_that_do_not_go_together_are_refused(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        for wrong, reason in [
            ({"shared": ""}, "this one is empty"),
            ({"shared": "g" * 256}, "cannot be sent"),
            ({"shared": "g", "name": "n"}, "no name"),
            ({"shared": "g", "until": "now", "multicast": True}, "no until and no multicast"),
            ({"shared": "g", "multicast": True}, "no multicast"),
            ({"shared": "g", "in_flight": 0}, "in_flight must be"),
            ({"shared": "g", "limit": -1}, "limit must be"),
            ({"shared": "g", "wait": "long"}, "wait must be"),
            ({"shared": "g", "pattern": 5}, "pattern must be text"),
            ({"shared": "g", "window": -1}, "window must be"),
            ({"limit": 5}, "only for subscribe"),
        ]:
            with pytest.raises(ZepsError, match=reason):
                stream.subscribe(**wrong)  # type: ignore[arg-type]
        with pytest.raises(ZepsError, match="reserved"):
            client.stream("$streams").subscribe(shared="g")
        async with stream.subscribe() as plain:
            for act in (plain.nack, plain.keep):
                with pytest.raises(ZepsError, match="only a shared subscription"):
                    act(1)


@both_faces
@in_loop
async def test_another_pattern_is_refused(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        async with stream.subscribe("exact:k1", shared="workers"):
            with pytest.raises(BrokerError, match="all members have one pattern"):
                async with stream.subscribe("k2", shared="workers"):
                    pass


@both_faces
@in_loop
async def test_groups_are_set_and_removed(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 10)
        async with stream.subscribe(shared="workers", since="earliest", limit=4):
            with pytest.raises(BrokerError, match="members"):
                await client.set_reader("s", "workers", 5, shared=True)
        await client.set_reader("s", "workers", 8, shared=True)
        info = await group(client)
        assert (info.position, info.lag, info.limit) == (8, 2, 4)
        await client.remove_reader("s", "workers", shared=True)
        assert await client.readers("s", PATIENCE) == []


@both_faces
@in_loop
async def test_a_member_of_a_stream_that_is_deleted_is_told(tmp_path: Path, connect: Connect) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        stream = client.stream("s")
        await fill(stream, 1)
        async with stream.subscribe(shared="workers", ack="manual") as subscription:
            await client.delete("s", timeout=PATIENCE)
            with pytest.raises(BrokerError, match="deleted"):
                await subscription.recv(PATIENCE)
            with pytest.raises(BrokerError, match="deleted"):
                subscription.ack(1)


@in_loop
async def test_nothing_that_was_confirmed_comes_again_after_the_kill_of_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        async with Client.connect(process.endpoint, backoff=QUICK) as client:
            stream = client.stream("s")
            await fill(stream, 100)
            async with stream.subscribe(shared="workers", since="earliest", ack="manual") as subscription:
                done = set()
                for _ in range(60):
                    message = await subscription.recv(PATIENCE)
                    if message.sequence % 3:
                        subscription.ack(message)
                        done.add(message.sequence)
                await subscription.flush(PATIENCE)
                process.kill()
                process.start()
                found: set[int] = set()
                while len(found) < 100 - len(done):
                    message = await subscription.recv(PATIENCE)
                    if message.sequence in found:
                        continue  # read before the kill
                    found.add(message.sequence)
                    subscription.ack(message)
                assert not found & done


@in_loop
async def test_acknowledgements_that_a_lost_connection_takes_with_it_are_not_confirmed(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker, Client.connect(broker.bind(TCP), backoff=QUICK) as client:
        stream = client.stream("s")
        await fill(stream, 3)
        async with stream.subscribe(shared="workers", since="earliest", ack="manual") as subscription:
            subscription.ack(await subscription.recv(PATIENCE))
            flushing = asyncio.ensure_future(subscription.flush(PATIENCE))
            await asyncio.sleep(0)
            cut(broker)
            with pytest.raises(BrokerError, match="can come again"):
                await flushing


@in_loop
async def test_a_broker_without_the_extension_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.service.EXTENDED", ("something-else",))
    async with BrokerService(tmp_path) as broker, Client.connect(broker.bind(TCP)) as client:
        with pytest.raises(BrokerError, match="has no shared readers"):
            async with client.stream("s").subscribe(shared="workers"):
                pass
