"""The mirrors of a server."""

from __future__ import annotations

import dataclasses
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.server import Config, Server
from zambezi.server import mirrors as module
from zambezi.server.config import JournalConfig, MirrorConfig, StoreConfig
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.depot import Depot
from zambezi.zmtp.keys import KeyPair, write_pair


def mirroring(path: Path, **mirror: object) -> Config:
    return config_for(path, mirrors=[MirrorConfig(stream="s", **mirror)])  # type: ignore[arg-type]


async def fill(client: Client, stream: str) -> None:
    await client.stream(stream).publish_many([("k", b"one"), ("k", b"two"), ("other", b"three")])
    await client.stream(stream).flush(PATIENCE)


@in_loop
async def test_a_server_follows_a_stream_of_another_one_with_keys(tmp_path: Path) -> None:
    keys, ours = tmp_path / "keys", tmp_path / "ours"
    public, _ = write_pair(keys, "server", KeyPair.generate())
    _, secret = write_pair(ours, "mirror", KeyPair.generate())
    (keys / "allowed").mkdir()
    (keys / "allowed" / "mirror.pub").write_bytes((ours / "mirror.pub").read_bytes())
    config = config_for(tmp_path / "one")
    config = dataclasses.replace(config, server=dataclasses.replace(config.server, keys=str(keys)))
    async with Server(config) as other:
        assert other.local_zeps is not None
        async with Client.connect(other.local_zeps) as client:
            await fill(client, "s")
        here = mirroring(
            tmp_path / "two",
            source=other.endpoints["zeps"],
            target="copy",
            pattern="k",
            server_key=str(public),
            key=str(secret),
        )
        async with Server(here) as server, Client.connect(server.endpoints["zeps"]) as client:
            async with client.stream("copy").subscribe(since="earliest") as subscription:
                assert [(await subscription.recv(PATIENCE)).body for _ in range(2)] == [b"one", b"two"]
            assert server.problems == []
            await eventually(lambda: not server._look())
            await eventually(lambda: server.mirrors[0].lag == 1)  # as far as the mirror knows: the last key is another


@in_loop
async def test_a_mirror_that_fails_begins_again_and_the_trouble_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.01)
    async with Server(config_for(tmp_path / "one")) as other:
        here = mirroring(tmp_path / "two", source=other.endpoints["zeps"])
        async with Server(here) as server, Client.connect(other.endpoints["zeps"]) as client:
            await eventually(lambda: any("there is no stream 's'" in trouble for trouble in server._look()))
            assert server.problems == []  # the server itself is ready
            await fill(client, "s")
            await eventually(lambda: server.broker is not None and server.broker.engine.names() == ["s"])


@in_loop
async def test_a_mirror_waits_for_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.0)
    async with Server(mirroring(tmp_path, source="tcp://127.0.0.1:1")) as server:
        await eventually(lambda: any("it waits for the source: not connected" in one for one in server._look()))


def home_of(server: Server, stream: str) -> str:
    """Return the endpoint of the server that should have a stream, if all servers are known; else nothing."""
    assert server.broker is not None
    depot = server.broker.engine.store
    assert isinstance(depot, Depot)
    roll = depot.cluster.roll
    home = roll.home(stream, depot.id)
    is_whole = len(roll.members) > 1 and all(member.endpoints for member in roll.members)
    return home.endpoint if home is not None and is_whole else ""


@in_loop
async def test_of_servers_that_share_a_store_only_the_one_with_the_target_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")
    monkeypatch.setattr(module, "LOOK", 0.05)
    store = StoreConfig(url=str(tmp_path / "store"), heartbeat=0.1, copies="off")
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(Server(config_for(tmp_path / "source")))
        client = await stack.enter_async_context(Client.connect(source.endpoints["zeps"]))
        await fill(client, "s")
        own = [await stack.enter_async_context(AsyncExitStack()) for _ in range(2)]
        servers = []
        for number, one in enumerate(own):
            mirror = MirrorConfig(stream="s", target="copy", source=source.endpoints["zeps"])
            journal = JournalConfig(sync="store")
            config = config_for(tmp_path / f"{number}", mirrors=[mirror], store=store, journal=journal)
            servers.append(await one.enter_async_context(Server(config)))

        def follower() -> int | None:
            """Return the server that follows, if it is the only one, and the target stays there."""
            following = [number for number, one in enumerate(servers) if one.mirrors[0].is_following]
            homes = {home_of(server, "copy") for server in servers}
            settled = len(following) == 1 and homes == {servers[following[0]].endpoints["zeps"]}
            return following[0] if settled else None

        endpoints = [server.endpoints["zeps"] for server in servers]
        reader = await stack.enter_async_context(Client.connect(endpoints))
        subscription = await stack.enter_async_context(reader.stream("copy").subscribe(since="earliest"))
        assert [(await subscription.recv(PATIENCE)).body for _ in range(3)] == [b"one", b"two", b"three"]
        await eventually(lambda: follower() is not None)  # on a busy machine the target can move once more
        first = follower()
        assert first is not None
        await own[first].aclose()
        await fill(client, "s")
        assert [(await subscription.recv(PATIENCE)).body for _ in range(3)] == [b"one", b"two", b"three"]
        await eventually(lambda: servers[1 - first].mirrors[0].is_following)
