"""The connector for asyncio, against a middleware that comes and goes."""

from __future__ import annotations

import asyncio

import pytest

from tests.mcollective.raw import Raw
from tests.zmtp.waiting import eventually, in_loop, next_of
from zambezi.mcollective.asyncio import Connector, Message, Middleware
from zambezi.mcollective.errors import CommandRefused, McollectiveError, Unconfirmed
from zambezi.mcollective.events import Complaint, SessionLost, SessionReady
from zambezi.zmtp import (
    Backoff,
    Bound,
    CurveClient,
    CurveServer,
    HandshakeFailed,
    KeyPair,
    Retrying,
    SocketClosed,
    TimedOut,
)
from zambezi.zmtp.asyncio import Router

QUICK = Backoff(0.01, 0.05)


@pytest.mark.spec("MCO-01")
@in_loop
async def test_a_connector_is_a_dealer_at_the_middlewares_router() -> None:
    """The middleware is played by a ROUTER, which shows what really goes over the wire."""
    async with Router() as router, Connector(router.bind("tcp://127.0.0.1:*"), identity=b"me", ttl=30) as connector:
        identity, empty, verb, *headers = await router.recv()
        assert (identity, empty, verb) == (b"me", b"", b"CONNECT")
        assert headers[0::2] == [b"ID", b"TTL", b"VERSION"]
        assert headers[3::2] == [b"30000", b"0.2"]
        await router.send([b"me", b"", b"OK", b"ID", headers[1]])
        await connector.connect(timeout=20)
        await connector.put("a topic", [b"one", b"two"], reply_to="r", headers={"X-A": "1"})
        assert (await router.recv())[1:] == [
            b"", b"PUT", b"TOPIC", b"a topic", b"X-REPLY-TO", b"r", b"X-A", b"1", b"", b"one", b"two",
        ]  # fmt: skip


@in_loop
async def test_all_that_a_connector_does() -> None:
    async with Middleware() as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        async with Connector(endpoint) as ann, Connector(endpoint) as bob:
            await ann.subscribe("a", "b", "\udcff")
            assert ann.connected
            assert ann.subscriptions == ["a", "b", "\udcff"]
            await bob.put("a", b"1", reply_to="bob", headers={"X-COLOUR": "red"})
            assert await ann.recv(timeout=20) == Message("a", (b"1",), {"X-REPLY-TO": "bob", "X-COLOUR": "red"})
            await bob.put("\udcff", [b"2", b"", b"3"], confirm=True)
            assert (await ann.recv()).frames == (b"2", b"", b"3")
            await ann.unsubscribe("a")
            await bob.put("a", b"4")
            await bob.put("b", b"5")
            assert (await ann.recv()).body == b"5"
            with pytest.raises(CommandRefused, match="'FETCH' is no verb"):
                await bob.request("FETCH", {"X-A": "1"})
            with pytest.raises(TimedOut):
                await ann.recv(timeout=0.01)
            with pytest.raises(McollectiveError, match="not empty"):
                await ann.subscribe("")
            with pytest.raises(McollectiveError, match="begins with X-"):
                await ann.put("a", b"x", headers={"TOPIC": "b"})
        assert middleware.counters.errors == 1
        await eventually(lambda: middleware.clients == 0)


@in_loop
async def test_the_answer_to_a_request_is_given_as_it_came() -> None:
    async with Middleware() as middleware, Connector(middleware.bind("tcp://127.0.0.1:*")) as connector:
        answer = await connector.request("NOOP", timeout=20)
        assert list(answer) == ["ID"]
        assert len(answer["ID"]) == 36


@in_loop
async def test_it_comes_back_with_its_subscriptions_when_the_middleware_does() -> None:
    middleware = Middleware(linger=0)
    endpoint = middleware.bind("tcp://127.0.0.1:*")
    async with Connector(endpoint, backoff=QUICK) as connector:
        await connector.subscribe("a", "b")
        assert await next_of(connector, SessionReady) == SessionReady(endpoint, False)
        await middleware.close()
        await next_of(connector, SessionLost)
        assert not connector.connected
        waiting = asyncio.create_task(connector.put("a", b"waits for a session"))
        late = asyncio.create_task(connector.subscribe("c"))
        async with Middleware(linger=0) as middleware:
            middleware.bind(endpoint)
            assert await next_of(connector, SessionReady) == SessionReady(endpoint, True)
            await asyncio.gather(waiting, late)
            assert (await connector.recv()).body == b"waits for a session"
            assert [each.topic for each in middleware.topics()] == [b"a", b"b", b"c"]


@in_loop
async def test_it_starts_before_the_middleware() -> None:
    async with Middleware() as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
    async with Connector(endpoint, backoff=QUICK) as connector:
        await next_of(connector, Retrying)
        with pytest.raises(TimedOut, match=r"no session with the middleware at .* refused"):
            await connector.connect(timeout=0.02)
        with pytest.raises(TimedOut):
            await connector.subscribe("a", timeout=0.02)
        async with Middleware() as middleware:
            middleware.bind(endpoint)
            await connector.connect(timeout=20)
            # It was wanted, and still is.
            assert [each.topic for each in middleware.topics()] == [b"a"]


