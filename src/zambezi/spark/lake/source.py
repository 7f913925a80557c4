"""The data source of tables: by it, Spark's executors read and write the files of a table with pyarrow.

It is for pipelines only. A writer does not commit: it leaves the list of new files in a note for the driver, which adds
them to the table. No JVM package is needed, and no Hadoop file system.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.reading import groups_of, rows_of_file, sorted_files
from zambezi.spark.lake.table import LakeTable
from zambezi.spark.lake.writing import AddedFile, write_files
from zambezi.spark.plan import default_cores
from zambezi.spark.worker_process import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "zambezi-table"


def table_options(place: Place, **others: str) -> dict[str, str]:
    """Return the options of this source for a place. Spark shows no option in a plan whose name has `secret`."""
    return {"place": place.uri, "secretOptions": json.dumps(place.options), **others}


def _place(options: Mapping[str, str], name: str = "place") -> Place:
    return Place(options[name], json.loads(options["secretOptions"]))


@dataclass
class Written(WriterCommitMessage):
    """The result of a task: the files that it has written."""

    files: list[AddedFile]


class LakeDataSource(DataSource):
    """The format of tables. Readers must give a schema."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(_place(self.options), schema, int(self.options.get("tasks", default_cores())))

    def writer(self, schema: StructType, overwrite: bool) -> FileWriter:
        return FileWriter(_place(self.options), _place(self.options, "notes"), self.options["note"])


class FileWriter(DataSourceArrowWriter):
    """A writer that adds no file to a table: the driver does."""

    def __init__(self, place: Place, notes: Place, note: str) -> None:
        self._place = place
        self._notes = notes
        self._note = note

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        prepare_worker()
        return Written(write_files(self._place, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the list of files in the note."""
        files = [asdict(file) for one in messages if isinstance(one, Written) for file in one.files]
        self._notes.put(self._note, json.dumps(files).encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files to a vacuum."""


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
