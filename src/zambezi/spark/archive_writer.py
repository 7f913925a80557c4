"""The source of `archive`: each task writes the messages that it reads to files of the table.

The rows of this source are the new files. So messages go from the journal to Parquet within one Python process. By way
of Spark's own rows, the same takes more than twice the time of processors. As with every writer of tables
(`zambezi.spark.lake.writing`), a task that Spark repeats leaves files behind that no commit names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.types import StructField, StructType

from zambezi.spark.base_reader import BaseReader
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.lake.source import FILES, described, place_of, without_place
from zambezi.spark.lake.writing import DATE, as_binary, write_files
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.spark.source import COLUMNS, ZepsDataSource
from zambezi.spark.stream_reader import StreamReader
from zambezi.wire.text import is_utf8

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from zambezi.spark.columns import RecordBatch
    from zambezi.spark.lake.place import Place

ARCHIVING: Final = "zambezi-archiving"
# The columns of messages. In a table, they can be null, as Delta has it.
MESSAGES: Final = StructType([StructField(name, kinds[0]()) for name, kinds in COLUMNS.items()])
_LAST_DAY: Final = pa.scalar(date.max, pa.date32())  # of Python: readers cannot have later ones


class ArchivingDataSource(ZepsDataSource):
    """The format whose rows are the files that its tasks have written. Its options are those of `zeps`, and a table."""

    @classmethod
    def name(cls) -> str:
        return ARCHIVING

    def schema(self) -> str:
        return FILES

    def reader(self, schema: StructType) -> ArchivingBatchReader:
        return ArchivingBatchReader(place_of(self.options), Options(without_place(self.options), BATCH))

    def streamReader(self, schema: StructType) -> ArchivingStreamReader:  # noqa: N802 - Spark's name
        return ArchivingStreamReader(place_of(self.options), Options(without_place(self.options), STREAM))


class Archiving(BaseReader):
    """A reader that writes the messages of its partitions to files."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(MESSAGES, options)
        self._place = place

    def read_partition(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Write the messages of a partition. Yield one record batch, which describes the files."""
        yield described(write_files(self._place, map(archived, super().read_partition(partition))))


class ArchivingBatchReader(Archiving, BatchReader):
    """A reader for one batch query."""


class ArchivingStreamReader(Archiving, StreamReader):
    """A reader for one streaming query."""


def archived(messages: Any) -> Any:
    """Return messages as rows of an archive: with their date, and with the bytes of keys that are not UTF-8."""
    keys = messages.column("key")
    dates = pc.min_element_wise(pc.cast(messages.column("timestamp"), pa.date32()), _LAST_DAY)
    return messages.append_column("key_bytes", _bytes_of_bad_keys(keys)).append_column(DATE, dates)


def _bytes_of_bad_keys(keys: Any) -> Any:
    """Return the bytes of each key that is not UTF-8: readers of Parquet refuse it as a text."""
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([None if is_utf8(one) else one for one in as_binary(keys).to_pylist()], pa.binary())
    return pa.nulls(len(keys), pa.binary())
