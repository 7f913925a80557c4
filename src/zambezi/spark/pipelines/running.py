"""The execution of pipelines: from a source through a pipeline to its table.

There are three kinds of runs:

- `once`: a batch query over all messages, or a range. The table is replaced.
- `catch_up`: a streaming query over the messages since the last run.
- `follow`: the same, and it continues until it is stopped.

The last two go on from the state of the table. A run that was killed is continued where it was, and each message counts
once: `zambezi.spark.lake.table` says how. Spark's own checkpoint is in a temporary directory of the driver, for as long
as the run lasts: the table knows how far the streams are read.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql

from zambezi.spark.errors import SparkError
from zambezi.spark.lake.compaction import KEEP_HOURS, compact, is_vacuum_due
from zambezi.spark.lake.frames import arrow_schema, struct, table_frame, write_frame
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import AddedFile
from zambezi.spark.options import parse_time
from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings
from zambezi.spark.pipelines.results import Result
from zambezi.spark.pipelines.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_STREAM_OPTIONS: Final = frozenset({"stream", "streams", "streamPattern"})
_START_OPTIONS: Final = frozenset({"startingSequence", "startingTimestamp"})
_END_OPTIONS: Final = frozenset({"endingSequence", "endingTimestamp"})
_RETAINED: Final = "spark.sql.streaming.minBatchesToRetain"
PLANNED: Final = 5.0  # seconds between the planning of a batch and the call with its rows, at most
_OUR_ERROR: Final = re.compile(r"^(?:[\w.]+: )?zambezi\.[\w.]+\.\w+: (.+)$", re.MULTILINE)


class PipelineError(SparkError):
    """A pipeline that cannot run, or failed. The text says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run."""

    batch: int = -1  # the last finished batch
    rows: int = 0  # messages that this run has read
    rate: float = 0.0  # messages per second of the last batch
    late: int = 0  # messages of this run that were before the watermark
    total: int = 0  # messages in the table
    watermark: int = 0  # microseconds since 1970
    tasks: int = 0
    tasks_done: int = 0
    seconds: float = 0.0


class Run:
    """A run of one pipeline, from one source to one table."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        out: str,
        options: Mapping[str, str],
        settings: Settings | None = None,
        clock: Callable[[], float] = time.monotonic,
        store_options: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a run. `options` are those of the source, `store_options` those of the object store of `out`."""
        self.spark = spark
        self.pipeline = pipeline
        self.settings = settings or Settings()
        self.options = dict(options)
        if not _STREAM_OPTIONS & self.options.keys():
            self.options |= pipeline.streams
        root = f"{out.rstrip('/')}/{pipeline.table}" if pipeline.table else out
        self.place = Place(root, store_options)
        self._lake: LakeTable | None = None
        self._clock = clock
        self._began = clock()
        self._progress = Progress()
        self._query: StreamingQuery | None = None
        self._checkpoint: Path | None = None  # of the query that runs
        self._failure: Exception | None = None  # of a batch: Spark cuts off the cause
        self._cached_frames: list[DataFrame] = []
        self._read_up_to = 0.0

    @property
    def lake(self) -> LakeTable:
        """The table as this run knows it."""
        if self._lake is None:
            self._lake = LakeTable(self.place, self.pipeline.name)
        return self._lake

    # The three kinds of runs

    def once(self) -> Progress:
        """Process all messages as a batch, and replace the table."""
        self._lake = None
        if self.lake.exists and not self.lake.is_replaced:
            raise TableError(
                f"{self.place} grows with a streaming query: continue that (--incremental, --follow), or choose "
                "another directory"
            )
        self._set_read_up_to(time.time())
        messages = self.spark.read.format("zeps").options(**self.options).load()
        with plain_errors():
            self._replace(self.pipeline.prepare(messages, self.settings))
        return self.progress()

    def catch_up(self) -> Progress:
        """Process the messages since the last run."""
        query = self.start(follow=False)
        self.wait(query)
        return self.progress()

    def start(self, *, follow: bool, every: float = 0.0) -> StreamingQuery:
        """Start the query. `every` is the time between batches in seconds; with 0, each batch starts at once."""
        self._lake = self._failure = None
        if self.lake.is_replaced:
            raise TableError(
                f"{self.place} was written by a run over all messages: choose another directory, or remove this one to "
                "start again"
            )
        options = self._positions()
        self._set_read_up_to(time.time())
        messages = self.spark.readStream.format("zeps").options(**options).load()
        self._checkpoint = Path(tempfile.mkdtemp(prefix="zambezi-checkpoint-"))
        writer = (
            self.pipeline.prepare(messages, self.settings)
            .writeStream.queryName(f"{self.pipeline.name}")
            .option("checkpointLocation", self._checkpoint.as_uri())
            .foreachBatch(self._process_batch)
        )
        writer = writer.trigger(processingTime=f"{every} seconds") if follow else writer.trigger(availableNow=True)
        retained = self.spark.conf.get(_RETAINED)
        try:
            self.spark.conf.set(_RETAINED, "2")  # the positions of many streams are large
            with plain_errors():
                self._query = writer.start()
        except BaseException:
            self._end()
            raise
        finally:
            self.spark.conf.set(_RETAINED, str(retained))
        return self._query

    def _positions(self) -> dict[str, str]:
        """Return the options of the source, which begin where the table ends."""
        state = self.lake.state
        if state is None:
            starts = {} if _START_OPTIONS & self.options.keys() else {"startingSequence": "earliest"}
            return starts | self.options
        if _START_OPTIONS & self.options.keys():
            raise PipelineError(
                f"{self.place} is continued where its last run ended, so a start time (--since) would be "
                "ignored: leave it out, or choose another directory"
            )
        return self.options | {"startingOffsets": json.dumps(state.offsets)}

    def wait(self, query: StreamingQuery, timeout: float | None = None) -> bool:
        """Wait until a query ends, or for `timeout` seconds. Return whether it has ended. Raise its error."""
        try:
            with plain_errors():
                if timeout is None:
                    query.awaitTermination()
                    return True
                return bool(query.awaitTermination(timeout))  # type: ignore[arg-type] # it accepts fractions of seconds
        except PipelineError:
            if self._failure is None:
                raise
            raise PipelineError(plain_message(self._failure)) from self._failure
        finally:
            if not query.isActive:
                self._end()

    def stop(self) -> None:
        """Stop the query. The next run repeats a batch that was not finished."""
        if self._query is not None:
            self._query.stop()
        self._end()

    def _end(self) -> None:
        if self._checkpoint is not None:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            self._checkpoint = None

    # One batch

    def _set_read_up_to(self, now: float) -> None:
        """Note that this run reads all messages journalled up to now, unless the options end before."""
        if not _END_OPTIONS & self.options.keys():
            self._read_up_to = now
        elif "endingTimestamp" in self.options:
            with suppress(ValueError):  # each stream has its own
                self._read_up_to = min(now, parse_time(self.options["endingTimestamp"]) / 1e6)

    def _process_batch(self, events: DataFrame, batch: int) -> None:
        try:
            self._add_batch(events, batch)
        except Exception as error:
            self._failure = error
            raise

    def _add_batch(self, events: DataFrame, batch: int) -> None:
        self._set_read_up_to(time.time() - PLANNED)
        last = self.lake.state
        if last is not None and self.pipeline.windowed and last.window != self.settings.window:
            raise TableError(
                f"{self.place} has windows of {last.window:g} s, which cannot be combined with windows of "
                f"{self.settings.window:g} s: use the same length, or choose another directory"
            )
        last = last or State(-1, vacuumed=round(time.time() * 1e6))
        if is_vacuum_due(last.vacuumed):
            self.lake.vacuum(KEEP_HOURS)
            last = replace(last, vacuumed=round(time.time() * 1e6))
        added = self._append(events, self._end_of(batch), last)
        compact(self.lake, {one.date for one in added})

    def _end_of(self, batch: int) -> dict[str, Any]:
        """Return the positions in the streams after a batch, from the log that Spark writes before the batch."""
        assert self._checkpoint is not None
        _, _, offsets = (self._checkpoint / "offsets" / str(batch)).read_text().strip().split("\n")
        found: dict[str, Any] = json.loads(offsets)
        return found

    def _append(self, events: DataFrame, offsets: dict[str, Any], before: State) -> list[AddedFile]:
        began = self._clock()
        self.lake.create(arrow_schema(self.pipeline.schema))
        added, counts = self._write(events, before.watermark)
        new_watermark = int(counts["newest"] or 0) - round(self.settings.delay * 1e6)
        state = replace(
            before,
            batch=before.batch + 1,
            offsets=offsets,
            rows=int(counts["rows"]),
            late=int(counts["late"]),
            files=len(added),
            octets=sum(one.size for one in added),
            watermark=max(before.watermark, new_watermark, 0),
            total=int(counts["rows"]) + before.total,
            window=self.settings.window,
            pattern=self.options.get("pattern", ""),
        )
        self.lake.append(added, state)
        self._update_progress(state, self._clock() - began)
        return added

    def _replace(self, events: DataFrame) -> None:
        began = self._clock()
        self.lake.create(arrow_schema(self.pipeline.schema), replaced=True)
        added, counts = self._write(events, 0)
        self.lake.replace(added)
        rows = int(counts["rows"])
        watermark = max(0, int(counts["newest"] or 0) - round(self.settings.delay * 1e6))
        batch = self._progress.batch + 1
        self._update_progress(State(batch, rows=rows, watermark=watermark, total=rows), self._clock() - began)

    def _write(self, events: DataFrame, watermark: int) -> tuple[list[AddedFile], dict[str, Any]]:
        """Write the rows of a batch to files. Return them, and counts: all events, late ones, the newest time."""
        time_of = sql.unix_micros(self.pipeline.time)
        observation = Observation()
        counted = events.observe(
            observation,
            sql.count(sql.lit(1)).alias("rows"),
            sql.count(sql.when(time_of < watermark, 1)).alias("late"),
            sql.max(time_of).alias("newest"),
        )
        schema = struct(self.pipeline.schema)
        rows = self.pipeline.reduce(counted, self.settings)
        added = write_frame(rows.select(*(sql.col(one.name).cast(one.dataType) for one in schema)), self.place)
        # If there are no rows at all, Spark may skip the observation.
        return added, observation.get if added else {"rows": 0, "late": 0, "newest": 0}

    def _update_progress(self, done: State, took: float) -> None:
        before = self._progress
        self._progress = replace(
            before,
            batch=done.batch,
            rows=before.rows + done.rows,
            rate=done.rows / max(took, 1e-6),
            late=before.late + done.late,
            total=done.total,
            watermark=done.watermark,
        )

    # Progress and results

    def progress(self) -> Progress:
        """Return the progress, including the tasks that Spark is running now."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        active = [stage for stage in stages if stage is not None]
        return replace(
            self._progress,
            tasks=sum(stage.numTasks for stage in active),
            tasks_done=sum(stage.numCompletedTasks for stage in active),
            seconds=self._clock() - self._began,
        )

    def table(self) -> DataFrame:
        """Return the table in its present state: the columns that reports need."""
        return table_frame(self.spark, self.place, self.pipeline.schema, self.pipeline.reported)

    def reports(self) -> Sequence[Report]:
        """Return the reports on the present table. Tables that they share are cached until `release()`."""
        self.release()
        return self.pipeline.reports(self._cache(self.table()), self._settings_of_run(), self._cache)

    def judge(self, results: Sequence[Result]) -> Verdict:
        """Return the verdict on computed reports."""
        return self.pipeline.judge({one.name: one.found for one in results}, self._settings_of_run())

    def _settings_of_run(self) -> Settings:
        is_partial = self.settings.is_partial or bool(self.options.get("pattern"))
        return replace(self.settings, read_up_to=self._read_up_to, is_partial=is_partial)

    def _cache(self, frame: DataFrame) -> DataFrame:
        cached = frame.persist()
        self._cached_frames.append(cached)
        return cached

    def release(self) -> None:
        """Free the tables that reports share."""
        while self._cached_frames:
            self._cached_frames.pop().unpersist()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of Spark as PipelineError with only their message, without the traces of Python and Java."""
    try:
        yield
    except (PySparkException, StreamingQueryException) as error:
        raise PipelineError(plain_message(error)) from error


def plain_message(error: BaseException) -> str:
    """Return the message of a Spark error without its traces; that of one of our own errors if it is the cause.

    >>> plain_message(ValueError("Traceback ...\\nzambezi.spark.errors.NoSuchStream: there is no stream 'x'\\n"))
    "there is no stream 'x'"
    >>> plain_message(ValueError("something else\\nat org.apache"))
    'something else'
    """
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
