"""`archive`: it writes streams to a Delta table, partitioned by date, each message once for every reader.

    OUT/_delta_log/00000000000000000017.json
    OUT/date=2026-11-15/9f3b....parquet

`zambezi.spark.lake.table` says why readers see each message once. The date is from the time in the journal, in UTC. The
tasks that read messages write them (`zambezi.spark.archive_writer`). The rows of a file are sorted by stream and
sequence, so a query for one stream skips most of the others. A run continues where the last one ended, so a timer can
update the archive, or it can follow the streams all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.drawing import rate_figure
from zambezi.spark.pipelines.pipeline import Cache, Pipeline, Report, Settings, start_of, uncached
from zambezi.spark.pipelines.verdict import Found, Reason, Verdict, counted
from zambezi.spark.report.page import Figure

COLUMNS: Final = (
    "stream string, sequence long, timestamp timestamp, key string, body binary, incarnation string, key_bytes binary"
)


def contents(table: DataFrame) -> DataFrame:
    """Return a summary of each stream. `missing` is the number of sequences between the first and the last that the
    archive does not have."""
    count = sql.count("sequence")
    return (
        table.groupBy("stream", "incarnation")
        .agg(
            count.alias("messages"),
            sql.min("sequence").alias("first"),
            sql.max("sequence").alias("last"),
            (sql.max("sequence") - sql.min("sequence") + 1 - count).alias("missing"),
            sql.min("timestamp").alias("from"),
            sql.max("timestamp").alias("to"),
        )
        .orderBy(sql.desc("missing"), "stream", "from")
    )


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:  # noqa: ARG001 - the signature of `reports`
    """Return the reports."""
    return (Report("archive-streams", "Archive: streams", contents(table)),)


def judge(found: Found, settings: Settings) -> Verdict:
    """Judge an archive: it must have every sequence from the first to the last of a stream."""
    streams = found["archive-streams"].records()
    reasons = [
        Reason(
            about=row["stream"],
            kind="missing",
            text=f"{row['stream']} misses {counted(row['missing'], 'message')} from {row['first']} to {row['last']}",
            values={"missing": row["missing"], "incarnation": row["incarnation"]},
            incident=f"{row['incarnation']} {row['missing']}",
        )
        for row in streams
        if row["missing"] > settings.limits.archive.missing
    ]
    messages = sum(row["messages"] for row in streams)
    return Verdict.of(ARCHIVE.name, reasons, f"{counted(len(streams), 'stream')}, {counted(messages, 'message')}")


def figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:
    """Return the chart: archived messages over time by stream."""
    start = start_of(sql.col("timestamp"), settings.window)
    counts = table.groupBy(start.alias("start"), sql.col("stream").alias("label")).agg(sql.count("*").alias("messages"))
    return (rate_figure("Messages in the archive by stream", cache(counts), settings),)


ARCHIVE: Final = Pipeline(
    name="archive",
    summary="streams to a Delta table, by date, each message once",
    reduce=None,
    reports=reports,
    judge=judge,
    figures=figures,
    columns=COLUMNS,
    reported=("stream", "incarnation", "sequence", "timestamp"),
    streams={"streamPattern": ""},
    incremental=True,
    live=False,
)
