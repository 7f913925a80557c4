"""A server that runs the services of its configuration."""

import dataclasses
import os
from pathlib import Path

import pytest

from tests.zmtp.waiting import eventually, in_loop
from zambezi.console.metrics import exposition
from zambezi.mcollective.asyncio import Connector
from zambezi.server import Config, Server
from zambezi.server.config import JournalConfig, Rule, StoreConfig
from zambezi.server.server import SESSIONS
from zambezi.server.state import state_of
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.depot import Depot
from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zmtp.keys import KeyPair, read_public, write_pair
from zambezi.zmtp.security import CurveClient
from zambezi.zre.asyncio import Node
from zambezi.zre.events import Enter

TCP = "tcp://127.0.0.1:*"


def config_for(path: Path, **zeps: object) -> Config:
    config = Config()
    return dataclasses.replace(
        config,
        server=dataclasses.replace(config.server, data=str(path / "data")),
        zeps=dataclasses.replace(config.zeps, endpoint="tcp://127.0.0.1:*", **zeps),  # type: ignore[arg-type]
        mcollective=dataclasses.replace(config.mcollective, enabled=False),
        zre=dataclasses.replace(config.zre, enabled=False),
        console=dataclasses.replace(config.console, enabled=False),
    )


@in_loop
async def test_the_streams_of_the_configuration_exist_with_their_policies(tmp_path: Path) -> None:
    config = config_for(tmp_path, streams={"prices": JournalConfig(sync="always")}, create=False)
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        (prices,) = await client.streams()
        assert (prices.stream, prices.sync) == ("prices", "always")
        stream = client.stream("prices")
        await stream.publish("k", b"x")
        await stream.flush()
        with pytest.raises(BrokerError, match="there is no stream other"):
            async for _ in client.stream("other").subscribe(since="earliest"):
                pass


