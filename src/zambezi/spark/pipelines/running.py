"""Pipelines at work: from a source through a pipeline to its table, once, or as messages come.

A run is one of three:

- `once`: all that there is (or a range), as a batch. The table is written anew.
- `catch_up`: what is new since the last run, and then it ends.
- `follow`: the same, and it goes on until it is stopped.

The last two are a streaming query with a checkpoint beside the table; what was killed goes on where it was, and each
message counts once: `zambezi.spark.pipelines.deposit` says how.
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

_CHOICES: Final = frozenset({"stream", "streams", "streamPattern"})
_ENDS: Final = frozenset({"endingSequence", "endingTimestamp"})
PLANNED: Final = 5.0  # seconds between the planning of a batch and its arrival, at most; more is a machine in trouble
_OURS: Final = re.compile(r"^(?:[\w.]+: )?zambezi\.[\w.]+\.\w+: (.+)$", re.MULTILINE)


class PipelineError(SparkError):
    """A pipeline that cannot run, or failed; the text says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    batch: int = -1  # the last that is done
    rows: int = 0  # messages that were read, in this run
    rate: float = 0.0  # messages/s of the last batch
    late: int = 0  # of them, those that came after the watermark
    total: int = 0  # messages in the table
    watermark: int = 0  # microseconds since 1970
    tasks: int = 0
    tasks_done: int = 0
    seconds: float = 0.0


