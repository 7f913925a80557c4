"""Add thousands of small batches to an archive, with automatic compaction, and time what grows with their number.

    python -m tests.spark.lake.commits --times 10000

The steps are those of a run without Spark: the files and the state of a batch, its commit, the compaction of its day.
Ten streams get a message in each batch, and a new day begins every 1,000 batches. A line has the time of a batch with
its commit and of its compaction (means of the batches since the last line), the time to open the table and to read all
of it as a report does, and the files of the current version. Times are those of the processor: other programs on the
machine do not count.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa  # type: ignore[import-untyped]

from tests.spark.delta import DeltaReader
from tests.spark.lake.tables import SCHEMA, rows
from zambezi.spark.lake.compaction import compact
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.reading import rows_of_file, sorted_files
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import write_files

STREAMS = [f"stream-{number}" for number in range(10)]
FIRST_DAY = date(2026, 1, 1)


def add(table: LakeTable, batch: int, day: date) -> None:
    """Add a message to each stream."""
    messages = pa.concat_batches([rows(name, [batch + 1], day) for name in STREAMS])
    offsets = {name: {"sequence": batch + 1, "incarnation": "x", "begin": 0} for name in STREAMS}
    before = table.state or State(-1)
    table.append(write_files(table.place, [messages]), State(before.batch + 1, offsets, total=before.total + 10))


def report(place: Place) -> Counter[str]:
    """Open the table, and count the messages of each stream."""
    table = LakeTable(place, "")
    wanted = pa.schema([("stream", pa.string())])
    found: Counter[str] = Counter()
    for one in sorted_files(table):
        for part in rows_of_file(place, one.path, one.date, wanted):
            found.update(part.column("stream").to_pylist())
    return found


def run(times: int, each: int, root: Path) -> None:
    place = Place(str(root))
    table = LakeTable(place, "archive")
    table.create(SCHEMA)
    added = compacted = 0.0
    print(f"{'batches':>8} {'batch, ms':>10} {'compaction, ms':>15} {'report, ms':>11} {'files':>6}", flush=True)
    for batch in range(times):
        day = FIRST_DAY + timedelta(days=batch // 1000)
        began = time.process_time()
        add(table, batch, day)
        middle = time.process_time()
        compact(table, {day.isoformat()})
        added += middle - began
        compacted += time.process_time() - middle
        if (batch + 1) % each == 0:
            began = time.process_time()
            counts = report(place)
            took = time.process_time() - began
            assert counts == Counter(dict.fromkeys(STREAMS, batch + 1)), counts
            print(
                f"{batch + 1:8} {added / each * 1e3:10.1f} {compacted / each * 1e3:15.1f} {took * 1e3:11.1f} "
                f"{len(table.files()):6}",
                flush=True,
            )
            added = compacted = 0.0
    seen = DeltaReader(str(root)).sequences()
    assert seen == {name: Counter(range(1, times + 1)) for name in STREAMS}
    print("an independent reader sees each message once")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Add many batches to an archive.")
    parser.add_argument("--times", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=1000)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="zambezi-commits-") as directory:
        run(arguments.times, arguments.each, Path(directory) / "archive")
