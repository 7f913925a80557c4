"""`zambezi journal`: inspect the journals of a data directory, verify them, repair them, and export messages.

All commands except `repair`, `import` and `truncate` only read, and work while a broker runs.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from zambezi.cli.completion import offer
from zambezi.cli.counts import so_many
from zambezi.cli.data_directory import add_data_option, byte_progress, journals_in, nothing_in
from zambezi.cli.errors import InputError
from zambezi.cli.fitting import JSON, FittingTable
from zambezi.cli.formats import json_bytes
from zambezi.cli.journal_import import add_import
from zambezi.cli.quantity import add_since, count, sequence, start
from zambezi.cli.stream_tables import moment, size
from zambezi.cli.terminal import confirm, say, table_console
from zambezi.wire.text import as_bytes, printable
from zambezi.zeps.block import Block
from zambezi.zeps.directory import datetime_of, microseconds_of
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.journal.counts import Counts, Recount
from zambezi.zeps.journal.extract import JournalMessage, batches, messages
from zambezi.zeps.journal.positions import KINDS, Position, read_positions
from zambezi.zeps.journal.restore import restore, restore_missing
from zambezi.zeps.journal.verify import Checked, Damage, verify

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

PIECE: Final = 1 << 20  # bytes between two updates of a progress bar


def add_parser(subparsers: Subparsers) -> None:
    journal = subparsers.add_parser(
        "journal",
        description=(
            "Work with the journals of a data directory. All commands except repair, import and truncate can be used "
            "while a broker runs."
        ),
    )
    commands = journal.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_info(commands)
    _add_verify(commands)
    _add_repair(commands)
    _add_dump(commands)
    _add_export(commands)
    add_data_option(add_import(commands))
    _add_truncate(commands)


def _add_range(parser: argparse.ArgumentParser) -> None:
    add_since(parser, "earliest")
    offer(
        parser.add_argument(
            "--until",
            metavar="WHEN",
            type=start,
            default="latest",
            help="the position of the last message: earliest, latest, a sequence, an age or a time (default: latest)",
        ),
        lambda: ("earliest", "latest"),
    )
    parser.add_argument(
        "--pattern", metavar="PREFIX", default="", help="only messages whose key begins with PREFIX (default: all)"
    )


def _moment(microseconds: int, to_the_second: bool) -> str:
    """Return a time as the tables show it."""
    return moment(datetime_of(microseconds), to_the_second=to_the_second) if microseconds else "-"


def _time(microseconds: int, timespec: str = "milliseconds") -> str:
    return datetime_of(microseconds).isoformat(timespec=timespec) if microseconds else "-"


# info


def _add_info(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "info",
        help="list the streams: sequences, sizes, times, segments, readers",
        description="List the streams of a data directory. For the given streams, list their segments and named "
        "readers, too.",
    )
    parser.add_argument("streams", metavar="STREAM", nargs="*", help="the names of streams (default: all)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    add_data_option(parser)
    parser.set_defaults(run=run_info)


def run_info(arguments: argparse.Namespace) -> int:
    with Store(arguments.data, write=False) as store:
        journals = list(journals_in(store, arguments.streams))
        if arguments.json:
            for journal in journals:
                say(json.dumps(_description(journal)))
        elif not journals and not store.problems:
            say(nothing_in(store))
        else:
            console = table_console()
            is_narrow = console.is_terminal
            console.print(_stream_table(journals, store.path, is_narrow=is_narrow))
            for journal in journals if arguments.streams else []:
                console.print("", _segment_table(journal, is_narrow=is_narrow))
                if readers := _readers(journal):
                    console.print("", _reader_table(journal, readers, is_narrow=is_narrow))
        problems = [*store.problems, *[problem for journal in journals for problem in journal.problems]]
        for problem in problems:
            print(f"zambezi: {printable(problem)}", file=sys.stderr)
    return 1 if problems else 0


def _description(journal: Journal) -> dict[str, object]:
    return {
        "stream": journal.name,
        "incarnation": str(journal.incarnation),
        "first": journal.first,
        "last": journal.last,
        "messages": journal.messages,
        "octets": journal.octets,
        "first_time": journal.first_time,
        "last_time": journal.last_time,
        "publishers": _publishers(journal),
        "segments": [
            {"first": one.first, "last": one.last, "octets": one.size, "batches": one.entries}
            for one in journal.segments
        ],
        "readers": [
            {"name": one.name, "kind": KINDS.get(one.kind, "unknown"), "position": one.position, "time": one.time}
            for one in _readers(journal)
        ],
        "problems": journal.problems,
    }


def _stream_table(journals: list[Journal], path: Path, *, is_narrow: bool) -> FittingTable:
    rows = [
        (
            printable(journal.name),
            f"{journal.messages:,}",
            str(journal.first) if journal.messages else "-",
            str(journal.last) if journal.messages else "-",
            size(journal.octets),
            _moment(journal.last_time, is_narrow),
            str(len(journal.segments)),
            _moment(journal.first_time, is_narrow),
            str(journal.incarnation)[:8],
        )
        for journal in journals
    ]
    columns = ("stream", "messages", "first", "last", "size", "newest", "segments", "oldest", "incarnation")
    title = f"streams in {printable(str(path))}"
    return FittingTable(columns, {1, 2, 3, 4, 6}, rows, JSON, title=title, cut={0})


def _publishers(journal: Journal) -> int:
    """Return how many publishers the journal has counts of."""
    found = Recount(Counts(journal.policy.publishers))
    found.read(journal.segments[-1].path, journal.last)
    return len(found.counts)


def _readers(journal: Journal) -> list[Position]:
    """Return the positions of named readers and of groups."""
    found = read_positions(journal.directory).states
    return [found[key] for key in sorted(found)]


def _reader_table(journal: Journal, readers: list[Position], *, is_narrow: bool) -> FittingTable:
    rows = [
        (
            printable(one.name),
            KINDS.get(one.kind, "unknown"),
            str(one.position),
            f"{max(0, journal.last - max(one.position, journal.first - 1)):,}",
            _moment(one.time, is_narrow),
        )
        for one in readers
    ]
    columns = ("reader", "kind", "position", "behind", "changed")
    return FittingTable(columns, {2, 3}, rows, JSON, title=f"readers of {printable(journal.name)}", cut={0})


def _segment_table(journal: Journal, *, is_narrow: bool) -> FittingTable:
    rows = [
        (
            f"{Path(one.path).name}.log",
            str(one.first),
            str(one.last),
            f"{one.entries:,}",
            size(one.size),
            _moment(one.first_time, is_narrow),
            _moment(one.last_time, is_narrow),
        )
        for one in journal.segments
    ]
    columns = ("log", "first", "last", "batches", "size", "oldest", "newest")
    title = (
        f"segments of {printable(journal.name)}, incarnation {journal.incarnation}, "
        f"{so_many(_publishers(journal), 'publisher')} with counts"
    )
    return FittingTable(columns, {1, 2, 3, 4}, rows, "a pipe gets all columns", title=title)


# verify


def _add_verify(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "verify",
        help="check every byte of the journals",
        description=(
            "Check the CRC of every batch, and the order of sequences, offsets and times. The command changes nothing. "
            "The exit status is 1 if there is damage."
        ),
    )
    parser.add_argument("streams", metavar="STREAM", nargs="*", help="the names of streams (default: all)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each stream")
    add_data_option(parser)
    parser.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    damages = 0
    with Store(arguments.data, write=False) as store:
        journals = list(journals_in(store, arguments.streams))
        if not arguments.streams:
            for problem in store.problems:
                damages += 1
                say(json.dumps({"damage": [problem]}) if arguments.json else f"damage: {printable(problem)}")
            if not journals and not damages and not arguments.json:
                say(nothing_in(store))
        with byte_progress() as progress:
            task = progress.add_task("", total=sum(journal.octets for journal in journals))
            for journal in journals:
                progress.update(task, description=printable(journal.name))
                damages += _verify(journal, partial(progress.advance, task), as_json=arguments.json)
    return 1 if damages else 0


def _verify(
    journal: Journal, advance: Callable[[int], None], *, as_json: bool, repair: Sequence[str] | None = None
) -> int:
    """Check a journal, and report what was found, after the lines of a repair; return how many places are damaged."""
    batch_count = message_count = damages = done = 0
    told: dict[str, list[str]] = {"damage": [], "note": []}

    def tell(kind: str, found: object) -> None:
        if as_json:
            told[kind].append(str(found))
        else:
            say(f"{kind}: {printable(journal.name)}: {printable(str(found))}")

    for found in verify(journal):
        match found:
            case Checked(entry):
                batch_count += 1
                message_count += entry.count
                done += entry.length
                if done >= PIECE:
                    advance(done)
                    done = 0
            case Damage():
                damages += 1
                tell("damage", found)
            case _:
                tell("note", found)
    advance(done)
    if as_json:
        before = {} if repair is None else {"repair": list(repair)}
        counts = {"messages": message_count, "batches": batch_count}
        say(json.dumps({"stream": journal.name, **before, **counts, **told}))
        return damages
    verdict = f"damage in {so_many(damages, 'place')}" if damages else "no damage"
    intact = f"{so_many(message_count, 'message')} in {so_many(batch_count, 'batch', 'batches')} intact"
    say(f"{printable(journal.name)}: {intact}, {verdict}")
    return damages


# repair


def _add_repair(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "repair",
        help="restore damaged parts of a stream from a copy",
        description=(
            "Restore the damaged parts of a stream from a copy of the data directory, such as a backup. A batch is "
            "restored only if the bytes of the copy have its CRC. Without a copy, only indexes are created again. The "
            "broker must not be running. The exit status is 1 if damage is left."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument("--from", metavar="COPY", dest="copy", type=Path, help="a copy of the data directory")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_data_option(parser)
    parser.set_defaults(run=run_repair)


def run_repair(arguments: argparse.Namespace) -> int:
    if not arguments.data.is_dir():
        raise JournalError(f"{arguments.data} does not exist; name the data directory with --data DIR")
    done: list[str] = []

    def tell(lines: Iterable[str]) -> None:
        for line in lines:
            done.append(line)
            if not arguments.json:
                say(printable(line))

    with ExitStack() as stack:
        copy = None
        if arguments.copy is not None:
            (copy,) = journals_in(stack.enter_context(Store(arguments.copy, write=False)), [arguments.stream])
            with Store(arguments.data) as store:
                (journal,) = journals_in(store, [arguments.stream])
                tell(restore_missing(journal, copy))
        with Store(arguments.data) as store:
            (journal,) = journals_in(store, [arguments.stream])
            tell(journal.problems)
            tell(restore(journal, copy))
    with Store(arguments.data, write=False) as store:
        (journal,) = journals_in(store, [arguments.stream])
        return 1 if _verify(journal, lambda _: None, as_json=arguments.json, repair=done) else 0


# dump and export


def _bounds(journal: Journal, arguments: argparse.Namespace) -> tuple[int, int]:
    """Return the sequence before the first message, and the sequence of the last message."""
    now = datetime.now(UTC)
    since, until = arguments.since, arguments.until

    def time_of(when: datetime | timedelta) -> int:
        return max(0, microseconds_of(now - when if isinstance(when, timedelta) else when))

    match since:
        case "earliest":
            after = journal.first - 1
        case "latest":
            after = journal.last
        case int():
            after = since
        case _:
            after = journal.before(time_of(since))
    match until:
        case "earliest":
            last = journal.first
        case "latest":
            last = journal.last
        case int():
            last = until
        case _:
            last = journal.before(time_of(until) + 1)
    return max(after, journal.first - 1), min(last, journal.last)


def _as_json(message: JournalMessage) -> bytes:
    head = {"sequence": message.sequence, "time": _time(message.time, "microseconds")}
    return json.dumps({**head, **json_bytes("key", message.key), **json_bytes("body", message.body)}).encode() + b"\n"


def _as_raw(message: JournalMessage) -> bytes:
    return message.body + b"\n"


def _as_hex(message: JournalMessage) -> bytes:
    return message.body.hex().encode() + b"\n"


def _as_text(message: JournalMessage) -> bytes:
    line = f"{message.sequence} {_time(message.time)} {printable(message.key)} {printable(message.body)}\n"
    return line.encode(sys.stdout.encoding or "utf-8", "backslashreplace")


DUMPS: Final = {"text": _as_text, "json": _as_json, "raw": _as_raw, "hex": _as_hex}


def _add_dump(commands: Subparsers) -> None:
    parser = commands.add_parser("dump", help="print messages", description="Print the messages of a stream.")
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    _add_range(parser)
    parser.add_argument("--count", metavar="N", type=count, default=0, help="stop after this number of messages")
    parser.add_argument(
        "--format",
        choices=sorted(DUMPS),
        default="text",
        help="the format of each line: sequence, time, key and body (text), a JSON object (json), only the body (raw), "
        "or only the body in hexadecimal (hex) (default: text)",
    )
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    add_data_option(parser)
    parser.set_defaults(run=run_dump)


def run_dump(arguments: argparse.Namespace) -> int:
    form = DUMPS[arguments.format]
    with Store(arguments.data, write=False) as store:
        (journal,) = journals_in(store, [arguments.stream])
        after, last = _bounds(journal, arguments)
        prefix = as_bytes(arguments.pattern)
        for number, message in enumerate(messages(journal, after, last, prefix), 1):
            sys.stdout.buffer.write(form(message))
            if number == arguments.count:
                break
        sys.stdout.buffer.flush()
    return 0


def _add_export(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "export",
        help="write messages to a file",
        description=(
            "Write the messages of a stream to a file: as lines of JSON (json), or as the bytes that a subscriber "
            "gets, DELIVER messages with their ZMTP frame headers one after another (zeps)."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument("out", metavar="FILE", help="the file to write, or - for standard output")
    _add_range(parser)
    parser.add_argument(
        "--format",
        choices=("json", "zeps"),
        help="the format of the file (default: zeps if the name of FILE ends in .zeps, else json)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_data_option(parser)
    parser.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> int:
    is_zeps = (arguments.format or ("zeps" if arguments.out.endswith(".zeps") else "json")) == "zeps"
    with Store(arguments.data, write=False) as store:
        (journal,) = journals_in(store, [arguments.stream])
        after, last = _bounds(journal, arguments)
        prefix = as_bytes(arguments.pattern)
        with _output(arguments.out, arguments.force) as out, byte_progress() as progress:
            task = progress.add_task(printable(journal.name), total=_size(journal, after, last))
            advance = partial(progress.advance, task)
            if is_zeps and not prefix:
                written = _export_batches(journal, after, last, out, advance)
            else:
                form = _as_zeps if is_zeps else _as_json
                written = 0
                for message in messages(journal, after, last, prefix, advance):
                    out.write(form(message))
                    written += 1
            out.flush()
    where = "" if arguments.out == "-" else f" to {arguments.out}"
    print(f"{so_many(written, 'message')} of {printable(journal.name)} written{where}", file=sys.stderr)
    return 0


def _as_zeps(message: JournalMessage) -> bytes:
    return message.octets


def _size(journal: Journal, after: int, last: int) -> int | None:
    """Return the size of a range in bytes, or None for a part of the journal, whose size is slow to compute."""
    return journal.octets if (after, last) == (journal.first - 1, journal.last) else None


def _export_batches(journal: Journal, after: int, last: int, out: BinaryIO, advance: Callable[[int], None]) -> int:
    """Copy whole batches without parsing them, except for the first and the last; return the number of messages."""
    written = 0
    for entry, data in batches(journal, after, last, advance):
        if after < entry.first and entry.last <= last:
            out.write(data)
            written += entry.count
        else:
            block = Block(entry.first, entry.last, entry.count, data, entry.credit)
            skipped, wanted = bisect_right(block.sequences, after), bisect_right(block.sequences, last)
            out.write(data[block.starts[skipped] : block.starts[wanted]])
            written += wanted - skipped
    return written


@contextmanager
def _output(name: str, force: bool) -> Iterator[BinaryIO]:
    """Open a new file, which gets its name only when it is complete: a failed export leaves no file behind."""
    if name == "-":
        yield sys.stdout.buffer
        return
    path = Path(name)
    if path.exists() and not force:
        raise InputError(f"{path} exists already; use --force to replace it")
    fresh = path.with_name(f".{path.name}.part")
    try:
        with fresh.open("wb") as out:
            yield out
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


# truncate


def _add_truncate(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "truncate",
        help="remove the last messages of a stream",
        description=(
            "Remove all messages of a stream after a sequence, permanently. The stream gets a new incarnation, so "
            "clients learn that it is not the stream that they knew. The broker must not be running."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument("--after", metavar="N", type=sequence, required=True, help="the last sequence to keep")
    parser.add_argument("--yes", action="store_true", help="remove the messages without asking")
    add_data_option(parser)
    parser.set_defaults(run=run_truncate)


def run_truncate(arguments: argparse.Namespace) -> int:
    if not arguments.data.is_dir():
        raise JournalError(f"{arguments.data} does not exist; name the data directory with --data DIR")
    with Store(arguments.data) as store:
        (journal,) = journals_in(store, [arguments.stream])
        name, after = printable(journal.name), arguments.after
        doomed = journal.last - after
        if doomed == 0:
            say(f"{name} already ends with sequence {after}: nothing to do")
            return 0
        if journal.first - 1 <= after < journal.last and not arguments.yes:
            confirm(
                f"remove {so_many(doomed, 'message')} of {name}, {after + 1} to {journal.last}, permanently?",
                JournalError("nothing was removed"),
            )
        journal.truncate(after)
        end = f"it ends with sequence {journal.last}, incarnation {journal.incarnation}"
        say(f"{name}: {so_many(doomed, 'message')} removed; {end}")
    return 0
