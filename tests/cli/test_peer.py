"""`zambezi peer chat`, as people at several terminals see it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi import cli
from zambezi.cli.peer import GOODBYE, Chat
from zambezi.p2p import PeerSocket
from zambezi.wire.text import printable

COMMAND = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "zambezi", "peer", "chat"]


class Terminal:
    """A terminal in which a person chats: types lines, and sees lines."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    def say(self, *lines: str | bytes) -> None:
        assert self._process.stdin is not None
        for line in lines:
            self._process.stdin.write((line.encode() if isinstance(line, str) else line) + b"\n")

    def see(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches the whole pattern."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = next(filter(None, (re.fullmatch(pattern, line) for line in list(self.lines))), None)
            if found is not None:
                return found
            assert self._process.poll() is None or self._reader.is_alive(), self.lines
            assert time.monotonic() < deadline, f"{pattern!r} is not among {self.lines}"
            time.sleep(0.005)

    def hang_up(self) -> tuple[int, str]:
        """End the input, as Ctrl-D does, and return the exit status and the errors."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._end()

    def interrupt(self) -> tuple[int, str]:
        """Send SIGINT, as Ctrl-C does, and return the exit status and the errors."""
        self._process.send_signal(signal.SIGINT)
        return self._end()

    def _end(self) -> tuple[int, str]:
        assert self._process.stderr is not None
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status, self._process.stderr.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def host(*arguments: str) -> Iterator[tuple[Terminal, str]]:
    """Run a chat that listens, and give its endpoint."""
    with Terminal("--bind", "tcp://127.0.0.1:*", *arguments) as terminal:
        yield terminal, terminal.see(r"\* listening on (tcp://127\.0\.0\.1:\d+)")[1]


def test_a_chat_between_two_terminals() -> None:
    with host("--name", "bob") as (bob, endpoint), Terminal("--connect", endpoint, "--name", "ann") as ann:
        to_ann = bob.see(r"\* peer (\d+) is here \(" + endpoint + r"\)")[1]
        to_bob = ann.see(r"\* peer (\d+) is here .*")[1]
        ann.say("hello bob", "how are you?")
        bob.see(rf"\[{to_ann}\] ann: how are you\?")
        bob.say("grüße, ann")
        ann.see(rf"\[{to_bob}\] bob: grüße, ann")
        ann.say("goodbye")
        assert ann.hang_up() == (0, "")
        bob.see(rf"\[{to_ann}\] ann: goodbye")
        bob.see(rf"\* peer {to_ann} is gone: the peer closed the connection")
        assert bob.hang_up() == (0, "")
        assert [line for line in bob.lines if line.startswith("[")] == [
            f"[{to_ann}] ann: {text}" for text in ("hello bob", "how are you?", "goodbye")
        ]
        assert [line for line in ann.lines if not line.startswith("*")] == [f"[{to_bob}] bob: grüße, ann"]


def test_lines_that_are_piped_in_arrive_although_the_input_ends_at_once() -> None:
    """When a PEER socket closes, messages that were not received are lost: the goodbye prevents that."""
    lines = [f"line {number}" for number in range(500)]
    with host() as (bob, endpoint):
        for turn in range(3):
            with Terminal("--connect", endpoint, "--name", str(turn)) as ann:
                ann.say(*lines)
                assert ann.hang_up() == (0, "")
            bob.see(rf"\[\d+\] {turn}: line 499")
            got = [line.partition(": ")[2] for line in bob.lines if re.match(rf"\[\d+\] {turn}: ", line)]
            assert got == lines
        assert bob.hang_up() == (0, "")


def test_all_peers_get_each_line_and_empty_lines_are_skipped() -> None:
    with host() as (bob, endpoint), Terminal("--connect", endpoint) as ann, Terminal("--connect", endpoint) as eve:
        for terminal in (ann, eve):
            terminal.see(r"\* peer \d+ is here .*")
        wait_until(lambda: sum("is here" in line for line in bob.lines) == 2)
        bob.say("", "to all", "", "end")
        for terminal in (ann, eve):
            terminal.see(r"\[\d+\] end")
            assert [line.partition("] ")[2] for line in terminal.lines if line[0] == "["] == ["to all", "end"]
        for terminal in (ann, eve, bob):
            assert terminal.hang_up() == (0, "")


def test_both_may_leave_at_once() -> None:
    with host() as (bob, endpoint), Terminal("--connect", endpoint) as ann:
        ann.see(r"\* peer \d+ is here .*")
        ends: list[tuple[int, str]] = []
        leaving = threading.Thread(target=lambda: ends.append(ann.hang_up()))
        leaving.start()
        ends.append(bob.hang_up())
        leaving.join(PATIENCE)
        assert ends == [(0, ""), (0, "")]


def test_a_line_without_any_peer_is_reported() -> None:
    with host() as (bob, _):
        bob.say("is anybody there?")
        bob.see(r"\* no peer is connected: this line was not sent")
        assert bob.hang_up() == (0, "")


def test_a_chat_does_not_wait_long_for_an_endpoint_that_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        deaf.close()
        with Terminal("--connect", endpoint) as ann:
            ann.see(rf"\* {endpoint}: connection refused; retrying until it works")
            ann.say("hello?")
            started = time.monotonic()
            missing = f"zambezi: nobody was reached at {endpoint}: no line was sent there\n"
            assert ann.hang_up() == (1, missing)
            assert time.monotonic() - started < PATIENCE / 2
            assert not [line for line in ann.lines if "goodbye" in line]


def test_a_chat_names_an_endpoint_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # the kernel accepts, and nobody reads
        endpoint = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        with Terminal("--connect", endpoint) as ann:
            ann.see(rf"\* {endpoint} does not answer yet; waiting until it does")
            assert ann.hang_up()[0] == 1


def test_a_chat_does_not_wait_long_for_a_peer_that_sends_no_goodbye() -> None:
    with PeerSocket() as stranger, Terminal("--connect", stranger.bind("tcp://127.0.0.1:*")) as ann:
        ann.say("hello")
        to_ann, text = stranger.recv(PATIENCE)
        assert text == b"hello"
        stranger.send(to_ann, b"hi\x1b[2J\nyou\xff")
        ann.see(r"\[\d+\] hi\\x1b\[2J\\nyou\\xff")  # control characters must not reach the terminal
        assert ann.hang_up() == (0, "")
        ann.see(r"\* no goodbye from peer \d+: .*")


def test_an_echo_does_not_go_on_for_ever() -> None:
    """A peer that answers everything, even a goodbye, gets only one goodbye."""
    with host() as (bob, endpoint), PeerSocket() as echo:
        to_bob = echo.connect(endpoint)
        for _ in range(3):
            echo.send(to_bob, GOODBYE)
        assert echo.recv(PATIENCE) == (to_bob, GOODBYE)
        echo.send(to_bob, b"and now a word")
        bob.see(r"\[\d+\] and now a word")
        bob.say("yes")
        assert echo.recv(PATIENCE) == (to_bob, b"yes")
        echo.close()
        bob.see(r"\* peer \d+ is gone: .*")
        assert bob.hang_up() == (0, "")


def test_ctrl_c_ends_a_chat_silently() -> None:
    with host() as (bob, endpoint), Terminal("--connect", endpoint) as ann:
        ann.see(r"\* peer \d+ is here .*")
        assert ann.interrupt() == (130, "")
        bob.see(r"\* peer \d+ is gone: .*")
        assert bob.interrupt() == (130, "")


def test_a_closed_pipe_ends_a_chat() -> None:
    process = subprocess.Popen(
        [*COMMAND, "--bind", "tcp://127.0.0.1:*"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process, PeerSocket(linger=0) as peer:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        endpoint = process.stdout.readline().decode().split()[-1]
        process.stdout.close()
        peer.connect(endpoint)
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == b""


# Keys


def keygen(directory: Path, name: str) -> None:
    assert cli.main(["keygen", name, "--directory", str(directory)]) == 0


def test_with_keys_only_allowed_peers_can_connect(tmp_path: Path) -> None:
    for name in ("bob", "ann", "eve"):
        keygen(tmp_path, name)
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "ann.pub").write_bytes((tmp_path / "ann.pub").read_bytes())
    with host("--key", str(tmp_path / "bob.key"), "--allow", str(allowed)) as (bob, endpoint):
        server = ("--connect", endpoint, "--server-key", str(tmp_path / "bob.pub"))
        with Terminal(*server, "--key", str(tmp_path / "ann.key")) as ann:
            bob.see(r"\* peer \d+ is here \(.*, ann\)")
            ann.say("a secret")
            bob.see(r"\[\d+\] a secret")
            assert ann.hang_up() == (0, "")
        with Terminal(*server, "--key", str(tmp_path / "eve.key")) as eve:
            bob.see(r"\* no handshake at .*")
            eve.see(r"\* no handshake at .*")
            assert eve.interrupt() == (130, "")
        with Terminal("--connect", endpoint) as plain:
            plain.see(r"\* no handshake at .*CURVE.*")
            assert plain.interrupt() == (130, "")
        assert bob.hang_up() == (0, "")


def test_with_a_server_key_alone_a_key_is_made_for_the_session(tmp_path: Path) -> None:
    keygen(tmp_path, "bob")
    with (
        host("--key", str(tmp_path / "bob.key")) as (bob, endpoint),
        Terminal("--connect", endpoint, "--server-key", str(tmp_path / "bob.pub")) as ann,
    ):
        ann.say("a secret")
        bob.see(r"\[\d+\] a secret")
        for terminal in (ann, bob):
            assert terminal.hang_up() == (0, "")


# Arguments


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        ([], 2, "give an endpoint"),
        (["--bind", "nowhere"], 2, "argument --bind: 'nowhere' is no endpoint"),
        (["--bind", "tcp://127.0.0.1:99999"], 2, "99999"),
        (["--connect", "tcp://127.0.0.1"], 2, "argument --connect: 'tcp://127.0.0.1' has no port"),
        (["--connect", "tcp://127.0.0.1:*"], 2, "is an endpoint for bind only"),
        (["--connect", "carrier-pigeon://roof"], 2, "carrier-pigeon"),
        (["--bind", "tcp://127.0.0.1:*", "--key", "missing.key"], 1, "missing.key"),
        (["--connect", "tcp://127.0.0.1:5", "--server-key", "missing.pub"], 1, "missing.pub"),
        (["--bind", "tcp://127.0.0.1:*", "--allow", "."], 2, "--key"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str],
    status: int,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["peer", "chat", *arguments]) == status
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("zambezi: ")
    assert problem in errors
    assert errors.count("\n") == 1


def test_an_endpoint_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with PeerSocket() as other:
        assert cli.main(["peer", "chat", "--bind", other.bind("tcp://127.0.0.1:*")]) == 1
    assert re.fullmatch(r"zambezi: cannot bind tcp://.*in use.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["peer"], "the following arguments are required: COMMAND (zambezi peer --help shows how)"),
        (["peer", "chat", "--name"], "argument --name: expected one argument (zambezi peer chat --help shows how)"),
        (["peer", "chat", "--loud"], "unrecognized arguments: --loud (zambezi peer chat --help shows how)"),
    ],
)
def test_usage_errors(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr() == ("", f"zambezi: {problem}\n")


def test_the_help_says_how_to_connect(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["peer", "chat", "--help"]) == 0
    output = capsys.readouterr().out
    assert "--bind" in output
    assert "Ctrl-D" in output


# In one process


def test_control_characters_are_escaped() -> None:
    assert printable("häßlich 水".encode()) == "häßlich 水"
    assert printable(b"a\tb\r\n\x00\x07\xfe") == "a\\tb\\r\\n\\x00\\x07\\xfe"


def test_a_chat_closes_its_socket_and_leaves_no_thread(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with PeerSocket() as bob, PeerSocket(linger=0) as ann:
        to_bob = ann.connect(bob.bind(f"inproc://chat-{os.getpid()}"))
        ann.send(to_bob, b"hello")
        wait_until(lambda: bob.peers)

        enough = threading.Event()

        def lines() -> Iterator[bytes]:
            yield b"to ann\r\n"
            enough.wait(PATIENCE)

        chatting = threading.Thread(target=Chat(bob, b"me").run, args=(lines(),))
        chatting.start()
        assert ann.recv(PATIENCE) == (to_bob, b"me: to ann")
        for _ in range(2):
            ann.send(to_bob, GOODBYE)
        assert ann.recv(PATIENCE) == (to_bob, GOODBYE)  # the answer, once
        enough.set()
        assert ann.recv(PATIENCE) == (to_bob, GOODBYE)  # and its own
        ann.send(to_bob, GOODBYE)
        chatting.join(PATIENCE)
        assert not chatting.is_alive()
        assert bob.closed
    assert threading.active_count() <= before + 1  # the I/O thread may have started here
    assert re.search(r"^\[\d+\] hello$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_chat_without_keys_warns_if_other_machines_can_join(host: str, warned: bool) -> None:
    command = [*COMMAND, "--bind", f"tcp://{host}:*"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert (f"warning: every machine that reaches tcp://{host}:* can join this chat" in done.stderr) == warned
