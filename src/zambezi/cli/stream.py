"""`zambezi stream`: list, create, change and delete the streams of a running broker."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.live import Live

from zambezi.cli.client import add_client_options, add_timeout_option, client_of
from zambezi.cli.completion import offer
from zambezi.cli.counts import so_many
from zambezi.cli.errors import OptionsError
from zambezi.cli.formats import FORMATS
from zambezi.cli.quantity import octets, seconds, sequence, start
from zambezi.cli.stream_tables import client_table, size, stream_table
from zambezi.cli.terminal import Console, confirm, say, table_console
from zambezi.server.config.quantity import in_seconds
from zambezi.wire.text import printable
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import BrokerError

if TYPE_CHECKING:
    from zambezi.zeps.sync import Client

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

MOVING: Final = 3.0  # seconds for which a command waits for a stream that goes to another broker
ASK_AGAIN: Final = 0.1  # seconds
_WORDS: Final = {"sync": ("always", "interval", "never"), "compact": ("yes", "no")}  # the values of settings


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "stream",
        description="Administer the streams of a running broker.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_list(commands)
    _add_info(commands)
    command = _command(commands, "last", "Print the last message of a key. The exit status is 1 without one.", run_last)
    command.add_argument("key", metavar="KEY", help="the key")
    command.add_argument("--json", action="store_true", help="print a JSON object")
    for name, run, described in (
        ("create", run_create, "Create a stream. Streams are also created by publishing to them."),
        ("edit", run_edit, "Change settings of a stream. The value `default` takes the setting of the server again."),
    ):
        command = _command(commands, name, described, run)
        _add_settings(command)
    command = _command(commands, "trim", "Remove the oldest messages of a stream, permanently.", run_trim)
    command.add_argument(
        "--before",
        metavar="POINT",
        type=start,
        required=True,
        help="the first message to keep: its sequence, an age such as 7d, or a time",
    )
    _add_yes(command)
    command = _command(commands, "truncate", "Remove the newest messages of a stream, permanently.", run_truncate)
    command.add_argument("--after", metavar="N", type=sequence, required=True, help="the last sequence to keep")
    _add_yes(command)
    _add_yes(_command(commands, "delete", "Delete a stream with all its messages, permanently.", run_delete))
    command = _command(commands, "copy", "Create a stream with the messages of another one.", run_copy)
    command.add_argument("to", metavar="NEW", help="the name of the new stream")


def _command(
    commands: Subparsers, name: str, description: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=description.split(".", maxsplit=1)[0].lower(), description=description)
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    add_timeout_option(parser, only_looks=name in ("info", "last"))
    add_client_options(parser)
    parser.set_defaults(run=run)
    return parser


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def _or_default(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of a setting, for which `default` is None."""

    def parse(text: str) -> Any:
        return None if text == "default" else read(text)

    return parse


def _sync(text: str) -> str:
    if text not in _WORDS["sync"]:
        raise argparse.ArgumentTypeError(f"{text!r} is not always, interval or never")
    return text


def _yes_or_no(text: str) -> bool:
    if text not in _WORDS["compact"]:
        raise argparse.ArgumentTypeError(f"{text!r} is not yes or no")
    return text == "yes"


_SETTINGS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "keep_seconds": (seconds, "TIME", "remove messages that are older, such as 7d"),
    "keep_bytes": (octets, "SIZE", "keep this size of messages, such as 10G, and remove older ones"),
    "compact": (_yes_or_no, "YES|NO", "of the messages that would be removed, keep the last one of each key"),
    "keep_tombstones": (seconds, "TIME", "with compact: remove a key this long after a message without a body"),
    "sync": (_sync, "WHEN", "sync the disk before each confirmation (always), every second (interval), or never"),
    "segment": (octets, "SIZE", "the largest size of a journal file"),
    "publishers": (int, "N", "the most publishers whose messages are counted"),
    "readers": (int, "N", "the most named readers"),
    "keep_publishers": (seconds, "TIME", "forget a publisher that was silent for this time"),
}


def _add_settings(parser: argparse.ArgumentParser) -> None:
    for name, (read, metavar, described) in _SETTINGS.items():
        option = "--keep" if name == "keep_seconds" else f"--{name.replace('_', '-')}"
        setting = parser.add_argument(
            option, dest=name, metavar=metavar, type=_or_default(read), default=argparse.SUPPRESS, help=described
        )
        offer(setting, partial(_words, name))


def _words(name: str) -> tuple[str, ...]:
    return (*_WORDS.get(name, ()), "default")


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in _SETTINGS if hasattr(arguments, name)}


# Looking


