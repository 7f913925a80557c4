"""Kill a program that archives, again and again, at random moments: each message is in the table once.

    python -m tests.spark.lake.kills --times 100
    python -m tests.spark.lake.kills --times 100 --weed

The program takes the steps of `zambezi pipeline run archive --follow`, without Spark: it reads a batch, writes files
and the state, commits, and merges small files. So a kill takes a second instead of a minute. `tests.spark.kills` kills
the real command.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.spark.journal import numbered, write
from tests.spark.kills import Table, command, new_table
from tests.spark.lake.archiving import archive
from zambezi.spark.lake import compaction

STREAMS = ("readings", "alarms")
PATIENCE = 120.0


def follow(data: Path, out: str, options: dict[str, str]) -> None:
    """Archive, and merge small files, for ever."""
    while True:
        compaction.compact(archive(data, out, options), most=4)


def run(times: int, seed: int, say: Callable[[str], object] = print, *, weed: bool = False) -> int:
    """Kill it so many times; how many messages there were. Raises AssertionError if one is missing or twice."""
    with new_table(weed=weed) as (place, table):
        return _run(times, random.Random(seed), say, place / "data", table)


def _run(times: int, chance: random.Random, say: Callable[[str], object], data: Path, table: Table) -> int:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    published = 0
    before: dict[str, int] = {}
    for number in range(1, times + 1):
        for _ in range(chance.randint(1, 4)):
            for name in STREAMS:
                write(data, name, numbered(20, published + 1))
            published += 20
        process = context.Process(target=follow, args=(data, table.uri, table.options))
        process.start()
        old = table.version()
        time.sleep(chance.uniform(0, 0.6))
        if chance.random() < 0.5:  # at some moment of a commit or a merge, rather than of the start
            _wait_for_commit(table, old, process.is_alive)
            time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode == -9, f"kill {number}: it ended by itself"
        found = table.seen()
        for name, sequences in found.items():
            last = max(sequences)
            assert sequences == Counter(range(1, last + 1)), f"kill {number}: {name}"
            assert last >= before.get(name, 0), f"kill {number}: {name} has shrunk"
            before[name] = last
        say(
            f"kill {number}: {sum(map(len, found.values())):,} of {2 * published:,} messages, version {table.version()}"
        )
    archive(data, table.uri, table.options)
    assert table.seen() == {name: Counter(range(1, published + 1)) for name in STREAMS}
    say(f"after {times} kills: {published:,} messages in each stream, each once")
    return published


def _wait_for_commit(table: Table, old: int, is_alive: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while table.version() <= old:
        assert is_alive(), "it ended by itself"
        assert time.monotonic() < deadline, "it does not come so far"
        time.sleep(0.01)


if __name__ == "__main__":
    command(run, __doc__, 100)
