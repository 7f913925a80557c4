"""zambezi.zeps.client.publisher_connection: what a publisher sends, and what it does with the broker's answers."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.zeps.faces import QUICK, TCP, connected
from tests.zeps.scripted import Scripted, cut
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.client.connection import BrokerConnection
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.messages import Attach, AttachOk, Detach, DetachOk, Invalid, Ping, PingOk, Publish


@in_loop
async def test_the_messages_of_a_publisher_and_their_answers() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("tea", b"4.20")
        who, attach = await broker.expect(Attach)
        assert attach.stream == "s"
        await broker.say(who, AttachOk())
        flushing = asyncio.create_task(stream.flush(PATIENCE))
        assert await broker.recv() == (who, Publish("tea", b"4.20"))
        assert await broker.recv() == (who, Ping())
        # While the answer is outstanding, the connection sends more messages.
        await stream.publish("tea", b"4.30")
        assert await broker.recv() == (who, Publish("tea", b"4.30"))
        assert not flushing.done()
        await broker.say(who, Ping())
        await broker.expect(PingOk, who)
        await broker.say(who, PingOk())
        await flushing
        assert stream.unconfirmed == 1
        assert await broker.recv() == (who, Ping()), "the later message needs a PING too"
        await broker.say(who, PingOk())
        await eventually(lambda: stream.unconfirmed == 0)
        assert stream.counters.reconnects == 0


@pytest.mark.spec("ZEP-15")
@pytest.mark.parametrize("where", [TCP, "inproc://zeps-breaks"])
@in_loop
async def test_each_message_is_in_the_stream_once_when_connections_break(where: str, tmp_path: Path) -> None:
    async with connected(tmp_path, where) as (broker, client):
        stream = client.stream("s", bound=20_000)
        for number in range(6000):
            await stream.publish("k", b"%d" % number)
            if number % 1000 == 500:
                cut(broker)
        await stream.flush(PATIENCE)
        assert stream.counters.reconnects > 0
        found = [int(one.body) async for one in stream.subscribe(since="earliest", until="now")]
        assert found == list(range(6000)), "once, and in order"
        assert stream.counters.confirmed == 6000


@in_loop
async def test_flush_raises_what_the_broker_refused() -> None:
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
async def test_a_stopped_stream_is_an_error_and_the_client_connects_again() -> None:
    """The broker sends INVALID, then DETACH, and answers the last PING with INVALID too."""
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
async def test_a_confirmation_that_comes_while_the_connection_closes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
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
            # As if a long queue delayed DETACH, so that the connection stays open.
            patch.setattr(BrokerConnection, "close", lambda self, linger: setattr(self.transport, "closing", True))
            connection.close(None)
        assert (stream.counters.confirmed, stream.counters.unconfirmed) == (0, 1)
        await broker.say(who, PingOk())
        await eventually(lambda: stream.counters.confirmed)
        assert (stream.counters.confirmed, stream.counters.unconfirmed) == (1, 0)
        connection.transport.closing = False
        await client.close(0)
        await asyncio.gather(flushing, return_exceptions=True)


@in_loop
async def test_a_deleted_stream_is_created_again_by_the_next_message_only(tmp_path: Path) -> None:
    async with connected(tmp_path) as (broker, client):
        stream = client.stream("s")
        await stream.publish("k", b"1")
        await stream.flush(PATIENCE)
        async with stream.subscribe() as subscription:
            await client.delete("s", timeout=PATIENCE)
            with pytest.raises(BrokerError, match="an operator has deleted the stream"):
                await subscription.recv(PATIENCE)
        await eventually(lambda: not broker.engine.sessions)
        assert broker.engine.names() == []
        await stream.publish("k", b"2")
        with contextlib.suppress(BrokerError):  # the refusal, once
            await stream.flush(PATIENCE)
        await stream.flush(PATIENCE)
        found = [one.body async for one in stream.subscribe(since="earliest", until="now")]
        assert found == [b"2"]
