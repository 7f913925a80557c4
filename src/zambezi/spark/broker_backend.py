"""A backend that reads streams from a broker by ZEPS, from any executor on any machine that can reach the broker.

Two reserved streams of the broker give the facts that ZEPS messages do not carry: `$streams` lists the streams, and
`$index/<stream>` is the index of a journal, which has the times. If a connection is lost, the backend connects again
and continues after the last message that it received. It checks that the stream is still the same incarnation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from zambezi.spark.backend import SequenceRange, SizeIndex, StreamState, size_index_from_entries, trimmed_error
from zambezi.spark.columns import EncodedMessages, Layout, bodies_of, find_messages
from zambezi.spark.errors import ConnectionLost, Replaced, Trimmed, Vanished
from zambezi.spark.journal_backend import ENTRY
from zambezi.spark.task_connection import CREDIT, TaskConnection
from zambezi.zeps.directory import INDEX, STREAMS, StreamInfo, read_streams
from zambezi.zeps.messages import EARLIEST, TIME, Ping, PingOk, SubscribeOk
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.security import Security

_BACKOFF: Final = Backoff(first=0.05, longest=2.0)
_PING: Final = Ping().encode()[0]

T = TypeVar("T")
Entries = npt.NDArray[np.void]


class BrokerBackend:
    """The streams of a broker."""

    def __init__(self, endpoint: str, security: Security, timeout: float, *, filters_keys: bool = False) -> None:
        self.filters_keys = filters_keys  # if true, the broker filters by key, which executors could also do
        self._endpoint = endpoint
        self._security = security
        self._timeout = timeout
        self._directory: TaskConnection | None = None  # attached to `$streams`, and kept for the next request

    def connect(self, stream: str) -> TaskConnection:
        """Connect to the broker and attach to a stream. Wait for the broker if it is not reachable."""
        return self.retry(lambda: TaskConnection(self._endpoint, self._security, stream, max(1.0, self._timeout)))

    def retry(self, attempt: Callable[[], T]) -> T:
        """Call a function again if it raises ConnectionLost, for at most `timeout` seconds."""
        deadline = time.monotonic() + self._timeout
        tries = 0
        while True:
            try:
                return attempt()
            except ConnectionLost as error:
                tries += 1
                delay = _BACKOFF.delay(tries, random.Random())
                if time.monotonic() + delay > deadline:
                    raise ConnectionLost(f"{error} (tried for {self._timeout:g} seconds: option 'timeout')") from None
                time.sleep(delay)

    # The state of the streams

    def streams(self, names: Iterable[str] | None = None) -> dict[str, StreamState]:
        wanted = None if names is None else list(names)
        pattern = f"exact:{wanted[0]}" if wanted is not None and len(wanted) == 1 else ""
        found = {}
        for info in self.retry(lambda: self._list_streams(pattern)):
            if wanted is None or info.stream in wanted:
                found[info.stream] = StreamState(
                    info.stream,
                    info.incarnation,
                    info.first,
                    info.last,
                    info.octets,
                    info.last_time,
                    has_gaps=info.compact or info.removed > 0,
                )
        return found

    def _list_streams(self, pattern: str) -> list[StreamInfo]:
        """Ask for the streams on the open connection, or on a new one: the driver asks many times per second."""
        connection, self._directory = self._directory, None
        if connection is not None:
            try:
                found = read_streams(_read_reserved(connection, pattern, EARLIEST))
            except ConnectionLost:
                connection.close()
            else:
                self._directory = connection
                return found
        connection = self.connect(STREAMS)
        try:
            found = read_streams(_read_reserved(connection, pattern, EARLIEST))
        except BaseException:
            connection.close()
            raise
        self._directory = connection
        return found

    def _index_entries(self, wanted: SequenceRange) -> Entries:
        """Return the index entries that cover a range."""

        def ask() -> Entries:
            found = []
            with self.connect(INDEX + wanted.stream) as connection:
                for body in _read_reserved(connection, "", wanted.after):
                    entries = np.frombuffer(body, ENTRY)
                    found.append(entries)
                    if len(entries) and _end_of(entries) > wanted.last:
                        break
            return np.concatenate(found) if found else np.empty(0, ENTRY)

        return self.retry(ask)

    def last_before(self, stream: str, time: int) -> int:
        state = self.streams([stream]).get(stream)
        if state is None or state.last < state.first:
            return 0
        if time > state.last_time:
            return state.last
        # A subscription can begin at a millisecond, but the index has microseconds.
        first = self.retry(lambda: self._first_at(stream, time // 1000))
        entries = self._index_entries(SequenceRange(stream, state.incarnation, first - 1, state.last))
        is_later = entries["time"].astype(np.int64) >= time
        return int(entries[int(is_later.argmax())]["first"]) - 1 if is_later.any() else state.last

    def _first_at(self, stream: str, milliseconds: int) -> int:
        """Return the sequence of the first message at or after a time."""
        with self.connect(stream) as connection:
            connection.subscribe("", TIME | milliseconds)
            connection.credit(1)
            while not len(octets := connection.receive()):
                connection.take_answer(PingOk)
            return int(find_messages(octets).subset(0, 1).sequences()[0])

    def size_index(self, wanted: SequenceRange) -> SizeIndex:
        self._check_stream(wanted, wanted.after)
        entries = self._index_entries(wanted)
        firsts = entries["first"].astype(np.int64)
        if not len(firsts) or firsts[0] > wanted.after + 1:
            raise trimmed_error(wanted.stream, wanted.after, int(firsts[0]) if len(firsts) else wanted.last + 1)
        starts = np.concatenate([[0], np.cumsum(entries["length"].astype(np.int64))])
        end = _end_of(entries)
        return size_index_from_entries(firsts, starts, end, wanted)

    def _check_stream(self, wanted: SequenceRange, after: int) -> bool:
        """Raise if the stream is not the wanted incarnation, or does not have all messages after a sequence.

        Return whether messages can be missing because the stream is compacted.
        """
        state = self.streams([wanted.stream]).get(wanted.stream)
        if state is None:
            raise Vanished(f"stream {wanted.stream!a} does not exist any more at {self._endpoint}")
        if state.incarnation != wanted.incarnation:
            raise Replaced(f"stream {wanted.stream!a} is now {state.incarnation}, and was {wanted.incarnation}")
        if after + 1 < state.first:
            raise trimmed_error(wanted.stream, after, state.first)
        return state.has_gaps

    # Messages

    def read(self, wanted: SequenceRange, pattern: str, *, with_times: bool) -> Iterator[EncodedMessages]:
        firsts, times = np.zeros(1, np.int64), np.zeros(1, np.int64)
        has_gaps = self._check_stream(wanted, wanted.after) or bool(pattern)
        if with_times:
            entries = self._index_entries(wanted)
            firsts, times = entries["first"].astype(np.int64), entries["time"].astype(np.int64)
        position = wanted.after
        position_at_loss = -1
        deadline = 0.0
        while position < wanted.last:
            try:
                with self.connect(wanted.stream) as connection:
                    for layout in _subscribe(connection, wanted, position, pattern, has_gaps):
                        first, last = _first_and_last(layout)
                        yield EncodedMessages(layout.octets, first, firsts, times, has_gaps, layout)
                        position = last
                        if position >= wanted.last:
                            break
            except ConnectionLost:
                # The deadline begins anew if messages came since the last loss.
                now = time.monotonic()
                if position != position_at_loss:
                    position_at_loss, deadline = position, now + self._timeout
                elif now > deadline:
                    raise
                self._check_stream(wanted, position)
        self._check_end(wanted, has_gaps)

    def _check_end(self, wanted: SequenceRange, has_gaps: bool) -> None:
        """Raise if the messages that were read were not of the wanted incarnation, or not all of them."""
        try:
            self._check_stream(wanted, wanted.after)
        except Trimmed:
            if has_gaps:
                # The sequences have gaps, so a missing message cannot be noticed: the broker may have passed over
                # messages that retention removed.
                raise trimmed_error(wanted.stream, wanted.after, wanted.last + 1) from None
            # Without a pattern there are no gaps: retention removed the messages after they were read.

    def close(self) -> None:
        connection, self._directory = self._directory, None
        if connection is not None:
            connection.close()


def _read_reserved(connection: TaskConnection, pattern: str, latest: int) -> Iterator[bytes]:
    """Yield the bodies of all messages that a reserved stream has now."""
    connection.subscribe(pattern, latest)
    connection.wait_for_answer(SubscribeOk)  # messages before it are about changes since an earlier request
    connection.credit(CREDIT)
    connection.send(_PING)
    while True:
        octets = connection.receive()
        while len(octets):
            connection.credit(len(octets))
            yield from bodies_of(find_messages(octets)).to_pylist()
            octets = connection.buffered()
        if connection.take_answer(PingOk):
            return


def _subscribe(
    connection: TaskConnection, wanted: SequenceRange, after: int, pattern: str, has_gaps: bool
) -> Iterator[Layout]:
    """Yield the messages of a subscription, from a sequence to the end of the range and somewhat further."""
    connection.subscribe(pattern, after)
    if pattern:
        # The broker does not say when the last matching message has passed. A second subscription requests the last
        # message of the range, whatever its key.
        connection.subscribe("", wanted.last - 1)
    connection.credit(CREDIT)
    position = after
    while True:
        octets = connection.receive()
        connection.take_answer(PingOk)  # none was requested: this raises if the broker sent INVALID
        while len(octets):
            layout = find_messages(octets)
            first, last = _first_and_last(layout)
            if not has_gaps and first != position + 1:
                raise trimmed_error(wanted.stream, position, first)
            position = last
            yield layout
            connection.credit(len(octets))
            octets = connection.buffered()


def _end_of(entries: Entries) -> int:
    """Return the sequence after the last one that some index entries cover."""
    return int(entries[-1]["first"]) + int(entries[-1]["count"]) + int(entries[-1]["gap"])


def _first_and_last(layout: Layout) -> tuple[int, int]:
    """Return the first and the last sequence."""
    count = len(layout)
    return int(layout.subset(0, 1).sequences()[0]), int(layout.subset(count - 1, count).sequences()[0])
