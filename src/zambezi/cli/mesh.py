"""`zambezi mesh`: watch a mesh, send messages in it, and simulate one."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from uuid import UUID

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from zambezi.cli.client import LOOK
from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.mesh_watch import add_watch_options, run_watch
from zambezi.cli.node import Patience, add_node_options, called, group, node_of
from zambezi.cli.quantity import seconds
from zambezi.cli.terminal import say
from zambezi.wire.text import printable
from zambezi.zmtp.frames import FRAME_COST
from zambezi.zre.bounds import MESSAGE
from zambezi.zre.errors import NodeStopped, ZreError
from zambezi.zre.events import Enter, Event, Exit, Join, Leader, Leave, Shout, Whisper
from zambezi.zre.peer_info import PeerInfo
from zambezi.zre.simulation import Plan, Progress, Report, simulate
from zambezi.zre.sync import Node

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

STANDARD_INPUT: Final = 0


def add_parser(subparsers: Subparsers) -> None:
    mesh = subparsers.add_parser("mesh")
    commands = mesh.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_watch(commands)
    _add_chat(commands)
    _add_whisper(commands)
    _add_shout(commands)
    _add_ping(commands)
    _add_simulate(commands)


def _command(
    commands: Subparsers, name: str, run: Callable[[argparse.Namespace], int], summary: str, description: str
) -> argparse.ArgumentParser:
    """Add a command that joins a mesh, with the options of a node. The caller adds the other options."""
    parser = commands.add_parser(name, help=summary, description=description)
    add_node_options(parser)
    parser.set_defaults(run=run)
    return parser


def _add_timeout(parser: argparse.ArgumentParser, purpose: str, default: float = 10.0) -> None:
    described = f"how long to wait {purpose} (default: {default:g}s)"
    parser.add_argument("--timeout", metavar="TIME", type=seconds, default=default, help=described)


def _add_watch(commands: Subparsers) -> None:
    parser = _command(
        commands,
        "watch",
        run_watch,
        "show the peers, their groups and their services",
        "Show a live table of the peers, their groups and their services. If the output is not a terminal, print a "
        "line for each change. Ctrl-C ends it.",
    )
    add_watch_options(parser)


# chat


def _add_chat(commands: Subparsers) -> None:
    parser = _command(
        commands,
        "chat",
        run_chat,
        "chat in a group",
        "Shout each line that you type to the groups, and show the shouts of the others. Ctrl-D ends it.",
    )
    parser.add_argument(
        "--group", metavar="GROUP", type=group, action="append", help="a group to join (can be repeated; default: CHAT)"
    )
    parser.add_argument("--contest", action="store_true", help="lead the groups, if the members elect this node")
    _add_timeout(parser, "at the end until the last lines are sent")


def run_chat(arguments: argparse.Namespace) -> int:
    groups: list[str] = arguments.group or ["CHAT"]
    with node_of(arguments, groups, groups if arguments.contest else ()) as node:
        say(f"* you are {printable(node.name)} in {printable(', '.join(groups))}, at {node.endpoint}")
        sender = threading.Thread(target=_shout_lines, args=(node, groups, arguments.timeout), daemon=True)
        sender.start()
        members: dict[str, set[UUID]] = {group: set() for group in groups}
        for event in node:
            text = _chat_line(event, members)
            if text:
                say(text)
    return 0


def _shout_lines(node: Node, groups: list[str], timeout: float) -> None:
    """Shout each line of standard input; at its end, stop the node, which ends the chat."""
    try:
        for line in _lines(STANDARD_INPUT):
            text = line.rstrip(b"\r\n")
            if text and not sum(node.shout(group, text) for group in groups):
                say(f"* no other node is in {printable(', '.join(groups))}: this line was not sent")
        deadline = time.monotonic() + timeout
        while node.unsent and time.monotonic() < deadline:
            time.sleep(0.01)
    except (NodeStopped, OSError):
        pass  # the chat has ended, or standard output is closed
    node.stop()


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a file descriptor, for a daemon thread.

    Python's file objects have locks, and the interpreter reports an error if a daemon thread holds one at exit.
    """
    rest = b""
    while data := os.read(descriptor, 65536):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _chat_line(event: Event, members: dict[str, set[UUID]]) -> str:
    """Return the line that shows an event, or an empty one. With several groups, the line names the group."""
    name = printable(event.name)
    match event:
        case Shout():
            return f"{name}{_place(event.group, members)}: {printable(event.data)}"
        case Whisper():
            return f"{name} whispers: {printable(event.data)}"
        case Join() if event.group in members:
            members[event.group].add(event.peer)
            return f"* {name} is here{_place(event.group, members)}"
        case Leave() if event.group in members:
            members[event.group].discard(event.peer)
            return f"* {name} left {printable(event.group)}"
        case Leader():
            return f"* {name} leads {printable(event.group)}" + (", and is you" if event.is_self else "")
        case Exit() if any(event.peer in some for some in members.values()):
            for some in members.values():
                some.discard(event.peer)
            return f"* {name} is gone: {printable(event.reason)}"
    return ""


