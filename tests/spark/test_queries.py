"""The source and the sink in Spark itself: batch and streaming, files and broker, restarts and tasks that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # noqa: TC002 - Spark goes by the type at run time
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql.pandas.functions import arrow_udf

from tests.spark.journal import BEGINNING, numbered, write
from tests.zeps.serving import serving
from zambezi.spark import register
from zambezi.spark.pipelines.pipeline import utc_date
from zambezi.spark.sessions import cluster_cores
from zambezi.zeps.journal import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pytest.fixture(params=["path", "endpoint"])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The option that says where the streams are: files, or a broker that serves them."""
    data = tmp_path / "data"
    write(data, "s", numbered(500, size=20))
    write(data, "t", numbered(5))
    if request.param == "path":
        yield "path", str(data)
    else:
        with serving(data) as (_, bound):
            yield "endpoint", bound


def reader(spark: SparkSession, origin: tuple[str, str], **options: str) -> DataFrameReader:
    given = options if "streams" in options else {"stream": "s"} | options
    return spark.read.format("zeps").option(*origin).options(**given)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.sequence for row in frame.select("sequence").collect())


def test_a_stream_is_a_table(spark: SparkSession, origin: tuple[str, str]) -> None:
    frame = reader(spark, origin, minPartitions="3").load()
    assert frame.columns == ["stream", "sequence", "timestamp", "key", "body", "incarnation"]
    assert frame.rdd.getNumPartitions() == 3
    assert numbers(frame) == list(range(1, 501))
    row = frame.where("sequence = 41").collect()[0]
    assert (row.stream, row.key, bytes(row.body)) == ("s", "k1", b"41".ljust(20, b"."))
    [(time,)] = frame.where("sequence = 41").selectExpr("unix_seconds(timestamp)").collect()
    assert time == BEGINNING + 4


def test_columns_of_the_index_alone(spark: SparkSession, origin: tuple[str, str]) -> None:
    frame = reader(spark, origin).schema("sequence long, timestamp timestamp, stream string").load()
    found = frame.groupBy("stream").agg({"sequence": "sum", "timestamp": "max"}).collect()
    assert [tuple(row)[:2] for row in found] == [("s", sum(range(1, 501)))]
    assert frame.count() == 500
    assert frame.where("sequence > 17 and sequence <= 400").count() == 383


