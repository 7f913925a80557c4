"""The execution of pipelines: from a source through a pipeline to its table.

There are three kinds of runs:

- `once`: a batch query over all messages, or a range. The table is replaced.
- `catch_up`: a streaming query over the messages since the last run.
- `follow`: the same, and it continues until it is stopped.

The last two have a checkpoint beside the table. A run that was killed is continued where it was, and each message
counts once: `zambezi.spark.pipelines.deposit` says how.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql

from zambezi.spark.errors import SparkError
from zambezi.spark.pipelines.deposit import ONCE, Deposit, DepositError, Done
from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_STREAM_OPTIONS: Final = frozenset({"stream", "streams", "streamPattern"})
_END_OPTIONS: Final = frozenset({"endingSequence", "endingTimestamp"})
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
    """A run of one pipeline, from one source to one output directory."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        out: str,
        options: Mapping[str, str],
        settings: Settings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.settings = settings or Settings()
        self.options = dict(options)
        if not _STREAM_OPTIONS & self.options.keys():
            self.options |= pipeline.streams
        root = f"{out.rstrip('/')}/{pipeline.table}" if pipeline.table else out
        self.deposit = Deposit(spark, root, pipeline.directories)
        self._clock = clock
        self._began = clock()
        self._progress = Progress()
        self._query: StreamingQuery | None = None
        self._cached_frames: list[DataFrame] = []
        self._read_up_to = 0.0

    # The three kinds of runs

    def once(self) -> Progress:
        """Process all messages as a batch, and replace the table."""
        with self.deposit.held():
            return self._once()

    def _once(self) -> Progress:
        deposit = self.deposit
        if deposit.is_begun():
            raise DepositError(
                f"{deposit.root} grows with a streaming query: continue that (--incremental, --follow), or choose "
                "another directory"
            )
        deposit.recover()
        last = deposit.claim(ONCE)
        self._set_read_up_to(time.time())
        messages = self.spark.read.format("zeps").options(**self.options).load()
        with plain_errors():
            number = 0 if last is None else last.batch + 1
            self._write_batch(self.pipeline.prepare(messages, self.settings), number, None, ONCE)
        return self.progress()

    def catch_up(self) -> Progress:
        """Process the messages since the last run."""
        query = self.start(follow=False)
        self.wait(query)
        return self.progress()

    def start(self, *, follow: bool, every: float = 0.0) -> StreamingQuery:
        """Start the query. `every` is the time between batches in seconds; with 0, each batch starts at once.

        No other run can write to the directory until `wait` or `stop` has ended this one.
        """
        self.deposit.hold()
        try:
            return self._start(follow=follow, every=every)
        except BaseException:
            self.deposit.release()
            raise

    def _start(self, *, follow: bool, every: float) -> StreamingQuery:
        last = self.deposit.last()
        if last is not None and last.query == ONCE:
            self.deposit.claim("")
        options = {"startingSequence": "earliest", **self.options}
        if "startingTimestamp" in options:
            if self.deposit.is_begun():
                raise PipelineError(
                    f"{self.deposit.root} is continued where its last run ended, so a start time (--since) would be "
                    "ignored: leave it out, or choose another directory"
                )
            del options["startingSequence"]
        self._set_read_up_to(time.time())
        messages = self.spark.readStream.format("zeps").options(**options).load()
        writer = (
            self.pipeline.prepare(messages, self.settings)
            .writeStream.queryName(f"{self.pipeline.name}")
            .option("checkpointLocation", self.deposit.checkpoint)
            .foreachBatch(self._process_batch)
        )
        writer = writer.trigger(processingTime=f"{every} seconds") if follow else writer.trigger(availableNow=True)
        with plain_errors():
            self._query = writer.start()
        return self._query

    def wait(self, query: StreamingQuery, timeout: float | None = None) -> bool:
        """Wait until a query ends, or for `timeout` seconds. Return whether it has ended. Raise its error."""
        try:
            with plain_errors():
                if timeout is None:
                    query.awaitTermination()
                    return True
                return bool(query.awaitTermination(timeout))  # type: ignore[arg-type] # it accepts fractions of seconds
        finally:
            if not query.isActive:
                self.deposit.release()

    def stop(self) -> None:
        """Stop the query. The next run repeats a batch that was not finished."""
        if self._query is not None:
            self._query.stop()
        self.deposit.release()

    # One batch

    def _set_read_up_to(self, now: float) -> None:
        """Note that this run reads all messages journalled up to now, unless the options end before."""
        if not _END_OPTIONS & self.options.keys():
            self._read_up_to = now

    def _process_batch(self, events: DataFrame, batch: int) -> None:
        deposit = self.deposit
        self._set_read_up_to(time.time() - PLANNED)
        query = events.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        deposit.recover()
        last = deposit.claim(query)
        if last is not None and batch <= last.batch:
            return  # the batch was finished, but Spark was killed before it wrote its own checkpoint
        if last is not None and self.pipeline.windowed and last.window != self.settings.window:
            raise DepositError(
                f"{deposit.root} has windows of {last.window:g} s, which cannot be combined with windows of "
                f"{self.settings.window:g} s: use the same length, or choose another directory"
            )
        self._write_batch(events, batch, last, query)

    def _write_batch(self, events: DataFrame, batch: int, last: Done | None, query: str) -> None:
        deposit = self.deposit
        began = self._clock()
        watermark = last.watermark if last is not None else 0
        time_of = sql.unix_micros(self.pipeline.time)
        observation = Observation()
        counted = events.observe(
            observation,
            sql.count(sql.lit(1)).alias("rows"),
            sql.count(sql.when(time_of < watermark, 1)).alias("late"),
            sql.max(time_of).alias("newest"),
        )
        staged = deposit.stage(self.pipeline.reduce(counted, self.settings), batch)
        # If there are no rows at all, Spark may skip the observation.
        counts: dict[str, Any] = observation.get if staged else {"rows": 0, "late": 0, "newest": 0}
        new_watermark = int(counts["newest"] or 0) - round(self.settings.delay * 1e6)
        done = Done(
            query=query,
            batch=batch,
            rows=int(counts["rows"]),
            late=int(counts["late"]),
            files=len(staged),
            octets=sum(size for _, size in staged),
            watermark=max(watermark, new_watermark, 0),
            total=int(counts["rows"]) + (last.total if last is not None else 0),
            window=self.settings.window,
        )
        deposit.put(staged, done, alone=query == ONCE)
        self._update_progress(done, self._clock() - began)

    def _update_progress(self, done: Done, took: float) -> None:
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
        """Return the table in its present state."""
        return self.spark.read.schema(self.pipeline.schema).parquet(self.deposit.root)

    def reports(self) -> Sequence[Report]:
        """Return the reports on the present table. Tables that they share are cached until `release()`."""
        self.release()
        settings = replace(self.settings, read_up_to=self._read_up_to)
        return self.pipeline.reports(self._cache(self.table()), settings, self._cache)

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
