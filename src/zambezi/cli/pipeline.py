"""`zambezi pipeline`: archive and analyse streams with Spark.

This module imports Spark only when a pipeline runs: all other commands, and `pipeline list`, work without it.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.live import Live
from rich.text import Text

from zambezi.cli.counts import so_many
from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.fitting import JSON, FittingTable
from zambezi.cli.limits import add_limit_options, limits_of
from zambezi.cli.notices import warn
from zambezi.cli.pipeline_arguments import (
    RESTORE,
    check_arguments,
    check_places,
    results_place,
    sink_options,
    source_options,
)
from zambezi.cli.pipeline_settings import add_settings, check_settings, settings_of
from zambezi.cli.quantity import count, endpoint, moment, seconds
from zambezi.cli.results import as_json, result_view, verdict_view
from zambezi.cli.signals import away_from_signals
from zambezi.cli.spark import (
    add_key_options,
    add_source_option,
    add_spark_options,
    add_store_options,
    cancel_jobs,
    check_spark,
    end_start,
    fill_in_broker,
    spark_session,
    store_options,
)
from zambezi.cli.terminal import Console, say, table_console
from zambezi.errors import ZambeziError
from zambezi.wire.text import printable
from zambezi.zeps.store.problems import is_away

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from zambezi.spark.lake.compaction import Compacted
    from zambezi.spark.pipelines import Progress, Run
    from zambezi.spark.pipelines.results import Result
    from zambezi.spark.pipelines.verdict import Verdict
    from zambezi.spark.report.page import Figure

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# The pipelines, known without Spark. A test compares them with those of zambezi.spark.
NAMES: Final = {
    "archive": "streams to a Delta table, by date, each message once",
    "restore": "an archive back into streams",
    "traffic": "messages by window and key prefix, the busiest keys, abnormal prefixes, silent keys, gaps",
    "network-health": "a mesh by its logs: when nodes were there, flapping, restarts, who talks to whom, lost messages",
    "fleet-audit": "requests and replies of a fleet: by topic, caller and action, how long they took, silent nodes",
    "quality": "which bodies are as declared (JSON, Avro), their fields with types and ranges, examples of bad ones",
    "sessions": "the messages of each key in sessions, which end with a silence longer than a gap",
    "join": "two streams by key within a time: pairs, how long the second message takes, messages without a match",
}
_LEAST_KEEP: Final = 86400.0  # seconds
POLL: Final = 0.25  # seconds between two looks at the progress of Spark
AWAY: Final = 600.0  # seconds that a run with --follow waits for an object store that does not answer
LOOK: Final = 5.0  # seconds between two attempts to reach it
EVERY: Final = 10.0  # seconds between batches, and between reports, with --follow


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "pipeline",
        description="Run pipelines on streams with Spark: archives, traffic, the health of a mesh, calls of a fleet.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list the pipelines")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    listing.set_defaults(run=show)
    run_parser = commands.add_parser(
        "run",
        help="run a pipeline",
        description=(
            "Run a pipeline over all messages. With --incremental, it reads only the messages since its last run; with "
            "--follow, it also reads new messages until Ctrl-C."
        ),
    )
    run_parser.add_argument("name", metavar="NAME", choices=list(NAMES), help=f"the pipeline: {', '.join(NAMES)}")
    _add_source(run_parser)
    _add_results(run_parser)
    add_settings(run_parser)
    add_limit_options(run_parser)
    add_spark_options(run_parser)
    run_parser.set_defaults(run=run)
    compacting = commands.add_parser(
        "compact",
        help="merge the small files of a table",
        description=(
            "Merge the small files of each day of a table, and remove files that no reader needs any more. A run that "
            "adds to the table does this by itself when a day has many small files."
        ),
    )
    compacting.add_argument("table", metavar="DIR", help="the place of the Delta table: a directory or a URL")
    add_store_options(compacting)
    compacting.add_argument(
        "--keep",
        metavar="TIME",
        type=seconds,
        default=7 * 86400.0,
        help="keep replaced files for readers of older versions for this time, at least 1d (default: 7d)",
    )
    compacting.add_argument("--json", action="store_true", help="print a JSON object")
    compacting.set_defaults(run=compact)


def _add_source(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("input")
    options.add_argument(
        "--endpoint",
        metavar="ENDPOINT",
        type=endpoint,
        help="read from a broker, such as tcp://127.0.0.1:5671 (default: $ZAMBEZI_ENDPOINT, or that of the context)",
    )
    options.add_argument(
        "--path", metavar="DIR", help="read the journals in the broker's data directory, which is faster"
    )
    options.add_argument("--streams", metavar="NAMES", help="the names of the streams, separated by commas")
    options.add_argument(
        "--stream-pattern", metavar="PATTERN", help="the streams to read: a prefix, glob:PATTERN or regex:PATTERN"
    )
    options.add_argument(
        "--pattern", metavar="PATTERN", help="the keys to read: a prefix, exact:KEY, glob:PATTERN or regex:PATTERN"
    )
    options.add_argument("--since", metavar="TIME", type=moment, help="read messages from this time on (ISO 8601)")
    options.add_argument(
        "--until",
        metavar="TIME",
        type=moment,
        help="read messages up to this time (ISO 8601; not with --incremental or --follow)",
    )
    options.add_argument(
        "--max-per-batch",
        metavar="COUNT",
        type=count,
        help="the maximum number of messages of a batch (with --incremental or --follow)",
    )
    options.add_argument(
        "--min-partitions", metavar="COUNT", type=count, help="read with at least this many tasks (default: by size)"
    )
    add_source_option(options, "maxBytesPerTrigger=1g")
    options.add_argument(
        "--reader",
        metavar="NAME",
        help="the named reader as which the broker shows how far the run is behind, with --incremental or --follow "
        "(default: pipeline-NAME; empty: none)",
    )
    options.add_argument(
        "--accept-loss", action="store_true", help="continue if retention removed messages before they were read"
    )
    add_key_options(options)
    options.add_argument("--archive", metavar="DIR", help="the archive that restore reads: a directory or a URL")


def _add_results(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("output")
    options.add_argument(
        "--out", metavar="DIR", help="the place of the Delta table: a directory, or a URL such as s3://bucket/prefix"
    )
    add_store_options(options)
    options.add_argument("--incremental", action="store_true", help="read only the messages since the last run")
    options.add_argument("--follow", action="store_true", help="read new messages, too, until Ctrl-C")
    options.add_argument(
        "--every",
        metavar="TIME",
        type=seconds,
        default=EVERY,
        help=f"the time between two batches, with --follow (default: {EVERY:g}s)",
    )
    options.add_argument(
        "--results", metavar="DIR", help="the directory of JSON files for the console (default: in OUT)"
    )
    options.add_argument(
        "--publish",
        metavar="STREAM",
        help="publish alarms to a stream: a message for each new reason why it is not healthy, and one when "
        "that is over (needs --endpoint)",
    )
    options.add_argument(
        "--publish-reports", metavar="STREAM", help="publish the rows of the reports to a stream (needs --endpoint)"
    )
    options.add_argument(
        "--report", metavar="FILE", help="write a report with charts to one HTML file, which needs no other file"
    )
    options.add_argument(
        "--plots", action="store_true", help="compute the plots for the console, too (--report does so as well)"
    )
    options.add_argument("--csv", metavar="DIR", help="write all rows of each report to a CSV file in a directory")
    options.add_argument("--json", action="store_true", help="print the verdict and the reports as JSON")
    options.add_argument(
        "--rows", metavar="COUNT", type=count, default=12, help="the number of rows shown of each table (default: 12)"
    )
    options.add_argument(
        "--into", metavar="STREAM", help="the stream that restore publishes to (default: the original one)"
    )
    options.add_argument("--append", action="store_true", help="let restore publish to a stream that is not empty")


def show(arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps([{"pipeline": name, "result": summary} for name, summary in NAMES.items()]))
        return 0
    table_console().print(FittingTable(("pipeline", "result"), (), list(NAMES.items()), JSON))
    return 0


def run(arguments: argparse.Namespace) -> int:
    if not arguments.path:
        fill_in_broker(arguments)
    check_arguments(arguments)
    check_settings(arguments)
    limits_of(arguments)
    check_spark("pipelines need")
    check_places(arguments)
    work = _Work(arguments)
    return away_from_signals(work.run, work.cancel)


class _Work:
    """A run of a pipeline with a Spark session of its own, in a thread: Py4J does not survive interruptions."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._cancelled: SparkSession | None = None  # whose jobs a signal ends

    def run(self, interrupted: threading.Event) -> int:
        arguments = self._arguments
        with spark_session(arguments, f"zambezi {arguments.name}") as spark:
            if interrupted.is_set():
                raise KeyboardInterrupt
            if not arguments.follow:
                self._cancelled = spark
            try:
                if arguments.name == RESTORE:
                    return _restore(arguments, spark)
                with _advice_of_commands():
                    return _Session(arguments, spark, interrupted).run()
            finally:
                self._cancelled = None

    def cancel(self) -> None:
        """End the start of Java, or the jobs that Spark runs. A run that follows ends by itself, with its results."""
        end_start()
        spark = self._cancelled
        if spark is not None:
            cancel_jobs(spark)


