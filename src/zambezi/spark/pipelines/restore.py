"""`restore`: it publishes an archive to streams again.

One task publishes the messages of a stream in their order, and waits at the broker's barrier before it reports success.
The broker gives the messages new sequences and times. If a task fails, Spark retries it, and each message is published
once. If a whole restore is killed, the next one cannot know how far it came: so it refuses to
publish to a stream that has messages, unless the user asks for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from zambezi.spark.options import SINK, Options
from zambezi.spark.pipelines.running import PipelineError, plain_errors
from zambezi.spark.shared_backend import SharedBackend

_COLUMNS: Final = "stream string, sequence long, timestamp timestamp, key string, body binary, incarnation string"


def messages_of(archive: DataFrame, streams: Sequence[str] | None = None, into: str | None = None) -> DataFrame:
    """Return the messages of an archive for the sink: those of a stream in one partition, in their order."""
    selected = archive if streams is None else archive.where(sql.col("stream").isin(*streams))
    target = sql.col("stream") if into is None else sql.lit(into)
    with_target = selected.withColumn("target", target)
    partitioned = with_target.coalesce(1) if into is not None else with_target.repartition(sql.col("target"))
    # Times never decrease within a stream, not even when it is deleted and made again.
    return partitioned.sortWithinPartitions("target", "timestamp", "stream", "incarnation", "sequence").select(
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
    since: datetime | None = None,
    until: datetime | None = None,
    store_options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Publish an archive, and return the number of messages for each stream.

    `sink` are the options of the sink, such as `endpoint` and keys. `streams` restores only these streams. `into`
    publishes all messages to this stream. `append` allows target streams that have messages. `since` and `until` leave
    out messages that were journalled before or after. `store_options` are those of the object store of the archive.
    """
    options = {"archive": archive, "streamPattern": ""}
    options |= {"startingTimestamp": since.isoformat()} if since is not None else {}
    options |= {"endingTimestamp": until.isoformat()} if until is not None else {}
    options |= {"storeOptions": json.dumps(dict(store_options))} if store_options else {}
    source = spark.read.format("zeps").options(**options)
    with plain_errors():
        counted = source.schema("stream string").load().groupBy("stream").count().collect()
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
    with plain_errors():
        rows = messages_of(source.schema(_COLUMNS).load(), streams, into)
        rows.write.format("zeps").options(**sink).mode("append").save()
    return counts


def _check_empty(sink: Mapping[str, str], streams: list[str]) -> None:
    options = Options(dict(sink), SINK)
    backend = SharedBackend(options["endpoint"], options.security(), options["timeout"])
    try:
        states = backend.streams(streams)
    finally:
        backend.close()
    used = [name for name, state in states.items() if state.last]
    if used:
        raise PipelineError(
            f"stream {', '.join(map(ascii, used))} has messages already: restore into another stream (--into), or use "
            "--append"
        )
