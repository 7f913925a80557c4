"""Streams of a broker, read by ZEPS itself: from any executor, on any machine that can reach it.

What ZEPS has no words for is told by the broker's reserved streams: which streams there are (`$streams`), and the index
of a journal (`$index/<stream>`), which has the times. A connection that is lost is made again, and reading goes on
after the last message that came; if the stream is another one by then, that is found out and not read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from zambezi.spark.backend import Marks, Slice, StreamState, marks_of, trimmed
from zambezi.spark.columns import Layout, Window, bodies_of, layout
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

    def __init__(self, endpoint: str, security: Security, timeout: float, *, filters: bool = False) -> None:
        self.filters = filters  # whether patterns go to the broker; it then does work that executors could do
        self._endpoint = endpoint
        self._security = security
        self._timeout = timeout
        self._directory: TaskConnection | None = None

    def line(self, stream: str) -> TaskConnection:
        """A line to a stream, as soon as the broker is there."""
        return self.patiently(lambda: TaskConnection(self._endpoint, self._security, stream, max(1.0, self._timeout)))

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Do something that fails while the broker is not there, for as long as `timeout` says."""
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

    # What is known of the streams

    def streams(self, wanted: Iterable[str] | None = None) -> dict[str, StreamState]:
        names = None if wanted is None else list(wanted)
        pattern = f"exact:{names[0]}" if names is not None and len(names) == 1 else ""
        found = {}
        for info in self.patiently(lambda: self._ask_streams(pattern)):
            if names is None or info.stream in names:
                found[info.stream] = StreamState(
                    info.stream, info.incarnation, info.first, info.last, info.octets, info.last_time
                )
        return found

    def _ask_streams(self, pattern: str) -> list[StreamInfo]:
        """Ask on the line that is open, or on a new one: the driver asks many times in a second."""
        line, self._directory = self._directory, None
        if line is not None:
            try:
                found = read_streams(_answers(line, pattern, EARLIEST))
            except ConnectionLost:
                line.close()
            else:
                self._directory = line
                return found
        line = self.line(STREAMS)
        try:
            found = read_streams(_answers(line, pattern, EARLIEST))
        except BaseException:
            line.close()
            raise
        self._directory = line
        return found

    def _entries(self, piece: Slice) -> Entries:
        """The entries of the index that reach over a slice."""

        def ask() -> Entries:
            found = []
            with self.line(INDEX + piece.stream) as line:
                for body in _answers(line, "", piece.after):
                    entries = np.frombuffer(body, ENTRY)
                    found.append(entries)
                    if len(entries) and int(entries[-1]["first"]) + int(entries[-1]["count"]) > piece.last:
                        break
            return np.concatenate(found) if found else np.empty(0, ENTRY)

        return self.patiently(ask)

    def before(self, stream: str, time: int) -> int:
        known = self.streams([stream]).get(stream)
        if known is None or known.last < known.first:
            return 0
        if time > known.last_time:
            return known.last
        # Subscriptions begin at a millisecond, the index has microseconds.
        first = self.patiently(lambda: self._first_at(stream, time // 1000))
        entries = self._entries(Slice(stream, known.incarnation, first - 1, known.last))
        later = entries["time"].astype(np.int64) >= time
        return int(entries[int(later.argmax())]["first"]) - 1 if later.any() else known.last

    def _first_at(self, stream: str, milliseconds: int) -> int:
        with self.line(stream) as line:
            line.subscribe("", TIME | milliseconds)
            line.credit(1)
            while not len(octets := line.read()):
                line.heard(PingOk)
            return int(layout(octets).cut(0, 1).sequences()[0])

    def marks(self, piece: Slice) -> Marks:
        self._check(piece, piece.after)
        entries = self._entries(piece)
        firsts = entries["first"].astype(np.int64)
        if not len(firsts) or firsts[0] > piece.after + 1:
            raise trimmed(piece.stream, piece.after, int(firsts[0]) if len(firsts) else piece.last + 1)
        starts = np.concatenate([[0], np.cumsum(entries["length"].astype(np.int64))])
        end = int(entries[-1]["first"]) + int(entries[-1]["count"])
        return marks_of(firsts, starts, end, piece)

    def _check(self, piece: Slice, after: int) -> None:
        """Whether the stream is the one that the slice is of, and has what follows a sequence."""
        known = self.streams([piece.stream]).get(piece.stream)
        if known is None:
            raise Vanished(f"stream {piece.stream!a} is not at {self._endpoint} any more")
        if known.incarnation != piece.incarnation:
            raise Replaced(f"stream {piece.stream!a} is {known.incarnation} now and was {piece.incarnation}")
        if after + 1 < known.first:
            raise trimmed(piece.stream, after, known.first)

    # Messages

    def windows(self, piece: Slice, pattern: str, *, timed: bool) -> Iterator[Window]:
        firsts, times = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._check(piece, piece.after)
        if timed:
            entries = self._entries(piece)
            firsts, times = entries["first"].astype(np.int64), entries["time"].astype(np.int64)
        position = piece.after
        lost_at = -1
        deadline = 0.0
        while position < piece.last:
            try:
                with self.line(piece.stream) as line:
                    for found in _subscribed(line, piece, position, pattern):
                        first, last = _ends(found)
                        yield Window(found.octets, first, firsts, times, bool(pattern), found)
                        position = last
                        if position >= piece.last:
                            break
            except ConnectionLost:
                # As long as something comes between two losses, it is worth going on.
                now = time.monotonic()
                if position != lost_at:
                    lost_at, deadline = position, now + self._timeout
                elif now > deadline:
                    raise
                self._check(piece, position)
        self._check_end(piece, pattern)

    def _check_end(self, piece: Slice, pattern: str) -> None:
        """Whether what was read was of the one stream, and all of it."""
        try:
            self._check(piece, piece.after)
        except Trimmed:
            if pattern:
                # With gaps nobody can tell what is missing: the broker may have passed over what retention removed.
                raise trimmed(piece.stream, piece.after, piece.last + 1) from None
            # Without a pattern all sequences were there: they were removed when they had been read.

    def close(self) -> None:
        line, self._directory = self._directory, None
        if line is not None:
            line.close()


def _answers(line: TaskConnection, pattern: str, latest: int) -> Iterator[bytes]:
    """What a reserved stream has to tell, once."""
    line.subscribe(pattern, latest)
    line.expect(SubscribeOk)  # what came before was told of changes since an earlier question
    line.credit(CREDIT)
    line.say(_PING)
    while True:
        octets = line.read()
        while len(octets):
            line.credit(len(octets))
            yield from bodies_of(layout(octets)).to_pylist()
            octets = line.receive()
        if line.heard(PingOk):
            return


def _subscribed(line: TaskConnection, piece: Slice, after: int, pattern: str) -> Iterator[Layout]:
    """What a subscription brings, from a sequence on to the end of a slice and a little more."""
    line.subscribe(pattern, after)
    if pattern:
        # Nobody says when the last message has passed that matches: so the one at the end is asked for by itself.
        line.subscribe("", piece.last - 1)
    line.credit(CREDIT)
    position = after
    while True:
        octets = line.read()
        line.heard(PingOk)  # which was not asked for; it is INVALID that is listened for
        while len(octets):
            found = layout(octets)
            first, last = _ends(found)
            if not pattern and first != position + 1:
                raise trimmed(piece.stream, position, first)
            position = last
            yield found
            line.credit(len(octets))
            octets = line.receive()


def _ends(found: Layout) -> tuple[int, int]:
    """The first and the last sequence."""
    return int(found.cut(0, 1).sequences()[0]), int(found.cut(len(found) - 1, len(found)).sequences()[0])
