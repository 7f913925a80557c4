"""The sink `zeps`: it publishes the rows of a table as messages of a stream.

    frame.write.format("zeps").option("endpoint", "tcp://broker:5555").option("stream", "alarms").mode("append").save()

The columns are `key` and `body`, and `stream` if each row names its target. A task publishes its rows in order, and
waits at the barrier until all of them are in the journal before it reports success. Each row is in the stream once,
even if Spark runs a task again; `zambezi.spark.task_publisher` says how.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from zambezi.spark.broker_access import BrokerAccess
from zambezi.spark.columns import Numbers, RecordBatch
from zambezi.spark.errors import OptionError, SchemaError, SparkError
from zambezi.spark.options import Options
from zambezi.spark.publish_columns import encode_publish
from zambezi.spark.task_publisher import Task, TaskPublisher
from zambezi.spark.worker_process import prepare_worker

_log: Final = logging.getLogger("zambezi.spark")

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "body": (BinaryType, StringType),
    "stream": (StringType,),
}


@dataclass
class Published(WriterCommitMessage):
    """The result of a task: the number of its rows, and how many of them an earlier attempt had published."""

    rows: int
    already: int = 0


class BaseWriter:
    """The methods that the batch writer and the stream writer share."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        prepare_worker()  # Spark makes a writer only in Python workers: to plan a query, and to commit each batch
        if overwrite:
            raise OptionError("a stream can only grow: write with mode('append'), or outputMode('append') or 'update'")
        _check_schema(schema, options)
        self.options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle the writer in a Python worker that publishes."""
        prepare_worker()
        self.__dict__.update(state)

    def publish(self, batches: Iterator[RecordBatch], task: Task) -> Published:
        """Publish the rows of one task."""
        options = self.options
        broker = BrokerAccess(options["endpoint"], options.security(), options["timeout"])
        publisher = TaskPublisher(broker, task, options["failOnRefusal"])
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                publisher.publish(_encode_rows(batch, options["stream"]))
            publisher.finish()
        finally:
            publisher.close()
        return Published(rows, publisher.already)


class BatchWriter(BaseWriter, DataSourceArrowWriter):
    """A writer for one batch write."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self.job = options["publisher"] or uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        return self.publish(iterator, Task(self.job, 0, context.partitionId() if context else 0))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log.info("published %d rows", _count_rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _warn_of_abort(messages)


class StreamWriter(BaseWriter, DataSourceStreamArrowWriter):
    """A writer for one streaming query."""

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = self.options["publisher"] or context.getLocalProperty(_QUERY) or ""
        batch = context.getLocalProperty(_BATCH) or ""
        if not (query and batch.isdigit()):
            raise SparkError("Spark does not give the task its query and batch, so the sink cannot count its rows")
        return self.publish(iterator, Task(query, int(batch), context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log.info("batch %d: published %d rows", batchId, _count_rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _warn_of_abort(messages)


def _encode_rows(batch: RecordBatch, stream: str | None) -> Iterator[tuple[str, memoryview, Numbers]]:
    """Yield each target stream of the rows, with its PUBLISH messages and where each of them begins."""
    if not batch.num_rows:
        return
    names = batch.schema.names
    bodies = batch.column("body")
    keys = batch.column("key") if "key" in names else pa.repeat(pa.scalar(""), batch.num_rows)
    if "stream" not in names:
        assert stream is not None
        yield stream, *encode_publish(keys, bodies)
        return
    targets = batch.column("stream")
    if targets.null_count:
        if stream is None:
            raise SchemaError("column 'stream' is null in a row, and option 'stream' names no stream for such rows")
        targets = pc.fill_null(targets, stream)
    distinct: list[str] = sorted(targets.unique().to_pylist())
    for name in distinct:
        if len(distinct) == 1:
            yield name, *encode_publish(keys, bodies)
        else:
            mask = pc.equal(targets, name)
            yield name, *encode_publish(keys.filter(mask), bodies.filter(mask))


def _check_schema(schema: StructType, options: Options) -> None:
    names = schema.fieldNames()
    for field in schema.fields:
        kinds = _COLUMNS.get(field.name)
        if kinds is None:
            raise SchemaError(
                f"the sink zeps has no column {field.name!r}: select key and body, and stream for several targets"
            )
        if type(field.dataType) not in kinds:
            words = " or ".join(kind().simpleString() for kind in kinds)
            raise SchemaError(f"column {field.name!r} must be {words}, not {field.dataType.simpleString()}")
    if "body" not in names:
        raise SchemaError("the sink zeps needs a column 'body': binary, or string")
    if "stream" not in names and options["stream"] is None:
        raise OptionError("the sink zeps needs a target stream: set option 'stream', or add a column 'stream'")


def _count_rows(messages: list[Any]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Published))


def _warn_of_abort(messages: list[Any]) -> None:
    _log.warning(
        "the write was aborted: %d rows of finished tasks are published and stay in the stream", _count_rows(messages)
    )
