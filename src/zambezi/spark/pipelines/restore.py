"""`restore`: an archive back into streams.

The messages of a stream are published in their order, by one task, which passes the broker's barrier before it is done.
They get new sequences and new times: those are the broker's to give. A task that fails is tried again and leaves each
message once (the sink's `dedup`). A restore that was killed as a whole cannot know how far it came: so a stream that
has messages is not published to, unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.options import SINK, Options
from zambezi.spark.pipelines.archive import ARCHIVE
from zambezi.spark.pipelines.running import PipelineError, plainly, told


def messages_of(archive: DataFrame, streams: Sequence[str] | None = None, into: str | None = None) -> DataFrame:
    """The messages of an archive as the sink takes them: those of a stream in one partition, in their order."""
    chosen = archive if streams is None else archive.where(sql.col("stream").isin(*streams))
    target = sql.col("stream") if into is None else sql.lit(into)
    placed = chosen.withColumn("target", target)
    parted = placed.coalesce(1) if into is not None else placed.repartition(sql.col("target"))
    # Times never go back within a stream, not even when it is made anew.
    return parted.sortWithinPartitions("target", "timestamp", "stream", "incarnation", "sequence").select(
        sql.col("target").alias("stream"), "key", "body"
    )


def restore(
    spark: SparkSession,
    archive: str,
    sink: Mapping[str, str],
    *,
    streams: Sequence[str] | None = None,
    into: str | None = None,
    append: bool = False,
) -> dict[str, int]:
    """Publish an archive; how many messages went to each stream. `sink` are the options of the sink: `endpoint`, keys.

    `streams`: only these. `into`: all to this stream. `append`: also to streams that have messages.
    """
    try:
        table = spark.read.schema(ARCHIVE.schema).parquet(archive)
    except PySparkException as error:
        raise PipelineError(f"there is no archive in {archive}: {told(error)}") from None
    with plainly():
        counted = table.groupBy("stream").count().collect()
    counts = {str(row["stream"]): int(row["count"]) for row in counted}
    unknown = [name for name in streams or () if name not in counts]
    if unknown or not counts:
        raise PipelineError(
            f"the archive in {archive} has no stream {', '.join(map(ascii, unknown))}: it has "
            f"{', '.join(map(ascii, sorted(counts))) or 'none'}"
        )
    counts = {name: counts[name] for name in sorted(counts) if streams is None or name in streams}
    if into is not None:
        counts = {into: sum(counts.values())}
    if not append:
        _check_empty(sink, list(counts))
    with plainly():
        rows = messages_of(table, streams, into)
        rows.write.format("zeps").options(**sink).option("dedup", "true").mode("append").save()
    return counts


def _check_empty(sink: Mapping[str, str], streams: list[str]) -> None:
    options = Options(dict(sink), SINK)
    remote = BrokerBackend(options["endpoint"], options.security(), options["timeout"])
    try:
        known = remote.streams(streams)
    finally:
        remote.close()
    full = [name for name, one in known.items() if one.last]
    if full:
        raise PipelineError(
            f"stream {', '.join(map(ascii, full))} has messages already: restore into another one (--into), or say "
            "--append"
        )
