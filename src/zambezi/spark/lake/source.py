"""The data source of tables: by it, Spark's executors read the files of a table with pyarrow.

It is for pipelines only. No JVM package is needed, and no Hadoop file system. Tasks that write a table describe their
new files in rows, and the driver adds the files to the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.reading import groups_of, rows_of_file, sorted_files
from zambezi.spark.lake.table import LakeTable
from zambezi.spark.lake.writing import AddedFile
from zambezi.spark.plan import default_cores
from zambezi.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "zambezi-table"
FILES: Final = "path string, size long, date string, rows long, stats string"  # the columns that describe new files
_FILES: Final = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("date", pa.string()), ("rows", pa.int64()), ("stats", pa.string())]
)


def table_options(place: Place) -> dict[str, str]:
    """Return the options of this source for a place. Spark shows no option in a plan whose name has `secret`."""
    return {"place": place.uri, "secretOptions": json.dumps(place.options)}


def place_of(options: Mapping[str, str]) -> Place:
    """Return the place that `table_options` describes."""
    return Place(options["place"], json.loads(options["secretOptions"]))


def without_place(options: Mapping[str, str]) -> dict[str, str]:
    """Return the other options."""
    return {name: value for name, value in options.items() if name.lower() not in ("place", "secretoptions")}


def described(files: Sequence[AddedFile]) -> Any:
    """Return new files as a record batch with the columns `FILES`."""
    return pa.RecordBatch.from_pylist([asdict(one) for one in files], schema=_FILES)


class LakeDataSource(DataSource):
    """The format of tables. Readers must give a schema."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(place_of(self.options), schema, int(self.options.get("tasks", default_cores())))


class TableReader(DataSourceReader):
    """A reader of all rows of the current version of a table."""

    def __init__(self, place: Place, schema: StructType, tasks: int) -> None:
        self._place = place
        self._schema = schema
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        groups = groups_of(sorted_files(LakeTable(self._place, "")), self._tasks)
        return [InputPartition([(one.path, one.date) for one in group]) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        prepare_worker()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for path, day in partition.value or []:
            yield from rows_of_file(self._place, path, day, schema)
