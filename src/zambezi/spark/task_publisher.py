"""The publishing part of a task: each of its rows is in the stream once, however often Spark runs the task.

The rows of a task are the messages of one publisher, whose id follows from the job, the batch and the partition: it is
the same in every attempt. The broker counts its messages (RESUME, see docs/protocol.md), so an attempt asks how many
rows the stream has, passes over them, and publishes the rest. An attempt takes the publisher away from the one before.
That one can be still alive, on a machine that Spark has lost: it is fenced, and fails.

An attempt must have the rows of the one before, in the same order. So before it publishes rows, it marks the place that
they reach, with a digest of all rows up to there. The next attempt compares its own rows with the mark before it
publishes anything. For that it holds rows back until it has reached the mark.

If the code that produces the rows fails, Spark ends the iterator as usual, and the sink cannot know: it publishes the
rows that it received. The next attempt has the same rows, and more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from zambezi.spark.broker_access import BrokerAccess
from zambezi.spark.columns import Numbers
from zambezi.spark.errors import ConnectionLost, NotRepeatable, Refused, Silent
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.messages import PUBLISHER

MAX_UNCONFIRMED: Final = 16 << 20  # bytes that a task publishes before it waits at the barrier
_MARK: Final = Struct(">QII")  # the number of rows, and their digest


@dataclass(frozen=True, slots=True)
class Task:
    """The identity of a task, the same in every attempt: a job (a streaming query, or one batch write), a batch of the
    job, and a partition."""

    job: str
    batch: int
    partition: int

    @property
    def publisher(self) -> bytes:
        """The id of the task's publisher."""
        name = f"{self.job}\0{self.batch}\0{self.partition}".encode("utf-8", "surrogatepass")
        return blake2b(name, digest_size=PUBLISHER, person=b"zeps spark").digest()


class Digest(NamedTuple):
    """A digest of rows in their order: the CRC-32 of their messages, and the sum of their sizes, modulo 2**32.

    It finds accidents, such as rows in another order, and is the same however Spark divides the rows into batches. A
    CRC costs much less than a cryptographic hash on processors that have no instructions for one.
    """

    crc: int = 0
    size: int = 0

    def after(self, octets: memoryview) -> Digest:
        """Return the digest of the rows so far and of some more."""
        return Digest(crc32(octets, self.crc), (self.size + len(octets)) & 0xFFFFFFFF)


class _Rows(NamedTuple):
    """Encoded rows: the number of rows before them, their PUBLISH messages, and where each of them begins."""

    first: int
    octets: memoryview
    starts: Numbers

    @property
    def end(self) -> int:
        return self.first + len(self.starts) - 1

    def after(self, count: int) -> _Rows:
        """Return the rows without those that are before the number `count`."""
        skipped = min(max(0, count - self.first), len(self.starts) - 1)
        if not skipped:
            return self
        begin = int(self.starts[skipped])
        return _Rows(self.first + skipped, self.octets[begin:], self.starts[skipped:] - begin)


