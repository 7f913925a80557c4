"""Generate the blocking modules of all packages from the asyncio modules: `make generate`.

The two modules of a package have the same names and the same text. They differ by `await`, and by the waiter that they
use (`zambezi.zmtp.async_waiter` or `zambezi.zmtp.thread_waiter`). So only the asyncio module is written by hand. A test
fails if a generated file is out of date.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent.parent / "src" / "zambezi"
PACKAGES: Final = ("zmtp", "p2p", "zre", "zeps", "zeps/administration", "zeps/mirror", "zeps/requests", "mcollective")
HEAD: Final = "# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.\n"

_OTHER: Final = {"asyncio": "sync", "sync": "asyncio"}

# Applied in this order to the whole text; ^ and $ match the ends of a line.
SUBSTITUTIONS: Final[list[tuple[str, str | Callable[[re.Match[str]], str]]]] = [
    # Examples: a call of `asyncio.run` becomes a plain call.
    (r"^>>> import asyncio\n", ""),
    (r"^>>> import asyncio, ", ">>> import "),
    (r"asyncio\.run\((.*)\)$", r"\1"),
    # The language.
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bAsync(Iterator|Iterable|ExitStack)\b", r"\1"),
    (r"\bAwaitableEndpoint\b", "Endpoint"),
    (r"^( +)for (\w+) in (\w+):\n +yield \2$", r"\1yield from \3"),
    # The waiter, and the names of the two modules.
    (r"\basync_waiter\b", "thread_waiter"),
    (r"\bzambezi\.([\w.]+)\.(asyncio|sync)\b", lambda match: f"zambezi.{match[1]}.{_OTHER[match[2]]}"),
    # Sentences that are true for one of the modules only.
    (r"\bfor asyncio\b", "for threads, in calls that block"),
    (r"Use it in the event loop that it was made in\.", "Any thread may use it at any time."),
    (r"A call that is cancelled, or times out,", "A call that times out"),
    (r"`async with`", "`with`"),
]


def generate(text: str) -> str:
    """Return the text of a blocking module for the text of an asyncio module."""
    for pattern, replacement in SUBSTITUTIONS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return _formatted(HEAD + text)


def _formatted(text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    name = ["--stdin-filename", str(SOURCE / "zmtp" / "sync.py"), "-"]
    for command in (["check", "--quiet", "--fix-only", "--select", "I,F401", *name], ["format", "--quiet", *name]):
        done = subprocess.run([ruff, *command], input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def main() -> None:
    """Write all blocking modules."""
    for package in PACKAGES:
        written = SOURCE / package / "sync.py"
        written.write_text(generate((SOURCE / package / "asyncio.py").read_text()))


if __name__ == "__main__":
    main()
