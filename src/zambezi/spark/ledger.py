"""What tasks of the sink have done, so that one that is tried again does not do it twice.

A task publishes its rows in chunks. Before each chunk it notes in the ledger, a stream of its own at the same broker,
which chunk that is, a digest of its rows, and the last sequence of each stream that it goes to; and it waits until the
note is in the journal. When all chunks are through it notes the end. Subscribers of the streams see none of this.

    key   JOB/BATCH/PARTITION
    body  {"chunk": 0, "rows": 65536, "digest": "9f...", "after": {"readings": [1042, "0b2f1c7e-..."]}}
    body  {"end": 70000}

From the notes of an earlier attempt, one that is tried again knows: a chunk with a note after it is complete, for the
note was written when the broker had confirmed all before it. The chunk of the last note is in doubt: its rows, or the
first of them, or none, stand in the stream after the sequence that the note names. The task reads from there, and
publishes what is missing.

An attempt may also have had too few rows. If what makes the rows fails, Spark ends them like any others, and the sink
cannot tell: it publishes what came, and notes the end. So the end is noted with the number of rows, and a chunk may
have more rows than when it was noted, if it begins with the same.

What cannot be known. A message has no mark of who published it, so a row counts as published if its key and body stand
in the stream, after the noted sequence, in the order of the rows. If others publish rows that are the same to the last
octet, at the same time, then one of theirs can be taken for one of ours, and ours is not published: the stream has the
row, though not as often as it should. And a task that everybody took for dead can go on publishing while its successor
looks. docs/spark.md says so, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from zambezi.spark.backend import Slice
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.columns import bodies_of, keys_of
from zambezi.spark.errors import SparkError
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.messages import Publish

_TAIL: Final = 1024  # notes that are looked at first


@dataclass(frozen=True, slots=True)
class Task:
    """What is tried again: a job (a streaming query, or one batch write), a batch of it, and a partition."""

    job: str
    batch: int
    partition: int

    @property
    def key(self) -> str:
        return f"{self.job}/{self.batch}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Begun:
    """A chunk that was begun: how many rows it had, their digest, and where the streams ended before it.

    `after` has, for each stream, its last sequence and its incarnation.
    """

    chunk: int
    rows: int
    digest: str
    after: dict[str, tuple[int, str]]


class Ledger:
    """The notes of one task."""

    def __init__(self, remote: BrokerBackend, stream: str, task: Task, floor: int = 0) -> None:
        """`floor`: the task has no note up to this sequence."""
        self._remote = remote
        self._stream = stream
        self._task = task
        self._line: TaskConnection | None = None
        self.begun: dict[int, Begun] = {}
        self.ended = 0  # after so many rows
        self._read(floor)

    def is_complete(self, chunk: int, rows: int) -> bool:
        """Whether an earlier attempt published all of a chunk; `rows` is how many there are up to its end."""
        return rows <= self.ended or (bool(self.begun) and chunk < max(self.begun))

    def begin(self, begun: Begun) -> Begun:
        """Note that a chunk is begun; it is in the journal when this returns."""
        self._note({"chunk": begun.chunk, "rows": begun.rows, "digest": begun.digest, "after": begun.after})
        return self._keep(begun)

    def end(self, rows: int) -> None:
        """Note that the task is done."""
        if self.ended < rows:
            self._note({"end": rows})
            self.ended = rows

    def _note(self, body: dict[str, Any]) -> None:
        message = Publish(self._task.key, json.dumps(body, separators=(",", ":")).encode()).encode()[0]

        def write() -> None:
            # A note that is written twice, because the line broke in between, says the same twice.
            if self._line is None:
                self._line = self._remote.line(self._stream)
            try:
                self._line.say(message)
                self._line.barrier()
            except SparkError:
                self.close()
                raise

        self._remote.patiently(write)

    def _read(self, floor: int) -> None:
        """Find the notes of the task. They are near the end: batches of a job follow each other."""
        known = self._remote.streams([self._stream]).get(self._stream)
        if known is None:
            return
        tail = _TAIL
        while True:
            after = max(floor, known.first - 1, known.last - tail)
            notes = self._notes(Slice(self._stream, known.incarnation, after, known.last))
            if after <= max(floor, known.first - 1) or any(self._is_earlier(key) for key, _ in notes):
                break
            tail *= 8
        for key, body in notes:
            if key == self._task.key:
                self._take(body)

    def _notes(self, piece: Slice) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        if not piece.count:
            return found
        for window in self._remote.windows(piece, "", timed=False):
            places = window.messages
            found += zip(keys_of(places).to_pylist(), bodies_of(places).to_pylist(), strict=True)
        return found

    def _is_earlier(self, key: str) -> bool:
        """Whether a note is of an earlier batch of this job: before it there is none of ours."""
        job, _, rest = key.partition("/")
        batch = rest.partition("/")[0]
        return job == self._task.job and batch.isdigit() and int(batch) < self._task.batch

    def _take(self, body: bytes) -> None:
        try:
            told = json.loads(body)
            if "end" in told:
                self.ended = max(self.ended, int(told["end"]))
            else:
                after = {name: (int(last), str(incarnation)) for name, (last, incarnation) in told["after"].items()}
                self._keep(Begun(int(told["chunk"]), int(told["rows"]), str(told["digest"]), after))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SparkError(
                f"stream {self._stream!a} has a note that is none: is it used for something else? Name another one "
                "with option 'ledger'"
            ) from None

    def _keep(self, begun: Begun) -> Begun:
        known = self.begun.get(begun.chunk)
        if known is not None:
            # All that was published of a chunk stands after the place in its first note; the last has the most rows.
            last = begun if begun.rows >= known.rows else known
            begun = Begun(begun.chunk, last.rows, last.digest, {**begun.after, **known.after})
        self.begun[begun.chunk] = begun
        return begun

    def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


def matched(rows: Sequence[bytes], found: Sequence[bytes], start: int = 0) -> int:
    """How many of the rows, from the first on, stand in what was found, in their order; `start` of them did before.

    >>> matched([b"a", b"b", b"c"], [b"x", b"a", b"y", b"b", b"z"])
    2
    """
    position = start
    for message in found:
        if position == len(rows):
            break
        if message == rows[position]:
            position += 1
    return position