class _Target:
    """A stream to which a task publishes."""

    def __init__(self, broker: BrokerAccess, stream: str, task: Task, fails_on_refusal: bool) -> None:
        self._broker = broker
        self._fails_on_refusal = fails_on_refusal
        self._stream = stream
        self._task = task
        self._epoch = 0
        self._digest = Digest()  # of all rows so far
        self._received = 0  # rows
        self._held: list[_Rows] = []  # not compared with the mark yet
        self._unconfirmed: list[tuple[_Rows, bytes]] = []  # rows that were sent, with their marks
        self.unconfirmed_size = 0
        self._connection: TaskConnection | None = None
        self._published = 0  # rows that the stream has
        self._marked, self._mark = 0, Digest()  # the rows of an earlier attempt, and their digest
        try:
            broker.retry(self._resume)
        except BaseException:
            self.close()
            raise
        self._found = self._published  # by this attempt

    @property
    def already(self) -> int:
        """The number of received rows that earlier attempts had published."""
        return min(self._found, self._received)

    def _resume(self) -> TaskConnection:
        """Connect, and find out how many rows the stream has."""
        self.close()
        connection = self._connection = self._broker.connect(self._stream)
        connection.tolerates_refusals = not self._fails_on_refusal
        answer = connection.resume(self._task.publisher, self._epoch, self._published)
        if answer is not None:
            if answer.refused and not connection.tolerates_refusals:
                raise Refused(
                    f"stream {self._stream!a}: the broker has refused {answer.refused} rows of partition "
                    f"{self._task.partition} of batch {self._task.batch} in an earlier attempt: they are not in the "
                    "stream. The log of that attempt says why; failOnRefusal=false goes on without them"
                )
            if not self._epoch:
                self._marked, *digest = _MARK.unpack(answer.mark)
                self._mark = Digest(*digest)
            self._epoch, self._published = answer.epoch, answer.count
        return connection

    def publish(self, octets: memoryview, starts: Numbers) -> None:
        """Publish rows, or hold them back until they can be compared with those of an earlier attempt."""
        rows = _Rows(self._received, octets, starts)
        self._compare(rows)
        self._digest = self._digest.after(octets)
        self._received = rows.end
        self._held.append(rows)
        if self._received >= self._marked:
            held, self._held = self._held, []
            for each in held:
                self._send(each)

    def _compare(self, rows: _Rows) -> None:
        """Compare the rows with the mark of an earlier attempt, if they reach it."""
        if rows.first < self._marked <= rows.end:
            end = int(rows.starts[self._marked - rows.first])
            if self._digest.after(rows.octets[:end]) != self._mark:
                raise self._not_repeatable("other rows, or the same in another order,")

    def _send(self, rows: _Rows) -> None:
        new = rows.after(self._published)
        if new.first == new.end:
            return
        mark = _MARK.pack(self._received, *self._digest)
        self._unconfirmed.append((new, mark))
        self.unconfirmed_size += len(new.octets)
        try:
            assert self._connection is not None
            self._connection.publish(new.octets, new.starts, mark)
        except Silent:
            raise  # `timeout` is over
        except ConnectionLost:
            self._send_again()

    def confirm(self) -> None:
        """Wait until the broker has all rows that were sent."""
        if self._unconfirmed:
            try:
                assert self._connection is not None
                self._connection.barrier()
            except Silent:
                raise
            except ConnectionLost:
                self._send_again()
            self._note_confirmed()

    def _send_again(self) -> None:
        """Publish the unconfirmed rows that the stream does not have, on a new connection, and wait for them."""

        def attempt() -> None:
            connection = self._resume()
            for rows, mark in self._unconfirmed:
                left = rows.after(self._published)
                if left.first < left.end:
                    connection.publish(left.octets, left.starts, mark)
            connection.barrier()

        self._broker.retry(attempt)
        self._note_confirmed()

    def _note_confirmed(self) -> None:
        if self._unconfirmed:
            self._published = self._unconfirmed[-1][0].end
        self._unconfirmed.clear()
        self.unconfirmed_size = 0

    def finish(self) -> None:
        """Confirm all rows. Raise `NotRepeatable` if an earlier attempt had more of them."""
        if self._held or self._received < self._published:
            raise self._not_repeatable("fewer rows")
        self.confirm()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _not_repeatable(self, difference: str) -> NotRepeatable:
        return NotRepeatable(
            f"partition {self._task.partition} of batch {self._task.batch} has {difference} for stream "
            f"{self._stream!a} than in an earlier attempt, so the sink cannot find out which rows are published: give "
            "the rows an order (sortWithinPartitions) and a fixed number of partitions"
        )


class TaskPublisher:
    """The publisher of one attempt of a task, for all streams to which its rows go."""

    def __init__(self, broker: BrokerAccess, task: Task, fails_on_refusal: bool = True) -> None:
        self._broker = broker
        self._task = task
        self._fails_on_refusal = fails_on_refusal
        self._targets: dict[str, _Target] = {}

    @property
    def already(self) -> int:
        """The number of rows that earlier attempts had published."""
        return sum(target.already for target in self._targets.values())

    def publish(self, encoded: Iterable[tuple[str, memoryview, Numbers]]) -> None:
        """Publish encoded rows: for each stream, its PUBLISH messages and where each of them begins."""
        for stream, octets, starts in encoded:
            target = self._targets.get(stream)
            if target is None:
                target = self._targets[stream] = _Target(self._broker, stream, self._task, self._fails_on_refusal)
            target.publish(octets, starts)
        if sum(target.unconfirmed_size for target in self._targets.values()) >= MAX_UNCONFIRMED:
            for target in self._targets.values():
                target.confirm()

    def finish(self) -> None:
        """Wait until the broker has all rows."""
        for target in self._targets.values():
            target.finish()

    def close(self) -> None:
        """Close all connections."""
        for target in self._targets.values():
            target.close()
