"""A program that uses Zambezi through Spark Connect. It prints its results as JSON, for test_connect.py.

A process has either Spark Connect or a session of its own, so this is not a part of the tests' process.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zambezi.errors import ZambeziError
from zambezi.spark import session
from zambezi.spark.decoders import json_bodies
from zambezi.spark.pipelines import PIPELINES, Run
from zambezi.spark.views import StreamViews

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 120.0


def read_and_write(spark: SparkSession, endpoint: str) -> dict[str, Any]:
    """Read a stream, decode its bodies, and publish some of them."""
    readings = spark.read.format("zeps").option("endpoint", endpoint).option("stream", "readings").load()
    values = json_bodies(readings, "celsius double").selectExpr("sum(value.celsius)").collect()[0][0]
    warm = readings.where("key = 'k1'").select("key", "body")
    warm.write.format("zeps").option("endpoint", endpoint).option("stream", "warm").mode("append").save()
    seen = StreamViews(spark, {"endpoint": endpoint}).query("SELECT count(*) FROM warm").collect()[0][0]
    return {"sum": values, "published": seen}


def stream(spark: SparkSession, endpoint: str, checkpoint: Path) -> dict[str, Any]:
    """Copy a stream by a streaming query."""
    source = spark.readStream.format("zeps").option("endpoint", endpoint).option("startingSequence", "earliest")
    copied = source.option("stream", "readings").load().select("key", "body").writeStream.format("zeps")
    query = (
        copied.option("endpoint", endpoint)
        .option("stream", "copied")
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    latest = query.lastProgress.sources[0].latestOffset if query.lastProgress else "{}"
    return {"behind": json.loads(latest)["behindMessages"]}


def run_pipelines(spark: SparkSession, endpoint: str, out: Path) -> dict[str, Any]:
    """Run pipelines in all three ways."""
    options = {"endpoint": endpoint, "streams": "readings"}
    once = Run(spark, PIPELINES["traffic"], str(out / "traffic"), options).once()
    archive = Run(spark, PIPELINES["archive"], str(out / "archive"), {**options, "maxMessagesPerTrigger": "20"})
    caught = archive.catch_up()
    reported = [(row["stream"], row["messages"]) for row in archive.reports()[0].frame.collect()]
    archive.release()
    again = archive.start(follow=True)
    readings = spark.createDataFrame([("late", b"{}")], "key string, body binary")
    readings.write.format("zeps").option("endpoint", endpoint).option("stream", "readings").mode("append").save()
    deadline = time.monotonic() + PATIENCE
    while archive.progress().rows < 1 and time.monotonic() < deadline:
        archive.wait(again, 0.1)
    followed = archive.progress()
    archive.stop()
    return {
        "once": [once.rows, once.batch],
        "caught": [caught.rows, caught.batch],
        "reported": reported,
        "followed": [followed.rows, followed.total],
    }


def failure(spark: SparkSession, endpoint: str, out: Path) -> str:
    """Return the error of a batch that cannot write its files."""
    out.mkdir()
    today = spark.sql("SELECT date(timestamp_micros(unix_micros(current_timestamp())))").collect()[0][0]
    (out / f"date={today}").write_text("")
    try:
        Run(spark, PIPELINES["archive"], str(out), {"endpoint": endpoint, "streams": "readings"}).catch_up()
    except ZambeziError as error:
        return str(error)
    return ""


def main(server: str, endpoint: str, place: Path) -> None:
    spark = session(server)
    print(
        json.dumps(
            {
                "batch": read_and_write(spark, endpoint),
                "stream": stream(spark, endpoint, place / "checkpoint"),
                "pipelines": run_pipelines(spark, endpoint, place),
                "failure": failure(spark, endpoint, place / "no-place"),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
