"""`zambezi mesh watch --json`. The table and the lines are tested in test_mesh.py."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from tests.cli.mesh_processes import free_port
from zambezi import cli
from zambezi.cli import mesh_watch
from zambezi.cli.mesh_watch import as_object
from zambezi.zre.events import Enter, Event, Exit, Leader, Shout, Silent, Whisper
from zambezi.zre.sync import Node

PEER = UUID(int=1)
NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (
            Enter(PEER, "bob", "tcp://h:1", {"X": "y"}),
            {"event": "enter", "endpoint": "tcp://h:1", "headers": {"X": "y"}},
        ),
        (Exit(PEER, "bob", "it left"), {"event": "exit", "reason": "it left"}),
        (Whisper(PEER, "bob", (b"a", b"b")), {"event": "whisper", "data": "ab"}),
        (Shout(PEER, "bob", "G", (b"\xff",)), {"event": "shout", "group": "G", "data_hex": "ff"}),
        (Leader(PEER, "bob", "G", True), {"event": "leader", "group": "G", "is_self": True}),
        (Silent(PEER, "bob"), {"event": "silent"}),
    ],
)
def test_an_event_as_json(event: Event, fields: dict[str, object]) -> None:
    always = {"time": "2026-01-31T00:00:00.000+00:00", "peer": str(PEER), "name": "bob"}
    assert json.loads(json.dumps(as_object(event, NOW))) == {**always, **fields}


def test_each_change_is_a_line_of_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Event] = []

    def next_event(node: Node, _deadline: float) -> Event:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(Exit(PEER, "\x1b[2J", "it left"))
        return seen[-1]

    monkeypatch.setattr(mesh_watch, "next_event", next_event)
    options = ["--interface", "lo", "--beacon-port", str(free_port()), "--name", "eye"]
    assert cli.main(["mesh", "watch", "--json", *options]) == 0
    output, errors = capsys.readouterr()
    assert [json.loads(line)["name"] for line in output.splitlines()] == ["\x1b[2J"] * 2
    assert errors.startswith("watching as eye at tcp://127.0.0.1:")


def test_a_watch_that_sees_nobody_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.cli.node.QUIET", 0.0)
    options = ["--interface", "lo", "--beacon-port", str(free_port()), "--seed", "tcp://127.0.0.1:9"]
    assert cli.main(["mesh", "watch", "--seconds", "0.1", *options]) == 0
    why = "the mesh has no other peers; tcp://127.0.0.1:9 did not answer as a node"
    assert capsys.readouterr().err == f"zambezi: warning: no peer was found yet; {why}\n"
