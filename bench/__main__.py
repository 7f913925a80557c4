"""All benchmarks one after the other, and one table of everything that was promised.

    python -m bench [--only zre peer ...] [--without spark ...]

Each benchmark is a program of its own (`python -m bench.zre`), prints its own tables, and can be run alone. The last
table says what holds and what does not. The table before it says how busy the machine was during each benchmark: a rate
that is too low means little if other programs used the processors, but a processor time does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.report import FILE, MISSED, Usage, environment, read_rows, table, verdicts

BENCHES: Final = (
    "zmtp",
    "peer",
    "zre",
    "zeps",
    "connections",
    "requests",
    "readers",
    "durability",
    "store",
    "multicast",
    "mcollective",
    "spark",
)
GOOD: Final = "good"


def run(name: str, rows: Path) -> list[str]:
    """Run a benchmark, and return the cells of its row: what it used, and how busy the machine was."""
    print(f"== bench/{name}.py", flush=True)
    began = Usage.now()
    status = subprocess.run([sys.executable, "-m", f"bench.{name}"], env={**os.environ, FILE: str(rows)}, check=False)
    used = Usage.now().since(began)
    ended = f"failed with status {status.returncode}" if status.returncode else GOOD
    return [name, f"{used.wall:.0f}", f"{used.processor:.0f}", f"{used.others:.1f}", ended]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=BENCHES, metavar="NAME", help="run only these")
    parser.add_argument("--without", nargs="+", choices=BENCHES, default=(), metavar="NAME", help="leave these out")
    arguments = parser.parse_args()
    began = Usage.now()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        path = Path(directory, "rows")
        path.touch()
        runs = [run(name, path) for name in BENCHES if name in arguments.only and name not in arguments.without]
        rows = read_rows(path)
    heads = ["benchmark", "seconds", "seconds of processor", "cores of other programs", "end"]
    print(f"\n== all benchmarks\n\n{environment({})}\n{Usage.now().since(began)}\n\n{table(heads, runs)}")
    print(f"\n{verdicts(rows)}")
    missed = sum(row.verdict == MISSED for row in rows)
    print(f"\n{len(rows)} bars, {missed} of them not held")
    if any(ended != GOOD for *_, ended in runs):
        sys.exit("a benchmark failed")


if __name__ == "__main__":
    main()
