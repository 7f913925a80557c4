"""A Spark source that has its rows ready: the floor of every source in Python.

It makes one record batch, and gives it to Spark again and again. So the time of a query is the time that Spark needs to
take rows from Python: its Java reads them from a socket, and copies each row twice.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from zambezi.spark.source import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS: Final = 14_000  # of a batch: as many as the source `zeps` has in one


class ReadyBatches(DataSource):
    """The format `ready`, with the option `rows`: how many in all."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(schema, int(self.options["rows"]), int(self.options["partitions"]))


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, partitions: int) -> None:
        self._schema = schema
        self._rows = rows
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = self._batch()
        left = self._rows // self._partitions
        while left > 0:
            yield batch.slice(0, min(left, ROWS))
            left -= ROWS

    def _batch(self) -> pa.RecordBatch:
        """Return rows like those of the messages that are measured."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        numbers = np.arange(ROWS)
        text = b64encode(Random(0).randbytes(ROWS * 75))
        columns = {
            "stream": pa.array(["readings"] * ROWS),
            "sequence": pa.array(numbers),
            "timestamp": pa.array(numbers, pa.timestamp("us", "UTC")),
            "key": pa.array([f"sensor.{number % 100:03d}" for number in range(ROWS)]),
            "body": pa.array([text[place : place + 100] for place in range(0, ROWS * 100, 100)], pa.binary()),
            "incarnation": pa.array(["0" * 36] * ROWS),
        }
        return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def ready_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Return a table of rows that are ready, in as many partitions as the session has cores."""
    partitions = spark.sparkContext.defaultParallelism
    return spark.read.format(ReadyBatches.name()).options(rows=rows, partitions=partitions).load()
