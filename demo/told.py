"""The output of the demo."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time

_BEGAN = time.monotonic() - float(os.environ.get("DEMO_SECONDS", "0"))  # a process of the demo goes on counting


def elapsed() -> float:
    """Return the seconds since the demo began."""
    return time.monotonic() - _BEGAN


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    line = f"  {elapsed():5.1f} s  {text}"
    if sys.stdout.isatty():
        line = textwrap.fill(line, shutil.get_terminal_size().columns, subsequent_indent=" " * 11)
    print(line, flush=True)