def _add_list(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "list",
        help="list the streams, and their subscribers",
        description="List the streams of a broker: their messages, size and rate, and the subscribers with their lag.",
    )
    parser.add_argument("--watch", action="store_true", help="list them again and again, until Ctrl-C")
    parser.add_argument(
        "--interval", metavar="TIME", type=seconds, default=1.0, help="the time between updates (default: 1s)"
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    add_timeout_option(parser, only_looks=True)
    add_client_options(parser)
    parser.set_defaults(run=run_list)


def run_list(arguments: argparse.Namespace) -> int:
    console = table_console()
    with client_of(arguments) as client:
        if not arguments.watch:
            _print_list(client, console, arguments)
            return 0
        try:
            if arguments.json or not console.is_terminal or console.is_dumb_terminal:
                while True:
                    _print_list(client, console, arguments)
                    time.sleep(arguments.interval)
            with Live(_page(client, arguments.timeout), console=console, auto_refresh=False) as live:
                while True:
                    time.sleep(arguments.interval)
                    live.update(_page(client, arguments.timeout), refresh=True)
        except KeyboardInterrupt:
            return 0


def _print_list(client: Client, console: Console, arguments: argparse.Namespace) -> None:
    if arguments.json:
        for one in client.streams(arguments.timeout):
            say(json.dumps(describe(one)))
    else:
        console.print(_page(client, arguments.timeout))
        console.file.flush()


def _page(client: Client, timeout: float) -> Group:
    streams = client.streams(timeout)
    clients = [one for one in client.clients(timeout) if one.patterns]
    parts: list[RenderableType] = [stream_table(streams) if streams else "no streams yet: zambezi pub creates one"]
    if clients:
        parts += ["", client_table(clients)]
    return Group(*parts)


def _add_info(commands: Subparsers) -> None:
    parser = _command(commands, "info", "Show a stream and its settings.", run_info)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run_info(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        info = find(client, arguments.stream, arguments.timeout)
    if arguments.json:
        say(json.dumps(describe(info)))
        return 0
    for name, value in describe(info).items():
        if value not in ("", None) and (info.multicast or name not in ("sealed", "feed")):
            say(f"{name + ':':<17}{printable(_shown(name, value))}")
    return 0


def _shown(name: str, value: Any) -> str:
    """Return a value of `describe` as a person would write it."""
    if name in ("bytes", "segment", "keep_bytes"):
        return size(value)
    if name in ("keep_seconds", "keep_publishers"):
        text = in_seconds(value).strip('"')
        return text if text[-1].isalpha() else f"{text}s"
    return str(value)


def run_last(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        info = find(client, arguments.stream, arguments.timeout)
        message = client.last(info.stream, arguments.key, arguments.timeout)
    if message is None:
        key = printable(arguments.key)
        print(f"zambezi: {printable(info.stream)} has no message with the key {key}", file=sys.stderr)
        return 1
    FORMATS["json" if arguments.json else "text"](message)
    return 0


def find(client: Client, name: str, timeout: float | None) -> StreamInfo:
    """Return a stream of the broker; raise `BrokerError` with similar names if it does not exist.

    While a stream goes from one broker to another, none describes it: then ask again for a while.
    """
    deadline = time.monotonic() + MOVING
    while True:
        streams = client.streams(timeout)
        found = next((one for one in streams if one.stream == name), None)
        if found is None or found.is_described:
            break
        if time.monotonic() > deadline:
            owner = f"its broker at {found.owner} does not answer" if found.owner else "no broker serves it now"
            raise BrokerError(f"the stream {printable(name)} is in the object store, but {owner}: try again later")
        time.sleep(ASK_AGAIN)
    if found is not None:
        return found
    similar = difflib.get_close_matches(name, [one.stream for one in streams], n=1)
    hint = f"; did you mean {printable(similar[0])}?" if similar else ""
    raise BrokerError(f"there is no stream {printable(name)}{hint}")


def describe(info: StreamInfo) -> dict[str, Any]:
    """Return a stream as a dictionary, with readable times."""
    row = dataclasses.asdict(info)
    row["bytes"] = row.pop("octets")
    row["messages"] = info.messages
    for name, when in (("first_time", info.first_at), ("last_time", info.last_at)):
        row[name] = when.isoformat() if when is not None else None
    return row


# Changing


def run_create(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        client.create(arguments.stream, timeout=arguments.timeout, **_settings(arguments))
    say(f"{printable(arguments.stream)} is created")
    return 0


def run_edit(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    if not settings:
        raise OptionsError("name the settings to change, such as --keep 7d")
    with client_of(arguments) as client:
        find(client, arguments.stream, arguments.timeout)
        client.edit(arguments.stream, timeout=arguments.timeout, **settings)
    say(f"{printable(arguments.stream)} is changed")
    return 0


def run_trim(arguments: argparse.Namespace) -> int:
    before = arguments.before
    if isinstance(before, timedelta):
        before = datetime.now(UTC) - before
    if isinstance(before, str):
        raise OptionsError(f"--before {before}: name a sequence, an age such as 7d, or a time")
    with client_of(arguments) as client:
        info = find(client, arguments.stream, arguments.timeout)
        _ask(arguments, f"remove the messages of {printable(info.stream)} before {before}, permanently?")
        client.trim(info.stream, before, timeout=arguments.timeout)
        info = find(client, arguments.stream, arguments.timeout)
    say(f"{printable(info.stream)} begins with sequence {info.first}")
    return 0


def run_truncate(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        info = find(client, arguments.stream, arguments.timeout)
        doomed = max(0, info.last - arguments.after)
        _ask(arguments, f"remove the last {so_many(doomed, 'message')} of {printable(info.stream)}, permanently?")
        client.truncate(info.stream, arguments.after, timeout=arguments.timeout)
        info = find(client, arguments.stream, arguments.timeout)
    say(f"{printable(info.stream)} ends with sequence {info.last}")
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        info = find(client, arguments.stream, arguments.timeout)
        _ask(arguments, f"delete {printable(info.stream)} with {so_many(info.messages, 'message')}, permanently?")
        client.delete(info.stream, timeout=arguments.timeout)
    say(f"{printable(info.stream)} is deleted")
    return 0


def run_copy(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        info = find(client, arguments.stream, arguments.timeout)
        client.copy(info.stream, arguments.to, timeout=arguments.timeout)
        copied = find(client, arguments.to, arguments.timeout)
    say(f"{printable(arguments.to)} has {so_many(copied.messages, 'message')} of {printable(info.stream)}")
    return 0


def _ask(arguments: argparse.Namespace, question: str) -> None:
    if not arguments.yes:
        confirm(question, BrokerError("nothing was changed"))
