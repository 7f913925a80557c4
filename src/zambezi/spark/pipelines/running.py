"""The execution of pipelines: from a source through a pipeline to its table.

There are three kinds of runs:

- `once`: a batch query over all messages, or a range. The table is replaced.
- `catch_up`: a streaming query over the messages since the last run.
- `follow`: the same, and it continues until it is stopped.

The last two go on from the state of the table. A run that was killed is continued where it was, and each message counts
once: `zambezi.spark.lake.table` says how. Spark's own checkpoint is in a temporary directory of the driver, for as long
as the run lasts: the table knows how far the streams are read.

Under Spark Connect, the driver is another program, perhaps on another machine, which runs `Batches` in a process of its
own. So this module learns from the table what became of a batch.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.utils import is_remote

from zambezi.spark.archive_writer import ARCHIVING, ArchivingDataSource
from zambezi.spark.errors import SparkError
from zambezi.spark.lake.frames import table_frame
from zambezi.spark.lake.problems import TableError
from zambezi.spark.lake.source import table_options
from zambezi.spark.lake.sums import add_up
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.options import parse_time
from zambezi.spark.pipelines.batches import Batches
from zambezi.spark.pipelines.checkpoints import new_checkpoint
from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings
from zambezi.spark.pipelines.results import Result
from zambezi.spark.pipelines.verdict import Verdict
from zambezi.spark.quiet import unlogged
from zambezi.spark.report.page import Figure
from zambezi.spark.sessions import add_format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

Reader = TypeVar("Reader", "DataFrameReader", "DataStreamReader")

_STREAM_OPTIONS: Final = frozenset({"stream", "streams", "streamPattern"})
_START_OPTIONS: Final = frozenset({"startingSequence", "startingTimestamp"})
_END_OPTIONS: Final = frozenset({"endingSequence", "endingTimestamp"})
_RETAINED: Final = "spark.sql.streaming.minBatchesToRetain"
_LOOKS: Final = 1.0  # seconds between two looks at a table that another process writes
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$", re.MULTILINE)
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
        self.place = pipeline.place(out, store_options)
        self._clock = clock
        self._began = clock()
        self._batches = self._new_batches()
        self._before = State(-1)  # the state of the table before this run
        self._replaced: State | None = None  # the result of `once`
        self._looked = -math.inf
        self._query: StreamingQuery | None = None
        self._cached_frames: list[DataFrame] = []
        self._shared: DataFrame | None = None  # the table while it is cached
        self._read_up_to = 0.0
        self._reported = self.settings  # of the last reports

    @property
    def lake(self) -> LakeTable:
        """The table as this run knows it."""
        return self._batches.lake

    def _new_batches(self) -> Batches:
        is_open = not _END_OPTIONS & self.options.keys()
        pattern = self.options.get("pattern", "")
        return Batches(self.pipeline, self.settings, self.place, pattern, new_checkpoint(), is_open, self._clock)

    # The three kinds of runs

    def once(self) -> Progress:
        """Process all messages as a batch, and replace the table."""
        self._batches = self._new_batches()
        check_table(self.lake, self.pipeline, self.options, self.settings, grows=False)
        self._set_read_up_to(time.time())
        messages = self._source(self.spark.read, self.options).load()
        with plain_errors():
            self._replaced = self._batches.replace_all(self.pipeline.prepare(messages, self.settings))
        return self.progress()

    def catch_up(self) -> Progress:
        """Process the messages since the last run."""
        query = self.start(follow=False)
        self.wait(query)
        self.add_up()
        return self.progress()

    def start(self, *, follow: bool, every: float = 0.0) -> StreamingQuery:
        """Start the query. `every` is the time between batches in seconds; with 0, each batch starts at once."""
        self._batches = self._new_batches()
        check_table(self.lake, self.pipeline, self.options, self.settings, grows=True)
        self._before = self.lake.state or State(-1)
        options = self._positions()
        self._set_read_up_to(time.time())
        messages = self._source(self.spark.readStream, options).load()
        writer = (
            self.pipeline.prepare(messages, self.settings)
            .writeStream.queryName(f"{self.pipeline.name}")
            .option("checkpointLocation", self._batches.checkpoint.as_uri())
            .foreachBatch(self._batches)
        )
        writer = writer.trigger(processingTime=f"{every} seconds") if follow else writer.trigger(availableNow=True)
        retained = self.spark.conf.get(_RETAINED)
        try:
            if not is_remote():  # otherwise the checkpoint is on the machine of the server
                self._batches.claim()
            self.spark.conf.set(_RETAINED, "2")  # the positions of many streams are large
            with plain_errors():
                self._query = writer.start()
        except BaseException:
            self._batches.end()
            raise
        finally:
            self.spark.conf.set(_RETAINED, str(retained))
        return self._query

    def _source(self, reader: Reader, options: Mapping[str, str]) -> Reader:
        """Return a reader of messages; if the table has messages as they are, one that writes them."""
        if self.pipeline.reduce is not None:
            return reader.format("zeps").options(**options)
        add_format(self.spark, ArchivingDataSource)
        return reader.format(ARCHIVING).options(**options, **table_options(self.place))

    def _positions(self) -> dict[str, str]:
        """Return the options of the source, which begin where the table ends."""
        state = self.lake.state
        if state is None:
            starts = {} if _START_OPTIONS & self.options.keys() else {"startingSequence": "earliest"}
            return starts | self.options
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
            failure = self._batches.failure
            if failure is None:
                raise
            raise PipelineError(plain_message(failure)) from failure
        finally:
            if not query.isActive:
                self._batches.end()

    def stop(self) -> None:
        """Stop the query. The next run repeats a batch that was not finished."""
        if self._query is not None:
            self._query.stop()
        self._batches.end()

    def add_up(self) -> None:
        """Add up the partial sums of the table, so that each window and key has one row."""
        if self.pipeline.sums and self.lake.exists:
            self.lake.refresh()
            add_up(self.lake, self.pipeline.sums, self._batches.dates)

    def _set_read_up_to(self, now: float) -> None:
        """Note that this run reads all messages journalled up to now, unless the options end before."""
        if not _END_OPTIONS & self.options.keys():
            self._read_up_to = now
        elif "endingTimestamp" in self.options:
            with suppress(ValueError):  # each stream has its own
                self._read_up_to = min(now, parse_time(self.options["endingTimestamp"]) / 1e6)

    # Progress and results

    def progress(self) -> Progress:
        """Return the progress, including the tasks that Spark is running now."""
        tasks, tasks_done = _running_tasks(self.spark)
        before, state = self._before, self._state()
        return Progress(
            batch=state.batch,
            rows=state.total - before.total,
            rate=state.rows / max(state.seconds, 1e-6) if state.batch != before.batch else 0.0,
            late=state.total_late - before.total_late,
            total=state.total,
            watermark=state.watermark,
            tasks=tasks,
            tasks_done=tasks_done,
            seconds=self._clock() - self._began,
        )

    def _state(self) -> State:
        """Return the state after the last batch: of this run, or of the run before if this one has none yet."""
        if self._replaced is not None:
            return self._replaced
        query = self._query
        if query is None:
            return self._before
        if is_remote():
            now = self._clock()
            if now - self._looked >= _LOOKS or not query.isActive:
                self._looked = now
                self.lake.look()
        return self.lake.state or self._before

    def missing_streams(self) -> list[str]:
        """Return the streams that the options name, and that a streaming query has not found."""
        state = self._state()
        if self._replaced is not None or state.batch < 0:
            return []
        named = (self.options.get("streams") or self.options.get("stream") or "").split(",")
        return [name for name in map(str.strip, named) if name and name not in state.offsets]

    def table(self) -> DataFrame:
        """Return the table in its present state: the columns that reports need."""
        return table_frame(self.spark, self.place, self.pipeline.schema, self.pipeline.reported)

    def reports(self) -> Sequence[Report]:
        """Return the reports on the present table. Tables that they share are cached until `release()`."""
        self.release()
        self._reported = self._settings_of_run()
        self._shared = self._cache(self.table())
        return self.pipeline.reports(self._shared, self._reported, self._cache)

    def figures(self) -> Sequence[Figure]:
        """Return the charts of the table as the last call of `reports` has read it."""
        with plain_errors():
            return self.pipeline.figures(self._shared or self.table(), self._reported, self._cache)

    def judge(self, results: Sequence[Result]) -> Verdict:
        """Return the verdict on the computed reports of the last call of `reports`."""
        return self.pipeline.judge({one.name: one.found for one in results}, self._reported)

    def _settings_of_run(self) -> Settings:
        """Return the settings, with the time up to which messages are in the table."""
        state = self._state()
        is_newer = self._replaced is None and state.batch > self._before.batch
        return replace(
            self.settings,
            read_up_to=state.read_up_to if is_newer else self._read_up_to,
            is_partial=self.settings.is_partial or bool(self.options.get("pattern")),
        )

    def _cache(self, frame: DataFrame) -> DataFrame:
        cached = frame.persist()
        self._cached_frames.append(cached)
        return cached

    def release(self) -> None:
        """Free the tables that reports share."""
        self._shared = None
        while self._cached_frames:
            self._cached_frames.pop().unpersist()


def check_table(
    lake: LakeTable, pipeline: Pipeline, options: Mapping[str, str], settings: Settings, *, grows: bool
) -> None:
    """Raise an error if a run cannot add to a table (`grows`), or replace it."""
    if grows and lake.is_replaced:
        raise TableError(
            f"{lake.place} was written by a run over all messages: choose another directory, or remove this one to "
            "start again"
        )
    if not grows and lake.exists and not lake.is_replaced:
        raise TableError(
            f"{lake.place} grows with a streaming query: continue that (--incremental, --follow), or choose another "
            "directory"
        )
    if not grows or lake.state is None:
        return
    if _START_OPTIONS & options.keys():
        raise PipelineError(
            f"{lake.place} is continued where its last run ended, so a start time (--since) would be ignored: leave it "
            "out, or choose another directory"
        )
    for name, value in pipeline.fixed_settings(settings).items():
        before = lake.state.fixed.get(name, value)
        if before != value:
            raise TableError(
                f"{lake.place} was made with {name} = {before}, which cannot be combined with {value}: use the same, "
                "or choose another directory"
            )


def _running_tasks(spark: SparkSession) -> tuple[int, int]:
    """Return the number of tasks of the stages that run now, and how many of them are done; 0 under Spark Connect."""
    if is_remote():
        return 0, 0
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    active = [stage for stage in stages if stage is not None]
    return sum(stage.numTasks for stage in active), sum(stage.numCompletedTasks for stage in active)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of Spark as PipelineError with only their message, without the traces of Python and Java."""
    try:
        with unlogged():
            yield
    except (PySparkException, StreamingQueryException) as error:
        raise PipelineError(plain_message(error)) from error


def plain_message(error: BaseException) -> str:
    """Return the message of a Spark error without its traces; that of one of our own errors if it is the cause.

    >>> plain_message(ValueError("Traceback ...\\nzambezi.spark.errors.NoSuchStream: there is no stream 'x'\\n"))
    "there is no stream 'x'"
    >>> plain_message(ValueError("something else\\nat org.apache"))
    'something else'
    >>> trace = "Traceback (most recent call last):\\n  File x, line 1\\n    y()\\nKeyError: 'z'\\n\\n\\tat org.apache"
    >>> plain_message(ValueError(f"An exception was thrown from the Python worker:\\n{trace}"))
    "KeyError: 'z'"
    >>> plain_message(ValueError(f"Failed to initialize the reader: {trace}"))
    "KeyError: 'z'"
    """
    text = str(error)
    ours = _OUR_ERROR.findall(text) or _PYTHON_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
