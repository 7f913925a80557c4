"""`zambezi sub`: replay a stream from any point, and follow it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from zambezi.cli.client import LOOK, add_client_options, client_of
from zambezi.cli.completion import interfaces, offer
from zambezi.cli.formats import FORMATS
from zambezi.cli.notices import QUIET, warn
from zambezi.cli.quantity import add_since, count, seconds, start
from zambezi.cli.stream import find
from zambezi.cli.terminal import Console, description_column
from zambezi.cli.worker import add_worker_options, check_options, sharing_of, work
from zambezi.wire.text import printable
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.errors import ClientClosed, TimedOut
from zambezi.zmtp.keys import read_pair

if TYPE_CHECKING:
    import argparse

    from zambezi.zeps.sync import Subscription

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "sub",
        description="Print the messages of STREAM from a position on, and then new ones as they come; or handle them "
        "with a command, alone or together with other programs. Ctrl-C ends it.",
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument(
        "--pattern",
        default="",
        help="the keys to print: a prefix, exact:KEY, glob:PATTERN or regex:PATTERN (default: all)",
    )
    add_since(parser, "latest")
    offer(
        parser.add_argument(
            "--until",
            metavar="WHEN",
            type=_end,
            help="the position to stop at: now, a sequence or a time (default: never stop)",
        ),
        lambda: ("now",),
    )
    parser.add_argument("--count", metavar="N", type=count, default=0, help="stop after this number of messages")
    parser.add_argument(
        "--format",
        choices=sorted(FORMATS),
        default="text",
        help="the format of each line: sequence, key and body (text), a JSON object (json), only the body (raw), or "
        "only the body in hexadecimal (hex) (default: text)",
    )
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="read under this name: the broker keeps the position, and the next time the command goes on after the "
        "last message that it has printed; --since counts only for a new name",
    )
    parser.add_argument(
        "--if-held",
        choices=("take", "refuse"),
        default="take",
        help="if another program reads under the name: take the name away from it, or fail (default: take)",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=seconds,
        help=f"how long to wait for the broker at the beginning (default: {LOOK:g}s with --until now, otherwise until "
        "it is there)",
    )
    add_worker_options(parser)
    add_client_options(parser)
    _add_multicast_options(parser)
    parser.set_defaults(run=run)


def _add_multicast_options(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("multicast")
    options.add_argument(
        "--multicast",
        nargs="?",
        metavar="GROUP",
        const=True,
        default=False,
        help="receive live messages by multicast, from the group that the broker names or from this one "
        "(udp://239.77.1.1:5680)",
    )
    interface = options.add_argument(
        "--interface", metavar="NAME", help="the name or address of the network interface for multicast"
    )
    offer(interface, interfaces)
    options.add_argument(
        "--group-key", metavar="FILE", type=Path, help="the key file of an encrypted group, from zambezi keygen"
    )


def _end(text: str) -> object:
    return text if text == "now" else start(text)


def run(arguments: argparse.Namespace) -> int:
    check_options(arguments)
    write = FORMATS[arguments.format]
    written = 0
    is_acknowledged = arguments.name is not None or arguments.shared is not None
    timeout = LOOK if arguments.timeout is None and arguments.until == "now" else arguments.timeout
    group_key = read_pair(arguments.group_key).secret if arguments.group_key is not None else b""
    with client_of(arguments, group_key) as client, _progress(arguments) as progress:
        stream = client.stream(arguments.stream)
        task = None
        last = find(client, arguments.stream, timeout).last if not arguments.stream.startswith("$") else 0
        if not progress.disable:
            task = progress.add_task(printable(arguments.stream), total=last or None)
        try:
            subscription = stream.subscribe(
                arguments.pattern,
                since=arguments.since,
                until=arguments.until,
                times=arguments.format == "json" and not arguments.multicast,
                multicast=arguments.multicast,
                interface=arguments.interface,
                name=arguments.name,
                ack="manual",
                if_held=arguments.if_held,
                **sharing_of(arguments),
            )
            subscription.ready(timeout)
            with subscription:
                if arguments.exec is not None:
                    return work(subscription, arguments)
                for batch in _batches(subscription, is_due=arguments.until == "now"):
                    for message in batch:
                        write(message)
                        if is_acknowledged:
                            subscription.ack(message)
                        written += 1
                        if written == arguments.count:
                            return 0
                    if task is not None:
                        progress.update(task, completed=batch.last)
        except KeyboardInterrupt:
            pass  # the usual end of following a stream
    return 0


def _batches(subscription: Subscription, *, is_due: bool) -> Iterator[MessageBatch]:
    """Yield the messages. If they are due, and none comes for a while, say so once."""
    if is_due:
        with suppress(ClientClosed):  # the end
            while True:
                try:
                    yield subscription.recv_batch(QUIET)
                except TimedOut as error:
                    warn(f"{error}; waiting for the rest of the messages")
                    break
    yield from subscription.batches()


def _progress(arguments: argparse.Namespace) -> Progress:
    """Return a progress bar, which is shown only if the output goes to a file and standard error is a terminal."""
    watched = arguments.until is not None and sys.stderr.isatty() and not sys.stdout.isatty()
    return Progress(
        description_column(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not watched,
    )
