"""zambezi.spark.source: the data source `zeps`, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.schemas import COLUMNS, schema_of
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.errors import SchemaError
from zambezi.spark.sink import BatchWriter, StreamWriter
from zambezi.spark.source import SCHEMA, ZepsDataSource, check_schema
from zambezi.spark.stream_reader import StreamReader


def test_the_source_makes_readers_and_writers(tmp_path: Path) -> None:
    source = ZepsDataSource({"path": str(tmp_path), "stream": "s"})
    assert source.name() == "zeps"
    assert source.schema() == SCHEMA
    assert isinstance(source.reader(COLUMNS), BatchReader)
    assert isinstance(source.streamReader(COLUMNS), StreamReader)
    sink = ZepsDataSource({"endpoint": "tcp://127.0.0.1:1", "stream": "s"})
    rows = schema_of("key string, body binary")
    assert isinstance(sink.writer(rows, overwrite=False), BatchWriter)
    assert isinstance(sink.streamWriter(rows, overwrite=False), StreamWriter)


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("offset long", "there is no column 'offset': the source zeps has stream, sequence, timestamp"),
        ("sequence integer", "column 'sequence' must be bigint, not int"),
        ("key integer", "column 'key' must be string or binary, not int"),
    ],
)
def test_a_schema_that_the_source_cannot_fill(ddl: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_schema(schema_of(ddl))
