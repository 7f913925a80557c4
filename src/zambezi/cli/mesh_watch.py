"""`zambezi mesh watch`: the peers of a mesh, as a table that changes, as lines, or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from rich.live import Live

from zambezi.cli import node as node_options
from zambezi.cli.counts import so_many
from zambezi.cli.fitting import JSON, NARROW, FittingTable
from zambezi.cli.formats import json_bytes
from zambezi.cli.node import found_by, group, next_event, node_of
from zambezi.cli.notices import warn
from zambezi.cli.quantity import seconds
from zambezi.cli.terminal import Console, say
from zambezi.wire.text import printable
from zambezi.zre.events import Enter, Evasive, Event, Exit, Join, Leader, Leave, Shout, Silent, Whisper
from zambezi.zre.sync import Node

REFRESH: Final = 0.5
FOREVER: Final = math.inf


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command, besides those of a node."""
    parser.add_argument("--seconds", metavar="TIME", type=seconds, default=FOREVER, help="stop after this time")
    parser.add_argument(
        "--group",
        metavar="GROUP",
        type=group,
        action="append",
        default=[],
        help="a group to join, to see its messages (can be repeated)",
    )
    parser.add_argument(
        "--contest",
        metavar="GROUP",
        type=group,
        action="append",
        default=[],
        help="a group to join and to lead, if the members elect this node (can be repeated)",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change")


def run_watch(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.seconds
    with node_of(arguments, arguments.group, arguments.contest) as node:
        watch = _watch_json if arguments.json else _watch_table if sys.stdout.isatty() else _watch_lines
        with contextlib.suppress(KeyboardInterrupt):  # the usual end of a watch
            watch(node, deadline)
    return 0


def _watch_lines(node: Node, deadline: float) -> None:
    say(f"{_clock()} watching as {printable(node.name)} at {node.endpoint}")
    for event in _events(node, deadline):
        say(f"{_clock()} {printable(event.name)} ({event.peer.hex[:8]}) {_text_of(event)}")


def _watch_json(node: Node, deadline: float) -> None:
    print(f"watching as {printable(node.name)} at {node.endpoint}", file=sys.stderr, flush=True)
    for event in _events(node, deadline):
        say(json.dumps(as_object(event, datetime.now(UTC))))


def _events(node: Node, deadline: float) -> Iterator[Event]:
    """Yield the events until the deadline. If none comes for a while, say which peers are missing."""
    tells_at = time.monotonic() + node_options.QUIET
    while time.monotonic() < deadline:
        event = next_event(node, min(deadline, tells_at, time.monotonic() + 3600))
        if event is not None:
            yield event
        elif time.monotonic() >= tells_at:
            warn(f"no peer was found yet; {found_by(node)}")
        else:
            continue
        tells_at = math.inf


def as_object(event: Event, now: datetime) -> dict[str, Any]:
    """Return an event as an object of JSON. Its other fields are those of its class; `data` is the whole message."""
    values = {one.name: getattr(event, one.name) for one in dataclasses.fields(event)}
    values["peer"] = str(event.peer)
    if isinstance(event, (Whisper, Shout)):
        del values["content"]
        values |= json_bytes("data", event.data)
    return {"time": now.isoformat(timespec="milliseconds"), "event": type(event).__name__.lower(), **values}


def _text_of(event: Event) -> str:
    match event:
        case Enter():
            services = "".join(
                f", {printable(name)}: {printable(value)}" for name, value in sorted(event.headers.items())
            )
            return f"is here at {printable(event.endpoint)}{services}"
        case Exit():
            return f"is gone: {printable(event.reason)}"
        case Join():
            return f"joined {printable(event.group)}"
        case Leave():
            return f"left {printable(event.group)}"
        case Whisper():
            return f"whispered: {printable(event.data)}"
        case Shout():
            return f"shouted to {printable(event.group)}: {printable(event.data)}"
        case Leader():
            return f"leads {printable(event.group)}" + (", and is this node" if event.is_self else "")
        case Evasive():
            return "is silent and got a PING"
        case Silent():
            return "is still silent"
    return type(event).__name__


def _watch_table(node: Node, deadline: float) -> None:
    states: dict[UUID, str] = {}
    since: dict[UUID, float] = {}
    last = ""
    with Live(_table(node, states, since, last), auto_refresh=False, console=Console()) as live:
        while time.monotonic() < deadline:
            event = next_event(node, min(deadline, time.monotonic() + REFRESH))
            while event is not None:
                _note(event, states, since)
                last = f"{printable(event.name)} {_text_of(event)}"
                event = next_event(node, 0)
            live.update(_table(node, states, since, last), refresh=True)


def _note(event: Event, states: dict[UUID, str], since: dict[UUID, float]) -> None:
    match event:
        case Enter():
            since[event.peer] = time.monotonic()
            states[event.peer] = "here"
        case Exit():
            since.pop(event.peer, None)
            states.pop(event.peer, None)
        case Evasive() | Silent():
            states[event.peer] = "silent"
        case Leader():
            pass
        case _:
            states[event.peer] = "here"


def _table(node: Node, states: dict[UUID, str], since: dict[UUID, float], last: str) -> FittingTable:
    peers = sorted(node.peers, key=lambda peer: (peer.name, peer.uuid))
    now = time.monotonic()
    rows = []
    for peer in peers:
        services = "\n".join(printable(f"{name} {value}") for name, value in sorted(peer.headers.items()))
        row = (
            printable(peer.name),
            states.get(peer.uuid, "here"),
            _age(now - since.get(peer.uuid, now)),
            printable(", ".join(sorted(peer.groups))),
            services,
            printable(peer.endpoint.removeprefix("tcp://")),
            peer.uuid.hex[:8],
        )
        rows.append(row)
    return FittingTable(
        ("name", "state", "for", "groups", "services", "mailbox", "uuid"),
        {2},
        rows,
        JSON,
        title=f"{so_many(len(peers), 'peer')} of {printable(node.name)} at {node.endpoint}",
        notes=[*([printable(last)] if last else []), "Ctrl-C ends this"],
        folded=NARROW,
    )


def _age(passed: float) -> str:
    whole = int(passed)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
