"""Workers of the sink are killed in the middle of their tasks, and each row is in the stream once.

In `test_sink.py` attempts end by exceptions, and in `test_queries.py` the code that produces the rows dies. Here it is
the process that publishes, by SIGKILL, three times for each task, each time at another moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.fragile import MOMENTS, FragileDataSource, Killer
from tests.spark.journal import numbered, write
from tests.zeps.serving import serving
from zambezi.zeps.sync import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EACH = 130  # rows of a task: two batches, and a part of one
PATIENCE = 60


@pytest.fixture
def fragile(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(FragileDataSource)
    return spark


def write_table(spark: SparkSession, _endpoint: str, options: dict[str, str], _: Path) -> int:
    rows = spark.range(2 * EACH, numPartitions=2).selectExpr("'k' as key", "cast(id + 1 as string) as body")
    rows.write.format("zeps-fragile").options(**options).mode("append").save()
    return 2 * EACH


def write_stream(spark: SparkSession, endpoint: str, options: dict[str, str], checkpoint: Path) -> int:
    """Two batches; the tasks of the second are killed."""
    source = {"endpoint": endpoint, "stream": "in", "startingSequence": "earliest", "minPartitions": "2"}
    rows: DataFrame = (
        spark.readStream.format("zeps").options(**source, maxMessagesPerTrigger=str(2 * EACH)).load()
    ).select("key", "body")
    writer = rows.writeStream.format("zeps-fragile").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE)
    finally:
        query.stop()
    return 4 * EACH


def in_order(numbers: Sequence[int], cut: int) -> bool:
    """Whether those below a number are in order, and those from it on: two tasks publish side by side."""
    parts = ([one for one in numbers if one < cut], [one for one in numbers if one >= cut])
    return all(part == sorted(part) for part in parts)


@pytest.mark.parametrize("way", [write_table, write_stream])
@pytest.mark.timeout(600)
def test_each_row_is_published_once_if_workers_are_killed(
    fragile: SparkSession, tmp_path: Path, way: Callable[[SparkSession, str, dict[str, str], Path], int]
) -> None:
    data, place = tmp_path / "data", tmp_path / "place"
    write(data, "in", numbered(4 * EACH))
    with (
        serving(data) as (_, endpoint),
        Client.connect(endpoint) as client,
        client.stream("out").subscribe(since="earliest") as subscriber,
    ):
        subscriber.ready(PATIENCE)
        with Killer(place) as killer:
            options = {"endpoint": endpoint, "stream": "out", "place": str(place)}
            count = way(fragile, endpoint, options, tmp_path / "checkpoint")
        assert killer.killed.keys() == {f"{part} {moment}" for part, few in enumerate(MOMENTS) for moment in few}
        assert len(set(killer.killed.values()) - {os.getpid()}) == 6  # each a process of its own
        # Who subscribes sees the rows and nothing else: what comes after the last of them is not ours.
        client.stream("out").publish("after", b"all")
        client.stream("out").flush()
        seen = [subscriber.recv(PATIENCE) for _ in range(count + 1)]
    assert (seen[-1].key, seen[-1].body) == ("after", b"all")
    bodies = [int(one.body) for one in seen[:-1]]
    assert sorted(bodies) == list(range(1, count + 1))
    for first in range(1, count + 1, 2 * EACH):
        batch = [number for number in bodies if first <= number < first + 2 * EACH]
        assert any(in_order(batch, cut) for cut in range(first + 1, first + 2 * EACH)), "a task's rows changed places"
