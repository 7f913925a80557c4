"""A member of a group of shared readers, without I/O and without a clock: its credit, and its answers to the broker.

The broker sends each message to one member. The member acknowledges it (DONE), gives it back, or says that it still
works on it; the answers of one turn of the event loop are one message. If the connection is lost, the broker gives all
messages that were not acknowledged to other members, or to this one when it has joined again. So messages that were
received and not read by then are dropped here. If the program acknowledges a message of a lost connection, the broker
would ignore that: the next `flush` says so.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from zambezi.zeps.client.batch import Message, MessageBatch, sequences_of
from zambezi.zeps.client.subscriber import ASK_FOR_TIMES, SubscriberCounters
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.messages import Credit, Done, GiveBack, Join, Keep
from zambezi.zeps.sequences import MOST, pack_sequences, unpack_deliveries
from zambezi.zeps.times import TimeTable

T = TypeVar("T")

IN_FLIGHT: Final = 1000  # messages
_SHARE: Final = 4  # credit is given when one part in so many of the window is free


@dataclass(frozen=True, slots=True)
class GroupWish:
    """The options that a member wants for its group: see `Stream.subscribe`."""

    group: str
    pattern: str
    since: int
    in_flight: int = IN_FLIGHT
    wait: int = 0  # milliseconds
    limit: int = 0
    dead: str = ""


class SharedMessage(Message):
    """A message that was delivered to a member of a group before, to this one or to another."""

    __slots__ = ()

    @property
    def deliveries(self) -> int:
        """How often the message was delivered, with this time."""
        return self[5]  # type: ignore[misc,no-any-return]

    def __repr__(self) -> str:
        return f"{Message(*self[:5])!r}, delivery {self.deliveries}"


class SharedBatch(MessageBatch):
    """Messages that came together, some of which were delivered before."""

    __slots__ = ("_deliveries",)

    def __init__(
        self,
        stream: str,
        frames: list[bytes],
        body_at: int,
        deliveries: dict[int, int],
        times: array[int] | None = None,
    ) -> None:
        super().__init__(stream, frames, body_at, times)
        self._deliveries = deliveries

    def __iter__(self) -> Iterator[Message]:
        for message in super().__iter__():
            count = self._deliveries.get(message.sequence, 1)
            yield tuple.__new__(SharedMessage, (*message, count)) if count > 1 else message

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            times = self._times[index] if self._times is not None else None
            return SharedBatch(self.stream, self.frames[index], self._body_at, self._deliveries, times)
        return list(self)[index]


class GroupMember:
    """The rules of one member over a connection that comes and goes."""

    def __init__(
        self,
        stream: str,
        wish: GroupWish,
        identity: bytes,
        window: int,
        *,
        is_automatic: bool = True,
        times: bool = False,
    ) -> None:
        if window < 1:
            raise ZepsError(f"window must be a number of bytes above zero, not {window}")
        self.counters = SubscriberCounters()
        self.failure: ZepsError | None = None
        self.ended = False
        self.position: int | None = None  # the last sequence that was received
        self.incarnation = ""  # of the stream; a member does not ask for it
        self._stream = stream
        self._wish = wish
        self._identity = identity
        self._window = window
        self._unused_credit = 0
        self._unread = 0
        self._batches: deque[tuple[MessageBatch, int]] = deque()
        self._deliveries: dict[int, int] = {}  # of messages of the last DELIVERIES; they can come in several pieces
        self.wants_times = times
        self._times: TimeTable | None = None  # the times of the messages that come next on this connection
        self.is_automatic = is_automatic  # whether the next `recv` acknowledges what the program has got
        self.is_plain = True  # False after a failure or a lost connection: then acknowledgements must be checked
        # Answers that were not sent. Any thread adds to them without a lock: so these lists are never replaced.
        self.done: list[int] = []
        self._returned: list[tuple[int, int, Sequence[int]]] = []  # delay, `seen` and sequences
        self._kept: list[int] = []
        self._unconfirmed = 0  # answers that were sent and not confirmed
        self._highest = 0  # the highest sequence that was received
        self._stale = 0  # messages up to this sequence came on a lost connection, except those that have come again
        self._come_again: set[int] = set()
        self._is_in_doubt = False  # whether the broker may have missed an acknowledgement
        self.is_joined = False
        self.losses = 0  # connections that were lost

    # The connection

    def join_messages(self) -> list[bytes]:
        """Return the messages that begin the membership: TIMES if times are wanted, JOIN and CREDIT."""
        wish = self._wish
        join = Join(
            wish.group,
            self._identity,
            wish.pattern,
            wish.since,
            wish.in_flight,
            wish.wait,
            wish.limit,
            wish.dead,
        )
        self.is_joined = True
        self._unused_credit = 0
        credit = self.next_credit()
        begin = [ASK_FOR_TIMES, join.encode()[0]] if self.wants_times else [join.encode()[0]]
        return [*begin, credit] if credit is not None else begin

    def lose_connection(self) -> None:
        """Forget everything that belongs to a connection: the broker gives the messages to other members."""
        self.is_plain = False
        self._is_in_doubt |= self.has_unconfirmed
        self._stale = self._highest
        self._come_again.clear()
        self.losses += self.is_joined
        self.is_joined = False
        self._batches.clear()
        self._unread = 0
        self._deliveries = {}
        self._times = None
        self._unconfirmed = 0
        for answers in (self.done, self._returned, self._kept):
            answers.clear()

    def fail_refused(self, reason: str) -> None:
        """End with an error: the broker has refused the member."""
        self.fail(BrokerError(f"the group {self._wish.group!r} of {self._stream!r} was refused: {reason}"))

    def fail(self, error: ZepsError) -> None:
        """End with an error. Messages that were received can still be read."""
        self.is_plain = False
        if self.failure is None:
            self.failure = error

    # Receiving

    def learn_deliveries(self, octets: bytes) -> None:
        """Learn which messages that come next were delivered before; raise `ZepsError` if the bytes are not valid."""
        self._deliveries = unpack_deliveries(octets)

    def learn_times(self, octets: bytes) -> None:
        """Learn the times of the messages that come next; raise `ZepsError` if the bytes are not valid."""
        if self.wants_times:
            self._times = TimeTable.parse(octets)

    def accept(self, frames: list[bytes], body_at: int) -> None:
        """Accept DELIVER messages; `body_at` is the result of `check_deliveries`."""
        octets = sum(map(len, frames))
        self._unused_credit -= octets
        self._unread += octets
        self.counters.received += len(frames)
        first, last = sequence_of(frames[0]), sequence_of(frames[-1])
        known = self._times
        times = known.times_of(sequences_of(frames)) if known is not None and first >= known.first else None
        batch = MessageBatch(self._stream, frames, body_at, times)
        if self._deliveries and (repeated := self._deliveries.keys() & batch.sequences()):
            deliveries = {number: self._deliveries.pop(number) for number in repeated}
            batch = SharedBatch(self._stream, frames, body_at, deliveries, times)
            self.counters.repeated += len(repeated)
        self._batches.append((batch, octets))
        self.position = last
        if first <= self._stale:
            self._come_again.update(batch.sequences())
        self._highest = max(self._highest, last)

    def next_batch(self) -> MessageBatch | None:
        """Return the next batch, or None if there is none yet."""
        if not self._batches:
            return None
        batch, octets = self._batches.popleft()
        self._unread -= octets
        return batch

    def next_credit(self) -> bytes | None:
        """Return the CREDIT to send now, and count it as given; None if it is too little for a message."""
        missing = self._window - self._unread - self._unused_credit
        if self.ended or missing < max(1, self._window // _SHARE):
            return None
        self._unused_credit += missing
        return Credit(missing).encode()[0]

    # Answers

    def acknowledge(self, sequences: Iterable[int]) -> None:
        """Note that the program has done with messages."""
        self.done.extend(sequences if not self._stale else filter(self._is_ours, sequences))

    def _is_ours(self, sequence: int) -> bool:
        """Return whether a message came on this connection; if not, its acknowledgement is in doubt."""
        if sequence > self._stale or sequence in self._come_again:
            self._come_again.discard(sequence)
            return True
        self._is_in_doubt = True
        return False

    def take_doubt(self) -> bool:
        """Return whether the broker may have missed acknowledgements since the last call."""
        doubt, self._is_in_doubt = self._is_in_doubt, False
        return doubt

    def give_back(self, sequences: Iterable[int], delay: float = 0.0, *, seen: bool = True) -> None:
        """Give messages back."""
        milliseconds = min(max(0, int(delay * 1000)), 0xFFFFFFFF)
        self._returned.append((milliseconds, int(seen), list(sequences)))
        if not seen:
            self._unused_credit = 0  # the broker takes it back: it expects this member to leave

    def keep(self, sequences: Iterable[int]) -> None:
        """Say that the program still works on messages."""
        self._kept.extend(sequences)

    def give_back_unread(self) -> None:
        """Give back the messages that the program has not read: it leaves."""
        for batch, _ in self._batches:
            self.give_back(batch.sequences(), seen=False)
        self._batches.clear()

    @property
    def has_answers(self) -> bool:
        """Whether answers wait to be sent."""
        return bool(self.done or self._returned or self._kept)

    def take_answers(self) -> list[bytes]:
        """Return the answers to send now."""
        done = _taken(self.done)
        found = [Done(pack_sequences(part)).encode()[0] for part in _parts(done)]
        found += [Keep(pack_sequences(part)).encode()[0] for part in _parts(_taken(self._kept))]
        returned: dict[tuple[int, int], list[int]] = {}
        for delay, seen, sequences in _taken(self._returned):
            returned.setdefault((delay, seen), []).extend(sequences)
        for (delay, seen), some in returned.items():
            found += [GiveBack(delay, seen, pack_sequences(part)).encode()[0] for part in _parts(some)]
        self._unconfirmed += len(found)
        return found

    @property
    def has_unconfirmed(self) -> bool:
        """Whether the broker has not confirmed all answers."""
        return self.has_answers or self._unconfirmed > 0

    def note_confirmed(self) -> None:
        """Note that the broker has confirmed all answers that were sent."""
        self._unconfirmed = 0


def _taken(answers: list[T]) -> list[T]:
    """Remove and return the answers of a list to which another thread may add more."""
    found = answers[:]
    del answers[: len(found)]
    return found


def _parts(sequences: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(sequences), MOST):
        yield sequences[start : start + MOST]
