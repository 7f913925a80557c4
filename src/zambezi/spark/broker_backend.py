"""A backend that reads streams from a broker by ZEPS, from any executor on any machine that can reach the broker.

All questions go to the reserved stream `$ranges` of the broker, many at once on one connection: which streams there
are, where they can be cut into parts of similar size, and for the messages of all ranges of a task. The broker checks
that a stream is still the same incarnation. If the connection is lost, the backend connects again, and asks for all
that it has not received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from zambezi.spark.backend import (
    Found,
    Request,
    SequenceRange,
    SizeIndex,
    StreamState,
    replaced_error,
    size_index_from_points,
    trimmed_error,
)
from zambezi.spark.broker_access import BrokerAccess
from zambezi.spark.columns import BareMessages, BatchTimes, EncodedMessages, Messages
from zambezi.spark.errors import ConnectionLost, DataLoss, MovedAway, Refused, SparkError, Trimmed, Vanished
from zambezi.spark.offsets import Position
from zambezi.spark.task_connection import CREDIT, TaskConnection
from zambezi.zeps.directory import RANGES
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.ranges import (
    ALL,
    BLOCK,
    BLOCK_HEAD,
    CUT,
    END,
    FORBIDDEN,
    LIST,
    MOVED,
    NOTE,
    POINTS,
    READ,
    REFUSED,
    REPLACED,
    SPARSE,
    STATES,
    TRIMMED,
    UNREADABLE,
    VANISHED,
    read_block_head,
    read_end,
    read_points,
    read_states,
    request,
)
from zambezi.zmtp.security import Security

_AT_ONCE: Final = 100  # requests that the broker has at a time
_NAMES: Final = 100  # names in a request
_NOT_NOTED: Final = (FORBIDDEN, REFUSED, UNREADABLE)  # a stream that does not exist any more is another matter

T = TypeVar("T")
End: TypeAlias = Mapping[str, Any]


class BrokerBackend:
    """The streams of one broker. `SharedBackend` reads those of all brokers that share an object store."""

    def __init__(self, endpoint: str, security: Security, timeout: float, *, filters_keys: bool = False) -> None:
        self.filters_keys = filters_keys  # if true, the broker filters by key, which executors could also do
        self.others: tuple[str, ...] = ()  # the endpoints of brokers that share their streams with this one
        self._access = BrokerAccess(endpoint, security, timeout)
        self._idle: TaskConnection | None = None  # kept for the next questions: the driver asks many times per second

    # The state of the streams

    def streams(self, names: Iterable[str] | None = None, pattern: str = "") -> dict[str, StreamState]:
        if names is None:
            requests = [request(LIST, pattern=pattern)]
        else:
            wanted = list(names)
            requests = [request(LIST, names=wanted[start : start + _NAMES]) for start in range(0, len(wanted), _NAMES)]
        found: dict[str, StreamState] = {}
        for answers, end in self._ask(requests):
            _check_end(end)
            self.others = tuple(one for one in end.get("brokers", ()) if isinstance(one, str))
            for state in (one for body in answers.get(STATES, ()) for one in read_states(body)):
                found[state.stream] = StreamState(
                    state.stream, state.incarnation, state.first, state.last, state.octets, state.last_time
                )
        return found

    def last_before(self, times: Mapping[str, int]) -> dict[str, int]:
        # The range before a time ends with the last message before it.
        ends = self._ask([request(CUT, stream=stream, until=max(0, time)) for stream, time in times.items()])
        return {stream: int(end.get("last", 0)) for stream, (_, end) in zip(times, ends, strict=True)}

    def times_after(self, positions: Mapping[str, int]) -> dict[str, int]:
        ends = self._ask([request(CUT, stream=stream, after=after) for stream, after in positions.items()])
        return {stream: int(end.get("time", 0)) for stream, (_, end) in zip(positions, ends, strict=True)}

    def note_positions(self, reader: str, positions: Mapping[str, Position]) -> dict[str, str]:
        """Set the positions of a named reader, by stream. Return why the broker refuses some, if it does."""
        notes = [
            request(NOTE, stream=stream, incarnation=one.incarnation, reader=reader, position=one.sequence)
            for stream, one in positions.items()
        ]
        ends = zip(positions, self._ask(notes), strict=True)
        return {
            stream: str(end.get("reason") or end["result"]) for stream, (_, end) in ends if end["result"] in _NOT_NOTED
        }

    def size_indexes(self, ranges: Sequence[SequenceRange], step: int) -> list[SizeIndex | None]:
        cuts = [
            request(CUT, stream=one.stream, incarnation=one.incarnation, after=one.after, last=one.last, step=step)
            for one in ranges
        ]
        return [
            size_index_from_points([point for body in answers.get(POINTS, ()) for point in read_points(body)])
            if end["result"] == ALL
            else None
            for answers, end in self._ask(cuts)
        ]

    def _ask(self, requests: Sequence[bytes]) -> list[tuple[dict[bytes, list[bytes]], End]]:
        """Return the answers to requests: by key, and the end."""

        def attempt() -> list[tuple[dict[bytes, list[bytes]], End]]:
            found = []
            answers: dict[bytes, list[bytes]] = {}
            connection = self._connected()
            try:
                for key, body in _Questions(connection, requests):
                    self._access.note_progress()
                    if key == END:
                        found.append((answers, read_end(bytes(body))))
                        answers = {}
                    else:
                        answers.setdefault(key, []).append(bytes(body))
            except BaseException:
                connection.close()
                raise
            self._idle = connection
            return found

        return self._retry(attempt) if requests else []

    def _retry(self, attempt: Callable[[], T]) -> T:
        try:
            return self._access.retry(attempt)
        except BrokerError as error:
            raise SparkError(f"{self._access.endpoint}: {error}") from None
        except Refused as error:
            if RANGES in str(error):
                raise Refused(
                    f"{error}; the broker is older than this program: it must have the same version"
                ) from None
            raise

    def _connected(self) -> TaskConnection:
        """Return the idle connection, or a new one."""
        connection, self._idle = self._idle, None
        if connection is None:
            connection = self._access.connect(RANGES)
            connection.credit(CREDIT)
        return connection

    # Messages

    def read(self, ranges: Sequence[SequenceRange], request: Request) -> Iterator[Found]:
        return self.read_left(deque(ranges), request)

    def read_left(self, left: deque[SequenceRange], request: Request) -> Iterator[Found]:
        """Read ranges as `read` does. What was received is removed from `left`, also if an error ends the reading."""
        reading: _Reading | None = None

        def attempt() -> Found | None:
            nonlocal reading
            if reading is None or reading.is_done:
                reading = _Reading(self._connected() if reading is None else reading.connection, left, request)
            try:
                return reading.next()
            except ConnectionLost:
                reading.connection.close()
                reading = None
                raise

        try:
            while left:
                found = self._retry(attempt)
                if found is not None:
                    yield found
        finally:
            if reading is not None and not left:
                self._idle = reading.connection
            elif reading is not None:
                reading.connection.close()

    def close(self) -> None:
        connection, self._idle = self._idle, None
        if connection is not None:
            connection.close()


class _Questions:
    """The answers to requests, as pairs of key and body; the body is valid until the next pair is requested."""

    def __init__(self, connection: TaskConnection, requests: Iterable[bytes]) -> None:
        self._connection = connection
        self._requests = iter(requests)
        self._waiting = 0  # requests that were sent, and not answered
        self._send(_AT_ONCE)

    def _send(self, most: int) -> None:
        some = [one for _, one in zip(range(most), self._requests, strict=False)]
        if some:
            self._connection.send(*some)
            self._waiting += len(some)

    def __iter__(self) -> Iterator[tuple[bytes, memoryview]]:
        while self._waiting:
            yield self.next()

    def next(self) -> tuple[bytes, memoryview]:
        """Wait for the next answer."""
        key, body = self._connection.wait_for_delivery()
        if key == END:
            self._waiting -= 1
            if self._waiting <= _AT_ONCE // 2:
                self._send(_AT_ONCE - self._waiting)
        return key, body


class _Reading:
    """The reading of ranges on one connection. What was received is removed from `left`.

    If messages do not exist any more, the later ones of their range are added to `left`, for the next reading.
    """

    def __init__(self, connection: TaskConnection, left: deque[SequenceRange], request: Request) -> None:
        self.connection = connection
        self._left = left
        self._count = len(left)  # ranges that are not received yet
        self._request = request
        self._questions = _Questions(connection, map(self._read_request, list(left)))

    @property
    def is_done(self) -> bool:
        """Whether all ranges were received."""
        return not self._count

    def _read_request(self, wanted: SequenceRange) -> bytes:
        return request(
            READ,
            stream=wanted.stream,
            incarnation=wanted.incarnation,
            after=wanted.after,
            last=wanted.last,
            pattern=self._request.pattern,
            bare=self._request.bare,
        )

    def next(self) -> Found | None:
        """Wait for the next answer; return its messages or its problem, if it has one."""
        key, body = self._questions.next()
        wanted = self._left[0]
        if key == END:
            self._left.popleft()
            self._count -= 1
            loss = _data_loss(wanted, read_end(bytes(body)))
            if isinstance(loss, Trimmed) and loss.oldest <= wanted.last:
                after = max(wanted.after + 1, loss.oldest - 1)
                self._left.append(SequenceRange(wanted.stream, wanted.incarnation, after, wanted.last))
            return None if loss is None else (wanted, loss)
        if key not in (BLOCK, SPARSE):
            raise ConnectionLost(f"stream {wanted.stream!a}: the broker sent {key!r} instead of messages")
        messages, last = _messages_of(body, self._request, has_gaps=key == SPARSE)
        self._left[0] = SequenceRange(wanted.stream, wanted.incarnation, max(wanted.after, last), wanted.last)
        return wanted, messages


def _messages_of(body: memoryview, request: Request, *, has_gaps: bool) -> tuple[Messages, int]:
    """Return the messages of a block, and its last sequence."""
    head = read_block_head(body)
    pairs = np.frombuffer(body[BLOCK_HEAD : head.messages], ">u8").astype(np.int64)
    batches = BatchTimes(pairs[0::2], pairs[1::2])
    if request.bare and not has_gaps:
        return BareMessages(head.first, head.last, batches), head.last
    octets = np.frombuffer(body[head.messages :], np.uint8)
    return EncodedMessages(octets, head.first, batches, has_gaps=has_gaps or bool(request.pattern)), head.last


def _data_loss(wanted: SequenceRange, end: End) -> DataLoss | None:
    """Return the error for a range that could not be read as a whole, if its messages do not exist any more."""
    result = end["result"]
    if result == TRIMMED:
        return trimmed_error(wanted.stream, wanted.after, int(end["oldest"]))
    if result == REPLACED:
        return replaced_error(wanted.stream, str(end["incarnation"]), wanted.incarnation)
    if result == MOVED:
        return MovedAway(f"stream {wanted.stream!a} is at {end.get('endpoint') or 'another broker'} now")
    if result == VANISHED:
        return Vanished(f"stream {wanted.stream!a} does not exist any more")
    _check_end(end, f"stream {wanted.stream!a}: ")
    return None


def _check_end(end: End, about: str = "") -> None:
    if end["result"] != ALL:
        reason = end.get("reason") or "this client may not read the stream"
        raise Refused(f"{about}{end['result']}: {reason}")
