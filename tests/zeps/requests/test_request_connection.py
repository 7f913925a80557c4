"""The connection of a client that sends requests."""

from __future__ import annotations

import pytest

from tests.zeps.faces import QUICK
from tests.zeps.scripted import Scripted
from tests.zmtp.waiting import eventually, in_loop
from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.errors import BrokerError, TimedOut
from zambezi.zeps.messages import Credit, Deliver, Invalid, Ping, PingOk, Publish, Subscribe
from zambezi.zeps.requests.envelope import read_asked
from zambezi.zeps.requests.request_connection import RequestConnection
from zambezi.zmtp.async_waiter import Waiter


def connection_to(scripted: Scripted) -> RequestConnection:
    made = RequestConnection(Waiter().reactor, ClientOptions(backoff=QUICK), lambda: scripted.endpoint, "s")
    made.start()
    return made


@in_loop
async def test_requests_wait_for_the_connection_and_one_that_is_given_up_is_not_sent() -> None:
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        woken: list[str] = []
        first = connection.ask("one", b"1", None, lambda: woken.append("one"))
        second = connection.ask("two", b"2", 0.5, lambda: woken.append("two"))
        connection.forget(first)
        who = await scripted.attached()
        _, publish = await scripted.expect(Publish, who)
        asked = read_asked(publish.body)
        assert asked is not None
        assert (publish.key, asked.timeout, asked.content) == ("two", 500, b"2")
        await scripted.say(who, Deliver(1, "ok", asked.id + b"reply"))
        await eventually(lambda: second.result() == b"reply")
        assert woken == ["two"]
        # A second reply, and one to a request that does not exist.
        await scripted.say(who, Deliver(2, "ok", asked.id + b"again"), Deliver(3, "ok", b"short"))
        await eventually(lambda: connection.late == 2)
        connection.close(0)


@in_loop
async def test_requests_whose_time_is_over_fail_and_are_not_sent() -> None:
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        woken: list[str] = []
        for key, timeout in (("later", 0.02), ("soon", 0.0), ("never", None)):
            connection.ask(key, b"", timeout, lambda key=key: woken.append(key))  # type: ignore[misc]
        soon = connection.ask("soon", b"", 0.0, lambda: None)
        await eventually(lambda: woken == ["soon", "later"])
        with pytest.raises(TimedOut, match=r"no reply to 'soon' came at once; the client is .*connected"):
            soon.result()
        assert connection.waiting == 1
        who = await scripted.attached()
        _, publish = await scripted.expect(Publish, who)
        assert publish.key == "never"
        connection.close(0)


@in_loop
async def test_credit_is_given_back() -> None:
    async with Scripted(extensions="requests") as scripted:
        connection = connection_to(scripted)
        who = await scripted.attached()
        _, credit = await scripted.expect(Credit, who)
        assert credit.credit == WINDOW
        await scripted.say(who, Deliver(1, "ok", bytes(WINDOW // 4)))
        _, credit = await scripted.expect(Credit, who)
        assert credit.credit > WINDOW // 4
        connection.close(0)


@in_loop
async def test_a_request_that_is_stored_waits_for_its_reply_at_the_next_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Scripted(extensions="requests") as first, Scripted(extensions="requests") as second:
        connection = RequestConnection(
            Waiter().reactor, ClientOptions(backoff=QUICK), lambda: (first.endpoint, second.endpoint), "s"
        )
        connection.start()
        who = await first.attached()
        _, subscribe = await first.expect(Subscribe, who)
        stored = connection.ask("stored", b"1", None, lambda: None)
        _, publish = await first.expect(Publish, who)
        asked = read_asked(publish.body)
        assert asked is not None
        await first.expect(Ping, who)
        await first.say(who, PingOk())
        await eventually(lambda: stored.is_stored)
        lost = connection.ask("lost", b"2", None, lambda: None)
        await first.expect(Ping, who)
        await first.say(who, Invalid(f"moved: {second.endpoint}"))
        who = await second.attached()
        with pytest.raises(BrokerError, match="may have got the request"):
            lost.result()
        _, again = await second.expect(Subscribe, who)
        assert again.pattern == subscribe.pattern  # the same address
        await second.say(who, Deliver(1, "ok", asked.id + b"reply"))
        await eventually(lambda: stored.result() == b"reply")
        # A reply can be lost with a broker: so no request waits for ever.
        monkeypatch.setattr("zambezi.zeps.requests.request_connection.STORED", 0.0)
        never = connection.ask("never", b"3", None, lambda: None)
        await second.expect(Ping, who)
        await second.say(who, PingOk())
        await eventually(lambda: never.is_stored)
        await second.say(who, Invalid(f"moved: {first.endpoint}"))
        await eventually(lambda: never.error is not None)
        assert isinstance(never.error, TimedOut)
        connection.close(0)
