"""`zambezi reply`, as people at a terminal use it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE
from zambezi import cli
from zambezi.cli import capture
from zambezi.cli.reply import printable_lines
from zambezi.zeps.errors import NobodyServes, RequestFailed
from zambezi.zeps.sync import Client


@contextmanager
def replying(endpoint: str, command: str, count: int, *options: str) -> Iterator[list[int]]:
    """Run the command in a thread, until it has answered so many requests; its status is in the list afterwards."""
    found: list[int] = []
    arguments = ["reply", "words", "--exec", command, "--count", str(count), "--endpoint", endpoint, *options]
    thread = threading.Thread(target=lambda: found.append(cli.main(arguments)))
    thread.start()
    yield found
    thread.join(PATIENCE)
    assert not thread.is_alive()


def ask(client: Client, key: str, body: bytes) -> bytes:
    """Ask until the server is there."""
    while True:
        try:
            return client.stream("words").request(key, body, timeout=PATIENCE)
        except NobodyServes:
            pass


def test_a_command_answers_requests(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:
        client.create("words")
        with replying(endpoint, 'printf "%s %s " "$ZAMBEZI_KEY" "$ZAMBEZI_SEQUENCE"; tr a-z A-Z', 2) as status:
            assert ask(client, "up", b"hello") == b"up 1 HELLO"
            assert ask(client, "other", b"bytes \xff") == b"other 2 BYTES \xff"
        assert status == [0]


def test_a_command_that_never_stops_writing_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "OUTPUT", 100_000)
    monkeypatch.setattr(capture, "ERRORS", 1000)
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:
        client.create("words")
        killed = pytest.raises(RequestFailed, match="has written more than 100000 bytes, and was killed")
        with replying(endpoint, 'yes "$ZAMBEZI_KEY" | head -c 1000000 >&2; exec yes', 1), killed:
            ask(client, "look", b"")


def test_a_command_that_fails_is_an_error_reply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:
        client.create("words")
        command = 'read word; test "$word" = silent && exit 3; echo "no such word: $word" >&2; exit 1'
        with replying(endpoint, command, 2, "--parallel", "2"):
            with pytest.raises(RequestFailed, match="no such word: foo"):
                ask(client, "look", b"foo\n")
            with pytest.raises(RequestFailed, match="the command has ended with status 3"):
                ask(client, "look", b"silent\n")
    assert "no such word: foo" in capsys.readouterr().err


def test_a_command_that_cannot_be_started_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:
        client.create("words")
        with replying(endpoint, "/no/such/command", 10) as status, pytest.raises(RequestFailed):
            ask(client, "k", b"")
        assert status == [1]
    assert "cannot be started" in capsys.readouterr().err


def test_a_signal_ends_it_in_good_order(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:
        client.create("words")
        command = [sys.executable, "-m", "zambezi", "reply", "words", "--exec", "cat", "--endpoint", endpoint]
        process = subprocess.Popen(command)
        assert ask(client, "k", b"hello") == b"hello"
        process.terminate()
        assert process.wait(PATIENCE) == 0
        with pytest.raises(NobodyServes):
            client.stream("words").request("k", timeout=PATIENCE)


def test_what_a_command_writes_is_shown_as_text() -> None:
    assert printable_lines(b"one\n\x1b[31mtwo") == "one\n\\x1b[31mtwo\n"
    assert printable_lines(b"") == ""
