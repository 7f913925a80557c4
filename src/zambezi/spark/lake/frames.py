"""Delta tables as Spark's data frames, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.source import FILES, NAME, LakeDataSource, described, table_options
from zambezi.spark.lake.writing import AddedFile, write_files
from zambezi.spark.sessions import add_format
from zambezi.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def struct(ddl: str) -> StructType:
    """Return a schema in Spark's language as an object."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def arrow_schema(ddl: str) -> Any:
    """Return the schema of pyarrow for a schema in Spark's language."""
    return to_arrow_schema(struct(ddl), timezone="UTC")


def write_frame(frame: DataFrame, place: Place) -> list[AddedFile]:
    """Write a frame with a column `date` to new files, by the executors, and return the files."""
    return added_files(frame.mapInArrow(partial(_written, place), FILES))


def _written(place: Place, batches: Iterator[Any]) -> Iterator[Any]:
    prepare_worker()
    yield described(write_files(place, batches))


def added_files(frame: DataFrame) -> list[AddedFile]:
    """Return the new files that the rows of a frame describe."""
    return [AddedFile(**row.asDict()) for row in frame.collect()]


def table_frame(spark: SparkSession, place: Place, ddl: str, columns: Sequence[str] = ()) -> DataFrame:
    """Return the rows of a table: all columns of its schema, or some."""
    add_format(spark, LakeDataSource)
    wanted = StructType([one for one in struct(ddl).fields if not columns or one.name in columns])
    options = table_options(place)
    if not is_remote():
        options["tasks"] = str(spark.sparkContext.defaultParallelism)
    return spark.read.format(NAME).schema(wanted).options(**options).load()
