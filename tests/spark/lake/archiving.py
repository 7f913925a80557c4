"""Archives without Spark: the batches of a streaming query, written and committed in the steps of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.spark.lake.tables import SCHEMA
from tests.spark.readers import stream_reader
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.table import LakeTable, State
from zambezi.spark.lake.writing import write_files


def archive(data: Path, out: Path | str, options: dict[str, str] | None = None, **source: str) -> LakeTable:
    """Archive the messages of a data directory that the archive does not have."""
    table = LakeTable(Place(str(out), options), "archive")
    table.create(SCHEMA)
    last = table.state or State(-1)
    reader = stream_reader(data, **({"streamPattern": "", "startingSequence": "earliest"} | source))
    start = last.offsets or reader.initialOffset()
    end = reader.latestOffset(dict(start), ReadAllAvailable())
    batches = [_with_date(batch) for part in reader.partitions(dict(start), end) for batch in reader.read(part)]
    added = write_files(table.place, batches)
    table.append(added, State(last.batch + 1, end, pattern=source.get("pattern", "")))
    return table


def _with_date(batch: Any) -> Any:
    keys = batch.column("key").cast(pa.binary())
    valid = [_is_text(key) for key in keys.to_pylist()]
    text = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    octets = pc.if_else(pa.array(valid), pa.nulls(len(keys), pa.binary()), keys)
    columns = {name: batch.column(name) for name in batch.schema.names} | {"key": text, "key_bytes": octets}
    columns["date"] = columns["timestamp"].cast(pa.timestamp("us")).cast(pa.date32())
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
