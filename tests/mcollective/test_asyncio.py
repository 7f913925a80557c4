"""zambezi.mcollective.asyncio: what a connector says on the wire. See test_faces for the rest."""

from __future__ import annotations

import asyncio

import pytest

from tests.zmtp.waiting import in_loop, next_of
from zambezi.mcollective.asyncio import Connector, Middleware
from zambezi.mcollective.errors import McollectiveError
from zambezi.zmtp import Backoff, CurveClient, CurveServer, HandshakeFailed, KeyPair, TimedOut
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
        await connector.connect(timeout=60)
        await connector.put("a topic", [b"one", b"two"], reply_to="r", headers={"X-A": "1"})
        assert (await router.recv())[1:] == [
            b"", b"PUT", b"TOPIC", b"a topic", b"X-REPLY-TO", b"r", b"X-A", b"1", b"", b"one", b"two",
        ]  # fmt: skip


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
