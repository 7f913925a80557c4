"""`zambezi mesh` with headers, several groups, files and standard input, elections, a trace, keys; and its errors."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.mesh_processes import COMMAND, Running, free_port, run
from tests.zmtp.waiting import PATIENCE
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zre.bounds import MESSAGE
from zambezi.zre.events import Enter, Event, Exit, Shout, Whisper
from zambezi.zre.sync import Node


@pytest.fixture
def here() -> list[str]:
    """Return options that keep a command on loopback, with its own beacon port."""
    return ["--interface", "lo", "--beacon-port", str(free_port())]


def node(here: list[str], name: str, *groups: str) -> Node:
    return Node(name, interface="lo", beacon_port=int(here[-1]), groups=groups)


def wait_for(listener: Node, kind: type[Event]) -> Event:
    event = listener.recv(timeout=PATIENCE)
    while not isinstance(event, kind):
        event = listener.recv(timeout=PATIENCE)
    return event


def test_headers_are_told(here: list[str]) -> None:
    with node(here, "bob") as bob:
        status, _, errors = run("mesh", "whisper", "bob", "hi", "--header", "X-A=1", "--header", "X-B=a=b", *here)
        assert (status, errors) == (0, "")
        event = wait_for(bob, Enter)
        assert isinstance(event, Enter)
        assert event.headers == {"X-A": "1", "X-B": "a=b"}


def test_the_content_is_a_file_or_standard_input(here: list[str], tmp_path: Path) -> None:
    octets = bytes(range(256)) * 100
    (tmp_path / "content").write_bytes(octets)
    with node(here, "bob", "A", "B") as bob:
        status, _, errors = run("mesh", "whisper", "bob", "--file", str(tmp_path / "content"), *here)
        assert (status, errors) == (0, "")
        event = wait_for(bob, Whisper)
        assert isinstance(event, Whisper)
        assert event.content == (octets,)
        made = subprocess.run(
            [*COMMAND, "mesh", "shout", "A,B", "-", *here], input=octets, capture_output=True, check=False
        )
        assert (made.returncode, made.stderr) == (0, b"")
        heard = [wait_for(bob, Shout), wait_for(bob, Shout)]
        assert [(event.group, event.content) for event in heard if isinstance(event, Shout)] == [
            ("A", (octets,)),
            ("B", (octets,)),
        ]


@pytest.mark.parametrize("given", [[], ["text", "--file", "x"]])
def test_a_message_is_given_once(given: list[str], here: list[str]) -> None:
    status, _, errors = run("mesh", "whisper", "bob", *given, *here)
    assert (status, errors) == (
        2,
        "zambezi: give the message once: as TEXT, as --file FILE, or as - for standard input\n",
    )


def test_a_message_that_is_too_large_or_missing_is_refused_before_the_search(here: list[str], tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(MESSAGE))
    status, _, errors = run("mesh", "shout", "A", "--file", str(tmp_path / "large"), *here)
    assert (status, errors) == (1, "zambezi: the message is too large: nodes take at most 1,048,512 bytes\n")
    status, _, errors = run("mesh", "shout", "A", "--file", str(tmp_path / "missing"), *here)
    assert (status, errors) == (1, f"zambezi: {tmp_path / 'missing'}: No such file or directory\n")


def test_a_chat_in_several_groups_names_them_and_elects_a_leader(here: list[str]) -> None:
    groups = ["--group", "RED", "--group", "BLUE"]
    with (
        Running("mesh", "chat", "--name", "ann", "--contest", *groups, *here) as ann,
        Running("mesh", "chat", "--name", "bob", *groups, *here) as bob,
    ):
        ann.see(r"^\* bob is here in RED$")
        ann.see(r"^\* bob is here in BLUE$")
        bob.see(r"^\* ann leads RED$")
        ann.see(r"^\* ann leads BLUE, and is you$")
        bob.see(r"^\* ann is here in BLUE$")
        bob.say("hello")
        ann.see(r"^bob in RED: hello$")
        ann.see(r"^bob in BLUE: hello$")
        assert bob.hang_up() == 0
        assert ann.hang_up() == 0


def test_watch_contests_and_traces(here: list[str]) -> None:
    watching = Running("mesh", "watch", "--name", "ann", "--contest", "G", "--trace", *here)
    with node(here, "bob", "G") as bob, watching as ann:
        ann.see(r"ann \([0-9a-f]{8}\) leads G, and is this node$")
        ann.see(r"ann > bob \([0-9a-f]{8}\): LEADER sequence=3 group=G leader=")
        ann.see(r"ann < [0-9a-f]{8}: HELLO sequence=1 endpoint=tcp://")
        assert bob.peers_in("G")
        assert ann.interrupt() == 0


@pytest.mark.parametrize("text", ["X", "=1", ""])
def test_a_header_without_its_parts_is_refused(text: str, here: list[str]) -> None:
    status, _, errors = run("mesh", "watch", "--header", text, *here)
    problem = f"argument --header: {text!r} is not a header: write KEY=VALUE, such as X-ROLE=test"
    assert (status, errors) == (2, f"zambezi: {problem} (zambezi mesh watch --help shows how)\n")


def test_an_empty_group_is_refused(here: list[str]) -> None:
    status, _, errors = run("mesh", "chat", "--group", "", *here)
    problem = "argument --group: the name of a group cannot be empty"
    assert (status, errors) == (2, f"zambezi: {problem} (zambezi mesh chat --help shows how)\n")


@pytest.mark.parametrize("option", ["--seed", "--gossip-connect"])
@pytest.mark.parametrize("key", ["", "|" + "0" * 40])
def test_the_endpoint_of_a_contact_is_checked(option: str, key: str, here: list[str]) -> None:
    status, _, errors = run("mesh", "watch", option, f"tcp://10.0.0.7{key}", *here)
    problem = f"argument {option}: 'tcp://10.0.0.7' has no port: write tcp://HOST:PORT"
    assert (status, errors) == (2, f"zambezi: {problem} (zambezi mesh watch --help shows how)\n")


def test_hints_name_the_right_key_file(here: list[str], tmp_path: Path) -> None:
    public, secret = write_pair(tmp_path, "office", KeyPair.generate())
    status, _, errors = run("mesh", "ping", "--key", str(public), *here)
    assert (status, errors) == (1, f"zambezi: {public}: holds no secret key; use {secret}\n")
    name = secret.with_suffix("")
    status, _, errors = run("mesh", "ping", "--key", str(name), *here)
    assert (status, errors) == (1, f"zambezi: {name}: cannot be read: No such file or directory; there is {secret}\n")


def test_nodes_with_another_key_are_hinted_at(here: list[str], tmp_path: Path) -> None:
    _, ours = write_pair(tmp_path, "ours", KeyPair.generate())
    theirs = KeyPair.generate()
    with Node("bob", interface="lo", beacon_port=int(here[-1]), keys=theirs):
        status, _, errors = run("mesh", "whisper", "bob", "hi", "--key", str(ours), "--timeout", "4", *here)
        assert status == 1
        waiting, failure = errors.splitlines()
        why = "the mesh has no other peers; 1 other node was found that does not answer: does it have the same key?"
        assert waiting == f"zambezi: warning: no peer 'bob' was found yet; {why}; waiting for up to 4 s"
        assert failure == f"zambezi: no peer 'bob' was found within 4 s; {why}"
        status, _, errors = run("mesh", "whisper", "bob", "hi", "--timeout", "4", *here)
        assert errors.endswith("does not answer: does it need a key (--key FILE)?\n")


def test_ctrl_c_leaves_no_traceback(here: list[str]) -> None:
    with Running("mesh", "whisper", "bob", "hi", "--timeout", "60s", "--trace", *here) as whispering:
        whispering.see("BEACON")
        assert whispering.interrupt() == 130
        assert not [line for line in whispering.errors if "Traceback" in line]


@pytest.mark.parametrize(
    ("given", "status", "error"),
    [
        (["--node-key", "KEY"], 2, "--node-key works only with --allowed: add --allowed DIRECTORY"),
        (["--allowed", "any"], 2, "--allowed works only with --node-key FILE"),
        (["--node-key", "KEY", "--key", "KEY"], 2, "give --key FILE (the key pair of the mesh) or --node-key FILE"),
        (["--node-key", "KEY", "--allowed", "/no/dir"], 1, "--allowed /no/dir: there is no such directory"),
        (
            ["--gossip-connect", "tcp://127.0.0.1:1|abc"],
            2,
            "'tcp://127.0.0.1:1|abc' has the key of a node: add --node-key",
        ),
        (["--seed", f"tcp://127.0.0.1:1|{'0' * 40}"], 2, f"'tcp://127.0.0.1:1|{'0' * 40}' has the key of a node"),
        (
            ["--node-key", "KEY", "--allowed", "any", "--gossip-connect", "tcp://127.0.0.1:1|abc"],
            2,
            "--gossip-connect 'tcp://127.0.0.1:1|abc' has no public key, or a malformed one: with --node-key write",
        ),
    ],
)
def test_mistakes_with_keys_name_the_options(
    given: list[str], status: int, error: str, here: list[str], tmp_path: Path
) -> None:
    _, secret = write_pair(tmp_path, "ours", KeyPair.generate())
    ended, _, errors = run("mesh", "ping", *(str(secret) if text == "KEY" else text for text in given), *here)
    assert ended == status
    assert errors.startswith(f"zambezi: {error}")
    assert "=" not in errors


def test_a_hub_that_does_not_answer_is_named(here: list[str]) -> None:
    status, _, errors = run("mesh", "ping", "--gossip-connect", "tcp://127.0.0.1:1", "--timeout", "0.5", *here)
    assert status == 1
    assert errors.endswith("the mesh has no other peers; tcp://127.0.0.1:1 did not answer as a hub of zgossip\n")


@pytest.fixture
def heeding_hangups() -> Iterator[None]:
    """Let commands heed SIGHUP, also if the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_a_goodbye(number: signal.Signals, here: list[str], heeding_hangups: None) -> None:
    with node(here, "bob", "CHAT") as bob:
        for command, status in (("watch", 0), ("chat", 128 + number)):
            with Running("mesh", command, "--name", command, *here) as running:
                wait_for(bob, Enter)
                running.see("bob")
                running.process.send_signal(number)
                assert running.end() == status
                assert not running.errors
            event = wait_for(bob, Exit)
            assert isinstance(event, Exit)
            assert (event.name, event.reason) == (command, "it left")
