# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.
"""Mirrors for threads, in calls that block.

Names, arguments and behaviour are those of `zambezi.zeps.mirror.asyncio`.

>>> import tempfile
>>> from zambezi.zeps.sync import Client
>>> from zambezi.zeps.testing import serve
>>> def main(path: str) -> list[bytes]:
...     with serve(path) as endpoint, Client.connect(endpoint) as client:
...         prices, copy = client.stream("prices"), client.stream("copy")
...         prices.publish("tea", b"4.20")
...         prices.flush()
...         with Mirror(prices, copy, until="now") as mirror:
...             mirror.run()
...         return [message.body for message in copy.subscribe(since="earliest", until="now")]
>>> with tempfile.TemporaryDirectory() as path:
...     main(path)
[b'4.20']
"""

from __future__ import annotations

import difflib
import logging
import time
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from zambezi.wire.text import as_bytes
from zambezi.zeps.client.arguments import check_not_reserved, check_pattern, publisher_id
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.questions import Question
from zambezi.zeps.client.subscriber_connection import LONGEST
from zambezi.zeps.directory import STREAMS, StreamInfo, read_streams
from zambezi.zeps.errors import BrokerError, ClientClosed, Incarnation, TimedOut, ZepsError
from zambezi.zeps.messages import LATEST
from zambezi.zeps.mirror.target import MirrorCounters, Standing, Target, digest_of
from zambezi.zeps.mirror.target_connection import TargetConnection
from zambezi.zeps.sync import Stream, Subscription
from zambezi.zmtp.thread_waiter import Waiter

__all__ = ["Mirror"]

_log: Final = logging.getLogger("zambezi.zeps")

TURN: Final = 0.5  # seconds after which a mirror without messages looks at its connections

MirrorStart: TypeAlias = Literal["earliest", "latest"] | int


