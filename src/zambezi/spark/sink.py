"""The sink `zeps`: rows of a table become messages of a stream.

    frame.write.format("zeps").option("endpoint", "tcp://broker:5555").option("stream", "alarms").mode("append").save()

Columns are `key` and `body`, and `stream` where each row says where it goes. A task publishes its rows in their order,
and passes the barrier, so that all of them are in the journal, before it says that it is done. If a task is tried
again its rows are published again: at least once. With `dedup` each row is left once; `zambezi.spark.ledger` says how,
and what cannot be known.
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

from zambezi.spark.backend import Slice
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import Array, Numbers, RecordBatch, frames, publish
from zambezi.spark.errors import ConnectionLost, NotRepeatable, OptionError, Replaced, SchemaError
from zambezi.spark.garbage import spare_imports
from zambezi.spark.ledger import Begun, Ledger, Task, matched
from zambezi.spark.options import Options
from zambezi.spark.task_connection import TaskConnection

_log: Final = logging.getLogger("zambezi.spark")

CHUNK: Final = 65536  # rows between two notes in the ledger
SETTLE: Final = 0.5  # seconds in which a broker has read what a dead task had sent
UNCONFIRMED: Final = 16 << 20  # octets that are published before the barrier is passed
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (StringType, BinaryType),
    "body": (BinaryType, StringType),
    "stream": (StringType,),
}


@dataclass
class Published(WriterCommitMessage):
    """What a task has done: rows in all, and those of them that an earlier attempt had published."""

    rows: int
    found: int = 0


class Writing:
    """What the batch writer and the stream writer share."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a stream can only grow: write with mode('append'), or outputMode('append') or 'update'")
        _check_schema(schema, options)
        self.options = options
        self.floor = 0

    def remote(self) -> BrokerBackend:
        options = self.options
        return BrokerBackend(options["endpoint"], options.security(), options["timeout"])

    def publish(self, batches: Iterator[RecordBatch], task: Task) -> Published:
        """Publish the rows of one task."""
        spare_imports()
        remote = self.remote()
        try:
            if self.options["dedup"]:
                return _Once(remote, self.options, task, self.floor).publish(batches)
            return _AtLeastOnce(remote, self.options["stream"]).publish(batches)
        finally:
            remote.close()


