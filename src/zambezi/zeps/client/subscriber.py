"""A subscriber, without I/O: where it stands in the stream, what it may still be sent, and where it ends.

The broker sends as much as it has credit for. A subscriber gives credit for a window of octets at first, and more as
the program takes messages away: so the window bounds what is held for a program that is slow. When a connection is
lost, the next one goes on after the last message that came: nothing is missed and nothing comes twice.

Where to begin and where to end are both told in the language of SUBSCRIBE's `latest`: a sequence, `EARLIEST`, `LATEST`,
or a time with the top bit set. They become sequences by what the broker tells of the stream, so that "latest" is a
place to come back to. If the stream is not the one that it was, the place means nothing, and the subscription ends with
an error.

With a pattern, messages stop coming at the last one that matches, and nobody says that the end was passed. So for a
subscription that has an end, the message *at* the end is asked for by a second SUBSCRIBE, whatever its key is.

Where messages may come from a multicast group too, we must know at any time what the next sequence is, and a pattern
hides that. So the broker is asked to apply the pattern only to what is before the last message that is there when we
subscribe, and to send all from that one on, by a second SUBSCRIBE again; from the group everything comes anyway. What
does not match is then left out here. Credit makes it safe: none is given before both were said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from zambezi.zeps.client.batch import MessageBatch, below
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import BrokerError, Incarnation, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.layout import key_of, sequence_of
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import EARLIEST, LATEST, TIME, Credit, Subscribe
from zambezi.zeps.multicast.reception import ReceptionCounters

WINDOW: Final = 4 << 20
_SHARE: Final = 4  # credit is given when this part of the window is missing


@dataclass(slots=True)
class SubscriberCounters:
    """What came, in messages; and how often the connection was made anew."""

    received: int = 0
    repeated: int = 0  # came a second time, and were left out
    missed: int = 0  # were gone from the journal before they could be sent
    malformed: int = 0  # what came and is no message: the connection is made anew
    reconnects: int = 0
    multicast: ReceptionCounters = field(default_factory=ReceptionCounters)  # where a group was asked for


class Subscriber:
    """The rules of one subscription over a connection that comes and goes."""

    __slots__ = (
        "_at_end",
        "_batches",
        "_begun",
        "_everything_after",
        "_first",
        "_last",
        "_marked",
        "_pattern",
        "_remaining",
        "_since",
        "_stream",
        "_unread",
        "_wanted",
        "_window",
        "counters",
        "ended",
        "failure",
        "incarnation",
        "position",
        "until",
    )

    def __init__(
        self, stream: str, pattern: str = "", since: int = LATEST, until: int | None = None, window: int = WINDOW
    ) -> None:
        if window < 1:
            raise ZepsError(f"a window is a number of octets above zero, not {window}")
        self.counters = SubscriberCounters()
        self.position: int | None = None if since & TIME or since in (EARLIEST, LATEST) else since
        self.until = until  # a sequence, or what is still to become one
        self.ended = False
        self.failure: ZepsError | None = None
        self._stream = stream
        self._pattern = pattern
        self._since = since
        self._window = window
        self.incarnation = ""
        self._first, self._last = 1, 0  # of the stream, when the broker last told
        self._marked = False  # whether the message at the end was asked for
        self._begun = False  # whether a message has come
        self._remaining = 0  # credit that the broker has not used
        self._unread = 0
        self._batches: deque[tuple[MessageBatch, int]] = deque()
        # Whether the message at the end is one of ours.
        self._at_end = Matchers().parse(pattern) if pattern and until is not None else None
        self._wanted: Filter | None = None  # where it is for us to choose
        self._everything_after = LATEST  # the sequence after which the broker does not choose

    # Where to begin

    def learn(self, info: StreamInfo | None) -> None:
        """What the broker tells of the stream, before each SUBSCRIBE; None if it tells nothing."""
        if info is None:
            if self.until is not None and self.end is None:
                self.fail(BrokerError("this broker tells nothing of its streams: say by a sequence where to end"))
            return
        if self.incarnation and info.incarnation != self.incarnation:
            self.fail(self._not_the_same(f"its incarnation was {self.incarnation} and is {info.incarnation} now"))
            return
        self.incarnation = info.incarnation
        self._first, self._last = info.first, info.last
        if self.position is None and self._since == EARLIEST:
            self.position = max(0, info.first - 1)
        elif self.position is None and self._since == LATEST:
            self.position = info.last
        elif self.position is not None and self.position > info.last:
            self.fail(self._not_the_same(f"its last sequence is {info.last}"))
            return
        if self.until == LATEST:
            self.until = info.last
        self._look_for_the_end(info)

    def _look_for_the_end(self, info: StreamInfo) -> None:
        until = self.end
        if until is None:
            return
        # A time after the last message is a place behind all that is there.
        start = info.last if self.position is None and self._is_after(info) else self.position or 0
        if until <= start or until < info.first:
            self.ended = True

    def _is_after(self, info: StreamInfo) -> bool:
        return bool(self._since & TIME) and (self._since ^ TIME) * 1000 > info.last_time

    @property
    def end(self) -> int | None:
        """The last sequence, if that is known."""
        return None if self.until is None or self.until & TIME or self.until == LATEST else self.until

    def set_end(self, until: int, info: StreamInfo) -> None:
        """The time to end at has become a sequence."""
        self.until = until
        self._look_for_the_end(info)

    def subscribe(self) -> list[bytes]:
        """What to say once the stream is known: SUBSCRIBE and CREDIT. (ZEP-02, ZEP-03)"""
        self._remaining = 0
        self._marked = False
        latest = self.position if self.position is not None else self._since
        said = [*Subscribe(self._pattern, latest).encode(), *self._want_everything(), *self.mark_end()]
        credit = self.grant()
        return said if credit is None else [*said, credit]

    def choose(self) -> None:
        """From now on it is for us to leave out what does not match the pattern."""
        if self._pattern and self._wanted is None:
            self._wanted = Filter([self._pattern], Matchers())

    def _want_everything(self) -> tuple[bytes, ...]:
        """The SUBSCRIBE for all that comes after what is there now, where it is for us to choose."""
        self._everything_after = LATEST
        if self._wanted is None or not self.incarnation or self.position is None:
            return ()
        end = self.end
        # The last one comes in any case: so it is known when all before it is behind us.
        after = max(self.position, self._first - 1, self._last - 1)
        self._everything_after = after if end is None else min(after, end - 1)
        self._marked = end is not None
        return Subscribe("", self._everything_after).encode()

    @property
    def lacks_mark(self) -> bool:
        """Whether the message at the end is still to be asked for: when the stream has reached that far."""
        return self._at_end is not None and self.end is not None and not self._marked

    def mark_end(self) -> tuple[bytes, ...]:
        """The SUBSCRIBE for the message at the end, if it is time for it."""
        end = self.end
        if end is None or not self.lacks_mark:
            return ()
        if end > self._everything_after:
            self._marked = True  # it comes by itself
            return ()
        if end - 1 > self._last:
            return ()
        self._marked = True
        return Subscribe("", end - 1).encode()

    # What comes

    def deliver(self, frames: list[bytes], after: int) -> None:
        """Take DELIVER messages from the broker, as `received.examine` found them."""
        octets = sum(map(len, frames))
        self._remaining -= octets
        self._accept(frames, after, octets)

    def overhear(self, frames: list[bytes], after: int) -> None:
        """Take DELIVER messages from a group: all that follow on where we stand."""
        self._accept(frames, after, sum(map(len, frames)))

    def _accept(self, frames: list[bytes], after: int, octets: int) -> None:
        count = len(frames)
        if self.ended:
            return
        position = self.position
        first, last = sequence_of(frames[0]), sequence_of(frames[-1])
        if position is not None and first <= position:
            repeated = bisect_left(frames, below(position + 1))
            self.counters.repeated += repeated
            frames = frames[repeated:]
            if not frames:
                return
        elif self._begun and not self._pattern and position is not None:
            self.counters.missed += first - position - 1
        self._begun = True
        self.position = last
        end = self.end
        if end is not None and last >= end:
            self.ended = True
            frames = self._until(frames, end)
        if self._wanted is not None:
            wanted = self._wanted
            frames = [frame for frame in frames if wanted(key_of(frame))]
        if not frames:
            return
        if len(frames) < count:
            octets = sum(map(len, frames))
        self.counters.received += len(frames)
        self._unread += octets
        self._batches.append((MessageBatch(self._stream, frames, after), octets))

    def _until(self, frames: list[bytes], end: int) -> list[bytes]:
        self.position = end
        frames = frames[: bisect_left(frames, below(end + 1))]
        at_end = self._at_end
        if at_end is not None and frames and sequence_of(frames[-1]) == end and not at_end(key_of(frames[-1])):
            frames = frames[:-1]
        return frames

    def refuse(self, reason: str) -> None:
        """End the subscription with an error: the broker refuses it."""
        self.fail(BrokerError(f"the subscription to {self._stream!r} was refused: {reason}"))

    def fail(self, error: ZepsError) -> None:
        """The subscription cannot go on; what has come can still be read."""
        if self.failure is None:
            self.failure = error

    def _not_the_same(self, why: str) -> Incarnation:
        place = f"after sequence {self.position}" if self.position is not None else "anywhere"
        return Incarnation(
            f"the stream {self._stream!r} is not the one that it was: {why}. To go on {place} would miss or repeat "
            "messages; subscribe anew, since='earliest' or from a time"
        )

    # What goes to the program

    @property
    def full(self) -> bool:
        """Whether the program has not taken what the window allows."""
        return self._unread >= self._window

    @property
    def has_room(self) -> bool:
        """Whether it has taken half of it again."""
        return self._unread <= self._window // 2

    @property
    def readable(self) -> bool:
        return bool(self._batches)

    def next_batch(self) -> MessageBatch | None:
        """Return the next batch, if one has come."""
        if not self._batches:
            return None
        batch, octets = self._batches.popleft()
        self._unread -= octets
        return batch

    def grant(self) -> bytes | None:
        """The CREDIT to give now, if it is worth a message."""
        missing = self._window - self._unread - self._remaining
        if self.ended or missing < max(1, self._window // _SHARE):
            return None
        self._remaining += missing
        return Credit(missing).encode()[0]
