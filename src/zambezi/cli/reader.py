"""`zambezi reader`: list, set and remove the named and shared readers of a stream of a running broker."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zambezi.cli.client import add_client_options, add_timeout_option, client_of
from zambezi.cli.completion import offer
from zambezi.cli.counts import so_many
from zambezi.cli.fitting import JSON, NARROW, FittingTable
from zambezi.cli.quantity import start
from zambezi.cli.stream import find
from zambezi.cli.stream_tables import ago, duration
from zambezi.cli.terminal import confirm, say, table_console
from zambezi.wire.text import printable
from zambezi.zeps.errors import BrokerError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from zambezi.zeps.directory import ReaderInfo
    from zambezi.zeps.sync import Client

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "reader",
        description="Administer the named readers of a stream: their positions, which the broker keeps.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = _command(commands, "list", "List the named readers of a stream, with their lag.", run_list)
    command.add_argument("--json", action="store_true", help="print a line of JSON for each reader")
    command = _command(commands, "info", "Show a named reader.", run_info, is_about_one=True)
    command.add_argument("--json", action="store_true", help="print a JSON object")
    command = _command(
        commands, "set", "Set the position of a reader that no program uses, or add one.", run_set, is_about_one=True
    )
    offer(
        command.add_argument(
            "--to",
            metavar="WHEN",
            type=start,
            required=True,
            help="where the reader goes on: earliest, latest, a sequence (messages after it), an age (10m) or a time "
            "(2026-01-31T12:00)",
        ),
        lambda: ("earliest", "latest"),
    )
    command = _command(
        commands, "remove", "Remove a reader that no program uses, permanently.", run_remove, is_about_one=True
    )
    command.add_argument("--yes", action="store_true", help="do it without asking")


def _command(
    commands: Subparsers,
    name: str,
    description: str,
    run: Callable[[argparse.Namespace], int],
    *,
    is_about_one: bool = False,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=description.split(".", maxsplit=1)[0].lower(), description=description)
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    if is_about_one:
        parser.add_argument("reader", metavar="READER", help="the name of the reader")
        parser.add_argument("--shared", action="store_true", help="READER is a group of shared readers")
    add_timeout_option(parser, only_looks=name in ("list", "info"))
    add_client_options(parser)
    parser.set_defaults(run=run)
    return parser


def run_list(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        found = _readers(client, arguments)
    if arguments.json:
        for one in found:
            say(json.dumps(_describe(one)))
    elif found:
        table_console().print(reader_table(found))
    else:
        say(f"{printable(arguments.stream)} has no readers")
    return 0


def run_info(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        found = _find(client, arguments)
    if arguments.json:
        say(json.dumps(_describe(found)))
        return 0
    for name, value in _describe(found).items():
        if value != "" and name != "shares":
            say(f"{name + ':':<14}{printable(_shown(found, name, value))}")
    for share in found.shares:
        late = ", late" if share.get("late") else ""
        who = printable(str(share.get("member", "")))
        say(f"{'member:':<14}{who}: {share.get('in_flight')} in flight, {share.get('done')} done{late}")
    return 0


def _shown(info: ReaderInfo, name: str, value: Any) -> str:
    """Return a value of `_describe` as a person would write it."""
    if name == "behind":
        return _behind(info) or "-"
    return f"{value / 1000:g}s" if name == "wait" else str(value)


def run_set(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        find(client, arguments.stream, arguments.timeout)
        client.set_reader(
            arguments.stream, arguments.reader, arguments.to, shared=arguments.shared, timeout=arguments.timeout
        )
        found = _find(client, arguments)
    say(f"{printable(found.reader)} goes on after sequence {found.position}: {_waiting(found)} for it")
    return 0


def _waiting(info: ReaderInfo) -> str:
    return f"{so_many(info.lag, 'message')} {'waits' if info.lag == 1 else 'wait'}"


def run_remove(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        found = _find(client, arguments)
        if not arguments.yes:
            question = f"remove the reader {printable(found.reader)}, and forget its position {found.position}?"
            confirm(question, BrokerError("nothing was changed"))
        client.remove_reader(arguments.stream, arguments.reader, shared=found.shared, timeout=arguments.timeout)
    say(f"{printable(found.reader)} is removed")
    return 0


def reader_table(readers: Sequence[ReaderInfo]) -> FittingTable:
    """Return a table of named readers."""
    columns = ("reader", "kind", "position", "lag", "behind", "in use by", "changed", "user")
    rows = [
        (
            printable(one.reader),
            _kind(one),
            str(one.position),
            f"{one.lag:,}",
            _behind(one) or "-",
            _users(one),
            ago(one.changed_at),
            printable(one.user) or "-",
        )
        for one in readers
    ]
    return FittingTable(columns, {2, 3, 4}, rows, JSON, title="readers", cut={0}, folded=NARROW)


def _kind(info: ReaderInfo) -> str:
    return "group" if info.shared else "reader"


def _behind(info: ReaderInfo) -> str:
    """Return the age of the first message that waits for a reader; "" if none waits, or for a group."""
    return duration(info.behind) if info.lag and not info.shared else ""


def _users(info: ReaderInfo) -> str:
    if not info.shared:
        return printable(info.holder) or "-"
    said = [so_many(info.members, "member"), f"{info.in_flight:,} in flight"]
    if info.returned:
        said.append(f"{info.returned:,} returned")
    if info.letters:
        said.append(so_many(info.letters, "dead letter"))
    return ", ".join(said)


def _readers(client: Client, arguments: argparse.Namespace) -> list[ReaderInfo]:
    """Return the readers of the stream; raise `BrokerError` with similar names if it does not exist."""
    find(client, arguments.stream, arguments.timeout)
    return client.readers(arguments.stream, arguments.timeout)


def _find(client: Client, arguments: argparse.Namespace) -> ReaderInfo:
    """Return the reader with the name of the arguments; if a reader and a group have it, --shared means the group."""
    found = [one for one in _readers(client, arguments) if one.reader == arguments.reader]
    for one in sorted(found, key=lambda one: one.shared):
        if one.shared or not arguments.shared:
            return one
    kind = "group" if arguments.shared else "reader"
    raise BrokerError(f"the stream {printable(arguments.stream)} has no {kind} {printable(arguments.reader)}")


def _describe(info: ReaderInfo) -> dict[str, Any]:
    """Return the fields that are about this kind of reader."""
    found = {**dataclasses.asdict(info), "time": info.changed_at.isoformat()}
    if info.shared:
        # The broker does not know the age of the first message that a group has not handled.
        return {name: value for name, value in found.items() if name not in ("user", "holder", "behind")}
    return {name: found[name] for name in ("reader", "position", "lag", "behind", "time", "user", "holder")}