@contextlib.contextmanager
def _advice_of_commands() -> Iterator[None]:
    """Let the error for lost messages say what a command can do: its table is its checkpoint."""
    from zambezi.spark.base_reader import ADVICE  # noqa: PLC0415 - needs Spark
    from zambezi.spark.pipelines.running import PipelineError  # noqa: PLC0415

    try:
        yield
    except PipelineError as error:
        if ADVICE not in str(error):
            raise
        advice = (
            "use --accept-loss to continue with the messages that remain, or another --out (is this the broker that "
            "the table is of?)"
        )
        raise PipelineError(str(error).replace(ADVICE, advice)) from error


class _Session:
    """One run of a pipeline, and its output."""

    def __init__(self, arguments: argparse.Namespace, spark: SparkSession, interrupted: threading.Event) -> None:
        from zambezi.spark.pipelines import PIPELINES, Run  # noqa: PLC0415

        self._arguments = arguments
        self._interrupted = interrupted
        self._work: Run = Run(
            spark,
            PIPELINES[arguments.name],
            arguments.out,
            source_options(arguments),
            settings_of(arguments),
            store_options=store_options(arguments),
        )
        self._results = results_place(arguments)
        self._output = table_console()
        self._progress = Console(stderr=True)

    def run(self) -> int:
        arguments, work = self._arguments, self._work
        if arguments.follow:
            return self._follow()
        with showing(work, self._progress, quiet=arguments.verbose):
            if arguments.incremental or work.pipeline.incremental:
                work.catch_up()
            else:
                work.once()
        return self._report(final=True)

    def _follow(self) -> int:
        work, is_first = self._work, True
        with showing(work, self._progress, quiet=self._arguments.verbose):
            while True:
                try:
                    query = work.start(follow=True, every=self._arguments.every)
                    is_first = False
                    self._follow_query(query)
                    break
                except ZambeziError as error:
                    if is_first or not self._store_is_back(str(error)):
                        raise
        self._report(final=True)
        return 0  # Ctrl-C is the normal end

    def _follow_query(self, query: StreamingQuery) -> None:
        """Report while a query runs, until a signal ends it."""
        work, every = self._work, self._arguments.every
        reported, due = -1, 0.0
        while not work.wait(query, POLL):
            if self._interrupted.is_set():
                work.stop()
                work.add_up()
                return
            batch = work.progress().batch
            if work.pipeline.live and batch != reported and time.monotonic() >= due:
                self._report(final=False)
                reported, due = batch, time.monotonic() + every

    def _store_is_back(self, reason: str) -> bool:
        """Wait until the store of the table can be reached again; return False if that was not the problem."""
        from zambezi.spark.lake.problems import TableError  # noqa: PLC0415 - needs Spark

        place = self._work.place
        if place.local is not None or not is_away(reason):
            return False
        warn(f"{reason}; the run goes on when the store answers, and waits up to {AWAY / 60:g} min for that")
        deadline = time.monotonic() + AWAY
        while time.monotonic() < deadline and not self._interrupted.wait(LOOK):
            try:
                place.check_writable()
            except TableError:
                continue
            return True
        return False

    def _report(self, *, final: bool) -> int:
        """Save the results, publish them if asked to, and print them at the end. Return the exit status."""
        from zambezi.spark.pipelines.alarms import publish_alarms  # noqa: PLC0415
        from zambezi.spark.pipelines.files import write_csv  # noqa: PLC0415
        from zambezi.spark.pipelines.results import compute, publish_reports, save, save_plots  # noqa: PLC0415

        arguments, work = self._arguments, self._work
        try:
            reports = work.reports()
            results = compute(reports)
            verdict = work.judge(results)
            save(results, verdict, self._results)
            if arguments.publish:
                sink = sink_options(arguments, arguments.publish)
                publish_alarms(verdict, sink, table=str(work.place), memory=self._results)
            if arguments.csv:
                write_csv(reports, arguments.csv)
            if arguments.report or arguments.plots:
                figures = work.figures()
                save_plots(figures, work.pipeline.name, self._results)
            if arguments.report:
                self._write_page(results, verdict, figures)
            if arguments.publish_reports:
                publish_reports(reports, sink_options(arguments, arguments.publish_reports))
        finally:
            work.release()
        if final:
            self._print(results, verdict)
        return verdict.status

    def _write_page(self, results: list[Result], verdict: Verdict, figures: Sequence[Figure]) -> None:
        from zambezi.spark.pipelines.files import write_page  # noqa: PLC0415

        arguments, work = self._arguments, self._work
        about = {
            "read from": arguments.endpoint or arguments.path,
            "streams": work.options.get("streams") or work.options.get("stream") or work.options.get("streamPattern"),
            "messages": f"{work.progress().total:,}",
            "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
            "table": str(work.place),
        }
        directory, end = (arguments.csv, "csv") if arguments.csv else (str(self._results), "json")
        files = {one.name: f"{directory}/{one.name}.{end}" for one in results}
        told = {name: value for name, value in about.items() if value}
        write_page(arguments.report, results, verdict, figures, told, files, store_options(arguments))

    def _print(self, results: list[Result], verdict: Verdict) -> None:
        for name in self._work.missing_streams():
            warn(
                f"stream {name!r} does not exist: correct its name, or run this again when somebody has published to it"
            )
        places = {"table": str(self._work.place), "results": str(self._results)}
        if self._arguments.json:
            print(as_json(results, verdict, places))
            return
        for one in results:
            self._output.print(result_view(one, self._arguments.rows, str(self._results)))
        self._progress.print(f"the table: {self._work.place}\nthe results: {self._results}", soft_wrap=True)
        for told, where in (("the report", self._arguments.report), ("all rows as CSV", self._arguments.csv)):
            if where:
                self._progress.print(f"{told}: {where}", soft_wrap=True)
        self._output.print(verdict_view(verdict, str(self._results)))


