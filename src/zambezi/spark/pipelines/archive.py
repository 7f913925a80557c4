"""`archive`: it writes streams to Parquet, by stream and date, each message once for every reader.

    OUT/stream=readings/date=2026-11-15/batch-00000017-0000.parquet

Any program that reads Parquet can read it: `zambezi.spark.pipelines.deposit` says why it sees each message once. The
date is from the time in the journal, in UTC. A run continues where the last one ended, so a timer can update the
archive, or it can follow the streams all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Cache, Pipeline, Report, Settings, uncached, utc_date

COLUMNS: Final = "sequence long, timestamp timestamp, key string, body binary, incarnation string"


def reduce(messages: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `reduce`
    """Add the date to messages."""
    return messages.select(
        "sequence", "timestamp", "key", "body", "incarnation", "stream", utc_date("timestamp").alias("date")
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
        .orderBy("stream", "from")
    )


def reports(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]:  # noqa: ARG001 - the signature of `reports`
    """Return the reports."""
    return (Report("archive-streams", "Archive: streams", contents(table)),)


ARCHIVE: Final = Pipeline(
    name="archive",
    summary="streams to Parquet, by stream and date, each message once",
    reduce=reduce,
    reports=reports,
    columns=COLUMNS,
    directories=("stream", "date"),
    streams={"streamPattern": ""},
    incremental=True,
    live=False,
)
