"""A subscriber, without I/O and without a clock: its position in the stream, its credit, and where it ends.

The broker sends as much as it has credit for. A subscriber first gives credit for a window of bytes, and then for as
many bytes as the program reads: so the window bounds the memory for a slow program. After a lost connection the
subscription continues after the last message that was received: no message is missed or repeated.

The start and the end use the notation of SUBSCRIBE's `latest`: a sequence, `EARLIEST`, `LATEST`, or a time with the top
bit set. They become sequences when the broker describes the stream, so that a reconnect continues at the same position.
If the stream has another incarnation, the position means nothing, and the subscription ends with an error.

With a pattern, the broker sends nothing after the last message that matches, and the subscriber would not notice that
the end was passed. So a subscription with an end asks for the message *at* the end by a second SUBSCRIBE, whatever its
key is.

With multicast, the subscriber must always know the next sequence, and a pattern hides that. So the broker applies the
pattern only to messages before the last one that exists at the time of SUBSCRIBE, and a second SUBSCRIBE asks for all
messages from that one on. The group sends all messages anyway. The subscriber then applies the pattern by itself. It
gives no credit before it has sent both, so that the broker cannot deliver anything in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from zambezi.zeps.client.batch import MessageBatch, lower_bound, sequences_of
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import BrokerError, Incarnation, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.layout import DELIVER_KEY as KEY
from zambezi.zeps.layout import key_of, sequence_of
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import EARLIEST, LATEST, TIME, Credit, Subscribe, Times
from zambezi.zeps.multicast.reception import ReceptionCounters
from zambezi.zeps.times import TimeTable
from zambezi.zmtp.runs import Run

WINDOW: Final = 4 << 20
ASK_FOR_TIMES: Final = Times(b"").encode()[0]
_SHARE: Final = 4  # credit is given when one part in so many of the window is free


@dataclass(slots=True)
class SubscriberCounters:
    """Counters of a subscription: messages, except where noted."""

    received: int = 0
    repeated: int = 0  # received a second time, and dropped
    missed: int = 0  # removed from the journal before they could be sent, or lost by damage of the disk
    malformed: int = 0  # bytes that are not a valid message: the client reconnects
    reconnects: int = 0  # connections after the first one
    multicast: ReceptionCounters = field(default_factory=ReceptionCounters)  # with multicast only


class Subscriber:
    """The rules of one subscription over a connection that comes and goes."""

    __slots__ = (
        "_awaits_position",
        "_batches",
        "_begun",
        "_end_marked",
        "_end_matches",
        "_everything_after",
        "_filter",
        "_first",
        "_is_compacted",
        "_last",
        "_pattern",
        "_since",
        "_stream",
        "_times",
        "_unread",
        "_unused_credit",
        "_window",
        "counters",
        "ended",
        "failure",
        "incarnation",
        "position",
        "until",
        "wants_times",
    )

    def __init__(
        self,
        stream: str,
        pattern: str = "",
        since: int = LATEST,
        until: int | None = None,
        window: int = WINDOW,
        times: bool = False,
        *,
        is_named: bool = False,
    ) -> None:
        if window < 1:
            raise ZepsError(f"window must be a number of bytes above zero, not {window}")
        self.counters = SubscriberCounters()
        is_sequence = not (is_named or since & TIME or since in (EARLIEST, LATEST))
        self.position: int | None = since if is_sequence else None
        self.until = until  # a sequence; a time or `LATEST` until the sequence is known
        self.ended = False
        self.failure: ZepsError | None = None
        self._stream = stream
        self._pattern = pattern
        self._since = since
        self._window = window
        self.incarnation = ""
        self._first, self._last = 1, 0  # of the stream, when the broker last described it
        self._is_compacted = False  # whether messages can be missing because later ones have their keys
        self._end_marked = False  # whether SUBSCRIBE for the message at the end was sent
        self._begun = False  # whether a message was received
        self._unused_credit = 0  # credit that the broker has not used
        self._unread = 0  # bytes that the program has not read
        self._batches: deque[tuple[MessageBatch, int]] = deque()
        # The test whether the message at the end matches the pattern.
        self._end_matches = Matchers().parse(pattern) if pattern and until is not None else None
        self._filter: Filter | None = None  # the pattern, if we apply it here
        self._everything_after = LATEST  # the sequence after which the broker does not apply the pattern
        self._awaits_position = is_named  # whether the broker must tell first where a named reader begins
        self.wants_times = times
        self._times: TimeTable | None = None  # the times of the messages that come next on this connection

    # Where to begin

    def is_ahead_of(self, info: StreamInfo) -> bool:
        """Return whether the broker's description is older than the position.

        So a stream in an object store is described by a broker that was paused, and does not know yet that another one
        has the stream.
        """
        is_same = self.incarnation == info.incarnation
        return bool(info.owner) and is_same and self.position is not None and self.position > info.last

    def update(self, info: StreamInfo | None) -> None:
        """Use the broker's description of the stream, before each SUBSCRIBE; None if the broker gives none."""
        if info is None:
            if self.until is not None and self.end is None:
                self.fail(BrokerError("this broker does not describe its streams: give the end by a sequence"))
            return
        if self.incarnation and info.incarnation != self.incarnation:
            self.fail(self._incarnation_error(f"its incarnation was {self.incarnation} and is {info.incarnation} now"))
            return
        self.incarnation = info.incarnation
        self._first, self._last = info.first, info.last
        self._is_compacted = info.compact or info.removed > 0
        if self._awaits_position:
            pass
        elif self.position is None and self._since == EARLIEST:
            self.position = max(0, info.first - 1)
        elif self.position is None and self._since == LATEST:
            self.position = info.last
        elif self.position is not None and self.position > info.last:
            self.fail(self._incarnation_error(f"its last sequence is {info.last}"))
            return
        if self.until == LATEST:
            self.until = info.last
        self._check_end(info)

    def _check_end(self, info: StreamInfo) -> None:
        until = self.end
        if until is None or self._awaits_position:
            return
        # A start time after the last message is a position after all messages.
        start = info.last if self.position is None and self._starts_after(info) else self.position or 0
        if until <= start or until < info.first:
            self.ended = True

    def begin_at(self, position: int, missed: int) -> None:
        """Begin after the position of a named reader; so many messages before it are not kept any more."""
        self._awaits_position = False
        self.position = position
        if not self._pattern:
            self.counters.missed += missed
        until = self.end
        if until is not None and (until <= position or until < self._first):
            self.ended = True

    def _starts_after(self, info: StreamInfo) -> bool:
        return bool(self._since & TIME) and (self._since ^ TIME) * 1000 > info.last_time

    @property
    def end(self) -> int | None:
        """The last sequence of the subscription, if it is known."""
        return None if self.until is None or self.until & TIME or self.until == LATEST else self.until

    def set_end(self, until: int, info: StreamInfo) -> None:
        """Set the last sequence of the subscription, when the time of its end has become a sequence."""
        self.until = until
        self._check_end(info)

    def subscribe_messages(self) -> list[bytes]:
        """Return the messages that begin the subscription: TIMES, SUBSCRIBE and CREDIT. (ZEP-02, ZEP-03)"""
        self._unused_credit = 0
        self._times = None
        self._end_marked = False
        latest = self.position if self.position is not None else self._since
        found = [ASK_FOR_TIMES] if self.wants_times else []
        found += [*Subscribe(self._pattern, latest).encode(), *self._subscribe_everything(), *self.mark_end()]
        credit = self.next_credit()
        return found if credit is None else [*found, credit]

    def filter_here(self) -> None:
        """Apply the pattern here from now on, because the group sends all messages."""
        if self._pattern and self._filter is None:
            self._filter = Filter([self._pattern], Matchers())

    def _subscribe_everything(self) -> tuple[bytes, ...]:
        """Return the SUBSCRIBE for all messages after the existing ones, if the pattern is applied here."""
        self._everything_after = LATEST
        if self._filter is None or not self.incarnation or self.position is None:
            return ()
        end = self.end
        # The last existing message is included: when it arrives, all messages before it have been sent.
        after = max(self.position, self._first - 1, self._last - 1)
        self._everything_after = after if end is None else min(after, end - 1)
        self._end_marked = end is not None
        return Subscribe("", self._everything_after).encode()

    @property
    def needs_end_mark(self) -> bool:
        """Whether SUBSCRIBE for the message at the end must still be sent, when the stream has reached the end."""
        return self._end_matches is not None and self.end is not None and not self._end_marked

    def mark_end(self) -> tuple[bytes, ...]:
        """Return the SUBSCRIBE for the message at the end, if it is time for it."""
        end = self.end
        if end is None or not self.needs_end_mark:
            return ()
        if end > self._everything_after:
            self._end_marked = True  # the broker sends it anyway
            return ()
        if end - 1 > self._last:
            return ()
        self._end_marked = True
        return Subscribe("", end - 1).encode()

    # Receiving

    def learn_times(self, octets: bytes) -> None:
        """Learn the times of the messages that come next; raise `ZepsError` if the bytes are not valid."""
        if self.wants_times:
            self._times = TimeTable.parse(octets)

    def lacks_time_of(self, deliver: bytes) -> bool:
        """Return whether the broker has not told the time of a message which has come."""
        return self._times is None or sequence_of(deliver) < self._times.first

    def accept_from_broker(self, frames: list[bytes], body_at: int) -> None:
        """Accept DELIVER messages of the broker; `body_at` is the result of `check_deliveries`."""
        octets = sum(map(len, frames))
        self._unused_credit -= octets
        self._accept(frames, body_at, octets)

    def accept_run(self, run: Run, body_at: int) -> bool:
        """Accept a run of the broker as it is; return False if it must be cut, because not all of it may be wanted.

        `body_at` is the result of `check_delivery_run`, so the sequences of the run follow each other.
        """
        position = self.position
        if position is None or sequence_of(run.first(0, KEY)) != position + 1:
            return False
        if self.ended or self.until is not None or self._filter is not None or self.wants_times:
            return False
        octets = run.count * run.size
        self._begun = True
        self.position = position + run.count
        self.counters.received += run.count
        self._unused_credit -= octets
        self._unread += octets
        self._batches.append((MessageBatch(self._stream, [], body_at, run=run), octets))
        return True

    def accept_from_group(self, frames: list[bytes], body_at: int) -> None:
        """Accept DELIVER messages of the group, which follow directly after the position."""
        self._accept(frames, body_at, sum(map(len, frames)))

    def _accept(self, frames: list[bytes], body_at: int, octets: int) -> None:
        count = len(frames)
        if self.ended:
            return
        position = self.position
        first = sequence_of(frames[0])
        last = first if count == 1 else sequence_of(frames[-1])
        if position is not None and first <= position:
            repeated = bisect_left(frames, lower_bound(position + 1))
            self.counters.repeated += repeated
            frames = frames[repeated:]
            if not frames:
                return
            first = position + 1
        elif self._begun and not self._pattern and position is not None and not self._is_compacted:
            self.counters.missed += first - position - 1
        if last - first >= len(frames) and not self._pattern and not self._is_compacted:
            self.counters.missed += last - first + 1 - len(frames)  # damage on the broker's disk
        self._begun = True
        self.position = last
        if self.until is not None and (end := self.end) is not None and last >= end:
            self.ended = True
            frames = self._cut_at_end(frames, end)
        if self._filter is not None:
            wanted = self._filter
            frames = [frame for frame in frames if wanted(key_of(frame))]
        if not frames:
            return
        if len(frames) < count:
            octets = sum(map(len, frames))
        self.counters.received += len(frames)
        self._unread += octets
        times = self._times.times_of(sequences_of(frames)) if self._times is not None else None
        self._batches.append((MessageBatch(self._stream, frames, body_at, times), octets))

    def _cut_at_end(self, frames: list[bytes], end: int) -> list[bytes]:
        self.position = end
        frames = frames[: bisect_left(frames, lower_bound(end + 1))]
        at_end = self._end_matches
        if at_end is not None and frames and sequence_of(frames[-1]) == end and not at_end(key_of(frames[-1])):
            frames = frames[:-1]
        return frames

    def fail_refused(self, reason: str) -> None:
        """End the subscription with an error: the broker has refused it."""
        self.fail(BrokerError(f"the subscription to {self._stream!r} was refused: {reason}"))

    def fail_damaged(self) -> None:
        """End the subscription with an error: the broker sends the same damaged messages again and again."""
        place = f"after sequence {self.position}" if self.position is not None else "where it begins"
        self.fail(
            BrokerError(
                f"the broker sends messages of {self._stream!r} that are not valid, {place}: its journal is damaged "
                "there, and `zambezi journal verify` says more. Subscribe after the damaged messages to go on"
            )
        )

    def fail(self, error: ZepsError) -> None:
        """End the subscription with an error. Messages that were received can still be read."""
        if self.failure is None:
            self.failure = error

    def _incarnation_error(self, why: str) -> Incarnation:
        place = f"after sequence {self.position}" if self.position is not None else "anywhere"
        return Incarnation(
            f"the stream {self._stream!r} is not the one that it was: {why}. To continue {place} would miss or repeat "
            "messages; subscribe again, since='earliest' or from a time"
        )

    # Reading

    @property
    def full(self) -> bool:
        """Whether the window is full of messages that the program has not read."""
        return self._unread >= self._window

    @property
    def has_room(self) -> bool:
        """Whether at least half of the window is free."""
        return self._unread <= self._window // 2

    @property
    def readable(self) -> bool:
        """Whether a batch can be read."""
        return bool(self._batches)

    def next_batch(self) -> MessageBatch | None:
        """Return the next batch, or None if there is none yet."""
        if not self._batches:
            return None
        batch, octets = self._batches.popleft()
        self._unread -= octets
        return batch

    def drop_unread(self) -> None:
        """Drop the messages that the program has not read: another client reads them."""
        self._batches.clear()
        self._unread = 0

    def next_credit(self) -> bytes | None:
        """Return the CREDIT to send now, and count it as given; None if it is too little for a message."""
        missing = self._window - self._unread - self._unused_credit
        if self.ended or missing < max(1, self._window // _SHARE):
            return None
        self._unused_credit += missing
        return Credit(missing).encode()[0]