def _restore(arguments: argparse.Namespace, spark: SparkSession) -> int:
    from zambezi.spark.pipelines.restore import restore  # noqa: PLC0415

    streams = arguments.streams.split(",") if arguments.streams else None
    counts = restore(
        spark,
        arguments.archive,
        sink_options(arguments, None),
        streams=streams,
        into=arguments.into,
        append=arguments.append,
        since=arguments.since,
        until=arguments.until,
        store_options=store_options(arguments),
    )
    rows = [(printable(name), f"{messages:,}") for name, messages in counts.items()]
    table_console().print(FittingTable(("stream", "messages"), {1}, rows, "a pipe gets all columns", title="restored"))
    return 0


def compact(arguments: argparse.Namespace) -> int:
    """Merge small files. This needs no Java."""
    check_spark("pipelines need")
    if arguments.keep < _LEAST_KEEP:
        raise OptionsError("--keep must be at least 1d: a run may be writing files that are not committed yet")
    from zambezi.spark.lake.compaction import maintain  # noqa: PLC0415
    from zambezi.spark.lake.place import Place  # noqa: PLC0415
    from zambezi.spark.lake.table import LakeTable  # noqa: PLC0415

    hours = -(-int(arguments.keep) // 3600)
    table = LakeTable(Place(arguments.table, store_options(arguments)), "")
    if not table.exists:
        raise InputError(f"there is no Delta table in {table.place}")
    from zambezi.spark.lake.sums import add_up  # noqa: PLC0415
    from zambezi.spark.pipelines import PIPELINES  # noqa: PLC0415

    pipeline = PIPELINES.get(table.pipeline)
    if pipeline is not None and pipeline.sums:
        added = add_up(table, pipeline.sums)
        done = replace(maintain(table, hours=hours), merged=added.merged, written=added.written)
    else:
        done = maintain(table, hours=hours)
    counts = {"merged": done.merged, "written": done.written, "removed": done.removed}
    say(json.dumps({"table": str(table.place), **counts}) if arguments.json else f"{table.place}: {_told(done)}")
    return 0


def _told(done: Compacted) -> str:
    """Return the result of a compaction in words."""
    if not done.merged and not done.removed:
        return "nothing to do: no day has small files to merge, and no file is old enough to be removed"
    merged = f"{so_many(done.merged, 'file')} became {done.written:,}" if done.merged else "no files were merged"
    return f"{merged}; {so_many(done.removed, 'old file')} removed"


# Progress


@contextlib.contextmanager
def showing(work: Run, console: Console, *, quiet: bool = False) -> Iterator[None]:
    """Show the progress of a run: a line that changes on a terminal, or else one line at the end."""
    if quiet:
        yield
        return
    ended = threading.Event()
    if not console.is_terminal:
        yield
        console.print(progress_line(work.pipeline.name, work.progress()), soft_wrap=True)
        return

    def draw(live: Live) -> None:
        while not ended.wait(POLL):
            live.update(progress_line(work.pipeline.name, work.progress()))

    with Live(progress_line(work.pipeline.name, work.progress()), console=console, refresh_per_second=4) as live:
        painter = threading.Thread(target=draw, args=(live,), name="progress", daemon=True)
        painter.start()
        try:
            yield
        finally:
            ended.set()
            painter.join()
            live.update(progress_line(work.pipeline.name, work.progress()))


def progress_line(name: str, progress: Progress) -> Text:
    """Return the progress of a run as one line."""
    parts = [f"{progress.rows:,} messages"]
    if progress.batch >= 0:
        speed = f" at {progress.rate:,.0f} messages/s" if progress.rate else ""
        parts.append(f"batch {progress.batch}{speed}")
    if progress.watermark:
        when = datetime.fromtimestamp(progress.watermark / 1e6, UTC)
        parts.append(f"watermark {when:%H:%M:%S}")
    if progress.late:
        parts.append(f"{progress.late:,} late")
    if progress.tasks:
        parts.append(f"{progress.tasks_done}/{progress.tasks} tasks")
    return Text(f"{name}: {', '.join(parts)}, {progress.seconds:.0f} s", "cyan")
