"""Compacted streams for both faces: the last message of a key, and subscriptions over gaps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.zeps.faces import QUICK, TCP, Connect, both_faces
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.journal import Policy

COUNT = 100


@asynccontextmanager
async def compacted(path: Path, connect: Connect) -> AsyncIterator[tuple[Client, list[int]]]:
    """Yield a client of a broker that has compacted a stream, and the sequences that are left."""
    async with BrokerService(path, policy=Policy(sync="never", segment=400)) as broker:
        endpoint = broker.bind(TCP)
        async with connect(endpoint, backoff=QUICK) as client:
            await client.create("s", compact=True, timeout=PATIENCE)
            stream = client.stream("s")
            for number in range(COUNT):
                await stream.publish(f"k{number % 7}", b"%d" % (number + 1))
                await stream.flush(PATIENCE)
            journal = broker.engine.streams[0].journal
            await eventually(lambda: journal.removed)  # the broker compacts by itself
            yield client, [int(one.body) async for one in stream.subscribe(since="earliest", until="now")]


@both_faces
@in_loop
async def test_the_last_message_of_a_key(tmp_path: Path, connect: Connect) -> None:
    async with compacted(tmp_path, connect) as (client, _):
        for key, last in (("k0", 99), (b"k1", 100), ("k6", 98)):
            message = await client.last("s", key, PATIENCE)
            assert message is not None
            assert (message.sequence, message.body, message.stream) == (last, b"%d" % last, "s")
            assert message.key == (key if isinstance(key, str) else key.decode())
            assert message.time is not None
            assert datetime.now(UTC) - message.time < timedelta(minutes=5)
        assert await client.last("s", "none", PATIENCE) is None
        with pytest.raises(BrokerError, match="there is no stream other"):
            await client.last("other", "k", PATIENCE)
        (info,) = await client.streams(PATIENCE)
        assert info.compact
        assert info.messages == COUNT - info.removed < COUNT


@both_faces
@in_loop
async def test_subscriptions_over_gaps(tmp_path: Path, connect: Connect) -> None:
    async with compacted(tmp_path, connect) as (client, kept):
        stream = client.stream("s")
        removed = [at for at in range(1, COUNT + 1) if at not in kept]
        for since, until in ((removed[0], COUNT), (0, removed[-1]), (removed[3], removed[-3]), (kept[0], kept[-2])):
            for pattern in ("", "k"):
                subscription = stream.subscribe(pattern, since=since, until=until)
                found = [int(message.body) async for message in subscription]
                assert found == [at for at in kept if since < at <= until]
                assert subscription.counters.missed == 0
        found = [int(message.body) async for message in stream.subscribe("exact:k0", since="earliest", until="now")]
        assert found == [at for at in kept if at % 7 == 1]
        async with stream.subscribe(since="earliest", name="billing") as named:
            assert [int((await named.recv(PATIENCE)).body) for _ in kept] == kept
        async with stream.subscribe(since="earliest", shared="workers") as member:
            assert sorted([int((await member.recv(PATIENCE)).body) for _ in kept]) == kept