class Run:
    """One pipeline, one source, one directory of results."""

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
        if not _CHOICES & self.options.keys():
            self.options |= pipeline.streams
        root = f"{out.rstrip('/')}/{pipeline.table}" if pipeline.table else out
        self.deposit = Deposit(spark, root, pipeline.directories)
        self._clock = clock
        self._began = clock()
        self._progress = Progress()
        self._query: StreamingQuery | None = None
        self._shared: list[DataFrame] = []
        self._read_up_to = 0.0

    # The three ways

    def once(self) -> Progress:
        """All that there is, as a batch."""
        with self.deposit.held():
            return self._once()

    def _once(self) -> Progress:
        deposit = self.deposit
        if deposit.is_begun():
            raise DepositError(
                f"{deposit.root} grows with a streaming query: go on with it (--incremental, --follow), or choose "
                "another directory"
            )
        deposit.recover()
        last = deposit.claim(ONCE)
        self._reads_up_to(time.time())
        messages = self.spark.read.format("zeps").options(**self.options).load()
        with plainly():
            number = 0 if last is None else last.batch + 1
            self._batch(self.pipeline.prepare(messages, self.settings), number, None, ONCE)
        return self.progress()

    def catch_up(self) -> Progress:
        """What is new since the last run."""
        query = self.start(follow=False)
        self.wait(query)
        return self.progress()

    def start(self, *, follow: bool, every: float = 0.0) -> StreamingQuery:
        """Start the query. `every`: seconds between batches; as soon as there is something, if zero.

        Until it has ended, by `wait` or `stop`, no other run writes to the directory.
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
            del options["startingSequence"]
        self._reads_up_to(time.time())
        messages = self.spark.readStream.format("zeps").options(**options).load()
        writer = (
            self.pipeline.prepare(messages, self.settings)
            .writeStream.queryName(f"{self.pipeline.name}")
            .option("checkpointLocation", self.deposit.checkpoint)
            .foreachBatch(self._arrived)
        )
        writer = writer.trigger(processingTime=f"{every} seconds") if follow else writer.trigger(availableNow=True)
        with plainly():
            self._query = writer.start()
        return self._query

    def wait(self, query: StreamingQuery, timeout: float | None = None) -> bool:
        """Wait for the end of a query, or so many seconds; whether it has ended. Its failure is raised."""
        try:
            with plainly():
                if timeout is None:
                    query.awaitTermination()
                    return True
                return bool(query.awaitTermination(timeout))  # type: ignore[arg-type] # it takes parts of seconds
        finally:
            if not query.isActive:
                self.deposit.release()

    def stop(self) -> None:
        """End the query; a batch that is under way is done again by the next run."""
        if self._query is not None:
            self._query.stop()
        self.deposit.release()

    # One batch

    def _reads_up_to(self, now: float) -> None:
        """What was journalled by now is read, unless the options end before it."""
        if not _ENDS & self.options.keys():
            self._read_up_to = now

    def _arrived(self, events: DataFrame, batch: int) -> None:
        deposit = self.deposit
        self._reads_up_to(time.time() - PLANNED)
        query = events.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        deposit.recover()
        last = deposit.claim(query)
        if last is not None and batch <= last.batch:
            return  # it was done, and Spark was killed before it heard of it
        if last is not None and self.pipeline.windowed and last.window != self.settings.window:
            raise DepositError(
                f"{deposit.root} has windows of {last.window:g} s, which do not add up with {self.settings.window:g} "
                "s: go on with the same, or choose another directory"
            )
        self._batch(events, batch, last, query)

    def _batch(self, events: DataFrame, batch: int, last: Done | None, query: str) -> None:
        deposit = self.deposit
        began = self._clock()
        watermark = last.watermark if last is not None else 0
        time_of = sql.unix_micros(self.pipeline.time)
        seen = Observation()
        counted = events.observe(
            seen,
            sql.count(sql.lit(1)).alias("rows"),
            sql.count(sql.when(time_of < watermark, 1)).alias("late"),
            sql.max(time_of).alias("newest"),
        )
        staged = deposit.stage(self.pipeline.reduce(counted, self.settings), batch)
        # Where there is nothing at all, Spark leaves out the counting, too.
        found: dict[str, Any] = seen.get if staged else {"rows": 0, "late": 0, "newest": 0}
        newest = int(found["newest"] or 0) - round(self.settings.delay * 1e6)
        done = Done(
            query=query,
            batch=batch,
            rows=int(found["rows"]),
            late=int(found["late"]),
            files=len(staged),
            octets=sum(size for _, size in staged),
            watermark=max(watermark, newest, 0),
            total=int(found["rows"]) + (last.total if last is not None else 0),
            window=self.settings.window,
        )
        deposit.put(staged, done, alone=query == ONCE)
        self._note(done, self._clock() - began)

    def _note(self, done: Done, took: float) -> None:
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

    # What is known of it

    def progress(self) -> Progress:
        """How far it is, with what Spark is doing right now."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return replace(
            self._progress,
            tasks=sum(stage.numTasks for stage in known),
            tasks_done=sum(stage.numCompletedTasks for stage in known),
            seconds=self._clock() - self._began,
        )

    def table(self) -> DataFrame:
        """The table as it is now."""
        return self.spark.read.schema(self.pipeline.schema).parquet(self.deposit.root)

    def reports(self) -> Sequence[Report]:
        """What people look at, of all that is in the table now. What they share is held until `release()`."""
        self.release()
        settings = replace(self.settings, read_up_to=self._read_up_to)
        return self.pipeline.reports(self._share(self.table()), settings, self._share)

    def _share(self, frame: DataFrame) -> DataFrame:
        held = frame.persist()
        self._shared.append(held)
        return held

    def release(self) -> None:
        """Forget what reports share."""
        while self._shared:
            self._shared.pop().unpersist()


@contextmanager
def plainly() -> Iterator[None]:
    """Errors of the source and the sink come wrapped in pages of two languages' traces: tell only what they say."""
    try:
        yield
    except (PySparkException, StreamingQueryException) as error:
        raise PipelineError(told(error)) from error


def told(error: BaseException) -> str:
    """What an error of Spark's says, without its traces; what one of ours says, if it is the cause.

    >>> told(ValueError("Traceback ...\\nzambezi.spark.errors.NoSuchStream: there is no stream 'x'\\n"))
    "there is no stream 'x'"
    >>> told(ValueError("something else\\nat org.apache"))
    'something else'
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