class BatchWriter(Writing, DataSourceArrowWriter):
    """Writes a table."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self.job = uuid4().hex
        if options["dedup"]:
            # No note of this job can be before what the ledger has now.
            remote = self.remote()
            try:
                ledger = remote.streams([options["ledger"]]).get(options["ledger"])
            finally:
                remote.close()
            self.floor = ledger.last if ledger is not None else 0

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        return self.publish(iterator, Task(self.job, 0, context.partitionId() if context else 0))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log.info("published %d rows", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _tell_abort(messages)


class StreamWriter(Writing, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(_QUERY) or ""
        batch = context.getLocalProperty(_BATCH) or ""
        if self.options["dedup"] and not (query and batch.isdigit()):
            raise OptionError("option 'dedup': Spark does not say which query and batch this is, so use dedup=false")
        return self.publish(iterator, Task(query, int(batch or 0), context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log.info("batch %d: published %d rows", batchId, _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _tell_abort(messages)


class _AtLeastOnce:
    """Publishes rows as they come; what is not confirmed when the connection breaks is published again."""

    def __init__(self, remote: BrokerBackend, stream: str | None) -> None:
        self._remote = remote
        self._stream = stream
        self._lines: dict[str, TaskConnection] = {}
        self._pending: dict[str, list[tuple[bytes, Numbers]]] = {}
        self._octets = 0

    def publish(self, batches: Iterator[RecordBatch]) -> Published:
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
                for stream, octets, starts in _messages(batch, self._stream):
                    self._send(stream, octets, starts)
                if self._octets >= UNCONFIRMED:
                    self._confirm()
            self._confirm()
        finally:
            for line in self._lines.values():
                line.close()
        return Published(rows)

    def _send(self, stream: str, octets: bytes, starts: Numbers) -> None:
        self._pending.setdefault(stream, []).append((octets, starts))
        self._octets += len(octets)
        line = self._lines.get(stream)
        try:
            if line is None:
                line = self._lines[stream] = self._remote.line(stream)
            line.send(octets, starts)
        except ConnectionLost:
            self._again(stream)

    def _confirm(self) -> None:
        for stream in self._pending:
            try:
                self._lines[stream].barrier()
            except ConnectionLost:
                self._again(stream)
        self._pending.clear()
        self._octets = 0

    def _again(self, stream: str) -> None:
        """Publish once more what was not confirmed, on a new line, until it is."""

        def attempt() -> None:
            lost = self._lines.pop(stream, None)
            if lost is not None:
                lost.close()
            line = self._lines[stream] = self._remote.line(stream)
            for octets, starts in self._pending[stream]:
                line.send(octets, starts)
            line.barrier()

        self._remote.patiently(attempt)
        self._pending[stream] = []


class _Once:
    """Publishes rows chunk by chunk, and each of them once."""

    def __init__(self, remote: BrokerBackend, options: Options, task: Task, floor: int) -> None:
        self._remote = remote
        self._stream: str | None = options["stream"]
        self._task = task
        self._ledger = Ledger(remote, options["ledger"], task, floor)
        self._lines: dict[str, TaskConnection] = {}
        self._found = 0

    def publish(self, batches: Iterator[RecordBatch]) -> Published:
        rows = 0
        try:
            for number, table in enumerate(_chunks(batches)):
                rows += table.num_rows
                self._chunk(number, table, rows)
            if rows < self._ledger.ended:
                raise self._differs("fewer rows")
            self._ledger.end(rows)
        finally:
            self._ledger.close()
            for line in self._lines.values():
                line.close()
        return Published(rows, self._found)

    def _chunk(self, number: int, table: RecordBatch, rows: int) -> None:
        """Publish what is not published of a chunk; `rows` is how many there are up to its end."""
        messages = list(_messages(table, self._stream))
        digest = _digest(messages)
        begun = self._ledger.begun.get(number)
        if begun is not None and not self._agrees(begun, table, digest):
            raise self._differs(f"other rows in chunk {number}")
        if self._ledger.is_complete(number, rows):
            self._found += table.num_rows
            return
        if begun is None:
            ends = self._ends([stream for stream, _, _ in messages])
            begun = self._ledger.begin(Begun(number, table.num_rows, digest, ends))
            published = dict.fromkeys(begun.after, 0)
        else:
            if begun.rows < table.num_rows:  # the earlier attempt did not get all of them
                new = [stream for stream, _, _ in messages if stream not in begun.after]
                after = {**begun.after, **self._ends(new)}
                begun = self._ledger.begin(Begun(number, table.num_rows, digest, after))
            published = {stream: self._look(stream, octets, starts, begun) for stream, octets, starts in messages}
            self._found += sum(published.values())
        for stream, octets, starts in messages:
            self._rest(stream, octets, starts, begun, published[stream])

    def _agrees(self, begun: Begun, table: RecordBatch, digest: str) -> bool:
        """Whether a chunk begins with the rows that it had before."""
        if begun.rows == table.num_rows:
            return begun.digest == digest
        before = table.slice(0, begun.rows)
        return begun.rows < table.num_rows and _digest(list(_messages(before, self._stream))) == begun.digest

    def _rest(self, stream: str, octets: bytes, starts: Numbers, begun: Begun, published: int) -> None:
        """Publish the rows that are not there yet; if the line breaks, look which are, and go on."""
        is_known = True

        def attempt() -> None:
            nonlocal published, is_known
            if not is_known:
                published = self._look(stream, octets, starts, begun)
            is_known = False
            line = self._lines.get(stream)
            try:
                if line is None:
                    line = self._lines[stream] = self._remote.line(stream)
                first = int(starts[published])
                line.send(octets[first:], starts[published:] - first)
                line.barrier()
            except ConnectionLost:
                lost = self._lines.pop(stream, None)
                if lost is not None:
                    lost.close()
                raise

        self._remote.patiently(attempt)

    def _ends(self, streams: list[str]) -> dict[str, tuple[int, str]]:
        """Where the streams end now. Those that are not there yet are made, so that they have an incarnation."""
        for stream in streams:
            if stream not in self._lines:
                self._lines[stream] = self._remote.line(stream)
        known = self._remote.streams(streams)
        return {stream: (known[stream].last, known[stream].incarnation) for stream in streams}

    def _look(self, stream: str, octets: bytes, starts: Numbers, begun: Begun) -> int:
        """How many of the rows are in the stream."""
        after, incarnation = begun.after[stream]
        known = self._remote.streams([stream]).get(stream)
        if known is None or known.incarnation != incarnation:
            raise Replaced(
                f"stream {stream!a} was {incarnation} when the rows were published and is "
                f"{known.incarnation if known else 'not there'} now: what is published cannot be told; write with "
                "dedup=false, or to a new stream"
            )
        rows = [row[3:] for row in frames(octets, starts)]  # key and body, with their lengths
        published = self._count(rows, 0, Slice(stream, incarnation, after, known.last))
        # The broker may still be reading what a task sent that is dead by now: look again until nothing comes.
        while published < len(rows):
            time.sleep(SETTLE)
            before, seen = published, known.last
            known = self._remote.streams([stream]).get(stream, known)
            published = self._count(rows, published, Slice(stream, incarnation, seen, known.last))
            if published == before:
                break
        return published

    def _count(self, rows: list[bytes], published: int, piece: Slice) -> int:
        """How many of the rows are published, if so many were before a slice."""
        if not piece.count:
            return published
        for window in self._remote.windows(piece, "", timed=False):
            places = window.messages
            content = places.octets.tobytes()
            begins, ends = (places.keys - 1).tolist(), places.starts[1:].tolist()
            found = [content[begin:end] for begin, end in zip(begins, ends, strict=True)]
            published = matched(rows, found, published)
        return published

    def _differs(self, how: str) -> NotRepeatable:
        return NotRepeatable(
            f"partition {self._task.partition} of batch {self._task.batch} has {how} than when it was tried before, so "
            "that it cannot be told which are published: give the rows an order (sortWithinPartitions) and a fixed "
            "number of partitions, or write with dedup=false"
        )


def _chunks(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """The same rows in pieces of one size, whatever the sizes of the batches that they come in."""
    held: list[RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= CHUNK:
            table = pa.Table.from_batches(held).combine_chunks()
            yield table.slice(0, CHUNK).combine_chunks().to_batches()[0]
            held = table.slice(CHUNK).to_batches()
            count -= CHUNK
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _messages(batch: RecordBatch, stream: str | None) -> Iterator[tuple[str, bytes, Numbers]]:
    """PUBLISH messages for each stream that rows of a batch go to."""
    if not batch.num_rows:
        return
    names = batch.schema.names
    bodies = batch.column("body")
    keys = batch.column("key") if "key" in names else pa.repeat(pa.scalar(""), batch.num_rows)
    if "stream" not in names:
        assert stream is not None
        yield stream, *publish(keys, bodies)
        return
    targets = batch.column("stream")
    if targets.null_count:
        if stream is None:
            raise SchemaError("column 'stream' is null in a row, and option 'stream' does not say where such rows go")
        targets = pc.fill_null(targets, stream)
    distinct: list[str] = sorted(targets.unique().to_pylist())
    for name in distinct:
        if len(distinct) == 1:
            yield name, *publish(keys, bodies)
        else:
            mask = pc.equal(targets, name)
            yield name, *publish(_only(keys, mask), _only(bodies, mask))


def _only(column: Array, mask: Array) -> Array:
    return column.filter(mask)


def _digest(messages: list[tuple[str, bytes, Numbers]]) -> str:
    digest = blake2b(digest_size=16)
    for stream, octets, _ in messages:
        digest.update(f"{stream}\0{len(octets)}\0".encode("utf-8", "surrogatepass"))
        digest.update(octets)
    return digest.hexdigest()


def _check_schema(schema: StructType, options: Options) -> None:
    names = schema.fieldNames()
    for field in schema.fields:
        kinds = _COLUMNS.get(field.name)
        if kinds is None:
            raise SchemaError(
                f"the sink zeps has no column {field.name!r}: select key and body, and stream if rows go to several"
            )
        if type(field.dataType) not in kinds:
            words = " or ".join(kind().simpleString() for kind in kinds)
            raise SchemaError(f"column {field.name!r} must be {words}, not {field.dataType.simpleString()}")
    if "body" not in names:
        raise SchemaError("the sink zeps needs a column 'body': binary, or string")
    if "stream" not in names and options["stream"] is None:
        raise OptionError("where do the rows go? Set option 'stream', or give a column 'stream'")


def _count(messages: list[Any]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Published))


def _tell_abort(messages: list[Any]) -> None:
    _log.warning(
        "the write was given up: %d rows of the tasks that were done are published, and stay", _count(messages)
    )
