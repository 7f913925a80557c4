"""The connection of a server."""

from __future__ import annotations

import pytest

from tests.zeps.faces import QUICK
from tests.zeps.scripted import Scripted
from tests.zmtp.waiting import eventually, in_loop
from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.messages import Deliver, Invalid, Publish, SubscribeOk
from zambezi.zeps.requests import reply_connection
from zambezi.zeps.requests.envelope import CLOCK, OK, Stored
from zambezi.zeps.requests.reply_connection import ReplyConnection
from zambezi.zmtp.async_waiter import Waiter


def connection_to(scripted: Scripted) -> ReplyConnection:
    made = ReplyConnection(Waiter().reactor, ClientOptions(backoff=QUICK), lambda: scripted.endpoint, "s", "k")
    made.start()
    return made


REQUEST = Stored(b"a" * 16, b"i" * 8, 0, b"?")


@in_loop
async def test_replies_wait_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_connection, "UNSENT", 100)
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        for content in (b"one", b"two", b"three"):
            assert connection.reply(1, REQUEST, OK, content)
        assert connection.dropped == 1
        who = await scripted.attached()
        _, publish = await scripted.expect(Publish, who)
        assert publish == Publish("ok", b"a" * 16 + b"i" * 8 + b"two")
        assert connection.announced() is None
        await scripted.say(who, SubscribeOk())
        await eventually(lambda: connection.is_announced)
        with pytest.raises(ZepsError, match="exceeds the limit"):
            connection.reply(1, REQUEST, OK, bytes(17 << 20))
        connection.close(0)


@in_loop
async def test_acknowledgements_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_connection, "TOGETHER", 3)
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        handled: list[list[int]] = []
        connection.on_handled = handled.append
        for sequence in range(1, 6):
            assert connection.reply(sequence, REQUEST, OK, b"")
        assert handled == [[1, 2, 3]]
        await eventually(lambda: handled == [[1, 2, 3], [4, 5]])
        connection.note_handled(6)
        connection.close(0)
        assert handled[2:] == [[6]]


@in_loop
async def test_deadlines_are_by_the_clock_of_the_broker() -> None:
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        who = await scripted.attached()
        await scripted.say(who, SubscribeOk(), Deliver(1, "time", CLOCK.pack(5_000_000, 1 << 20)))
        await eventually(lambda: connection._offset != 0)
        assert not connection.is_expired(REQUEST)  # it has no deadline
        assert connection.is_expired(REQUEST._replace(deadline=4_000_000))
        assert not connection.is_expired(REQUEST._replace(deadline=3_600_000_000))
        connection.close(0)


@in_loop
async def test_a_reply_over_the_limit_of_the_broker_does_not_end_the_server() -> None:
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        who = await scripted.attached()
        await scripted.say(who, SubscribeOk(), Deliver(1, "time", CLOCK.pack(5_000_000, 1000)))
        await eventually(lambda: connection._offset != 0)
        with pytest.raises(ZepsError, match="with 1000 bytes the reply exceeds the limit of 1000"):
            connection.reply(1, REQUEST, OK, bytes(1000))
        assert connection.reply(1, REQUEST, OK, bytes(900))
        assert connection.failure is None
        connection.close(0)


@in_loop
async def test_a_refusal_is_an_error() -> None:
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        who = await scripted.attached()
        await scripted.say(who, Invalid("you may not"))
        await eventually(lambda: connection.failure is not None)
        with pytest.raises(BrokerError, match="you may not"):
            connection.announced()
        assert "refuses" in connection.state
        connection.close(0)


@in_loop
async def test_a_broker_without_the_extension_is_an_error() -> None:
    async with Scripted() as scripted:
        connection = connection_to(scripted)
        await scripted.attached()
        await eventually(lambda: connection.failure is not None)
        with pytest.raises(BrokerError, match="does not know requests"):
            connection.reply(1, REQUEST, OK, b"")
        connection.close(0)
