"""`zambezi serve` with the middleware, with and without keys, and the services that it announces to the mesh."""

import asyncio
import dataclasses
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.mcollective.sync import Connector
from zambezi.server import Server
from zambezi.zeps.asyncio import Client
from zambezi.zmtp.keys import KeyPair, read_public, write_pair
from zambezi.zmtp.security import CurveClient
from zambezi.zre.asyncio import Node


@pytest.mark.parametrize("curve", [False, True])
def test_the_middleware_alone(tmp_path: Path, curve: bool) -> None:
    keys, ann = tmp_path / "keys", KeyPair.generate()
    write_pair(keys, "server", KeyPair.generate())
    write_pair(keys / "allowed", "ann", ann)
    (keys / "allowed" / "ann.key").unlink()  # the server would warn of a secret key in allowed/
    command = [sys.executable, "-W", "error", "-m", "zambezi", "serve", "--only", "mcollective"]
    command += ["--mcollective", "tcp://127.0.0.1:*", *(["--curve", str(keys)] if curve else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        assert server.stdout is not None
        service, _, endpoint = server.stdout.readline().split()
        assert service == "mcollective"
        options = {"security": CurveClient(read_public(keys / "server.pub"), ann)} if curve else {}
        with Connector(endpoint, **options) as connector:  # type: ignore[arg-type]
            connector.subscribe("mcollective discovery", timeout=PATIENCE)
            connector.put("mcollective discovery", b"who is there?", timeout=PATIENCE)
            assert connector.recv(timeout=PATIENCE).body == b"who is there?"
        server.send_signal(signal.SIGTERM)
        _, logged = server.communicate(timeout=PATIENCE)
        assert server.returncode == 0
    warned = [json.loads(line)["message"] for line in logged.splitlines() if '"warning"' in line]
    assert len(warned) == (0 if curve else 1), "without CURVE it warns once"
    assert "sessions of MCollective clients end with the server, unless --data names a directory" in logged
    assert not (tmp_path / "zambezi-data").exists()


@in_loop
async def test_a_server_is_found_in_the_mesh_and_journals_topics_and_logs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        beacons = probe.getsockname()[1]
    config = config_for(tmp_path)
    config = dataclasses.replace(
        config,
        mcollective=dataclasses.replace(
            config.mcollective, enabled=True, endpoint="tcp://127.0.0.1:*", journal=["mcollective *"]
        ),
        zre=dataclasses.replace(config.zre, enabled=True, interface="lo", beacon_port=beacons),
    )
    async with (
        Server(config) as server,
        Node("sensor", interface="lo", beacon_port=beacons, log=True) as node,
        Client.connect(node) as client,  # finds X-ZEPS in the server's HELLO
    ):
        stream = client.stream("telemetry")
        await stream.publish("k", b"x")
        await stream.flush(timeout=PATIENCE)
        assert set(node.services("X-MCOLLECTIVE").values()) == {server.endpoints["mcollective"]}

        def put() -> None:
            with Connector(server.endpoints["mcollective"]) as connector:
                connector.put("mcollective discovery", b"ping", confirm=True, timeout=PATIENCE)

        await asyncio.to_thread(put)
        async with client.stream("mcollective").subscribe(since="earliest") as kept:
            message = await kept.recv(timeout=PATIENCE)
            assert message.key == "mcollective discovery"
            assert message.body.endswith(b"\0\0\0\x04ping")
        async with client.stream("zrelog").subscribe("INFO.ENTER.", since="earliest") as logs:
            assert (await logs.recv(timeout=PATIENCE)).body[:2] == b"\xaa\xa2"


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:*", "tcp://127.0.0.1:*"])
def test_a_server_warns_at_its_start_if_other_machines_can_reach_it_without_keys(tmp_path: Path, address: str) -> None:
    command = [sys.executable, "-m", "zambezi", "serve", "--only", "zeps", "--zeps", address, "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("zeps at ")
        server.send_signal(signal.SIGTERM)
        _, logged = server.communicate(timeout=PATIENCE)
    warned = [json.loads(line)["message"] for line in logged.splitlines() if '"warning"' in line]
    begin = f"--zeps: every machine that reaches {address} has full access"
    assert [one.startswith(begin) for one in warned] == ([True] if "0.0.0.0" in address else [])
