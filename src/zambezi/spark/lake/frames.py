"""Delta tables as Spark's data frames, and back."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.source import NAME, LakeDataSource, table_options
from zambezi.spark.lake.table import NOTES
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
    with _place_of_notes(place) as notes:
        note = f"{NOTES}/{secrets.token_hex(8)}.json"
        options = table_options(place, note=note, notes=notes.uri)
        frame.write.format(NAME).options(**options).mode("append").save()
        found = json.loads(notes.read(note) or b"")
        notes.remove(note)
        return [AddedFile(**one) for one in found]


@contextmanager
def _place_of_notes(place: Place) -> Iterator[Place]:
    """Give a place that this process and the driver share. Under Spark Connect, only the table is such a place."""
    if is_remote():
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="zambezi-files-") as directory:
        yield Place(directory)


def table_frame(spark: SparkSession, place: Place, ddl: str, columns: Sequence[str] = ()) -> DataFrame:
    """Return the rows of a table: all columns of its schema, or some."""
    add_format(spark, LakeDataSource)
    wanted = StructType([one for one in struct(ddl).fields if not columns or one.name in columns])
    options = table_options(place)
    if not is_remote():
        options["tasks"] = str(spark.sparkContext.defaultParallelism)
    return spark.read.format(NAME).schema(wanted).options(**options).load()
