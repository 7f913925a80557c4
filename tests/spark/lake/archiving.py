"""Archives without Spark: the batches of a streaming query, written and committed in the steps of a run."""

from __future__ import annotations

import pickle
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.spark.lake.tables import SCHEMA
from zambezi.spark.archive_writer import ArchivingStreamReader
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import AddedFile
from zambezi.spark.options import STREAM, Options


def archive(data: Path, out: Path | str, options: dict[str, str] | None = None, **source: str) -> LakeTable:
    """Archive the messages of a data directory that the archive does not have."""
    table = LakeTable(Place(str(out), options), "archive")
    table.create(SCHEMA)
    last = table.state or State(-1)
    chosen = {"path": str(data), "streamPattern": "", "startingSequence": "earliest"} | source
    reader = ArchivingStreamReader(table.place, Options(chosen, STREAM))
    start = last.offsets or reader.initialOffset()
    end = reader.latestOffset(dict(start), ReadAllAvailable())
    added = [
        AddedFile(**row)
        for partition in reader.partitions(dict(start), end)
        for batch in pickle.loads(pickle.dumps(reader)).read(partition)
        for row in batch.to_pylist()
    ]
    table.append(added, State(last.batch + 1, end, pattern=source.get("pattern", "")))
    return table
