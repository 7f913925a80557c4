"""Kept topics and broken connections: a message is in the stream at most once, and a follower gets each one once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.mcollective.asyncio import Connector, Middleware
from zambezi.mcollective.errors import Unconfirmed
from zambezi.server.archive import StreamArchive
from zambezi.zeps.broker.service import BrokerService
from zambezi.zmtp import Backoff

FASTEST = Backoff(0.0005, 0.005)
CUTS = 200


def cut(middleware: Middleware) -> int:
    """Abort all connections of a middleware, and return how many."""
    links = list(middleware._transport.links)
    for link in links:
        link.abort("cut by the test")
    return len(links)


def kept(archive: StreamArchive) -> list[int]:
    return [int(one.frames[-1]) for one in archive.replay({b"jobs"}, 0) if one is not None]


@in_loop
async def test_a_message_is_in_the_stream_at_most_once_and_reaches_a_follower_once(tmp_path: Path) -> None:
    """Confirmed messages are in the stream. For the others, `Unconfirmed` says that they may or may not be there."""
    async with BrokerService(tmp_path, streams=["mcollective"], own=["mcollective"]) as broker:
        archive = StreamArchive(broker.engine.find_or_make("mcollective"), ["jobs"])
        async with Middleware(archive=archive) as middleware:
            endpoint = middleware.bind("tcp://127.0.0.1:*")
            async with (
                Connector(endpoint, backoff=FASTEST) as follower,
                Connector(endpoint, backoff=FASTEST) as sender,
            ):
                await follower.subscribe("jobs", since=0)
                got: list[int] = []

                async def follow() -> None:
                    while True:
                        got.append(int((await follower.recv()).frames[-1]))

                following = asyncio.ensure_future(follow())
                confirmed = set()
                cuts = 0
                for number in range(3 * CUTS):
                    if number % 3 == 0:
                        cuts += cut(middleware)
                    if number % 2:
                        await sender.put("jobs", b"%d" % number, timeout=PATIENCE)
                        continue
                    try:
                        await sender.put("jobs", b"%d" % number, confirm=True, timeout=PATIENCE)
                        confirmed.add(number)
                    except Unconfirmed:
                        pass
                await sender.put("jobs", b"%d" % (3 * CUTS), confirm=True, timeout=PATIENCE)
                stored = kept(archive)
                assert len(set(stored)) == len(stored), "no message is in the stream twice"
                assert confirmed <= set(stored)
                assert len(stored) > CUTS
                assert cuts > CUTS
                await eventually(lambda: len(got) >= len(stored))
                following.cancel()
                assert got == stored, "a follower gets each of them once, and in order"
