"""`zambezi mesh`, as people at their terminals see it, on loopback and in memory. It covers `mesh` and `node`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import re
import socket
import struct
import subprocess
import termios
from ipaddress import IPv4Interface
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from tests.cli.mesh_processes import COMMAND, Running, free_port, run
from tests.zmtp.waiting import PATIENCE
from tests.zre.ipv6 import NO_IPV6, has_ipv6
from zambezi import cli
from zambezi.cli import mesh
from zambezi.cli import node as node_options
from zambezi.cli.node import Patience
from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zre.errors import ZreError
from zambezi.zre.events import Exit, Shout, Whisper
from zambezi.zre.interfaces import Interface
from zambezi.zre.peer_info import PeerInfo
from zambezi.zre.simulation import Plan, Report
from zambezi.zre.sync import Node

ALONE = "the mesh has no other peers on this machine; --interface NAME finds those of a network"


@pytest.fixture
def here() -> list[str]:
    """Return options that keep a command on loopback, with its own beacon port."""
    return ["--interface", "lo", "--beacon-port", str(free_port())]


def node(here: list[str], name: str, *groups: str) -> Node:
    return Node(name, interface="lo", beacon_port=int(here[-1]), groups=groups)


def test_chat_between_two_terminals(here: list[str]) -> None:
    with Running("mesh", "chat", "--name", "ann", *here) as ann, Running("mesh", "chat", "--name", "bob", *here) as bob:
        ann.see(r"^\* bob is here$")
        bob.see(r"^\* ann is here$")
        ann.say("hello bob")
        bob.see(r"^ann: hello bob$")
        bob.say("\x1b[31mred")
        ann.see(r"^bob: \\x1b\[31mred$")
        assert bob.hang_up() == 0
        ann.see(r"^\* bob is gone: it left$")
        ann.say("alone")
        ann.see(r"^\* no other node is in CHAT: this line was not sent$")
        assert ann.interrupt() == 130
        assert ann.errors == bob.errors == []


def test_the_last_line_of_a_chat_is_not_lost(here: list[str]) -> None:
    with node(here, "ear", "CHAT") as ear, Running("mesh", "chat", "--name", "ann", *here) as ann:
        ann.see(r"^\* ear is here$")
        ann.say("these are my last words")
        assert ann.hang_up() == 0
        event = ear.recv(timeout=PATIENCE)
        while not isinstance(event, Shout | Exit):
            event = ear.recv(timeout=PATIENCE)
        assert isinstance(event, Shout)
        assert event.data == b"these are my last words"


def test_whisper_by_name_and_by_uuid(here: list[str]) -> None:
    with node(here, "bob") as bob:
        for wanted in ("bob", str(bob.uuid), bob.uuid.hex[:6].upper()):
            status, output, errors = run("mesh", "whisper", wanted, "grüße", "--name", "ann", *here)
            assert (status, output, errors) == (0, f"whispered to bob ({bob.uuid.hex[:8]})\n", "")
            event = bob.recv(timeout=PATIENCE)
            while not isinstance(event, Whisper):
                event = bob.recv(timeout=PATIENCE)
            assert event.data == "grüße".encode()


def test_whisper_to_a_missing_peer_lists_the_peers(here: list[str]) -> None:
    with node(here, "bob") as bob:
        status, output, errors = run("mesh", "whisper", "eve", "hi", "--timeout", "3", *here)
    assert (status, output) == (1, "")
    bobs = f"the mesh has bob ({bob.uuid.hex[:8]})"
    assert errors.splitlines() == [
        f"zambezi: warning: no peer 'eve' was found yet; {bobs}; waiting for up to 3 s",
        f"zambezi: no peer 'eve' was found within 3 s; {bobs}",
    ]


def test_whisper_to_a_name_that_two_peers_have(here: list[str]) -> None:
    peers = [PeerInfo(UUID(int=number << 96), name, "", {}, frozenset()) for number, name in ((1, "a"), (2, "a"))]
    assert mesh._matches(peers, "a") == peers
    assert mesh._matches(peers, "00000001") == peers[:1]
    assert mesh._matches(peers, "") == []
    with node(here, "twin") as one, node(here, "twin") as other, node(here, "watcher") as watcher:
        while len(watcher.peers) < 2:
            watcher.recv(timeout=PATIENCE)
        with pytest.raises(ZreError, match="more than one peer") as caught:
            mesh._find(watcher, "twin", Patience(0))
        assert one.uuid.hex[:8] in str(caught.value)
        assert other.uuid.hex[:8] in str(caught.value)


def test_shout_lists_the_members(here: list[str]) -> None:
    with node(here, "bob", "TEAM") as bob, node(here, "carl", "TEAM") as carl, node(here, "dora"):
        status, output, errors = run("mesh", "shout", "TEAM", "go", *here)
        assert (status, errors) == (0, "")
        names = f"bob ({bob.uuid.hex[:8]}), carl ({carl.uuid.hex[:8]})"
        assert output == f"shouted to 2 peers in TEAM: {names}\n"
        for member in (bob, carl):
            event = member.recv(timeout=PATIENCE)
            while not isinstance(event, Shout):
                event = member.recv(timeout=PATIENCE)
            assert (event.group, event.data) == ("TEAM", b"go")


def test_shout_to_an_empty_group(here: list[str]) -> None:
    status, output, errors = run("mesh", "shout", "TEAM", "go", "--timeout", "0.3", *here)
    assert (status, output) == (1, "")
    assert errors == f"zambezi: no member of TEAM was found within 0.3 s; {ALONE}\n"


@pytest.mark.parametrize("command", [["ping"], ["ping", "eve"], ["whisper", "eve", "hi"], ["shout", "TEAM", "go"]])
def test_a_command_that_waits_says_for_what(
    command: list[str], here: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_options, "QUIET", 0.0)
    seed = ["--seed", "tcp://127.0.0.1:9"]
    assert cli.main(["mesh", *command, "--timeout", "0.1", *seed, *here]) == 1
    waiting, failure = capsys.readouterr().err.splitlines()
    where = "the mesh has no other peers; tcp://127.0.0.1:9 did not answer as a node"
    assert re.fullmatch(rf"zambezi: warning: no .* was found yet; {where}; waiting for up to 0.1 s", waiting)
    assert failure.endswith(f"was found within 0.1 s; {where}")


def test_a_message_that_is_not_sent_soon_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stalled:
        """A node whose peer does not read."""

        unsent = (UUID(int=1),)
        peers = (PeerInfo(UUID(int=1), "bob", "", {}, frozenset()),)

        def recv(self, timeout: float) -> Shout:
            raise TimedOut

    monkeypatch.setattr(node_options, "QUIET", 0.0)
    with pytest.raises(ZreError, match=r"the message could not be sent in time to bob \(00000000\)"):
        Patience(0.01).send_off(cast("Node", Stalled()))
    told = "zambezi: warning: the message is not sent yet to bob (00000000); waiting for up to 0.01 s\n"
    assert capsys.readouterr().err == told


def test_ping_lists_all_peers(here: list[str]) -> None:
    with node(here, "bob") as bob, node(here, "carl"):
        status, output, errors = run("mesh", "ping", *here)
        assert (status, errors) == (0, "")
        first, second = output.splitlines()
        assert re.fullmatch(
            rf"bob \({bob.uuid.hex[:8]}\) found after \d+ ms, "
            r"connects in [\d.]+ ms \(best [\d.]+, worst [\d.]+\)",
            first,
        )
        assert second.startswith("carl (")
        told = json.loads(run("mesh", "ping", "bob", "--json", *here)[1])
        assert (told["name"], told["uuid"], len(told["connects"])) == ("bob", bob.uuid.hex, 3)
    status, _, errors = run("mesh", "ping", "eve", "--timeout", "0.3", *here)
    assert (status, errors) == (1, f"zambezi: no peer 'eve' was found within 0.3 s; {ALONE}\n")


def test_ping_reports_a_mailbox_that_cannot_be_reached() -> None:
    peer = PeerInfo(UUID(int=1), "a", "inproc://x/1/2", {}, frozenset())
    assert mesh._round_trip(peer, 1) == "but its mailbox inproc://x/1/2 does not use TCP"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        peer = PeerInfo(UUID(int=1), "a", f"tcp://127.0.0.1:{closed.getsockname()[1]}", {}, frozenset())
        assert "cannot be reached: Connection refused" in mesh._round_trip(peer, 1)


def test_watch_prints_changes_if_the_output_is_not_a_terminal(here: list[str]) -> None:
    with Running("mesh", "watch", *here) as watch:
        watch.see("watching as")
        with node(here, "bob", "TEAM") as bob:
            watch.see(r"bob \([0-9a-f]{8}\) is here at tcp://127.0.0.1:\d+$")
            watch.see(r"bob \([0-9a-f]{8}\) joined TEAM$")
            bob.leave("TEAM")
            watch.see(r"bob \([0-9a-f]{8}\) left TEAM$")
        watch.see(r"bob \([0-9a-f]{8}\) is gone: it left$")
        assert watch.interrupt() == 0
        assert not [line for line in watch.errors if "no peer was found yet" not in line]


def test_watch_is_a_table_on_a_terminal(here: list[str]) -> None:
    with node(here, "[bold]bob", "TEAM") as bob:
        bob.announce("X-STORE", "tcp://10.0.0.5:9000")
        screen = _on_a_terminal("mesh", "watch", "--name", "eye", "--seconds", "1.5", *here)
    for text in ("[bold]bob", "TEAM", "X-STORE tcp://10.0.0.5:9000", "1 peer of eye", bob.uuid.hex[:8], "here"):
        assert text in screen, screen
    assert "Traceback" not in screen


def test_simulate_on_a_terminal_ends_with_its_report() -> None:
    screen = _on_a_terminal("mesh", "simulate", "--nodes", "5", "--seconds", "2")
    assert "all checks passed" in screen


def _on_a_terminal(*arguments: str) -> str:
    """Run a command in a terminal, and return its output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen([*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # the command has closed its end
        while data := os.read(ours, 65536):
            written += data
    os.close(ours)
    assert process.wait(PATIENCE) == 0, written
    return written.decode()


def test_a_mesh_with_a_key(here: list[str], tmp_path: Path) -> None:
    assert run("keygen", "mesh", "--directory", str(tmp_path))[0] == 0
    key = ["--key", str(tmp_path / "mesh.key")]
    with Running("mesh", "chat", "--name", "ann", *key, *here) as ann:
        ann.see("you are ann")
        assert run("mesh", "whisper", "ann", "psst", "--name", "bob", *key, *here)[0] == 0
        ann.see("^bob whispers: psst$")
        status, _, errors = run("mesh", "whisper", "ann", "let me in", "--timeout", "1", *here)
        assert status == 1
        assert "no peer 'ann'" in errors


def test_a_seed_instead_of_beacons(here: list[str]) -> None:
    with Node("seed", interface="lo", beacons=False) as seed:
        status, output, errors = run("mesh", "whisper", "seed", "hi", "--seed", seed.endpoint, *here)
        assert (status, errors) == (0, "")
        assert output.startswith("whispered to seed")


def test_simulate_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mesh", "simulate", "--nodes", "5", "--seconds", "2", "--seed", "1"]) == 0
    output = capsys.readouterr().out
    assert "full mesh    20 links" in output
    assert "checked      0 lost, 0 misdelivered, 0 repeated, 0 out of order, 0 discarded" in output
    assert output.endswith("all checks passed\n")
    assert cli.main(["mesh", "simulate", "--nodes", "2", "--seconds", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["lost"], report["plan"]["nodes"]) == (True, 0, 2)


def test_simulate_fails_if_something_was_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mesh, "simulate", lambda plan: Report(plan, lost=1))
    assert cli.main(["mesh", "simulate", "--nodes", "5"]) == 1
    assert "CHECKS FAILED" in capsys.readouterr().out
    assert Plan(nodes=5).nodes == 5


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["mesh", "simulate", "--nodes", "1"], 2, "two nodes at least"),
        (["mesh", "simulate", "--seconds", "-1"], 2, "'-1' is not a time such as 90s"),
        (["mesh", "watch", "--interface", "nonsense"], 1, "no interface 'nonsense'"),
        (["mesh", "watch", "--interface", "lo", "--key", "missing.key"], 1, "missing.key"),
        (["mesh", "watch", "--beacon-port", "0"], 2, "'0' is not a port"),
        (["mesh", "ping", "--interface", "lo", "--count", "0"], 2, "--count must be at least 1"),
        (["mesh"], 2, "COMMAND"),
    ],
)
def test_errors_are_reported_without_a_traceback(
    arguments: list[str], status: int, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == status
    errors = capsys.readouterr().err
    assert problem in errors
    assert "Traceback" not in errors


def test_a_command_stays_on_this_machine_unless_a_network_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[object] = []
    monkeypatch.setattr(node_options, "Node", lambda *_, interface, **__: made.append(interface))
    parser = argparse.ArgumentParser()
    node_options.add_node_options(parser)
    node_options.node_of(parser.parse_args([]))
    assert made == ["lo"]
    assert capsys.readouterr().err == ""
    outside = Interface("eth7", IPv4Interface("10.0.0.7/24"), True)
    monkeypatch.setattr(node_options, "choose", lambda wanted, ipv6: [outside])
    node_options.node_of(parser.parse_args(["--interface", "eth7"]))
    assert made[1:] == [["eth7"]]
    assert "warning: every machine in the network of eth7 (10.0.0.7) can join this mesh" in capsys.readouterr().err
    write_pair(tmp_path, "mesh", KeyPair.generate())
    node_options.node_of(parser.parse_args(["--interface", "eth7", "--key", str(tmp_path / "mesh.key")]))
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_ends_a_watch(here: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, "mesh", "watch", *here], stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


# zgossip, keys of nodes, IPv6


def test_a_command_finds_nodes_by_a_hub_with_keys_of_nodes(tmp_path: Path) -> None:
    hub_keys, keys = KeyPair.generate(), KeyPair.generate()
    write_pair(tmp_path, "me", keys)
    (tmp_path / "allowed").mkdir()
    write_pair(tmp_path / "allowed", "hub", hub_keys)
    (tmp_path / "allowed" / "hub.key").unlink()
    options = {"node_keys": hub_keys, "allowed": {"me": keys.public}}
    with Node("hub", interface="lo", gossip_bind="tcp://127.0.0.1:*", **options) as hub:  # type: ignore[arg-type]
        ours = ["--node-key", str(tmp_path / "me.key"), "--allowed", str(tmp_path / "allowed")]
        contact = f"{hub.gossip_endpoint}|{hub_keys.public_z85}"
        status, _, errors = run("mesh", "whisper", "hub", "hello", "--gossip-connect", contact, *ours)
        assert (status, errors) == (0, "")
        assert any(isinstance(event, Whisper) and event.data == b"hello" for event in (hub.recv(60) for _ in range(2)))
        status, _, errors = run("mesh", "whisper", "hub", "hello", "--gossip-connect", hub.gossip_endpoint, *ours)
        assert status
        assert "|KEY'" in errors
        status, _, errors = run("mesh", "whisper", "hub", "hello", "--gossip-connect", contact, *ours[:2])
        assert "allowed" in errors


@pytest.mark.skipif(not has_ipv6(), reason=NO_IPV6)
def test_a_command_finds_a_seed_on_ipv6() -> None:
    with Node("six", interface="::1", beacons=False) as six:
        status, _, errors = run("mesh", "whisper", "six", "hello", "--interface", "::1", "--seed", six.endpoint)
        assert (status, errors) == (0, "")
        status, _, errors = run("mesh", "whisper", "six", "hello", "--ipv6", "--seed", six.endpoint)
        assert (status, errors) == (0, "")
