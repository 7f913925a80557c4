"""The format `zeps` in statements of SQL: what docs/spark.md shows, and what Spark cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from tests.spark.journal import numbered, write
from tests.zeps.serving import serving
from zambezi.zeps.sync import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_views_are_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", "readings", numbered(30))
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        at = f"endpoint '{endpoint}'"
        try:
            spark.sql(f"CREATE TEMPORARY VIEW readings USING zeps OPTIONS ({at}, stream 'readings')")
            assert spark.sql("SELECT count(*) FROM readings WHERE sequence > 10").collect() == [(20,)]
            columns = "(key STRING, body BINARY)"
            spark.sql(f"CREATE TEMPORARY VIEW alarms {columns} USING zeps OPTIONS ({at}, stream 'alarms')")
            spark.sql("INSERT INTO alarms SELECT key, body FROM readings WHERE sequence <= 2 ORDER BY sequence")
        finally:
            spark.catalog.dropTempView("readings")
            spark.catalog.dropTempView("alarms")
        found = [(one.key, one.body) for one in client.stream("alarms").subscribe(since="earliest", until="now")]
    assert sorted(found) == [("k1", b"1"), ("k2", b"2")]


def test_a_table_is_refused_with_the_way_that_works(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("CREATE TABLE lost (key STRING, body BINARY) USING zeps OPTIONS (path 'data', stream 's')")
    try:
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW name USING zeps OPTIONS"):
            spark.sql("SELECT count(*) FROM lost").collect()
    finally:
        spark.sql("DROP TABLE lost")