@in_loop
async def test_what_was_not_confirmed_is_told_to_be_so() -> None:
    async with (
        Router(handover=True) as router,
        Connector(router.bind("tcp://127.0.0.1:*"), identity=b"me", backoff=QUICK) as connector,
    ):
        _, _, _, _, id_, *_ = await router.recv()
        await router.send([b"me", b"", b"OK", b"ID", id_])
        asking = asyncio.create_task(connector.put("a", b"x", confirm=True))
        assert (await router.recv())[2] == b"PUT"
        router._shell.peers[b"me"].abort("a cable was pulled")
        with pytest.raises(Unconfirmed, match="did not come"):
            await asking
        assert (await router.recv())[2] == b"CONNECT"


@in_loop
async def test_a_silent_middleware_is_left_with_a_word_and_tried_again() -> None:
    async with (
        Router(handover=True) as router,
        Connector(router.bind("tcp://127.0.0.1:*"), identity=b"me", ttl=0.2, backoff=QUICK) as connector,
    ):
        await connector_ready(router)
        seen = [(await router.recv())[2]]
        while seen[-1] != b"CONNECT":
            seen.append((await router.recv())[2])
        # On a busy machine the NOOP that would come first may be due as late as the goodbye, and is not said then.
        assert [verb for verb in seen if verb != b"NOOP"] == [b"DISCONNECT", b"CONNECT"]
        lost = await next_of(connector, SessionLost)
        assert "TTL" in lost.reason


async def connector_ready(router: Router) -> None:
    identity, _, _, _, id_, *_ = await router.recv()
    await router.send([identity, b"", b"OK", b"ID", id_])


@in_loop
async def test_a_program_that_does_not_read_is_a_slow_subscriber_and_is_told() -> None:
    async with Middleware(send_bound=Bound(octets=30_000), linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        async with Connector(endpoint, receive_bound=Bound(messages=20), ttl=None, linger=0) as reader:
            speaker = await Raw.join(endpoint)
            await reader.subscribe("a")
            while not middleware.counters.missed:
                await speaker.ask(b"", b"PUT", b"ID", b"1", b"TOPIC", b"a", b"", bytes(20_000))
            assert len(reader._shell.messages) < 500
            while not reader.missed:
                await reader.recv(timeout=20)
                await speaker.ask(b"", b"PUT", b"ID", b"1", b"TOPIC", b"a", b"", b"x")
            assert "missed" in (await next_of(reader, Complaint)).text
            speaker.close()


@in_loop
async def test_two_who_wait_for_messages_share_them() -> None:
    async with Middleware() as middleware, Connector(middleware.bind("tcp://127.0.0.1:*")) as connector:
        await connector.subscribe("a")
        waiting = [asyncio.create_task(connector.recv(timeout=20)) for _ in range(5)]
        await asyncio.sleep(0)
        for number in range(5):
            await connector.put("a", b"%d" % number)
        assert sorted([(await each).body for each in waiting]) == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_the_end_of_a_connector_ends_who_waits_and_its_session() -> None:
    async with Middleware() as middleware:
        connector = Connector(middleware.bind("tcp://127.0.0.1:*"))
        await connector.subscribe("a")
        collecting = asyncio.create_task(collect(connector))
        await asyncio.sleep(0)
        await connector.close()
        assert await collecting == []
        with pytest.raises(SocketClosed):
            await connector.put("a", b"x")
        with pytest.raises(SocketClosed):
            await connector.subscribe("b")
        await eventually(lambda: middleware.clients == 0)
        assert middleware.counters.commands == 3  # CONNECT, SUB, DISCONNECT


async def collect(connector: Connector) -> list[Message]:
    return [message async for message in connector]


@pytest.mark.spec("MCO-02")
@in_loop
async def test_with_curve_on_both_sides() -> None:
    keys = KeyPair.generate()
    async with Middleware(security=CurveServer(keys)) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        async with Connector(endpoint, security=CurveClient(keys.public)) as connector:
            await connector.subscribe("a")
            for number in range(100):
                await connector.put("a", b"%d" % number)
            assert [(await connector.recv()).body for _ in range(100)] == [b"%d" % number for number in range(100)]
        async with Connector(endpoint, backoff=QUICK) as stranger:
            await next_of(stranger, HandshakeFailed)
            with pytest.raises(TimedOut, match="wants CURVE security"):
                await stranger.connect(timeout=0.02)


def test_a_ttl_is_a_time() -> None:
    async def make() -> None:
        Connector("tcp://127.0.0.1:1", ttl=0)

    with pytest.raises(McollectiveError, match="TTL"):
        asyncio.run(make())