def _place(group: str, members: dict[str, set[UUID]]) -> str:
    return f" in {printable(group)}" if len(members) > 1 else ""


# whisper and shout


def _add_content(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the message; - reads it from standard input")
    parser.add_argument("--file", metavar="FILE", type=Path, help="send the content of a file instead of TEXT")


def _content_of(arguments: argparse.Namespace) -> bytes:
    """Return the message that the arguments name. Raise an error before the command looks for peers."""
    if (arguments.text is None) == (arguments.file is None):
        raise OptionsError("give the message once: as TEXT, as --file FILE, or as - for standard input")
    content: bytes
    if arguments.file is not None:
        with arguments.file.open("rb") as file:
            content = file.read(MESSAGE + 1)
    elif arguments.text == "-":
        content = sys.stdin.buffer.read(MESSAGE + 1)
    else:
        content = os.fsencode(arguments.text)
    if len(content) > MESSAGE - FRAME_COST:
        raise InputError(f"the message is too large: nodes take at most {MESSAGE - FRAME_COST:,} bytes")
    return content


def _add_whisper(commands: Subparsers) -> None:
    parser = _command(
        commands,
        "whisper",
        run_whisper,
        "send a message to one peer",
        "Wait until a peer is found, send it a message, and end when the message has been sent.",
    )
    parser.add_argument("peer", metavar="PEER", help="the name of the peer, or the beginning of its UUID")
    _add_content(parser)
    _add_timeout(parser, "for the peer, and until the message is sent")


def run_whisper(arguments: argparse.Namespace) -> int:
    content = _content_of(arguments)
    patience = Patience(arguments.timeout)
    with node_of(arguments) as node:
        peer = _find(node, arguments.peer, patience)
        node.whisper(peer.uuid, content)
        patience.send_off(node)
    say(f"whispered to {called(peer)}")
    return 0


def _find(node: Node, wanted: str, patience: Patience) -> PeerInfo:
    found = patience.wait_for(node, lambda: _matches(node.peers, wanted), f"no peer {printable(wanted)!r}")
    if len(found) > 1:
        raise ZreError(
            f"{printable(wanted)!r} matches more than one peer: {', '.join(sorted(map(called, found)))}; use a UUID"
        )
    return found[0]


def _matches(peers: Iterable[PeerInfo], wanted: str) -> list[PeerInfo]:
    """Return the peers with this name, or else those whose UUID begins with it."""
    peers = list(peers)
    digits = wanted.replace("-", "").lower()
    named = [peer for peer in peers if peer.name == wanted]
    return named or [peer for peer in peers if digits and peer.uuid.hex.startswith(digits)]


def _add_shout(commands: Subparsers) -> None:
    parser = _command(
        commands,
        "shout",
        run_shout,
        "send a message to a group",
        "Wait until the group has a member, send a message to all members, and end when the message has been sent. "
        "This node does not join the group.",
    )
    parser.add_argument("group", metavar="GROUP", type=group, help="the group, or several with commas between them")
    _add_content(parser)
    _add_timeout(parser, "for the first member, and until the message is sent")


def run_shout(arguments: argparse.Namespace) -> int:
    content = _content_of(arguments)
    patience = Patience(arguments.timeout)
    groups: list[str] = [one for one in arguments.group.split(",") if one]
    with node_of(arguments) as node:
        for one in groups:
            patience.wait_for(node, partial(node.peers_in, one), f"no member of {printable(one)}")
        patience.settle(node)
        told = [(one, node.peers_in(one), node.shout(one, content)) for one in groups]
        patience.send_off(node)
    for one, members, count in told:
        names = ", ".join(sorted(map(called, members)))
        say(f"shouted to {count} {'peer' if count == 1 else 'peers'} in {printable(one)}: {names}")
    return 0


# ping


def _add_ping(commands: Subparsers) -> None:
    parser = _command(
        commands,
        "ping",
        run_ping,
        "list the peers and their round-trip times",
        "Find peers, and show for each how long it took until its HELLO arrived (found), and how long a TCP "
        "connection to its mailbox takes: one round trip of the network, answered by the peer's kernel and not by "
        "its program. This sends no ZRE PING, which is reserved for checking silent peers.",
    )
    parser.add_argument(
        "peer", metavar="PEER", nargs="?", help="the name of a peer, or the beginning of its UUID (default: all peers)"
    )
    parser.add_argument("--count", metavar="N", type=int, default=3, help="connections to each peer (default: 3)")
    _add_timeout(parser, "for the peer, or for the first of all peers", LOOK)
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each peer, times in milliseconds")


def run_ping(arguments: argparse.Namespace) -> int:
    if arguments.count < 1:
        raise OptionsError(f"--count must be at least 1, not {arguments.count}")
    with node_of(arguments) as node:
        patience = Patience(arguments.timeout)

        def look() -> list[PeerInfo]:
            return node.peers if arguments.peer is None else _matches(node.peers, arguments.peer)

        missing = "no peer" if arguments.peer is None else f"no peer {printable(arguments.peer)!r}"
        found = _greeted(node, look, missing, patience)
        for peer in sorted(patience.wait_for(node, look, missing), key=lambda peer: (peer.name, peer.uuid)):
            after = (found[peer.uuid] - patience.began) * 1000 if peer.uuid in found else None
            if arguments.json:
                say(_as_json(peer, after, _round_trips(peer, arguments.count)))
            else:
                said = "found" if after is None else f"found after {after:.0f} ms"
                say(f"{called(peer)} {said}, {_round_trip(peer, arguments.count)}")
    return 0


def _as_json(peer: PeerInfo, found: float | None, times: list[float] | str) -> str:
    row: dict[str, object] = {"name": peer.name, "uuid": peer.uuid.hex, "endpoint": peer.endpoint, "found": found}
    return json.dumps(row | ({"problem": times} if isinstance(times, str) else {"connects": times}))


def _greeted(node: Node, look: Callable[[], list[PeerInfo]], missing: str, patience: Patience) -> dict[UUID, float]:
    """Return the time of each peer's HELLO. End when `look` finds the wanted peers and no new peer comes."""
    found: dict[UUID, float] = {}

    def note(event: Event) -> None:
        if isinstance(event, Enter):
            found[event.peer] = time.monotonic()

    patience.wait_for(node, look, missing, note)
    patience.settle(node, note)
    return found


def _round_trip(peer: PeerInfo, count: int) -> str:
    times = _round_trips(peer, count)
    if isinstance(times, str):
        return f"but its mailbox {printable(peer.endpoint)} {times}"
    return f"connects in {statistics.median(times):.2f} ms (best {min(times):.2f}, worst {max(times):.2f})"


def _round_trips(peer: PeerInfo, count: int) -> list[float] | str:
    """Return the milliseconds of some connections to a peer, or why there is none."""
    target = urlsplit(peer.endpoint)
    if target.scheme != "tcp" or not target.hostname or not target.port:
        return "does not use TCP"
    times = []
    for _ in range(count):
        began = time.perf_counter()
        try:
            socket.create_connection((target.hostname, target.port), timeout=2).close()
        except OSError as error:
            return f"cannot be reached: {error.strerror or error}"
        times.append((time.perf_counter() - began) * 1000)
    return times


# simulate


def _add_simulate(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "simulate",
        help="simulate a mesh of many nodes in this process, and check every delivery",
        description=(
            "Simulate nodes in memory that find each other, join groups, send messages, crash and come back, and check "
            "every delivery. Time is virtual: it passes as fast as the machine does the work, and the same seed gives "
            "the same run. The interval of the beacons grows with the number of nodes. Nothing goes to the network. "
            "The exit status is 1 if a message was lost or misdelivered."
        ),
    )
    parser.add_argument("--nodes", metavar="N", type=int, default=100, help="the number of nodes (default: 100)")
    parser.add_argument(
        "--seconds",
        metavar="TIME",
        type=seconds,
        default=30.0,
        help="the virtual time in which nodes send messages (default: 30s)",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="the seed of all random choices (default: 0)")
    parser.add_argument(
        "--interval", metavar="TIME", type=seconds, help="the interval of beacons (default: 1s per 100 nodes)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")
    parser.set_defaults(run=run_simulate)


def run_simulate(arguments: argparse.Namespace) -> int:
    try:
        plan = Plan(nodes=arguments.nodes, seconds=arguments.seconds, seed=arguments.seed, interval=arguments.interval)
    except ZreError as error:
        raise OptionsError(str(error)) from error
    if sys.stdout.isatty():
        columns = (TextColumn("{task.description:9}"), BarColumn(), TextColumn("{task.fields[state]}"))
        with ProgressBar(*columns, TimeElapsedColumn(), transient=True) as bar:
            task = bar.add_task("forming", total=1.0, state="")

            def show(progress: Progress) -> None:
                state = f"{progress.links:,} links, {progress.delivered:,} delivered, at {progress.now:.1f} s"
                bar.update(task, description=progress.phase, completed=progress.done, state=state)

            report = simulate(plan, show)
    else:
        report = simulate(plan)
    if arguments.json:
        say(json.dumps({**dataclasses.asdict(report), "ok": report.ok}))
    else:
        for line in _lines_of(report):
            say(line)
    return 0 if report.ok else 1


def _lines_of(report: Report) -> Iterator[str]:
    plan = report.plan
    wanted = plan.nodes * (plan.nodes - 1)
    yield f"{plan.nodes} nodes, {plan.seconds:g} s of messages, seed {plan.seed}"
    yield f"time         virtual; a beacon every {plan.beacon_interval:g} s, and all nodes start within that time"
    yield f"full mesh    {wanted:,} links after {report.formed_after:.1f} s ({report.formed_in:.1f} s of real time)"
    yield f"memory       {report.memory / 2**20:,.0f} MiB, {report.memory_per_link:,.0f} bytes per link"
    yield f"descriptors  {report.descriptors}"
    yield f"crashes      {report.crashes} crashes, {report.returns} returns"
    yield f"groups       {report.joins} joins, {report.leaves} leaves"
    yield f"messages     {report.shouts:,} shouts and {report.whispers:,} whispers: {report.sent:,} copies"
    yield f"delivered    {report.delivered:,}"
    yield f"not due      {report.excused:,}: the sender or the receiver crashed, or the receiver left the group"
    yield (
        f"checked      {report.lost} lost, {report.strayed} misdelivered, {report.repeated} repeated, "
        f"{report.disordered} out of order, {report.discarded} discarded"
    )
    yield f"at the end   {report.live} live nodes, {report.links:,} links, {report.wrong_views} with a wrong view"
    yield f"took         {report.took:.1f} s of real time for {report.ended_at:.1f} s of virtual time"
    yield "all checks passed" if report.ok else "CHECKS FAILED: this is a bug; please report it with the seed"
