"""The batches of a run: each becomes files and one commit of the table.

Spark calls `Batches` with each batch of a streaming query: in the process of the program, or under Spark Connect in a
process on the server. So the object can be pickled, and all that a program must know of a batch is in the table.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql

from zambezi.spark.lake.compaction import KEEP_HOURS, compact, is_vacuum_due
from zambezi.spark.lake.frames import added_files, arrow_schema, struct, write_frame
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.sums import add_up
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import AddedFile
from zambezi.spark.options import parse_time
from zambezi.spark.pipelines.checkpoints import claim, remove_unused
from zambezi.spark.pipelines.pipeline import Pipeline, Settings

ADDING: Final = 60.0  # seconds between two times at which partial sums are added up, at least
PLANNED: Final = 5.0  # seconds between the planning of a batch and the call with its rows, at most


@dataclass(frozen=True, slots=True)
class Counts:
    """The events of a batch: all, those before the watermark, and the newest time in microseconds since 1970."""

    rows: int = 0
    late: int = 0  # 0 where no window depends on it
    newest: int = 0


@dataclass
class Batches:
    """A function that adds a batch to the table of a pipeline."""

    pipeline: Pipeline
    settings: Settings
    place: Place
    pattern: str  # of the keys, if only some messages are read
    checkpoint: Path  # of the query
    is_open: bool = True  # whether all messages are read, up to the present
    clock: Callable[[], float] = time.monotonic
    table: LakeTable | None = None
    lock: int | None = None  # of the checkpoint
    dates: set[str] = field(default_factory=set)  # of the rows that are not added up
    due: float = -math.inf  # the next time to add up
    failure: Exception | None = None  # of the last batch: Spark cuts off the cause

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"table": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin to work in the process of a server of Spark Connect, which ends with the query."""
        self.__dict__ |= state
        self.claim()

    def claim(self) -> None:
        """Lock the checkpoint for this process, and remove those of processes that have ended."""
        self.lock = claim(self.checkpoint)
        remove_unused(self.checkpoint)

    def end(self) -> None:
        """Remove the checkpoint, if it is on this machine."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    @property
    def lake(self) -> LakeTable:
        """The table as this process knows it."""
        if self.table is None:
            self.table = LakeTable(self.place, self.pipeline.name)
        return self.table

    def __call__(self, events: DataFrame, batch: int) -> None:
        """Add a batch, merge small files, and remove old ones if a day has passed."""
        try:
            added = self._append(events, self._end_of(batch))
            self._tidy({one.date for one in added})
        except Exception as error:
            self.failure = error
            raise

    def _tidy(self, dates: set[str]) -> None:
        """Merge small files; add up partial sums, but not so often that it takes a tenth of the time."""
        self.dates |= dates
        began = self.clock()
        if not self.pipeline.sums or began < self.due:
            compact(self.lake, dates)
            return
        add_up(self.lake, self.pipeline.sums, self.dates)
        self.dates.clear()
        now = self.clock()
        self.due = now + max(ADDING, 10 * (now - began))

    def _end_of(self, batch: int) -> dict[str, Any]:
        """Return the positions in the streams after a batch, from the log that Spark writes before the batch."""
        _, _, offsets = (self.checkpoint / "offsets" / str(batch)).read_text().strip().split("\n")
        found: dict[str, Any] = json.loads(offsets)
        return found

    def _append(self, events: DataFrame, offsets: dict[str, Any]) -> list[AddedFile]:
        began = self.clock()
        read_up_to = time.time() - PLANNED if self.is_open else 0.0
        before = self._vacuumed(self.lake.state or State(-1, vacuumed=round(time.time() * 1e6)))
        self.lake.create(arrow_schema(self.pipeline.schema))
        added, counts = self._write(events, before.watermark)
        new_watermark = counts.newest - round(self.settings.delay * 1e6)
        state = replace(
            before,
            batch=before.batch + 1,
            offsets=offsets,
            rows=counts.rows,
            late=counts.late,
            files=len(added),
            octets=sum(one.size for one in added),
            watermark=max(before.watermark, new_watermark, 0),
            total=counts.rows + before.total,
            read_up_to=read_up_to,
            total_late=counts.late + before.total_late,
            seconds=round(self.clock() - began, 6),
            fixed=self.pipeline.fixed_settings(self.settings),
            pattern=self.pattern,
        )
        self.lake.append(added, state)
        return added

    def _vacuumed(self, last: State) -> State:
        if not is_vacuum_due(last.vacuumed):
            return last
        self.lake.vacuum(KEEP_HOURS)
        return replace(last, vacuumed=round(time.time() * 1e6))

    def replace_all(self, events: DataFrame) -> State:
        """Replace the table by the rows of all events."""
        began = self.clock()
        self.lake.create(arrow_schema(self.pipeline.schema), replaced=True)
        added, counts = self._write(events, 0)
        self.lake.replace(added)
        rows = counts.rows
        watermark = max(0, counts.newest - round(self.settings.delay * 1e6))
        return State(0, rows=rows, watermark=watermark, total=rows, seconds=self.clock() - began)

    def _write(self, events: DataFrame, watermark: int) -> tuple[list[AddedFile], Counts]:
        """Write the rows of a batch to files. Return them, and what was counted."""
        if self.pipeline.reduce is None:
            added = added_files(events)
            return added, Counts(sum(one.rows for one in added), newest=newest_of(added, self.pipeline.time))
        time_of = sql.unix_micros(self.pipeline.time)
        observation = Observation()
        counted = events.observe(
            observation,
            sql.count(sql.lit(1)).alias("rows"),
            sql.count(sql.when(time_of < watermark, 1)).alias("late"),
            sql.coalesce(sql.max(time_of), sql.lit(0)).alias("newest"),
        )
        schema = struct(self.pipeline.schema)
        rows = self.pipeline.reduce(counted, self.settings)
        added = write_frame(rows.select(*(sql.col(one.name).cast(one.dataType) for one in schema)), self.place)
        # If there are no rows at all, Spark may skip the observation.
        return added, Counts(**observation.get) if added else Counts()


def newest_of(files: Sequence[AddedFile], column: str) -> int:
    """Return the highest time in a column of new files, in microseconds since 1970; 0 if there is none."""
    highest = [json.loads(one.stats)["maxValues"][column] for one in files]
    return max(map(parse_time, highest), default=0)
