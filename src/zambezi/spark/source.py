"""The data source `zeps`: it reads streams in batch and streaming queries, and publishes tables to streams.

    spark.read.format("zeps").option("path", "data").option("stream", "readings").load()
    spark.readStream.format("zeps").option("endpoint", "tcp://broker:5555").option("stream", "readings").load()

Spark requests all columns unless the user gives a schema (`.schema("sequence long")`). A schema leaves columns out.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructType, TimestampType

from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.errors import SchemaError
from zambezi.spark.options import BATCH, SINK, STREAM, Options
from zambezi.spark.sink import BatchWriter, StreamWriter
from zambezi.spark.stream_reader import StreamReader
from zambezi.spark.worker_process import prepare_worker

SCHEMA: Final = (
    "stream string not null, sequence long not null, timestamp timestamp not null, "
    "key string not null, body binary not null, incarnation string not null"
)
COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "stream": (StringType,),
    "sequence": (LongType,),
    "timestamp": (TimestampType,),
    "key": (StringType, BinaryType),
    "body": (BinaryType,),
    "incarnation": (StringType,),
}


class ZepsDataSource(DataSource):
    """The format `zeps`. docs/spark.md has its options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        prepare_worker()  # Spark makes a source only in Python workers: to plan, to read and to write
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "zeps"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(check_schema(schema), Options(self.options, BATCH))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(schema, Options(self.options, SINK), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(schema, Options(self.options, SINK), overwrite)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(check_schema(schema), Options(self.options, STREAM))


def check_schema(schema: StructType) -> StructType:
    """Return the schema if the source has its columns, otherwise raise SchemaError."""
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise SchemaError(f"there is no column {field.name!r}: the source zeps has {', '.join(COLUMNS)}")
        if type(field.dataType) not in kinds:
            words = " or ".join(kind().simpleString() for kind in kinds)
            raise SchemaError(f"column {field.name!r} must be {words}, not {field.dataType.simpleString()}")
    return schema
