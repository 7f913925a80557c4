"""zambezi.zeps.client.named_connection: the order of its messages, with a broker that says what the test tells it."""

from __future__ import annotations

import asyncio

import pytest

from tests.zeps.faces import QUICK
from tests.zeps.scripted import Scripted
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError, Incarnation, ReaderTaken
from zambezi.zeps.messages import (
    AGAIN,
    POSITIONS,
    TAKE,
    Ack,
    Claim,
    ClaimOk,
    Credit,
    Deliver,
    Invalid,
    Ping,
    PingOk,
    Subscribe,
    SubscribeOk,
    Taken,
)


async def claimed(broker: Scripted, position: int, missed: int = 0) -> tuple[bytes, Claim]:
    """Answer ATTACH, CLAIM and SUBSCRIBE; return the sender and the CLAIM."""
    who = await broker.attached()
    _, claim = await broker.expect(Claim, who)
    await broker.say(who, ClaimOk(position, missed))
    return who, claim


async def subscribed(broker: Scripted, who: bytes) -> Subscribe:
    _, subscribe = await broker.expect(Subscribe, who)
    await broker.say(who, SubscribeOk())
    return subscribe


async def serve(broker: Scripted) -> None:
    """Answer questions about the stream."""
    while True:
        await broker.recv()


def connected(broker: Scripted) -> Client:
    return Client.connect(broker.endpoint, backoff=QUICK, linger=0)


@in_loop
async def test_the_last_acknowledgement_is_sent_again_on_a_new_connection() -> None:
    async with Scripted(last=9, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing", since="earliest", ack="manual")
        who, claim = await claimed(broker, 4)
        assert (claim.name, claim.mode) == ("billing", TAKE)
        assert (await subscribed(broker, who)).latest == 4
        await broker.expect(Credit, who)
        await broker.say(who, *[Deliver(sequence, "k", b"") for sequence in (5, 6, 7)])
        for _ in range(3):
            subscription.ack(await subscription.recv(PATIENCE))
        _, ack = await broker.expect(Ack, who)
        assert ack.sequence in (5, 6, 7)
        broker.cut()
        # The broker has lost the ACK, and the subscription goes on after what was received.
        who, again = await claimed(broker, 4)
        assert (again.mode, again.owner) == (AGAIN, claim.owner)
        assert (await broker.expect(Ack, who))[1].sequence == 7
        assert (await subscribed(broker, who)).latest == 7


@in_loop
async def test_flush_asks_again_on_a_new_connection() -> None:
    async with Scripted(last=9, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing", ack="manual")
        who, _ = await claimed(broker, 4)
        await subscribed(broker, who)
        await broker.say(who, Deliver(5, "k", b""))
        subscription.ack(await subscription.recv(PATIENCE))
        flushing = asyncio.ensure_future(subscription.flush(PATIENCE))
        await broker.expect(Ping, who)
        broker.cut()
        who, _ = await claimed(broker, 4)
        await broker.expect(Ack, who)
        await broker.expect(Ping, who)
        assert not flushing.done()
        await broker.say(who, PingOk())
        await flushing


@in_loop
async def test_the_claim_itself_can_confirm_the_acknowledgements() -> None:
    async with Scripted(last=9, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing", ack="manual")
        who, _ = await claimed(broker, 4)
        await subscribed(broker, who)
        await broker.say(who, Deliver(5, "k", b""))
        subscription.ack(await subscription.recv(PATIENCE))
        flushing = asyncio.ensure_future(subscription.flush(PATIENCE))
        await broker.expect(Ping, who)
        broker.cut()
        await claimed(broker, 5)
        await flushing


@in_loop
async def test_a_reader_that_has_all_messages_still_confirms_them() -> None:
    async with Scripted(last=5, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing", until=5)
        who, _ = await claimed(broker, 4)
        await subscribed(broker, who)
        await broker.say(who, Deliver(5, "k", b""))
        assert [message.sequence async for message in subscription] == [5]
        broker.cut()
        who, _ = await claimed(broker, 4)
        assert (await broker.expect(Ack, who))[1].sequence == 5  # and no SUBSCRIBE
        closing = asyncio.ensure_future(subscription.close(PATIENCE))
        await broker.expect(Ping, who)
        await broker.say(who, PingOk())
        await closing


@in_loop
async def test_a_broker_without_positions_is_an_error() -> None:
    async with Scripted() as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing")
        await broker.attached()
        serving = asyncio.ensure_future(serve(broker))
        with pytest.raises(BrokerError, match="keeps no positions"):
            await subscription.recv(PATIENCE)
        serving.cancel()


@in_loop
async def test_a_refused_claim_is_an_error() -> None:
    async with Scripted(extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing")
        who = await broker.attached()
        await broker.expect(Claim, who)
        await broker.say(who, Invalid("10000 named readers already"))
        with pytest.raises(BrokerError, match="10000 named readers"):
            await subscription.recv(PATIENCE)


@in_loop
async def test_a_reader_that_is_taken_drops_what_it_has_not_read() -> None:
    async with Scripted(last=9, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing")
        who, _ = await claimed(broker, 4)
        await subscribed(broker, who)
        await broker.say(who, Deliver(5, "k", b""), Deliver(6, "k", b""))
        assert (await subscription.recv(PATIENCE)).sequence == 5
        await broker.say(who, Deliver(7, "k", b""), Taken("ben at 192.0.2.7"))
        serving = asyncio.ensure_future(serve(broker))
        await eventually(lambda: subscription._is_lost)
        with pytest.raises(ReaderTaken, match=r"ben at 192.0.2.7 has the reader 'billing'"):
            await subscription.recv(PATIENCE)
        serving.cancel()


@in_loop
async def test_a_new_incarnation_is_the_better_error() -> None:
    async with Scripted(last=9, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing")
        who, _ = await claimed(broker, 4)
        await subscribed(broker, who)
        broker.incarnation = "two"
        await broker.say(who, Taken(""))
        serving = asyncio.ensure_future(serve(broker))
        with pytest.raises(Incarnation):
            await subscription.recv(PATIENCE)
        serving.cancel()


@in_loop
async def test_answers_that_nobody_asked_for_change_nothing() -> None:
    async with Scripted(last=9, extensions=POSITIONS) as broker, connected(broker) as client:
        subscription = client.stream("s").subscribe(name="billing")
        who, _ = await claimed(broker, 4)
        await subscribed(broker, who)
        await broker.say(who, ClaimOk(8, 0), PingOk(), Deliver(5, "k", b""))
        assert (await subscription.recv(PATIENCE)).sequence == 5
        assert subscription.position == 5
