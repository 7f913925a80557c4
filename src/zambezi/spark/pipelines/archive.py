"""`archive`: streams as Parquet, by stream and date, each message once, for Spark and for everybody else.

    OUT/stream=readings/date=2026-11-15/batch-00000017-0000.parquet

Any program that reads Parquet reads it: `zambezi.spark.pipelines.deposit` says why it sees each message once. The date
is that of the journal, in UTC. A run goes on where the last one ended, so the archive may be brought up to date by a
timer, or follow the streams all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Pipeline, Report, Settings, Share, unshared

COLUMNS: Final = "sequence long, timestamp timestamp, key string, body binary, incarnation string"


def reduce(messages: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `reduce`
    """Messages as they are, with the day that they are of."""
    return messages.select(
        "sequence", "timestamp", "key", "body", "incarnation", "stream", sql.to_date("timestamp").alias("date")
    )


def contents(table: DataFrame) -> DataFrame:
    """What the archive has of each stream. `missing` are sequences between the first and the last that it has not."""
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


def reports(table: DataFrame, settings: Settings, share: Share = unshared) -> Sequence[Report]:  # noqa: ARG001 - the signature of `reports`
    """What people look at."""
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
