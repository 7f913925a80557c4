"""zambezi.mcollective.asyncio and .sync: what holds for connectors and middlewares of both faces."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from tests.mcollective.raw import Raw
from tests.twins import awaited
from tests.zmtp.waiting import eventually, in_loop, next_of
from zambezi import mcollective
from zambezi.mcollective import asyncio as aio
from zambezi.mcollective import sync
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.asyncio import Message
from zambezi.mcollective.errors import CommandRefused, McollectiveError, Unconfirmed
from zambezi.mcollective.events import Complaint, SessionLost, SessionReady
from zambezi.zmtp import (
    Backoff,
    Bound,
    Retrying,
    SocketClosed,
    TimedOut,
)
from zambezi.zmtp.asyncio import Router

QUICK = Backoff(0.01, 0.05)


@dataclass(frozen=True)
class Face:
    Middleware: type[aio.Middleware]
    Connector: type[aio.Connector]


FACES = {
    "asyncio": Face(aio.Middleware, aio.Connector),
    "sync": Face(awaited(aio.Middleware, sync.Middleware), awaited(aio.Connector, sync.Connector)),
}


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    return FACES[request.param]


@in_loop
async def test_a_connector_subscribes_puts_requests_and_unsubscribes(face: Face) -> None:
    async with face.Middleware() as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        async with face.Connector(endpoint) as ann, face.Connector(endpoint) as bob:
            await ann.subscribe("a", "b", "\udcff")
            assert ann.connected
            assert ann.subscriptions == ["a", "b", "\udcff"]
            await bob.put("a", b"1", reply_to="bob", headers={"X-COLOUR": "red"})
            assert await ann.recv(timeout=60) == Message("a", (b"1",), {"X-REPLY-TO": "bob", "X-COLOUR": "red"})
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
async def test_the_answer_to_a_request_is_given_as_it_came(face: Face) -> None:
    async with face.Middleware() as middleware, face.Connector(middleware.bind("tcp://127.0.0.1:*")) as connector:
        answer = await connector.request("NOOP", timeout=60)
        assert list(answer) == ["ID"]
        assert len(answer["ID"]) == 36


@in_loop
async def test_messages_of_a_kept_topic_are_replayed_with_their_sequence(face: Face) -> None:
    archive = MemoryArchive(lambda topic: topic == b"kept")
    async with face.Middleware(archive=archive) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        async with face.Connector(endpoint) as ann, face.Connector(endpoint) as bob:
            await bob.put("kept", b"1", confirm=True, timeout=60)
            await ann.subscribe("live")
            await ann.subscribe("kept", since=0)
            first = await ann.recv(timeout=60)
            assert (first.body, first.sequence) == (b"1", 1)
            assert [each.topic for each in middleware.topics()] == [b"kept", b"live"]
            assert (middleware.clients, middleware.counters.kept, ann.missed) == (2, 1, 0)


@in_loop
async def test_it_comes_back_with_its_subscriptions_when_the_middleware_does(face: Face) -> None:
    middleware = face.Middleware(linger=0)
    endpoint = middleware.bind("tcp://127.0.0.1:*")
    async with face.Connector(endpoint, backoff=QUICK) as connector:
        await connector.subscribe("a", "b")
        assert await next_of(connector, SessionReady) == SessionReady(endpoint, False)
        await middleware.close()
        await next_of(connector, SessionLost)
        assert not connector.connected
        waiting = asyncio.create_task(connector.put("a", b"waits for a session"))
        late = asyncio.create_task(connector.subscribe("c"))
        async with face.Middleware(linger=0) as middleware:
            middleware.bind(endpoint)
            assert await next_of(connector, SessionReady) == SessionReady(endpoint, True)
            await asyncio.gather(waiting, late)
            assert (await connector.recv()).body == b"waits for a session"
            assert [each.topic for each in middleware.topics()] == [b"a", b"b", b"c"]


@in_loop
async def test_it_starts_before_the_middleware(face: Face) -> None:
    async with face.Middleware() as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
    async with face.Connector(endpoint, backoff=QUICK) as connector:
        await next_of(connector, Retrying)
        with pytest.raises(TimedOut, match=r"no session with the middleware at .* refused"):
            await connector.connect(timeout=0.02)
        with pytest.raises(TimedOut):
            await connector.subscribe("a", timeout=0.02)
        async with face.Middleware() as middleware:
            middleware.bind(endpoint)
            await connector.connect(timeout=60)
            # It was wanted, and still is.
            assert [each.topic for each in middleware.topics()] == [b"a"]


@in_loop
async def test_a_put_whose_answer_was_lost_raises_unconfirmed(face: Face) -> None:
    async with (
        Router(handover=True) as router,
        face.Connector(router.bind("tcp://127.0.0.1:*"), identity=b"me", backoff=QUICK) as connector,
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
async def test_a_silent_middleware_is_left_with_a_word_and_tried_again(face: Face) -> None:
    async with (
        Router(handover=True) as router,
        face.Connector(router.bind("tcp://127.0.0.1:*"), identity=b"me", ttl=0.2, backoff=QUICK) as connector,
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
async def test_a_program_that_does_not_read_is_a_slow_subscriber_and_is_told(face: Face) -> None:
    async with face.Middleware(send_bound=Bound(octets=30_000), linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        async with face.Connector(endpoint, receive_bound=Bound(messages=20), ttl=None, linger=0) as reader:
            speaker = await Raw.join(endpoint)
            await reader.subscribe("a")
            while not middleware.counters.missed:
                await speaker.ask(b"", b"PUT", b"ID", b"1", b"TOPIC", b"a", b"", bytes(20_000))
            assert len(reader._shell.messages) < 500
            while not reader.missed:
                await reader.recv(timeout=60)
                await speaker.ask(b"", b"PUT", b"ID", b"1", b"TOPIC", b"a", b"", b"x")
            assert "missed" in (await next_of(reader, Complaint)).text
            speaker.close()


@in_loop
async def test_several_can_wait_for_messages(face: Face) -> None:
    async with face.Middleware() as middleware, face.Connector(middleware.bind("tcp://127.0.0.1:*")) as connector:
        await connector.subscribe("a")
        waiting = [asyncio.create_task(connector.recv(timeout=60)) for _ in range(5)]
        await asyncio.sleep(0)
        for number in range(5):
            await connector.put("a", b"%d" % number)
        assert sorted([(await each).body for each in waiting]) == [b"0", b"1", b"2", b"3", b"4"]


@in_loop
async def test_closing_a_connector_ends_its_session_and_wakes_all_that_wait(face: Face) -> None:
    async with face.Middleware() as middleware:
        connector = face.Connector(middleware.bind("tcp://127.0.0.1:*"))
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


async def collect(connector: aio.Connector) -> list[Message]:
    return [message async for message in connector]


def test_the_package_has_the_names_that_programs_use() -> None:
    assert (mcollective.Connector, mcollective.Fleet, mcollective.Middleware) == (
        sync.Connector,
        sync.Fleet,
        sync.Middleware,
    )
    assert {"AgentHost", "action", "agent"} < set(mcollective.__all__)
    assert all(getattr(mcollective, name) is not None for name in mcollective.__all__)