class Mirror:
    """A mirror: it follows a stream, the source, into another one, the target, each message once.

    `since` is where to begin in the source if the target has no position of this mirror: "earliest", "latest", or a
    sequence (after it). Without it, a mirror begins at the earliest message, and only with a target that is empty.

    `pattern` selects messages by their keys. With `until="now"` the mirror ends when the target has the messages that
    the source has when the mirror begins; otherwise it follows the source live.

    `name` tells several mirrors into one target apart; by default it is the name of the source. With `begin_again`, a
    source that was deleted and created again is mirrored from its first message on; otherwise that is an error.
    """

    def __init__(
        self,
        source: Stream,
        target: Stream,
        *,
        pattern: str = "",
        since: MirrorStart | None = None,
        until: Literal["now"] | None = None,
        name: str | None = None,
        begin_again: bool = False,
    ) -> None:
        check_not_reserved(source.name)
        check_not_reserved(target.name)
        self._source = source
        self._target = target
        self._pattern = check_pattern(pattern)
        self._since = _check_start(since)
        self._until = _check_end(until)
        self._goal: int | None = None  # the last sequence to mirror, if there is one
        self._reached = False  # whether the subscription has reached the goal
        self._begin_again = begin_again
        self._waiter = Waiter(timed_out=TimedOut)
        client = target._client
        self._engine = Target(publisher_id(f"mirror:{source.name if name is None else name}"))
        self._connection = TargetConnection(
            self._waiter.reactor, client._options, client._locate, target.name, self._engine
        )
        self._connection.on_change = self._connection.transport.on_closed = self._waiter.wake
        self._started = False
        self._closed = False
        self._life = 0
        self._incarnation = ""
        self._last = 0  # the last sequence of the source, when its broker last described it
        self._subscription: Subscription | None = None
        self._is_compacted = False  # whether the source removes messages that have a later one with the same key
        self._batch: MessageBatch | None = None  # read from the source, and not sent yet
        self._question: tuple[Question, Waiter] | None = None
        self._is_stuck = False  # whether the batch has waited for room for a turn
        self._broken: ZepsError | None = None  # why the last subscription ended

    # Looking

    @property
    def counters(self) -> MirrorCounters:
        """Counters of this mirror."""
        return self._engine.counters

    @property
    def position(self) -> int:
        """The last sequence of the source that the target is known to have."""
        return self._engine.confirmed

    @property
    def refused(self) -> int:
        """The number of messages that the target has refused, in all lives of this mirror."""
        return self._engine.refused

    @property
    def lag(self) -> int:
        """The number of messages between the position and the end of the source, when the mirror last began."""
        return max(0, self._last - self._engine.confirmed)

    @property
    def waits_for(self) -> str:
        """The server that the mirror waits for, and why; empty while it follows the source."""
        if not self._connection.alive:
            return f"the target: {self._connection.state}"
        if self._is_stuck:
            return "the target: it does not confirm messages; perhaps its disk is full"
        if self._subscription is not None and self._subscription._connection.granted:
            return ""
        if self._subscription is not None:
            return f"the source: {self._subscription._connection.state}"
        return f"the source: {self._question[0].state}" if self._question is not None else ""

    # Running

    def run(self, seconds: float | None = None) -> bool:
        """Mirror for so many seconds; without a number, until the mirror is closed or fails.

        Returns whether the mirror has reached its end (`until`). While a server is away, the mirror waits for it, and
        `waits_for` says so. Raises `Fenced` if another mirror of the same name has begun, `Incarnation` if the source
        is another stream than before, and `BrokerError` if a broker refuses.
        """
        if not self._started:
            self._started = True
            self._waiter.call(self._connection.start)
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed:
            left = TURN if deadline is None else min(TURN, deadline - time.monotonic())
            if left <= 0:
                return False
            try:
                if self._advance(left):
                    return True
            except TimedOut:
                self._is_stuck = self._batch is not None  # it goes on where it was; `waits_for` says why
        return False

    def _advance(self, timeout: float) -> bool:
        """Begin, or mirror the next batch; return whether the end is reached. Raises `TimedOut` if it takes longer."""
        connection = self._connection
        if not self._waiter.call(connection.is_current, self._life):
            self._reached = False
            self._begin(timeout)
        elif self._reached:
            settled = partial(connection.settled, self._life)
            self._waiter.until(settled, timeout, "the target did not confirm messages")
            return self._waiter.call(connection.is_current, self._life)
        elif self._subscription is None:
            self._begin(timeout)
        elif self._batch is not None or self._read(self._subscription, timeout):
            self._send(timeout)
        return False

    def _read(self, subscription: Subscription, timeout: float) -> bool:
        """Read the next batch of the source; return False if the subscription has ended."""
        engine = subscription._connection.engine
        try:
            self._batch = subscription.recv_batch(timeout)
        except ClientClosed:
            self._source._client._check_open()
            self._reached = engine.ended
        except (BrokerError, Incarnation) as error:
            self._broken = error
        if self._batch is not None and engine.incarnation == self._incarnation:
            return True
        self._end_subscription()
        return False

    def _send(self, timeout: float) -> None:
        """Send the batch to the target, when there is room."""
        batch = self._batch
        assert batch is not None
        before = self._engine.position
        attempt = partial(self._connection.publish, self._life, batch)
        if self._waiter.until(attempt, timeout, "the target did not confirm messages"):
            self._last = max(self._last, batch.last)
            if not self._pattern and not self._is_compacted and batch.last - before > len(batch):
                self._note_missed(batch.last - before - len(batch))
        self._batch = None
        self._is_stuck = False

    # Beginning

    def _begin(self, timeout: float) -> None:
        """Ask the target where it stands, and subscribe to the source from there on."""
        self._end_subscription()
        connection = self._connection
        self._waiter.until(connection.resumed, timeout, "the target did not tell where it stands")
        life = connection.life
        standing = self._engine.standing if life == self._life else connection.standing
        info = self._describe(timeout)
        position = self._find_start(info, standing, timeout)
        if not self._waiter.call(connection.begin, life, digest_of(info.incarnation), position, standing):
            return
        self._life, self._incarnation, self._last = life, info.incarnation, info.last
        self._is_compacted = info.compact or info.removed > 0
        if self._until is not None and self._goal is None:
            self._goal = info.last
        self._reached = self._goal is not None and position >= self._goal
        self._broken = None
        if not self._reached:
            self._subscription = self._source.subscribe(self._pattern, since=position, until=self._goal)

    def _find_start(self, info: StreamInfo, standing: Standing | None, timeout: float) -> int:
        """Return the sequence of the source to go on after."""
        before = info.first - 1
        if standing is None:
            self._check_target(info, timeout)
            position = self._first_start(info)
        elif standing.digest != digest_of(info.incarnation) or standing.sequence > info.last:
            if not self._begin_again:
                raise self._another_source(info, standing.sequence)
            _log.warning("%s is another stream than before: its mirror begins again", self._source.name)
            self.counters.begun_again += 1
            position = before
        else:
            position = standing.sequence
        if position < before:
            self._note_missed(before - position)
            return before
        if self._broken is not None:
            raise self._broken  # nothing explains it: the broker refuses for another reason
        return position

    def _first_start(self, info: StreamInfo) -> int:
        if self._since == "latest":
            return info.last
        if isinstance(self._since, int):
            return min(self._since, info.last)
        return info.first - 1

    def _check_target(self, info: StreamInfo, timeout: float) -> None:
        """Raise `ZepsError` if the target cannot be filled from the beginning."""
        streams = self._target._client.streams(max(timeout, 10.0))
        found = next((one for one in streams if one.stream == self._target.name), None)
        if found is None:
            return
        if found.incarnation == info.incarnation:
            raise ZepsError(f"{self._target.name!r} is the source itself, or a copy of it; choose another target")
        if found.last and self._since is None:
            raise ZepsError(
                f"{self._target.name!r} has messages, and no position of this mirror: it was filled in another way, or "
                "the mirror was away for longer than keep_publishers. Say where to begin in the source (since)"
            )

    def _another_source(self, info: StreamInfo, position: int) -> Incarnation:
        return Incarnation(
            f"the source {self._source.name!r} is not the stream that was mirrored up to sequence {position}: it was "
            f"deleted and created again, or its end was cut off, and it has sequences {info.first} to {info.last} now. "
            "To mirror it from its first message on, after what the target has, ask to begin again"
        )

    def _note_missed(self, count: int) -> None:
        self.counters.missed += count
        kind = "of which some may have matched, " if self._pattern else ""
        _log.warning(
            "%d messages of %s, %swere removed from the source before they could be mirrored",
            count,
            self._source.name,
            kind,
        )

    def _describe(self, timeout: float) -> StreamInfo:
        """Return the broker's description of the source; a question that is not answered yet goes on."""
        if self._question is None:
            self._question = self._ask()
        question, waiter = self._question
        waiter.until(lambda: question.closing or None, timeout, "the source did not describe its streams")
        self._question = None
        if question.failure is not None:
            raise question.failure
        name = self._source.name
        for info in read_streams(question.bodies):
            if info.stream == name:
                return info
        similar = difflib.get_close_matches(name, [one.stream for one in self._source._client.streams(10.0)], n=1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        raise BrokerError(f"there is no stream {name!r} to mirror{hint}")

    def _ask(self) -> tuple[Question, Waiter]:
        client = self._source._client
        exact = f"exact:{self._source.name}"
        pattern = exact if len(as_bytes(exact)) <= LONGEST else ""
        waiter = Waiter(timed_out=TimedOut)
        question = Question(waiter.reactor, client._options, client._locate, STREAMS, lambda _: None, pattern)
        question.on_change = question.transport.on_closed = waiter.wake
        waiter.call(question.start)
        return question, waiter

    def _end_subscription(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._batch = None
        self._is_stuck = False
        if subscription is not None:
            subscription.close()

    # The end

    def close(self, linger: float = 5.0) -> None:
        """End the mirror. Wait up to `linger` seconds until the target has confirmed what was sent."""
        if self._closed:
            return
        self._closed = True
        self._end_subscription()
        question, self._question = self._question, None
        if question is not None:
            question[1].call(question[0].close, 0)
        connection = self._connection
        if not self._started:
            self._waiter.call(connection.transport.close, 0)
            return
        try:
            if connection.alive and linger > 0:
                self._waiter.until(partial(connection.settled, self._life), linger, "the target did not confirm")
        except ZepsError:
            pass  # the next life of the mirror sends again what the target does not have
        self._waiter.call(connection.close, 1.0 if connection.granted else 0)
        self._waiter.until(lambda: connection.closed or None, None, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(0 if kind is not None else 5.0)

    def __repr__(self) -> str:
        return f"<Mirror of {self._source.name!r} to {self._target.name!r}, at {self.position}>"


def _check_start(since: MirrorStart | None) -> MirrorStart | None:
    if since in (None, "earliest", "latest"):
        return since
    if isinstance(since, int) and not isinstance(since, bool) and 0 <= since < LATEST:
        return since
    raise ZepsError(f"a mirror begins at 'earliest', at 'latest' or after a sequence, not at {since!r}")


def _check_end(until: Literal["now"] | None) -> Literal["now"] | None:
    if until in (None, "now"):
        return until
    raise ZepsError(f"a mirror ends with the last message that the source has ('now') or not at all, not at {until!r}")
