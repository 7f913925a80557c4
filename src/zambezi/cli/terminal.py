"""Output for people: lines and tables that are safe for any terminal and its encoding."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

from rich import console
from rich.progress import TextColumn

from zambezi.cli.errors import OptionsError

WIDE: Final = 10_000  # columns of output that is not a terminal, so that tables are neither cut nor folded

_output = threading.Lock()


class Console(console.Console):
    """A console of Rich that shows every text as it is, and raises `BrokenPipeError` if its reader closes the pipe.

    Names and messages come from the network: in a name, `[bold]` or `:boom:` must not become a style or a picture.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def table_console() -> Console:
    """Return a console for tables: as wide as the terminal, or as wide as its cells if a file or a program gets it."""
    made = Console()
    return made if made.is_terminal else Console(width=max(WIDE, made.width))


def description_column() -> TextColumn:
    """Return the column of a progress bar that shows the description of the task as it is."""
    return TextColumn("{task.description}", markup=False)


def say(text: str) -> None:
    """Print one whole line, from any thread. Characters that the encoding lacks are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    with _output:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()


def confirm(question: str, refusal: Exception) -> None:
    """Ask a person for permission, and raise `refusal` without it; raise `OptionsError` if nobody can answer."""
    if not sys.stdin.isatty():
        raise OptionsError(f"{question} standard input is not a terminal, so nobody can answer; use --yes")
    print(f"{question} (yes or no) ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise refusal
