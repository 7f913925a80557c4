"""`zambezi store`: list, check, copy and restore the streams of an object store, without a broker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.client import LOOK
from zambezi.cli.counts import so_many
from zambezi.cli.data_directory import DATA
from zambezi.cli.errors import OptionsError, error_line
from zambezi.cli.fitting import JSON, FittingTable
from zambezi.cli.notices import show_warnings, telling
from zambezi.cli.stream_tables import moment, size
from zambezi.cli.terminal import say, table_console
from zambezi.wire.text import printable
from zambezi.zeps.directory import datetime_of
from zambezi.zeps.errors import StoreError
from zambezi.zeps.journal import Store
from zambezi.zeps.store.catalog import StoredStream, check_format, list_streams
from zambezi.zeps.store.checking import check_stream, require_streams
from zambezi.zeps.store.copying import copy_stream, incarnation_of, restore_stream
from zambezi.zeps.store.mending import mend_journal
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.shell import PATIENCE, ObjectStore

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_URL: Final = "s3://BUCKET/PREFIX, gs://..., az://..., or a directory"


def add_parser(subparsers: Subparsers) -> None:
    store = subparsers.add_parser(
        "store",
        description=(
            "Work with streams in an object store. Only copy writes to the store; the other commands can be used at "
            "any time. Spark reads the store by its option path."
        ),
    )
    commands = store.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list the streams", description="List the streams of a store.")
    listing.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    listing.set_defaults(run=run_list)
    verify = commands.add_parser(
        "verify",
        help="check every byte of the streams",
        description="Read all objects of the streams, and check them. The exit status is 1 if there is damage.",
    )
    verify.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    verify.set_defaults(run=run_verify)
    copy = commands.add_parser(
        "copy",
        help="copy streams of a data directory to the store",
        description=(
            "Copy the messages that the store does not have yet. The command can be used while a broker runs, and be "
            "repeated: it goes on where it ended."
        ),
    )
    copy.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    copy.set_defaults(run=run_copy)
    restore = commands.add_parser(
        "restore",
        help="make or repair the streams of a data directory from the store",
        description=(
            "Make the streams of the store in a data directory that no broker uses. Of a stream that exists there, the "
            "damaged batches are repaired."
        ),
    )
    restore.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    restore.set_defaults(run=run_restore)
    for parser in (listing, verify, copy, restore):
        parser.add_argument("url", metavar="URL", help=_URL)
        parser.add_argument("streams", metavar="STREAM", nargs="*", help="the names of streams (default: all)")
        parser.add_argument(
            "--option",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="an option of obstore, such as endpoint or region; can be repeated (default: the environment)",
        )
    for parser in (copy, restore):
        parser.add_argument(
            "--data",
            metavar="DIR",
            type=Path,
            default=Path(DATA),
            help=f"the directory of the journals (default: {DATA})",
        )


def _open(arguments: argparse.Namespace, *, create: bool = False, patience: float = PATIENCE) -> ObjectStore:
    show_warnings()
    options = {}
    for given in arguments.option:
        name, equals, value = given.partition("=")
        if not equals:
            raise OptionsError(f"--option is {given!r}: it must be NAME=VALUE, such as region=eu-west-1")
        options[name] = value
    if patience < PATIENCE:
        options.setdefault("timeout", f"{patience / 3:.2f}s")  # of a request, which is made three times
    store = ObjectStore(arguments.url, options, create=create)
    with telling(f"waiting for {arguments.url}, which has not answered yet"):
        store.run(check_format(create=create), patience)
    return store


def _streams(store: ObjectStore, arguments: argparse.Namespace) -> list[tuple[StoredStream, LogReader]]:
    """Return the streams that the arguments name, with what the store has of them."""
    found = []
    for stream in require_streams(store.run(list_streams()), arguments.streams, arguments.url):
        reader = LogReader(stream.place)
        store.run(reader.refresh())
        if reader.is_deleted and stream.name in arguments.streams:
            raise StoreError(f"stream {stream.name!a} is deleted")
        if not reader.is_deleted:
            found.append((stream, reader))
    return found


def run_list(arguments: argparse.Namespace) -> int:
    store = _open(arguments, patience=LOOK)
    streams = _streams(store, arguments)
    if arguments.json:
        for stream, reader in streams:
            say(json.dumps(_description(stream, reader)))
        return 0
    console = table_console()
    rows = []
    for stream, reader in streams:
        held = reader.last - reader.first + 1
        newest = datetime_of(reader.last_time)
        row = (
            printable(stream.name),
            f"{held:,}",
            str(reader.first) if held else "-",
            str(reader.last) if held else "-",
            size(reader.size),
            moment(newest, to_the_second=console.is_terminal) if held else "-",
            str(len(reader.segments)),
            str(incarnation_of(stream, reader.incarnation))[:8],
        )
        rows.append(row)
    columns = ("stream", "messages", "first", "last", "size", "newest", "segments", "incarnation")
    title = f"streams in {printable(arguments.url)}"
    console.print(FittingTable(columns, {1, 2, 3, 4, 6}, rows, JSON, title=title, cut={0}))
    return 0


def _description(stream: StoredStream, reader: LogReader) -> dict[str, object]:
    return {
        "stream": stream.name,
        "incarnation": str(incarnation_of(stream, reader.incarnation)),
        "first": reader.first,
        "last": reader.last,
        "octets": reader.size,
        "last_time": reader.last_time,
        "segments": [{"first": one.first, "last": one.last, "octets": one.octets} for one in reader.segments],
    }


def run_verify(arguments: argparse.Namespace) -> int:
    store = _open(arguments)
    damages = 0
    for stream, _ in _streams(store, arguments):
        found = check_stream(store, stream)
        damages += len(found.problems)
        if arguments.json:
            counts = {"messages": found.messages, "objects": found.objects}
            say(json.dumps({"stream": stream.name, **counts, "damage": list(found.problems)}))
            continue
        for problem in found.problems:
            say(f"damage: {printable(stream.name)}: {printable(problem)}")
        verdict = f"damage in {so_many(len(found.problems), 'place')}" if found.problems else "no damage"
        content = f"{so_many(found.messages, 'message')} in {so_many(found.objects, 'object')}"
        say(f"{printable(stream.name)}: {content}, {verdict}")
    return 1 if damages else 0


def run_copy(arguments: argparse.Namespace) -> int:
    failures = 0
    with Store(arguments.data, write=False) as data:
        store = _open(arguments, create=True)
        known = data.names()
        for name in arguments.streams:
            if name not in known:
                raise StoreError(f"{data.path} has no stream {name!a}")
        for name in arguments.streams or known:
            try:
                copied = copy_stream(store, data.open(name))
                told = {"stream": name, "copied": copied}
                say(json.dumps(told) if arguments.json else f"{printable(name)}: {so_many(copied, 'message')} copied")
            except StoreError as problem:
                failures += 1
                if arguments.json:
                    say(json.dumps({"stream": name, "error": str(problem)}))
                print(error_line(str(problem)), file=sys.stderr)
    return 1 if failures else 0


def run_restore(arguments: argparse.Namespace) -> int:
    store = _open(arguments)
    failures = 0
    with Store(arguments.data) as data:
        for stream, _ in _streams(store, arguments):
            if (data.path / stream.place.directory).is_dir():
                failures += _mend(store, stream, data, as_json=arguments.json)
                continue
            restored = restore_stream(store, stream, data)
            if arguments.json:
                say(json.dumps({"stream": stream.name, "restored": restored, "repaired": [], "damage": []}))
            else:
                say(f"{printable(stream.name)}: {so_many(restored, 'message')} restored")
    return 1 if failures else 0


def _mend(store: ObjectStore, stream: StoredStream, data: Store, *, as_json: bool) -> int:
    """Repair a stream that exists; return how many batches were not repaired."""
    name = printable(stream.name)
    with Store(data.path, write=False) as readable:
        lines = list(mend_journal(store, stream, readable.open(stream.name)))
    left = [line for line in lines if "not repaired" in line]
    if as_json:
        repaired = [line for line in lines if line not in left]
        say(json.dumps({"stream": stream.name, "restored": 0, "repaired": repaired, "damage": left}))
        return len(left)
    for line in lines:
        say(f"{name}: {printable(line)}")
    if not lines:
        say(f"{name}: no damage")
    return len(left)
