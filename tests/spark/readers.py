"""Readers without Spark, and the rows that executors would read with them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.schemas import COLUMNS
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.options import BATCH, STREAM, Options
from zambezi.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

_SELECTION = {"stream", "streams", "streamPattern"}


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def batch_reader(path: Path, **options: str) -> BatchReader:
    """A reader of journals; of stream `s`, if the options select no other."""
    return BatchReader(COLUMNS, Options(_with_stream(path, options), BATCH))


def stream_reader(path: Path, clock: Clock | None = None, /, **options: str) -> StreamReader:
    """The same for a streaming query."""
    return StreamReader(COLUMNS, Options(_with_stream(path, options), STREAM), clock or Clock())


def _with_stream(path: Path, options: dict[str, str]) -> dict[str, str]:
    default = {} if options.keys() & _SELECTION else {"stream": "s"}
    return {"path": str(path), **default, **options}


def rows(reader: BatchReader | StreamReader, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """The rows that executors read, each with its own copy of the reader."""
    return [
        row
        for partition in partitions
        for batch in pickle.loads(pickle.dumps(reader)).read(partition)
        for row in batch.to_pylist()
    ]


def read(reader: BatchReader) -> list[tuple[str, int]]:
    """The stream and the sequence of each row of a batch query."""
    return [(row["stream"], row["sequence"]) for row in rows(reader, reader.partitions())]


def sequences(reader: BatchReader) -> list[int]:
    return [sequence for _, sequence in read(reader)]


def read_batch(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    """The stream and the sequence of each row between two offsets."""
    return [(row["stream"], row["sequence"]) for row in rows(reader, reader.partitions(start, end))]
