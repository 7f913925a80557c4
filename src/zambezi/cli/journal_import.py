"""`zambezi journal import`: append the messages of an exported file to a stream of a server that is stopped."""

from __future__ import annotations

import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.counts import so_many
from zambezi.cli.errors import OptionsError
from zambezi.cli.exported import read_exported
from zambezi.wire.text import printable
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.importing import import_messages
from zambezi.zeps.messages import PUBLISHER

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_PIECE: Final = 1 << 20


def add_import(commands: Subparsers) -> argparse.ArgumentParser:
    """Add the command, and return its parser."""
    parser = commands.add_parser(
        "import",
        help="append the messages of an exported file to a stream",
        description=(
            "Append the messages of FILE, which `zambezi journal export` has written, to a stream; create the stream "
            "if it does not exist. All of FILE is checked first: if a line is wrong, nothing is imported. A command "
            "that was interrupted can be repeated: it skips the messages of the same file that the stream has. The "
            "broker must not be running; `zambezi pub --json` publishes lines of JSON to a running one."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to read")
    parser.add_argument("--times", action="store_true", help="keep the times of the messages (default: now)")
    parser.add_argument(
        "--format",
        choices=("json", "zeps"),
        help="the format of the file (default: zeps if the name of FILE ends in .zeps, else json)",
    )
    parser.set_defaults(run=run_import)
    return parser


def run_import(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    is_zeps = (arguments.format or ("zeps" if path.name.endswith(".zeps") else "json")) == "zeps"
    if is_zeps and arguments.times:
        raise OptionsError("a file of the format zeps has no times: export it as json")
    if arguments.stream.startswith("$"):
        raise OptionsError(f"{printable(arguments.stream)} is a reserved name: choose one that does not begin with $")
    for _ in read_exported(path, is_zeps=is_zeps):
        pass  # an error comes before the first message is imported
    publisher = _digest_of(path)
    messages = ((one.key, one.body, one.time if arguments.times else 0) for one in read_exported(path, is_zeps=is_zeps))
    if not arguments.data.is_dir():
        raise JournalError(f"{arguments.data} does not exist; name the data directory with --data DIR")
    with Store(arguments.data) as store:
        added, skipped = import_messages(store.open(arguments.stream), messages, publisher, time.time())
    known = f"; {so_many(skipped, 'message')} skipped, imported before" if skipped else ""
    print(f"{so_many(added, 'message')} of {path} imported to {printable(arguments.stream)}{known}", file=sys.stderr)
    return 0


def _digest_of(path: Path) -> bytes:
    digest = blake2b(digest_size=PUBLISHER, person=b"zambezi-import")
    with path.open("rb") as file:
        while octets := file.read(_PIECE):
            digest.update(octets)
    return digest.digest()
