"""The ledger of the sink: notes of its tasks, so that a task that Spark retries does not publish rows twice.

A task publishes its rows in chunks. Before each chunk it publishes a note to the ledger, a separate stream at the same
broker. The note has the number of the chunk, a digest of its rows, and the last sequence of each target stream. The
task waits until the note is in the journal. After all chunks it notes the end. Subscribers of the target streams see
nothing of this.

    key   JOB/BATCH/PARTITION
    body  {"chunk": 0, "rows": 65536, "digest": "9f...", "after": {"readings": [1042, "0b2f1c7e-..."]}}
    body  {"end": 70000}

A retried task reads the notes of the attempts before it. A chunk with a note after it is complete, because a task
writes a note only after the broker has confirmed all earlier rows. The chunk of the last note is in doubt: the stream
contains all its rows, or the first of them, or none, after the sequence in the note. The task reads the stream from
there, and publishes the missing rows.

An attempt can also have received too few rows. If the code that produces the rows fails, Spark ends the iterator as
usual, and the sink cannot know: it publishes the rows it received, and notes the end. So the end is noted with the
number of rows, and a chunk may have more rows than in its note if it begins with the same rows.

What the sink cannot know: a message does not say who published it. So a row counts as published if its key and body are
in the stream, after the noted sequence, in the order of the rows. If another client publishes rows that are the same
byte for byte at the same time, one of them can be taken for one of the task's rows, which is then not published: the
stream has the row, but fewer times than it should. And a task that Spark considers dead can continue to publish while
its successor reads. docs/spark.md says so, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from zambezi.spark.backend import SequenceRange
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import bodies_of, keys_of
from zambezi.spark.errors import SparkError
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.messages import Publish

_FIRST_SEARCH: Final = 1024  # notes at the end of the ledger that are searched first


@dataclass(frozen=True, slots=True)
class Task:
    """The identity of a task, the same in every attempt: a job (a streaming query, or one batch write), a batch of the
    job, and a partition."""

    job: str
    batch: int
    partition: int

    @property
    def key(self) -> str:
        return f"{self.job}/{self.batch}/{self.partition}"


@dataclass(frozen=True, slots=True)
class ChunkNote:
    """The note of a chunk that a task began to publish: the number of its rows, and their digest.

    `after` has, for each target stream, its last sequence before the chunk, and its incarnation.
    """

    chunk: int
    rows: int
    digest: str
    after: dict[str, tuple[int, str]]


class Ledger:
    """The notes of one task."""

    def __init__(self, backend: BrokerBackend, stream: str, task: Task, search_after: int = 0) -> None:
        """Read the notes of earlier attempts. None of them is at or before the sequence `search_after`."""
        self._backend = backend
        self._stream = stream
        self._task = task
        self._connection: TaskConnection | None = None
        self.chunks: dict[int, ChunkNote] = {}
        self.finished_rows = 0  # the number of rows in the note of the end; 0 if there is none
        self._read(search_after)

    def is_complete(self, chunk: int, rows: int) -> bool:
        """Return whether earlier attempts published a whole chunk. `rows` is the number of rows up to its end."""
        return rows <= self.finished_rows or (bool(self.chunks) and chunk < max(self.chunks))

    def note_chunk(self, note: ChunkNote) -> ChunkNote:
        """Note that the task begins a chunk. The note is in the journal when this returns."""
        self._write({"chunk": note.chunk, "rows": note.rows, "digest": note.digest, "after": note.after})
        return self._add(note)

    def note_end(self, rows: int) -> None:
        """Note that the task has published all its rows."""
        if self.finished_rows < rows:
            self._write({"end": rows})
            self.finished_rows = rows

    def _write(self, body: dict[str, Any]) -> None:
        message = Publish(self._task.key, json.dumps(body, separators=(",", ":")).encode()).encode()[0]

        def write() -> None:
            # If the connection breaks, the note may be written twice, which does no harm.
            if self._connection is None:
                self._connection = self._backend.connect(self._stream)
            try:
                self._connection.send(message)
                self._connection.barrier()
            except SparkError:
                self.close()
                raise

        self._backend.retry(write)

    def _read(self, search_after: int) -> None:
        """Find the notes of the task. They are near the end of the ledger: a job writes its batches in order."""
        state = self._backend.streams([self._stream]).get(self._stream)
        if state is None:
            return
        begin = max(search_after, state.first - 1)
        count = _FIRST_SEARCH
        while True:
            after = max(begin, state.last - count)
            notes = self._notes(SequenceRange(self._stream, state.incarnation, after, state.last))
            if after <= begin or any(self._is_earlier(key) for key, _ in notes):
                break
            count *= 8
        for key, body in notes:
            if key == self._task.key:
                self._parse(body)

    def _notes(self, wanted: SequenceRange) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        if not wanted.count:
            return found
        for messages in self._backend.read(wanted, "", with_times=False):
            layout = messages.layout
            found += zip(keys_of(layout).to_pylist(), bodies_of(layout).to_pylist(), strict=True)
        return found

    def _is_earlier(self, key: str) -> bool:
        """Return whether a note is from an earlier batch of this job: the task has no notes before it."""
        job, _, rest = key.partition("/")
        batch = rest.partition("/")[0]
        return job == self._task.job and batch.isdigit() and int(batch) < self._task.batch

    def _parse(self, body: bytes) -> None:
        try:
            note = json.loads(body)
            if "end" in note:
                self.finished_rows = max(self.finished_rows, int(note["end"]))
            else:
                after = {name: (int(last), str(incarnation)) for name, (last, incarnation) in note["after"].items()}
                self._add(ChunkNote(int(note["chunk"]), int(note["rows"]), str(note["digest"]), after))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SparkError(
                f"stream {self._stream!a} contains a message that is not a note of the sink: is the stream used for "
                "something else? Name another one with option 'ledger'"
            ) from None

    def _add(self, note: ChunkNote) -> ChunkNote:
        known = self.chunks.get(note.chunk)
        if known is not None:
            # All rows of a chunk are in the stream after the sequence of its first note. The last note has most rows.
            longest = note if note.rows >= known.rows else known
            note = ChunkNote(note.chunk, longest.rows, longest.digest, {**note.after, **known.after})
        self.chunks[note.chunk] = note
        return note

    def close(self) -> None:
        """Close the connection to the ledger's stream."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def count_published(rows: Sequence[bytes], messages: Sequence[bytes], already: int = 0) -> int:
    """Return how many rows, from the first on, the messages contain in the order of the rows.

    `already` rows were found in earlier messages.

    >>> count_published([b"a", b"b", b"c"], [b"x", b"a", b"y", b"b", b"z"])
    2
    """
    count = already
    for message in messages:
        if count == len(rows):
            break
        if message == rows[count]:
            count += 1
    return count
