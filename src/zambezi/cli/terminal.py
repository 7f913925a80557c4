"""What is shown to people: any text, fit for a terminal and for its encoding, one line at a time."""

from __future__ import annotations

import sys
import threading

from rich import console

_output = threading.Lock()


class Console(console.Console):
    """A console of Rich whose reader may go away: that ends a command like any other, by `BrokenPipeError`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def say(text: str) -> None:
    """Print a line, whole, from any thread; what the encoding does not have is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    with _output:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()
