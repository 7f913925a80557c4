"""zambezi.zeps.client.connection: finding the broker, ATTACH and DETACH, and bytes that are not valid messages."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.zeps.faces import QUICK, TCP, bodies, fill
from tests.zeps.scripted import Scripted
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker
from zambezi.zeps.errors import BrokerError, TimedOut
from zambezi.zeps.messages import Attach, Deliver, Detach, DetachOk, Invalid, Ping, PingOk, Publish


@in_loop
async def test_the_function_that_finds_the_broker_may_fail_for_a_while(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        answers = iter([None, "nonsense", RuntimeError("not now"), broker.bind(TCP)])

        def find() -> str | None:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with Client.connect(find) as client:
            await fill(client.stream("s"), 1)


@pytest.mark.spec("ZEP-07")
@in_loop
async def test_detach_is_answered_and_the_client_connects_again() -> None:
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        who = await broker.attached()
        assert await broker.recv() == (who, Publish("k", b"1"))
        await broker.say(who, Detach())
        # The client asks for confirmation of the messages that it has sent, and keeps those that it has not.
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
async def test_the_client_leaves_a_broker_that_sends_detach_and_does_not_close(monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_a_refused_attach_is_an_error_for_publishers_and_subscribers() -> None:
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
async def test_invalid_bytes_end_the_connection_and_not_the_subscription(octets: bytes) -> None:
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
async def test_commands_between_deliveries_are_handled() -> None:
    async with Scripted(last=10) as broker, Client.connect(broker.endpoint) as client:
        subscription = client.stream("s").subscribe(since="earliest", until=4)
        who, _ = await broker.subscribed()
        await broker.say(who, *(Deliver(1, "k", b""), Ping(), Deliver(2, "k", b""), Deliver(3, "k", b""), Ping()))
        await broker.say(who, Deliver(4, "k", b""))
        assert [one.sequence async for one in subscription] == [1, 2, 3, 4]
        await broker.expect(PingOk, who)
        await broker.expect(PingOk, who)
        await broker.expect(Detach, who)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@in_loop
async def test_a_client_without_a_broker_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zambezi.zeps.client.connection.QUIET", 0.01)
    async with Scripted() as broker:
        free = broker.endpoint
    async with Client.connect(free, backoff=QUICK, linger=0) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        await eventually(lambda: warnings_in(caplog))
        with pytest.raises(TimedOut):
            await stream.close(0.1)
    [warning] = warnings_in(caplog)
    assert f"waiting for a broker: this client is not connected to {free}" in warning


@in_loop
async def test_a_broker_that_hangs_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # the kernel accepts, and nobody reads
        endpoint = f"tcp://127.0.0.1:{hanging.getsockname()[1]}"
        async with Client.connect(endpoint) as client:
            asking = asyncio.create_task(client.streams(PATIENCE))
            wanted = f"not connected to {endpoint}: it accepts connections, but does not answer; does it hang?"
            await eventually(lambda: [question.state for question in client._questions] == [wanted])
            asking.cancel()


@in_loop
async def test_a_client_warns_again_when_the_broker_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zambezi.zeps.client.connection.QUIET", 0.01)
    async with Scripted() as broker, Client.connect(broker.endpoint, backoff=QUICK, linger=0) as client:
        stream = client.stream("s")
        await stream.publish("k", b"1")
        await broker.attached()
        broker.cut()
        caplog.clear()
        await eventually(lambda: warnings_in(caplog))  # it is connected again, and the stream is not confirmed
        with pytest.raises(TimedOut):
            await stream.close(0)
