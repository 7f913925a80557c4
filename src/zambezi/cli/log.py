"""`zambezi log collect`: print and store the logs of the nodes of a mesh (ZRE/LOG).

The file of `--out` has a JSON object on each line, in the order in which the logs arrived. `octets` is the LOG message
as received, in hexadecimal, and `received` is the time of its arrival. The other fields repeat the content of `octets`
for readers that have only a JSON parser:

    {"received": "2026-01-31T12:00:00.250+00:00", "time": "2026-01-31T12:00:00.248+00:00", "level": "INFO",
     "event": "ENTER", "node": "1f3a", "peer": "77c0", "text": "bob", "octets": "aaa2010303..."}
"""

from __future__ import annotations

import io
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.cli.node import add_node_options, next_event, node_of
from zambezi.cli.quantity import seconds
from zambezi.cli.terminal import say
from zambezi.wire.text import printable
from zambezi.zmtp.errors import TimedOut
from zambezi.zre.log import Record, hash_of
from zambezi.zre.sync import LogService, Node

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    log = subparsers.add_parser("log")
    commands = log.add_subparsers(title="commands", metavar="COMMAND", required=True)
    collect = commands.add_parser(
        "collect",
        help="print and store the logs of the nodes",
        description=(
            "Announce a log service (X-ZRELOG) to the mesh, and print the logs of its nodes: time, level, event, node, "
            "peer, text. A node or peer is shown as four hex digits, with its name if these digits belong to one peer "
            "only. Ctrl-C ends it."
        ),
    )
    collect.add_argument("--out", metavar="FILE", type=Path, help="append the logs to FILE, as lines of JSON")
    collect.add_argument("--json", action="store_true", help="print the logs as lines of JSON, as --out has them")
    collect.add_argument("--seconds", metavar="TIME", type=seconds, default=math.inf, help="stop after this time")
    collect.add_argument("--count", metavar="N", type=int, default=0, help="stop after this number of logs")
    collect.add_argument("--quiet", action="store_true", help="do not print the logs (useful with --out)")
    add_node_options(collect)
    collect.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.seconds
    count = 0
    with _appending(arguments.out) as out, node_of(arguments) as node, LogService(node) as service:
        print(f"collecting logs at {service.endpoint}", file=sys.stderr, flush=True)
        try:
            for record in _records(node, service, deadline):
                count += 1
                line = json.dumps(stored(record, datetime.now(UTC)))
                if out is not None:
                    out.write(line.encode() + b"\n")
                if not arguments.quiet:
                    say(line if arguments.json else line_of(record, _names(node)))
                if count == arguments.count:
                    break
        except KeyboardInterrupt:
            pass  # the usual end of a collection
        summary = f"{count} {'log' if count == 1 else 'logs'}, {service.discarded} invalid messages discarded"
        print(summary + (f"; appended to {arguments.out}" if out is not None else ""), file=sys.stderr)
    return 0


@contextmanager
def _appending(path: Path | None) -> Iterator[io.FileIO | None]:
    """Open a file to which each log is one write. An unfinished line of a killed process is ended first."""
    if path is None:
        yield None
        return
    with path.open("a+b", buffering=0) as out:
        size = out.seek(0, io.SEEK_END)
        if size:
            out.seek(size - 1)
            if out.read(1) != b"\n":
                out.write(b"\n")
        yield out


def _records(node: Node, service: LogService, deadline: float) -> Iterator[Record]:
    while (left := deadline - time.monotonic()) > 0:
        # The node's events are not used, but a node whose events are not read stops reading from its peers.
        while next_event(node, 0) is not None:
            pass
        try:
            yield service.recv(timeout=min(left, 1.0))
        except TimedOut:
            continue


def _names(node: Node) -> dict[int, str]:
    """Return the names of peers by the hash of their UUID; "" if several peers have the same hash."""
    names: dict[int, str] = {}
    for uuid, name in [(node.uuid, node.name), *((peer.uuid, peer.name) for peer in node.peers)]:
        key = hash_of(uuid)
        names[key] = "" if key in names else name
    return names


def _moment(millis: int) -> str:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{millis} ms"  # a clock that is wrong by millennia must not lose a log


def line_of(record: Record, names: dict[int, str]) -> str:
    """Return a log as a line for people."""
    log = record.log

    def named(key: int) -> str:
        return f"{key:04x}" + (f" ({printable(names[key])})" if names.get(key) else "")

    peer = named(log.peer) if log.peer else "-"
    head = f"{_moment(log.time)} {log.level.name:7} {log.event.name:5} {named(log.node)} {peer}"
    return f"{head} {printable(log.data)}".rstrip()


def stored(record: Record, received: datetime) -> dict[str, str]:
    """Return a log as the file has it."""
    log = record.log
    return {
        "received": received.isoformat(timespec="milliseconds"),
        "time": _moment(log.time),
        "level": log.level.name,
        "event": log.event.name,
        "node": f"{log.node:04x}",
        "peer": f"{log.peer:04x}",
        "text": log.data,
        "octets": record.octets.hex(),
    }
