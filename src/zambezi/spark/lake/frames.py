"""Delta tables as Spark's data frames, and back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.source import NAME, LakeDataSource, table_options
from zambezi.spark.lake.writing import AddedFile
from zambezi.spark.sessions import add_format

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
    add_format(frame.sparkSession, LakeDataSource)
    with tempfile.TemporaryDirectory(prefix="zambezi-files-") as directory:
        note = Path(directory) / "files.json"
        frame.write.format(NAME).options(**table_options(place, note=str(note))).mode("append").save()
        return [AddedFile(**one) for one in json.loads(note.read_text())]


def table_frame(spark: SparkSession, place: Place, ddl: str, columns: Sequence[str] = ()) -> DataFrame:
    """Return the rows of a table: all columns of its schema, or some."""
    add_format(spark, LakeDataSource)
    wanted = StructType([one for one in struct(ddl).fields if not columns or one.name in columns])
    options = table_options(place, tasks=str(spark.sparkContext.defaultParallelism))
    return spark.read.format(NAME).schema(wanted).options(**options).load()
