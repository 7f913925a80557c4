"""`zambezi fleet` and `zambezi topics`, as people at a terminal use them.

It covers `fleet`, `topics`, and their options in `middleware`.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi import cli
from zambezi.cli import fleet, topics
from zambezi.cli.terminal import Console
from zambezi.mcollective.sync import Connector, Middleware
from zambezi.zmtp import Authenticator, CurveServer, KeyPair, write_pair

AGENTS = '''
from zambezi.mcollective.agents import action, agent
from zambezi.mcollective.errors import ActionFailed

@agent("sums")
class Sums:
    """Adds."""

    @action
    def add(self, numbers: list[int], negative: bool = False) -> int:
        return -sum(numbers) if negative else sum(numbers)

    @action
    def fail(self) -> None:
        raise ActionFailed("no sums today")
'''


@pytest.fixture
def middleware() -> Iterator[tuple[Middleware, str]]:
    with Middleware(linger=0) as ours:
        yield ours, ours.bind("tcp://127.0.0.1:*")


class Node:
    """A process that runs `zambezi fleet agent`."""

    def __init__(self, endpoint: str, name: str, *more: str) -> None:
        command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "zambezi", "fleet", "agent"]
        self.process = subprocess.Popen(
            [*command, "--connect", endpoint, "--name", name, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def see(self, pattern: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(re.fullmatch(pattern, line) for line in list(self.lines)):
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.005)

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        return status, self.process.stderr.read()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def nodes(endpoint: str, *names: str, more: tuple[str, ...] = ()) -> Iterator[list[Node]]:
    found = [Node(endpoint, name, *more) for name in names]
    try:
        for node in found:
            node.see(r"\* connected to .*")
        yield found
    finally:
        for node in found:
            node.end()


def test_nodes_are_pinged_and_called(
    middleware: tuple[Middleware, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, endpoint = middleware
    (tmp_path / "sums.py").write_text(AGENTS)
    with nodes(endpoint, "n1", "n2", more=("--load", str(tmp_path / "sums.py"))) as (first, _):
        first.see(r"\* n1 serves node, sums; connecting to .*")
        wait_until(lambda: len(ours.topics()) == 5)
        assert cli.main(["fleet", "ping", "--connect", endpoint, "--node", "n1", "--node", "n2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [re.sub(r"[\d.]+ ms", "T", line) for line in lines] == ["n1\tT\tnode, sums", "n2\tT\tnode, sums"]
        first.see(r".* called discovery\.ping: ok \([\d.]+ ms\)")

        arguments = ["sums", "add", "numbers:=[1, 2]", "negative=yes"]
        assert cli.main(["fleet", "call", "--connect", endpoint, "--discover", "4", *arguments]) == 0
        assert capsys.readouterr().out == "n1\tok\t-3\nn2\tok\t-3\n"

        command = ["fleet", "call", "--connect", endpoint, "--timeout", "4", "--node", "n1", "--node", "n9"]
        assert cli.main([*command, "node", "echo", "text=a\x1b[31mb"]) == 1
        assert capsys.readouterr().out == "n1\tok\ta\\x1b[31mb\nn9\tsilent\tno answer in time\n"

        command = ["fleet", "call", "--connect", endpoint, "--node", "n1"]
        assert cli.main([*command, "sums", "fail"]) == 1
        assert capsys.readouterr().out == "n1\terror\tno sums today\n"
        assert cli.main([*command, "--json", "sums", "add", "numbers=1,2"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["silent"] == []
        assert found["replies"]["n1"]["result"] == 3
        assert cli.main([*command, "sums", "add"]) == 1
        assert "needs the argument 'numbers'" in capsys.readouterr().out

        assert cli.main(["topics", "--connect", endpoint]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split("\t")[:2] for line in lines] == [
            ["zambezi discovery", "2"],
            ["zambezi node", "2"],
            ["zambezi nodes n1", "1"],
            ["zambezi nodes n2", "1"],
            ["zambezi sums", "2"],
        ]
        assert first.interrupt() == (0, "")
        wait_until(lambda: len(ours.topics()) == 4)


def test_only_nodes_of_the_collective_answer(
    middleware: tuple[Middleware, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, endpoint = middleware
    with nodes(endpoint, "n1", more=("--collective", "other", "--seconds", "60")):
        assert cli.main(["fleet", "ping", "--connect", endpoint, "--timeout", "3"]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.endswith("zambezi: no node of zambezi answered within 3 s; zambezi fleet agent runs one\n")
        command = ["fleet", "ping", "--connect", endpoint, "--collective", "other", "--json", "--timeout", "4"]
        assert cli.main(command) == 0
        assert list(json.loads(capsys.readouterr().out)["replies"]) == ["n1"]


def test_an_agent_that_no_node_has(middleware: tuple[Middleware, str], capsys: pytest.CaptureFixture[str]) -> None:
    _, endpoint = middleware
    command = ["fleet", "call", "--connect", endpoint, "--discover", "0.1", "--timeout", "3", "none", "such"]
    assert cli.main(command) == 1
    assert "no node has the agent 'none'" in capsys.readouterr().err


def test_topics_fit_into_a_terminal(
    middleware: tuple[Middleware, str], in_terminal: Callable[..., tuple[list[str], str]]
) -> None:
    with Connector(middleware[1], identity=b"a-client-with-a-long-name-of-40-letters") as connector:
        connector.subscribe("a topic with a long name " * 3)
        lines, _ = in_terminal("topics", "--clients", "--connect", middleware[1])
    assert lines[0] == "1 topic, 2 clients"
    assert lines[1].split() == ["topic", "subscribers", "messages", "deliveries", "clients", "kept"]
    assert lines[-1].endswith(" delivered, 0 missed by slow subscribers, 0 denied")


@pytest.mark.parametrize("command", [["call", "nope", "echo"], ["ping", "--timeout", "0.2s"]])
def test_without_nodes_a_terminal_gets_only_an_error(
    command: list[str], middleware: tuple[Middleware, str], in_terminal: Callable[..., tuple[list[str], str]]
) -> None:
    lines, errors = in_terminal("fleet", *command, "--connect", middleware[1], status=1)
    assert lines == []
    assert "no node" in errors


@pytest.mark.parametrize("command", [["fleet", "ping"], ["fleet", "call", "a", "b"], ["topics"]])
def test_without_a_middleware(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with Middleware() as ours:
        endpoint = ours.bind("tcp://127.0.0.1:*")
    assert cli.main([*command, "--connect", endpoint, "--timeout", "0.1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("zambezi: ")
    assert "no session with the middleware at" in error
    assert error.count("\n") == 1


def test_an_agent_without_a_middleware_waits_as_other_commands_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.mcollective.connector.QUIET", 0.0)
    with Middleware() as ours:
        endpoint = ours.bind("tcp://127.0.0.1:*")
    assert cli.main(["fleet", "agent", "--connect", endpoint, "--seconds", "0.2"]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"zambezi: warning: waiting for a session: there is no session with the middleware at {endpoint}"
    )


def test_nodes_that_do_not_answer_and_topics_that_are_not_there_are_lines(
    middleware: tuple[Middleware, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, endpoint = middleware
    assert cli.main(["fleet", "ping", "--connect", endpoint, "--node", "n1", "--timeout", "3"]) == 1
    assert capsys.readouterr().out == "n1\tsilent\tno answer in time\n"
    assert cli.main(["topics", "--connect", endpoint]) == 0
    assert capsys.readouterr().err == "zambezi: no client subscribes to a topic\n"


def test_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server, ann = KeyPair.generate(), KeyPair.generate()
    write_pair(tmp_path, "server", server)
    write_pair(tmp_path, "ann", ann)
    guard = Authenticator(keys={"ann": ann.public})
    with Middleware(security=CurveServer(server), authenticator=guard, linger=0) as ours:
        endpoint = ours.bind("tcp://127.0.0.1:*")
        keys = ["--key", str(tmp_path / "ann.key"), "--server-key", str(tmp_path / "server.pub")]
        assert cli.main(["topics", "--connect", endpoint, "--json", *keys]) == 0
        assert json.loads(capsys.readouterr().out)["clients"] == 1
        assert cli.main(["topics", "--connect", endpoint, "--timeout", "0.1", *keys[2:]]) == 1
        assert cli.main(["topics", "--connect", endpoint, *keys[:2]]) == 2
        assert "--server-key" in capsys.readouterr().err


def test_the_subscribers_are_named(middleware: tuple[Middleware, str], capsys: pytest.CaptureFixture[str]) -> None:
    _, endpoint = middleware
    with Connector(endpoint, identity=b"ann\x1b") as ann, Connector(endpoint, identity=b"bob") as bob:
        ann.subscribe("a")
        bob.subscribe("a", "b\n")
        assert cli.main(["topics", "--connect", endpoint, "--clients"]) == 0
        assert capsys.readouterr().out == "a\t2\t0\t0\tann\\x1b, bob\nb\\n\t1\t0\t0\tbob\n"


@pytest.mark.parametrize("text", ["nothing", "=value", ":=1", "key:=not json"])
def test_invalid_arguments(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fleet", "call", "a", "b", text]) == 2
    assert "KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no_such_module_at_all", "cannot be imported"),
        ("{}/none.py", "is not a Python file"),
        ("{}/empty.py", "has no agents"),
        ("{}/broken.py", "cannot be loaded: SyntaxError"),
    ],
)
def test_agents_that_cannot_be_loaded(
    source: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.py").write_text("from zambezi.mcollective.agents import agent\n")
    (tmp_path / "broken.py").write_text("def (\n")
    assert cli.main(["fleet", "agent", "--load", source.format(tmp_path), "--seconds", "0.1"]) == 1
    assert words in capsys.readouterr().err


def test_a_module_with_agents() -> None:
    assert [type(each).__name__ for each in fleet.load("zambezi.cli.fleet")] == ["NodeAgent"]
    assert isinstance(fleet.NodeAgent().info()["host"], str)


def test_tables_escape_control_characters_and_markup() -> None:
    console = Console(width=100, record=True)
    report = {
        "clients": 1,
        "counters": {"puts": 1, "deliveries": 2, "missed": 3, "denied": 4},
        "topics": [
            {
                "topic": "[red]x\x1b",
                "subscribers": 101,
                "clients": [["me", "ann"]],
                "messages": 5,
                "deliveries": 6,
                "kept": True,
            }
        ],
    }
    console.print(topics._table(report["topics"], report, True))  # type: ignore[arg-type]
    text = console.export_text()
    assert "[red]x\\x1b" in text
    assert "me (ann)" in text
    assert "and 100 more" in text
    assert "3 missed by slow subscribers" in text
