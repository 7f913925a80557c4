"""The reload of a running server: rules, retention, keys; and the format of its logs (`zambezi.cli.logs`)."""

import dataclasses
import json
import logging
import socket
from pathlib import Path

import pytest

from tests.server.test_server import config_for
from tests.zeps.multicast.ether import Ether, ether
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.cli import logs
from zambezi.server import Server
from zambezi.server.config import JournalConfig, Rule
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError
from zambezi.zmtp.keys import KeyPair, read_public, write_pair
from zambezi.zmtp.security import CurveClient
from zambezi.zre.asyncio import Node

__all__ = ["ether"]


@in_loop
async def test_new_rules_apply_from_the_reload_on(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with Server(config) as server:
        server.reload(dataclasses.replace(config, rules=[Rule(publish=["allowed"], create=["*"])]))
        async with Client.connect(server.endpoints["zeps"]) as client:
            allowed = client.stream("allowed")
            await allowed.publish("k", b"x")
            await allowed.flush()
            other = client.stream("other")
            await other.publish("k", b"x")
            with pytest.raises(BrokerError, match="may not publish"):
                await other.flush()


@in_loop
async def test_new_retention_applies_to_existing_and_to_new_streams(tmp_path: Path) -> None:
    config = config_for(tmp_path, streams={"prices": JournalConfig()})
    async with Server(config) as server:
        assert server.broker is not None
        changed = dataclasses.replace(
            config.zeps, journal=JournalConfig(keep=60.0), streams={"prices": JournalConfig(keep=10.0)}
        )
        server.reload(dataclasses.replace(config, zeps=changed))
        engine = server.broker.engine
        prices, new = engine.find("prices"), engine.find_or_make("new")
        assert prices is not None
        assert new is not None
        assert prices.journal.policy.keep_seconds == 10.0
        assert new.journal.policy.keep_seconds == 60.0


@in_loop
async def test_new_rules_apply_to_connected_clients(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        stream = client.stream("prices")
        await stream.publish("k", b"x")
        await stream.flush()
        async with stream.subscribe(since="earliest") as subscription:
            await subscription.recv(timeout=PATIENCE)
            server.reload(dataclasses.replace(config, rules=[Rule(publish=["other"])]))
            with pytest.raises(BrokerError, match="may not subscribe to the stream prices any more"):
                await subscription.recv(timeout=PATIENCE)
        await stream.publish("k", b"y")
        with pytest.raises(BrokerError, match="may not publish"):
            await stream.flush(timeout=PATIENCE)
        server.reload(config)
        again = client.stream("prices")
        await again.publish("k", b"z")
        await again.flush(timeout=PATIENCE)


@in_loop
async def test_the_reload_returns_the_settings_that_need_a_restart(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with Server(config) as server:
        assert server.reload(config) == []
        changed = dataclasses.replace(
            config,
            zeps=dataclasses.replace(config.zeps, max_streams=7, journal=JournalConfig(keep=60.0)),
            console=dataclasses.replace(config.console, token="t"),
        )
        assert server.reload(changed) == ["zeps.max_streams", "console.token"]


@in_loop
async def test_new_streams_are_created_and_changed_groups_need_a_restart(
    ether: Ether, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    group = "udp://239.77.1.1:5680"
    config = config_for(tmp_path, streams={"old": JournalConfig(multicast=group), "same": JournalConfig()})
    async with Server(config) as server:
        assert server.broker is not None
        streams = {"same": JournalConfig(keep=60.0, multicast=group), "new": JournalConfig(keep=10.0)}
        changed = dataclasses.replace(config, zeps=dataclasses.replace(config.zeps, streams=streams))
        for _ in range(2):  # until the restart
            differ = server.reload(changed)
            assert sorted(differ) == ["zeps.streams.old.multicast", "zeps.streams.same.multicast"]
        engine = server.broker.engine
        await eventually(lambda: engine.find("new") is not None)
        assert "stream new was created by the server" in caplog.text
        assert engine.streams[0].journal.policy.keep_seconds == 10.0
        assert server.broker.groups.keys() == {"old"}
        assert server.reload(config) == []


@in_loop
async def test_removing_a_key_ends_its_connections(tmp_path: Path) -> None:
    keys, ann = tmp_path / "keys", KeyPair.generate()
    write_pair(keys, "server", KeyPair.generate())
    write_pair(keys / "allowed", "ann", ann)
    config = config_for(tmp_path)
    config = dataclasses.replace(config, server=dataclasses.replace(config.server, keys=str(keys)))
    security = CurveClient(read_public(keys / "server.pub"), ann)
    async with Server(config) as server, Client.connect(server.endpoints["zeps"], security=security) as client:
        stream = client.stream("prices")
        await stream.publish("k", b"x")
        await stream.flush(timeout=PATIENCE)
        assert server.broker is not None
        sessions = server.broker.engine.sessions
        assert [session.user for session in sessions] == ["ann"]
        (keys / "allowed" / "ann.pub").unlink()
        server.reload(config)
        await eventually(lambda: not sessions)


@in_loop
async def test_renaming_a_key_ends_its_connections_and_its_old_rights(tmp_path: Path) -> None:
    keys, ann = tmp_path / "keys", KeyPair.generate()
    write_pair(keys, "server", KeyPair.generate())
    write_pair(keys / "allowed", "ann", ann)
    config = config_for(tmp_path)
    config = dataclasses.replace(
        config,
        server=dataclasses.replace(config.server, keys=str(keys)),
        rules=[Rule(keys=["ann"], publish=["*"], create=["*"])],
    )
    security = CurveClient(read_public(keys / "server.pub"), ann)
    async with Server(config) as server, Client.connect(server.endpoints["zeps"], security=security) as client:
        stream = client.stream("prices")
        await stream.publish("k", b"x")
        await stream.flush(timeout=PATIENCE)
        (keys / "allowed" / "ann.pub").rename(keys / "allowed" / "guest.pub")
        server.reload(config)
        assert server.broker is not None
        sessions = server.broker.engine.sessions
        await eventually(lambda: [session.user for session in sessions] == ["guest"])
        await stream.publish("k", b"y")
        with pytest.raises(BrokerError, match="guest may not publish"):
            await stream.flush(timeout=PATIENCE)


@in_loop
async def test_the_mesh_uses_the_mesh_key_of_the_key_directory(tmp_path: Path) -> None:
    keys, mesh = tmp_path / "keys", KeyPair.generate()
    write_pair(keys, "server", KeyPair.generate())
    write_pair(keys, "mesh", mesh)
    (keys / "allowed").mkdir()
    config = config_for(tmp_path, enabled=False)
    config = dataclasses.replace(
        config,
        server=dataclasses.replace(config.server, keys=str(keys)),
        zre=dataclasses.replace(config.zre, enabled=True, beacon_port=free_udp_port()),
        log=dataclasses.replace(config.log, enabled=False),
    )
    async with Server(config) as server:
        assert server.node is not None
        seeds = [server.node.endpoint]
        async with (
            Node("stranger", interface="lo", beacons=False, seeds=seeds),
            Node("friend", interface="lo", beacons=False, seeds=seeds, keys=mesh) as friend,
        ):
            await friend.recv(timeout=PATIENCE)
            await eventually(lambda: server.node and [peer.name for peer in server.node.peers] == ["friend"])


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_log_lines_escape_terminal_control_characters() -> None:
    record = logging.makeLogRecord({"name": "zambezi.zmtp", "levelname": "INFO", "msg": "from \x1b]0;me\x07\nnext"})
    assert logs.Lines().format(record).endswith("zambezi.zmtp: from \\x1b]0;me\\x07\\nnext")


def test_json_lines_have_all_fields_of_a_record() -> None:
    record = logging.makeLogRecord({"name": "zambezi.server", "levelname": "ERROR", "msg": "no %s", "args": ("room",)})
    record.stream = "prices"
    told = json.loads(logs.JsonLines().format(record))
    assert told["message"] == "no room"
    assert told["level"] == "error"
    assert told["logger"] == "zambezi.server"
    assert told["stream"] == "prices"
    assert set(told) == {"time", "level", "logger", "message", "stream"}
