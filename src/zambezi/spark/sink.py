"""The sink `zeps`: it publishes the rows of a table as messages of a stream.

    frame.write.format("zeps").option("endpoint", "tcp://broker:5555").option("stream", "alarms").mode("append").save()

The columns are `key` and `body`, and `stream` if each row names its target. A task publishes its rows in order, and
waits at the barrier until all of them are in the journal before it reports success. If Spark retries a task, its rows
are published again: at least once. With `dedup` each row is published once; `zambezi.spark.ledger` says how, and what
the sink cannot know.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from zambezi.spark.backend import SequenceRange
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import Numbers, RecordBatch, encode_publish, split_frames
from zambezi.spark.errors import ConnectionLost, NotRepeatable, OptionError, Replaced, SchemaError
from zambezi.spark.garbage import freeze_imported_objects
from zambezi.spark.ledger import ChunkNote, Ledger, Task, count_published
from zambezi.spark.options import Options
from zambezi.spark.task_connection import TaskConnection

_log: Final = logging.getLogger("zambezi.spark")

CHUNK_ROWS: Final = 65536  # rows between two notes in the ledger
SETTLE_SECONDS: Final = 0.5  # time for a broker to read the messages that a dead task had sent
MAX_UNCONFIRMED: Final = 16 << 20  # bytes that a task publishes before it waits at the barrier
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
        if overwrite:
            raise OptionError("a stream can only grow: write with mode('append'), or outputMode('append') or 'update'")
        _check_schema(schema, options)
        self.options = options
        self.search_after = 0  # no note of this writer's tasks is at or before this sequence of the ledger

    def open_backend(self) -> BrokerBackend:
        options = self.options
        return BrokerBackend(options["endpoint"], options.security(), options["timeout"])

    def publish(self, batches: Iterator[RecordBatch], task: Task) -> Published:
        """Publish the rows of one task."""
        freeze_imported_objects()
        backend = self.open_backend()
        try:
            if self.options["dedup"]:
                return _OncePublisher(backend, self.options, task, self.search_after).publish(batches)
            return _AtLeastOncePublisher(backend, self.options["stream"]).publish(batches)
        finally:
            backend.close()


class BatchWriter(BaseWriter, DataSourceArrowWriter):
    """A writer for one batch write."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self.job = uuid4().hex
        if options["dedup"]:
            # The job is new, so its notes come after the present end of the ledger.
            backend = self.open_backend()
            try:
                ledger = backend.streams([options["ledger"]]).get(options["ledger"])
            finally:
                backend.close()
            self.search_after = ledger.last if ledger is not None else 0

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
        query = context.getLocalProperty(_QUERY) or ""
        batch = context.getLocalProperty(_BATCH) or ""
        if self.options["dedup"] and not (query and batch.isdigit()):
            raise OptionError(
                "option 'dedup': Spark does not give the task its query and batch, which the ledger needs: set "
                "dedup=false"
            )
        return self.publish(iterator, Task(query, int(batch or 0), context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log.info("batch %d: published %d rows", batchId, _count_rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _warn_of_abort(messages)


class _AtLeastOncePublisher:
    """A publisher that sends rows as they come, and sends unconfirmed rows again after a connection breaks."""

    def __init__(self, backend: BrokerBackend, stream: str | None) -> None:
        self._backend = backend
        self._stream = stream
        self._connections: dict[str, TaskConnection] = {}
        self._unconfirmed: dict[str, list[tuple[bytes, Numbers]]] = {}
        self._unconfirmed_size = 0

    def publish(self, batches: Iterator[RecordBatch]) -> Published:
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                for stream, octets, starts in _encode_rows(batch, self._stream):
                    self._send(stream, octets, starts)
                if self._unconfirmed_size >= MAX_UNCONFIRMED:
                    self._confirm()
            self._confirm()
        finally:
            for connection in self._connections.values():
                connection.close()
        return Published(rows)

    def _send(self, stream: str, octets: bytes, starts: Numbers) -> None:
        self._unconfirmed.setdefault(stream, []).append((octets, starts))
        self._unconfirmed_size += len(octets)
        connection = self._connections.get(stream)
        try:
            if connection is None:
                connection = self._connections[stream] = self._backend.connect(stream)
            connection.send_encoded(octets, starts)
        except ConnectionLost:
            self._send_again(stream)

    def _confirm(self) -> None:
        for stream in self._unconfirmed:
            try:
                self._connections[stream].barrier()
            except ConnectionLost:
                self._send_again(stream)
        self._unconfirmed.clear()
        self._unconfirmed_size = 0

    def _send_again(self, stream: str) -> None:
        """Publish the unconfirmed rows again on a new connection, until the broker confirms them."""

        def attempt() -> None:
            lost = self._connections.pop(stream, None)
            if lost is not None:
                lost.close()
            connection = self._connections[stream] = self._backend.connect(stream)
            for octets, starts in self._unconfirmed[stream]:
                connection.send_encoded(octets, starts)
            connection.barrier()

        self._backend.retry(attempt)
        self._unconfirmed[stream] = []


class _OncePublisher:
    """A publisher that sends rows chunk by chunk, and each row once."""

    def __init__(self, backend: BrokerBackend, options: Options, task: Task, search_after: int) -> None:
        self._backend = backend
        self._stream: str | None = options["stream"]
        self._task = task
        self._ledger = Ledger(backend, options["ledger"], task, search_after)
        self._connections: dict[str, TaskConnection] = {}
        self._already_published = 0

    def publish(self, batches: Iterator[RecordBatch]) -> Published:
        rows = 0
        try:
            for number, chunk in enumerate(_chunks(batches)):
                rows += chunk.num_rows
                self._publish_chunk(number, chunk, rows)
            if rows < self._ledger.finished_rows:
                raise self._not_repeatable("fewer rows")
            self._ledger.note_end(rows)
        finally:
            self._ledger.close()
            for connection in self._connections.values():
                connection.close()
        return Published(rows, self._already_published)

    def _publish_chunk(self, number: int, chunk: RecordBatch, rows: int) -> None:
        """Publish the rows of a chunk that are not published yet. `rows` is the number of rows up to its end."""
        encoded = list(_encode_rows(chunk, self._stream))
        digest = _digest(encoded)
        note = self._ledger.chunks.get(number)
        if note is not None and not self._matches_note(note, chunk, digest):
            raise self._not_repeatable(f"other rows in chunk {number}")
        if self._ledger.is_complete(number, rows):
            self._already_published += chunk.num_rows
            return
        if note is None:
            ends = self._ends_of([stream for stream, _, _ in encoded])
            note = self._ledger.note_chunk(ChunkNote(number, chunk.num_rows, digest, ends))
            published = dict.fromkeys(note.after, 0)
        else:
            if note.rows < chunk.num_rows:  # the earlier attempt did not receive all rows
                new = [stream for stream, _, _ in encoded if stream not in note.after]
                after = {**note.after, **self._ends_of(new)}
                note = self._ledger.note_chunk(ChunkNote(number, chunk.num_rows, digest, after))
            published = {stream: self._count_in(stream, octets, starts, note) for stream, octets, starts in encoded}
            self._already_published += sum(published.values())
        for stream, octets, starts in encoded:
            self._publish_rest(stream, octets, starts, note, published[stream])

    def _matches_note(self, note: ChunkNote, chunk: RecordBatch, digest: str) -> bool:
        """Return whether a chunk begins with the rows of its note."""
        if note.rows == chunk.num_rows:
            return note.digest == digest
        beginning = chunk.slice(0, note.rows)
        return note.rows < chunk.num_rows and _digest(list(_encode_rows(beginning, self._stream))) == note.digest

    def _publish_rest(self, stream: str, octets: bytes, starts: Numbers, note: ChunkNote, published: int) -> None:
        """Publish the rows after the first `published`. If the connection breaks, count those in the stream again."""
        is_count_known = True

        def attempt() -> None:
            nonlocal published, is_count_known
            if not is_count_known:
                published = self._count_in(stream, octets, starts, note)
            is_count_known = False
            connection = self._connections.get(stream)
            try:
                if connection is None:
                    connection = self._connections[stream] = self._backend.connect(stream)
                first = int(starts[published])
                connection.send_encoded(octets[first:], starts[published:] - first)
                connection.barrier()
            except ConnectionLost:
                lost = self._connections.pop(stream, None)
                if lost is not None:
                    lost.close()
                raise

        self._backend.retry(attempt)

    def _ends_of(self, streams: list[str]) -> dict[str, tuple[int, str]]:
        """Return the last sequence and the incarnation of each stream.

        A stream that does not exist yet is made, so that it has an incarnation.
        """
        for stream in streams:
            if stream not in self._connections:
                self._connections[stream] = self._backend.connect(stream)
        states = self._backend.streams(streams)
        return {stream: (states[stream].last, states[stream].incarnation) for stream in streams}

    def _count_in(self, stream: str, octets: bytes, starts: Numbers, note: ChunkNote) -> int:
        """Return how many of the rows, from the first on, are in the stream."""
        after, incarnation = note.after[stream]
        state = self._backend.streams([stream]).get(stream)
        if state is None or state.incarnation != incarnation:
            raise Replaced(
                f"stream {stream!a} was {incarnation} when the rows were published, and "
                f"{f'is {state.incarnation} now' if state else 'does not exist any more'}: the sink cannot find out "
                "which rows are published; write with dedup=false, or to a new stream"
            )
        rows = [row[3:] for row in split_frames(octets, starts)]  # key and body with their lengths
        published = self._count_in_range(rows, 0, SequenceRange(stream, incarnation, after, state.last))
        # The broker may still be reading messages of the dead task: look again until no more rows appear.
        while published < len(rows):
            time.sleep(SETTLE_SECONDS)
            before, seen = published, state.last
            state = self._backend.streams([stream]).get(stream, state)
            published = self._count_in_range(rows, published, SequenceRange(stream, incarnation, seen, state.last))
            if published == before:
                break
        return published

    def _count_in_range(self, rows: list[bytes], published: int, wanted: SequenceRange) -> int:
        """Return how many of the rows are in the stream; `published` of them are before the range."""
        if not wanted.count:
            return published
        for messages in self._backend.read(wanted, "", with_times=False):
            layout = messages.layout
            content = layout.octets.tobytes()
            begins, ends = (layout.keys - 1).tolist(), layout.starts[1:].tolist()
            found = [content[begin:end] for begin, end in zip(begins, ends, strict=True)]
            published = count_published(rows, found, published)
        return published

    def _not_repeatable(self, difference: str) -> NotRepeatable:
        return NotRepeatable(
            f"partition {self._task.partition} of batch {self._task.batch} has {difference} than in an earlier "
            "attempt, so the sink cannot find out which rows are published: give the rows an order "
            "(sortWithinPartitions) and a fixed number of partitions, or write with dedup=false"
        )


def _chunks(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the rows in chunks of one size, whatever the sizes of the batches."""
    held: list[RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= CHUNK_ROWS:
            table = pa.Table.from_batches(held).combine_chunks()
            yield table.slice(0, CHUNK_ROWS).combine_chunks().to_batches()[0]
            held = table.slice(CHUNK_ROWS).to_batches()
            count -= CHUNK_ROWS
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _encode_rows(batch: RecordBatch, stream: str | None) -> Iterator[tuple[str, bytes, Numbers]]:
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


def _digest(encoded: list[tuple[str, bytes, Numbers]]) -> str:
    digest = blake2b(digest_size=16)
    for stream, octets, _ in encoded:
        digest.update(f"{stream}\0{len(octets)}\0".encode("utf-8", "surrogatepass"))
        digest.update(octets)
    return digest.hexdigest()


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
