"""Delta tables as Spark's data frames, and back. No JVM package is needed, and no Hadoop file system."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.reading import groups_of, rows_of_file, sorted_files
from zambezi.spark.lake.table import LakeTable
from zambezi.spark.lake.writing import ADDED, AddedFile, as_batch, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def arrow_schema(ddl: str) -> Any:
    """Return the schema of pyarrow for a schema in Spark's language."""
    return to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")


def write_frame(frame: DataFrame, place: Place) -> list[AddedFile]:
    """Write a frame with a column `date` to new files, by the executors, and return the files."""
    rows = frame.mapInArrow(partial(_write, place), ADDED).collect()
    return [AddedFile(row["path"], row["size"], row["date"], row["rows"], row["stats"]) for row in rows]


def _write(place: Place, batches: Iterator[Any]) -> Iterator[Any]:
    yield from as_batch(write_files(place, batches))


def table_frame(
    spark: SparkSession, table: LakeTable, ddl: str, columns: Sequence[str] = (), tasks: int | None = None
) -> DataFrame:
    """Return the rows of a table: all columns of its schema, or some."""
    fields = StructType.fromDDL(ddl).fields
    wanted = StructType([one for one in fields if not columns or one.name in columns])
    groups = groups_of(sorted_files(table), tasks or spark.sparkContext.defaultParallelism)
    if not groups:
        return spark.createDataFrame([], wanted)
    # Spark makes a task of each row, because there are at most as many rows as it can run tasks at a time.
    rows = [(json.dumps([(one.path, one.date) for one in group]),) for group in groups]
    read = partial(_read, table.place, to_arrow_schema(wanted, timezone="UTC"))
    return spark.createDataFrame(rows, "files string").mapInArrow(read, wanted)


def _read(place: Place, schema: Any, batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            for path, day in json.loads(row["files"]):
                yield from rows_of_file(place, path, day, schema)
