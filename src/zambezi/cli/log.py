"""`zambezi log collect`: print and store what the nodes of a mesh report (ZRE/LOG).

The file of `--out` has a JSON object on each line, in the order in which the logs came. `octets` is the LOG message as
it was received, in hexadecimal, and all else follows from it, but for `received`, the time here. The other fields are
there for those who read the file with nothing but a JSON parser:

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

from zambezi.cli.node import add_node_options, next_event, node_of, seconds
from zambezi.cli.terminal import say
from zambezi.wire.text import printable
from zambezi.zmtp.errors import TimedOut
from zambezi.zre.log import Record, hash_of
from zambezi.zre.sync import LogService, Node

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

HOUR = 3600.0


def add_parser(subparsers: Subparsers) -> None:
    log = subparsers.add_parser("log", help="collect the logs of a mesh (ZRE/LOG)")
    commands = log.add_subparsers(title="commands", metavar="COMMAND", required=True)
    collect = commands.add_parser(
        "collect",
        help="print what nodes report, and store it",
        description=(
            "Announce a log service (X-ZRELOG) to the mesh, and print what its nodes report: time, level, event, node, "
            "peer, text. Nodes and peers are four hex digits, with the name where only one peer has them. Ctrl-C ends "
            "it."
        ),
    )
    collect.add_argument("--out", metavar="FILE", type=Path, help="append the logs to FILE too, as lines of JSON")
    collect.add_argument("--seconds", metavar="SECONDS", type=seconds, default=math.inf, help="end after so long")
    collect.add_argument("--count", metavar="N", type=int, default=0, help="end after so many logs")
    collect.add_argument("--quiet", action="store_true", help="print no logs (with --out)")
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
                if out is not None:
                    out.write(json.dumps(stored(record, datetime.now(UTC))).encode() + b"\n")
                if not arguments.quiet:
                    say(told(record, _names(node)))
                if count == arguments.count:
                    break
        except KeyboardInterrupt:
            pass  # that is how a collection ends
        told_of = f"{count} {'log' if count == 1 else 'logs'}, {service.discarded} discarded that were none"
        print(told_of + (f"; appended to {arguments.out}" if out is not None else ""), file=sys.stderr)
    return 0


@contextmanager
def _appending(path: Path | None) -> Iterator[io.FileIO | None]:
    """A file to which each log is one write. A line that somebody was killed in stays alone."""
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
        # The events of the node are of no interest, but who does not take them is sent no more.
        while next_event(node, 0) is not None:
            pass
        try:
            yield service.recv(timeout=min(left, 1.0))
        except TimedOut:
            continue


def _names(node: Node) -> dict[int, str]:
    """The names of peers by the hash of their UUID, where it is that of one alone."""
    names: dict[int, str] = {}
    for uuid, name in [(node.uuid, node.name), *((peer.uuid, peer.name) for peer in node.peers)]:
        key = hash_of(uuid)
        names[key] = "" if key in names else name
    return names


def _moment(millis: int) -> str:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{millis} ms"  # a clock that is wrong by millennia is no reason to lose a log


def told(record: Record, names: dict[int, str]) -> str:
    """A log for people."""
    log = record.log

    def who(key: int) -> str:
        return f"{key:04x}" + (f" ({printable(names[key])})" if names.get(key) else "")

    peer = who(log.peer) if log.peer else "-"
    head = f"{_moment(log.time)} {log.level.name:7} {log.event.name:5} {who(log.node)} {peer}"
    return f"{head} {printable(log.data)}".rstrip()


def stored(record: Record, received: datetime) -> dict[str, str]:
    """A log for the file."""
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