@in_loop
async def test_a_server_with_an_empty_disk_serves_the_streams_of_its_store(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")
    stored = {"journal": JournalConfig(sync="store"), "store": StoreConfig(url=str(tmp_path / "store"), commit=0.001)}
    for place in ("one", "two"):
        config = config_for(tmp_path / place, **stored)
        async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
            stream = client.stream("prices")
            await stream.publish("gold", place.encode())
            await stream.flush()
            found = [message.body async for message in stream.subscribe(since="earliest", until="now")]
    assert found == [b"one", b"two"]


@in_loop
async def test_a_server_tells_other_servers_the_endpoint_of_its_configuration(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")
    store = StoreConfig(url=str(tmp_path / "store"), commit=0.001, endpoint="tcp://berlin:5671")
    config = config_for(tmp_path, journal=JournalConfig(sync="store"), store=store)
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        depot = server.broker.engine.store if server.broker is not None else None
        assert isinstance(depot, Depot)
        await eventually(lambda: any(member.endpoints for member in depot.cluster.roll.members))
        assert [one.endpoint for one in await client.brokers()] == ["tcp://berlin:5671"]
        stream = client.stream("prices")
        await stream.publish("gold", b"1")
        await stream.flush()
        assert [(one.stream, one.owner) for one in await client.streams()] == [("prices", "tcp://berlin:5671")]
        zeps = state_of(server)["zeps"]
        assert [one["owner"] for one in zeps["streams"]] == ["tcp://berlin:5671"]
        assert zeps["elsewhere"] == []


def test_without_a_broker_only_a_data_directory_that_is_named_or_exists_keeps_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_for(tmp_path, enabled=False)
    config = dataclasses.replace(config, mcollective=dataclasses.replace(config.mcollective, enabled=True))
    assert Server(config).sessions == tmp_path / "data" / SESSIONS
    unnamed = dataclasses.replace(config, server=Config().server)
    assert Server(unnamed).sessions is None
    assert Server(dataclasses.replace(unnamed, zeps=Config().zeps)).sessions == Path("zambezi-data") / SESSIONS
    Path("zambezi-data").mkdir()
    assert Server(unnamed).sessions == Path("zambezi-data") / SESSIONS
    off = dataclasses.replace(config.mcollective, sessions=False)
    assert Server(dataclasses.replace(config, mcollective=off)).sessions is None


@in_loop
async def test_a_disabled_service_does_not_run(tmp_path: Path) -> None:
    async with Server(config_for(tmp_path, enabled=False)) as server:
        assert server.endpoints == {}
        assert server.broker is None


@in_loop
async def test_a_second_server_on_the_same_data_does_not_start_and_leaves_nothing_behind(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with Server(config):
        with pytest.raises(JournalError):
            await Server(config).__aenter__()
    async with Server(config):
        pass  # the first server has released the data directory


@in_loop
async def test_rules_use_the_name_of_the_clients_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    write_pair(keys, "server", KeyPair.generate())
    ann, bob = KeyPair.generate(), KeyPair.generate()
    write_pair(keys / "allowed", "ann", ann)
    write_pair(keys / "allowed", "bob", bob)
    config = config_for(tmp_path)
    config = dataclasses.replace(
        config,
        server=dataclasses.replace(config.server, keys=str(keys)),
        rules=[
            Rule(keys=["ann"], publish=["prices"], create=["prices"]),
            Rule(keys=["bob"], subscribe=["prices"]),
        ],
    )
    server_key = read_public(keys / "server.pub")
    async with Server(config) as server:
        endpoint = server.endpoints["zeps"]
        async with Client.connect(endpoint, security=CurveClient(server_key, ann)) as client:
            stream = client.stream("prices")
            await stream.publish("k", b"of ann")
            await stream.flush()
        async with Client.connect(endpoint, security=CurveClient(server_key, bob)) as client:
            async for message in client.stream("prices").subscribe(since="earliest"):
                assert message.body == b"of ann"
                break
            stream = client.stream("prices")
            await stream.publish("k", b"of bob")
            with pytest.raises(BrokerError, match="bob may not publish"):
                await stream.flush()


@in_loop
async def test_a_server_is_a_hub_of_zgossip_with_a_key_of_its_own(tmp_path: Path) -> None:
    pair, ann = KeyPair.generate(), KeyPair.generate()
    write_pair(tmp_path / "keys", "node", pair)
    write_pair(tmp_path / "allowed", "ann", ann)
    (tmp_path / "allowed" / "ann.key").unlink()
    config = config_for(tmp_path)
    mesh = dataclasses.replace(
        config.zre,
        enabled=True,
        interface="lo",
        gossip_bind="tcp://127.0.0.1:*",
        node_key=str(tmp_path / "keys" / "node.key"),
        allowed=str(tmp_path / "allowed"),
    )
    async with Server(dataclasses.replace(config, zre=mesh)) as server:
        assert server.node is not None
        assert server.endpoints["zgossip"] == server.node.gossip_endpoint
        hub = f"{server.endpoints['zgossip']}|{pair.public_z85}"
        options = {"node_keys": ann, "allowed": {"server": pair.public}, "log": True}
        async with Node("ann", interface="lo", gossip_connect=[hub], **options) as node:  # type: ignore[arg-type]
            entered = await node.recv(60)
            assert isinstance(entered, Enter)
            assert entered.peer == server.node.uuid
            assert node.services("X-ZEPS") == {server.node.uuid: server.endpoints["zeps"]}


@in_loop
async def test_a_damaged_stream_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    """Nor does a damaged stream of the server's own services: they run without it, and the problem is reported."""
    config = config_for(tmp_path)
    config = dataclasses.replace(
        config, mcollective=dataclasses.replace(config.mcollective, enabled=True, endpoint=TCP, journal=["*"])
    )
    async with Server(config) as server:
        assert server.problems == []
    for name in ("prices", "mcollective"):
        directory = tmp_path / "data" / name
        directory.mkdir(exist_ok=True)
        (directory / "stream.json").unlink(missing_ok=True)
        os.mkfifo(directory / "stream.json")
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        assert len(server.problems) == 2
        assert all("stream.json cannot be read: it is not a regular file" in problem for problem in server.problems)
        bad = client.stream("prices").subscribe()
        with pytest.raises(BrokerError, match=r"stream.json cannot be read"):
            await bad.recv()
        stream = client.stream("good")
        await stream.publish("k", b"x")
        await stream.flush(timeout=60)


@in_loop
async def test_a_place_for_sessions_that_cannot_be_used_does_not_keep_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    config = config_for(tmp_path, enabled=False)
    config = dataclasses.replace(
        config, mcollective=dataclasses.replace(config.mcollective, enabled=True, endpoint=TCP)
    )
    async with Server(config) as server, Connector(server.endpoints["mcollective"]) as connector:
        await connector.subscribe("a", timeout=60)


@in_loop
async def test_sessions_are_kept_in_the_data_directory_unless_the_configuration_says_no(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    for sessions in (False, True):
        service = dataclasses.replace(config.mcollective, enabled=True, endpoint=TCP, sessions=sessions)
        async with Server(dataclasses.replace(config, mcollective=service)):
            assert (tmp_path / "data" / SESSIONS).is_dir() is sessions


@in_loop
async def test_the_scrub_reports_damage_as_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.service.TICK", 0.01)
    config = config_for(tmp_path, journal=JournalConfig(segment=64 << 10), scrub=1 << 20)
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        for _ in range(3):
            await client.stream("prices").publish("k", bytes(60_000))
            await client.stream("prices").flush(timeout=60)
    log = min((tmp_path / "data" / "prices").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[1000] = 1
    log.write_bytes(content)
    async with Server(config) as server:
        await eventually(lambda: bool(server.problems))
        (problem,) = server.problems
        assert "does not have its CRC" in problem
        assert "zambezi journal repair prices" in problem
        zeps = state_of(server)["zeps"]
        assert (zeps["scrub"]["damaged"], state_of(server)["problems"]) == (1, [problem])
        assert b"zambezi_scrub_damaged 1.0" in exposition(server)
    config = dataclasses.replace(config, zeps=dataclasses.replace(config.zeps, scrub=0))
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        await client.stream("prices").publish("k", b"x")
        await client.stream("prices").flush(timeout=60)
        assert state_of(server)["zeps"]["scrub"]["passes"] == 0