def test_the_format_is_not_registered_twice(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark finds it by itself, and would warn that it was replaced."""
    monkeypatch.setattr(type(spark.dataSource), "register", lambda *_: pytest.fail("it was registered again"))
    assert register(spark) is spark


def test_a_date_is_in_utc_in_every_time_zone(spark: SparkSession) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    try:
        for name in ("Pacific/Auckland", "America/Los_Angeles"):
            spark.conf.set(zone, name)
            times = spark.sql(
                "select timestamp_micros(col1) as time from values (-1), (0), (86399999999), (86400000000)"
            )
            dates = times.select(utc_date("time").cast("string").alias("date")).collect()
            assert [row.date for row in dates] == ["1969-12-31", "1970-01-01", "1970-01-01", "1970-01-02"]
    finally:
        spark.conf.set(zone, str(before))


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_give_the_same_rows_with_and_without_pushdown(
    spark: SparkSession, origin: tuple[str, str], pushed: str
) -> None:
    frame = reader(spark, origin, pushFilters=pushed, streams="s,t").load()
    assert numbers(frame.where("stream = 't' and sequence > 2")) == [3, 4, 5]
    assert numbers(frame.where("key like 'k7%' and stream = 's' and sequence between 20 and 50")) == [27, 37, 47]
    assert numbers(frame.where("sequence in (3, 400) and stream = 's'")) == [3, 400]
    assert numbers(frame.where("key in ('k1', 'k2') and sequence < 13 and stream like 's%'")) == [1, 2, 11, 12]
    time = f"timestamp_seconds({BEGINNING})"
    assert numbers(frame.where(f"timestamp <= {time} and key <> 'k3' and stream = 't'")) == [1, 2, 4, 5]
    assert frame.where(f"timestamp > {time} + interval 10 seconds").count() == 500 - 110
    assert frame.where("incarnation = 'none'").count() == 0


def test_a_reader_takes_filters_only_if_the_session_offers_them(spark: SparkSession, origin: tuple[str, str]) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        assert numbers(reader(spark, origin, pushFilters="true").load().where("sequence <= 3")) == [1, 2, 3]
    finally:
        spark.conf.set(setting, str(before))


def test_filters_reach_the_source(spark: SparkSession, origin: tuple[str, str]) -> None:
    frame = reader(spark, origin, pushFilters="true").load()
    plan = frame.where("key = 'k1' and sequence > 10")._jdf.queryExecution().toString()
    assert "Filter (" not in plan.split("== Physical Plan ==")[1]


def test_a_table_can_be_used_again_with_other_filters(spark: SparkSession, origin: tuple[str, str]) -> None:
    frame = reader(spark, origin).load()
    few, others = frame.where("sequence < 3"), frame.where("sequence > 490")
    assert (few.count(), frame.count(), others.count()) == (2, 500, 10)
    assert numbers(few.unionAll(others)) == [1, 2, *range(491, 501)]
    assert frame.join(few, "sequence").count() == 2


def test_a_schema_leaves_columns_out(spark: SparkSession, origin: tuple[str, str]) -> None:
    frame = reader(spark, origin).schema("sequence long, key string").load()
    assert frame.where("sequence <= 3").collect() == [(1, "k1"), (2, "k2"), (3, "k3")]


def test_a_view_in_sql(spark: SparkSession, origin: tuple[str, str]) -> None:
    spark.sql(f"create or replace temporary view readings using zeps options ({origin[0]} '{origin[1]}', stream 't')")
    assert spark.sql("select count(*), max(sequence) from readings").collect() == [(5, 5)]
    spark.catalog.dropTempView("readings")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"strem": "s"}, "there is no option 'strem': the options are path, storeOptions, endpoint, stream"),
        ({"minPartitions": "none"}, "option 'minPartitions' is 'none': it must be a whole number of at least 1"),
        ({"stream": "no"}, "there is no stream 'no': there are 's', 't'"),
        ({"maxMessagesPerTrigger": "1"}, "option 'maxMessagesPerTrigger' is not for a batch query"),
    ],
)
def test_a_bad_option_raises(spark: SparkSession, origin: tuple[str, str], options: dict[str, str], told: str) -> None:
    with pytest.raises(PySparkException) as caught:
        reader(spark, origin, **options).load().count()
    assert told in str(caught.value)


def test_keys_that_are_not_utf8_stay_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "s", [("\udcff\udcfe", b"x")])
    frame = spark.read.format("zeps").option("path", str(tmp_path)).option("stream", "s").load()
    assert frame.selectExpr("hex(key)", "is_valid_utf8(key)").collect() == [("FFFE", False)]


def test_every_session_knows_the_format() -> None:
    """Spark looks for modules named pyspark_*; ours has what it looks for."""
    import pyspark_zeps
    from zambezi.spark.source import ZepsDataSource

    assert pyspark_zeps.DefaultSource is ZepsDataSource


# Streaming


def run(writer: DataStreamWriter, checkpoint: Path) -> list[Any]:
    """Run a query over what is there now; its progress."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()
    return [progress for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_is_followed_through_restarts(spark: SparkSession, origin: tuple[str, str], tmp_path: Path) -> None:
    def follow(**options: str) -> list[Any]:
        given = {"stream": "s", "startingSequence": "earliest", **options}
        frame = spark.readStream.format("zeps").option(*origin).options(**given).load()
        writer = frame.select("sequence", "key").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        return run(writer, tmp_path / "checkpoint")

    progress = follow(maxMessagesPerTrigger="200")
    assert [one.numInputRows for one in progress] == [200, 200, 100]
    assert json.loads(progress[-1].sources[0].endOffset)["s"]["sequence"] == 500
    assert follow() == []
    if origin[0] == "path":
        write(Path(origin[1]), "s", numbered(50, 501))
        assert [one.numInputRows for one in follow()] == [50]
    written = spark.read.parquet(str(tmp_path / "out"))
    assert numbers(written) == list(range(1, written.count() + 1))


def test_a_replaced_stream_fails_a_query_or_is_read_from_its_beginning(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, "s", numbered(20))

    def follow(fail: str) -> list[Any]:
        options = {"path": str(data), "stream": "s", "startingSequence": "earliest", "failOnDataLoss": fail}
        frame = spark.readStream.format("zeps").options(**options).load()
        return run(frame.writeStream.format("noop"), tmp_path / "checkpoint")

    assert [one.numInputRows for one in follow("true")] == [20]
    with Store(data) as store:
        store.delete("s")
    write(data, "s", numbered(7))
    with pytest.raises(PySparkException, match="is not the stream that the query has read"):
        follow("true")
    assert [one.numInputRows for one in follow("false")] == [7]
    assert follow("true") == []


def test_a_table_is_published(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path) as (_, bound):
        frame = spark.range(1000).selectExpr("concat('k', id % 10) as key", "cast(id as string) as body")
        for _ in range(2):  # the second write goes on where the first one stopped, which is at the end
            options = {"endpoint": bound, "stream": "out", "publisher": "numbers"}
            frame.write.format("zeps").options(**options).mode("append").save()
            written = spark.read.format("zeps").option("endpoint", bound).option("stream", "out").load()
            bodies = sorted(int(row.body) for row in written.selectExpr("cast(body as string) as body").collect())
            assert bodies == list(range(1000))
        with pytest.raises(PySparkException, match="can only grow"):
            frame.write.format("zeps").options(endpoint=bound, stream="s").mode("overwrite").save()


def _is_doomed(numbers: pa.Array) -> bool:
    """Whether this is the first attempt of a task, and some rows have gone through."""
    context = TaskContext.get()
    assert context is not None
    return not context.attemptNumber() and bool({80_000, 180_000} & set(numbers.to_pylist()))


def fails_once(numbers: pa.Array) -> pa.Array:
    if _is_doomed(numbers):
        raise RuntimeError("this attempt fails")
    return numbers


def dies_once(numbers: pa.Array) -> pa.Array:
    if _is_doomed(numbers):
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers


@pytest.mark.parametrize("fate", [fails_once, dies_once])
def test_retried_tasks_publish_each_row_once(
    spark: SparkSession, tmp_path: Path, fate: Callable[[pa.Array], pa.Array]
) -> None:
    """The sink publishes most of 100,000 rows; then the attempt ends, and another finds them in the stream."""
    with serving(tmp_path) as (_, bound):
        fragile = spark.range(0, 200_000, 1, 2).select(arrow_udf(fate, "long")("id").alias("id"))  # type: ignore[call-overload]
        fragile = fragile.selectExpr("cast(id as string) as key", "cast(id as string) as body")
        options = {"endpoint": bound, "stream": "out"}
        fragile.write.format("zeps").options(**options).mode("append").save()
        written = spark.read.format("zeps").option("endpoint", bound).option("stream", "out").load()
        assert written.selectExpr("count(*)", "count(distinct key)", "sum(cast(key as long))").collect() == [
            (200_000, 200_000, sum(range(200_000)))
        ]


def test_a_stream_is_copied_once_through_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """The checkpoint of the last batch is taken away: Spark runs it again, and the sink has it already."""
    data = tmp_path / "data"
    write(data, "s", numbered(100))
    with serving(data) as (_, bound):

        def copy() -> list[Any]:
            source = {"endpoint": bound, "stream": "s", "startingSequence": "earliest", "maxMessagesPerTrigger": "40"}
            frame = spark.readStream.format("zeps").options(**source).load().select("key", "body")
            return run(frame.writeStream.format("zeps").options(endpoint=bound, stream="copy"), tmp_path / "copy")

        assert [one.numInputRows for one in copy()] == [40, 40, 20]
        commits = tmp_path / "copy" / "commits"
        for name in ("2", ".2.crc"):
            (commits / name).unlink(missing_ok=True)
        assert [one.numInputRows for one in copy()] == [20]
        written = spark.read.format("zeps").option("endpoint", bound).option("stream", "copy").load()
        assert written.count() == written.select("body").distinct().count() == 100


def test_the_cores_of_a_cluster() -> None:
    settings = {"spark.cores.max": "6", "spark.executor.instances": "3"}
    masters = ["local", "local[4]", "local[4,2]", "local[*]", "local-cluster[2,3,1024]", "spark://h:1", "yarn"]
    assert [cluster_cores(master, settings) for master in masters] == [1, 4, 4, 6, 6, 6, 6]
    assert cluster_cores("yarn", {"spark.executor.instances": "3"}) == 3
    assert cluster_cores("yarn", {}) is None


def test_the_core_does_not_need_spark() -> None:
    """The core of Zambezi can be imported without pyspark."""
    program = (
        "import sys; sys.modules.update(pyspark=None, pyarrow=None, numpy=None)\n"
        "import zambezi, zambezi.zeps.broker, zambezi.zeps.sync, zambezi.zre, zambezi.mcollective.sync, zambezi.cli\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_session_on_one_machine_listens_only_there(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.driver.host") == settings.get("spark.driver.bindAddress") == "127.0.0.1"
