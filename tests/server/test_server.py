"""A server that runs the services of its configuration."""

import dataclasses
from pathlib import Path

import pytest

from tests.zmtp.waiting import in_loop
from zambezi.server import Config, Server
from zambezi.server.config import JournalConfig, Rule
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zmtp.keys import KeyPair, read_public, write_pair
from zambezi.zmtp.security import CurveClient


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
