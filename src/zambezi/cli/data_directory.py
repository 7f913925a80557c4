"""The data directory of commands that read journals: its option, its streams, and the progress of long work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from zambezi.cli.terminal import Console, description_column
from zambezi.wire.text import printable
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.journal.identity import DamagedIdentity

if TYPE_CHECKING:
    import argparse

DATA: Final = "zambezi-data"


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add --data: the directory of the journals."""
    parser.add_argument(
        "--data", metavar="DIR", type=Path, default=Path(DATA), help=f"the directory of the journals (default: {DATA})"
    )


def journals_in(store: Store, names: list[str]) -> Iterator[Journal]:
    """Yield the journals of the streams with these names, or of all streams."""
    known = store.names()
    for name in names:
        if name not in known:
            raise JournalError(_missing(store, name, known))
    for name in names or known:
        try:
            yield store.open(name)
        except DamagedIdentity:
            if names:
                raise  # otherwise the store reports it among its problems


def _missing(store: Store, name: str, known: list[str]) -> str:
    names = ", ".join(printable(one) for one in known[:10]) + (", ..." if len(known) > 10 else "")
    return f"{store.path} has no stream {printable(name)!r}; it has {names}" if known else nothing_in(store)


def nothing_in(store: Store) -> str:
    """Return the sentence about a directory without streams."""
    return f"{store.path} has no streams; if it is not the data directory, name that with --data DIR"


def byte_progress() -> Progress:
    """Return a progress bar, which is shown only if standard error is a terminal."""
    columns = (description_column(), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=sys.stdout.isatty(),  # print lines above the bar if both are on the same screen
    )
