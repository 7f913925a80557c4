"""The log of one stream in the store, as a broker sees it: an engine without I/O, with time as an argument.

    absent --take--> taking --> owner --> deposed      another broker has put a fence
                         \\         \\---> released     by `release`: everything is stored
                          \\---------\\--> deleted      by `delete`, or by another broker before

The owner collects the pieces that are appended, and puts them as one chunk, one chunk at a time (group commit). While a
put is under way, the next chunk grows. A piece is safe when its chunk is stored: then the event `Stored` names its
ticket. An owner that finds another broker's fence in the place of its next chunk is deposed. It cannot confirm anything
any more, and its pieces that were not stored are lost.

When the tail of the log is long, the owner merges it into a segment, beside the puts. Large chunks carry a snapshot of
the publishers, so that they can become segments as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from zambezi.zeps.errors import ZepsError
from zambezi.zeps.journal.counts import RECORD, Counts
from zambezi.zeps.store.chunk import (
    UNCHANGED,
    Author,
    Ending,
    Footer,
    Kind,
    Piece,
    pack_chunk,
    pack_fence,
    unpack_footer,
)
from zambezi.zeps.store.commands import Answer, Procedure, get, put
from zambezi.zeps.store.ending import End
from zambezi.zeps.store.extents import StoredExtents
from zambezi.zeps.store.merging import (
    MergePlan,
    clear,
    expired_segments,
    find_deletion,
    first_group,
    merge,
    promote,
    segments_to_absorb,
    sweep,
)
from zambezi.zeps.store.names import ALL, Beginning, StreamPlace
from zambezi.zeps.store.position_records import PositionRecords
from zambezi.zeps.store.runner import Runner, Ticket
from zambezi.zeps.store.takeover import Prepared, put_own, take_over
from zambezi.zeps.store.trimming import begin_after, trim
from zambezi.zeps.store.truncation import clear_others
from zambezi.zeps.store.view import ChunkObject, SegmentObject, View, look

T = TypeVar("T")
_MIB: Final = 1 << 20
_FIRST_CHECK: Final = 15.0  # seconds without a put, after which an owner checks that it is the owner


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How a log is written."""

    commit: float = 0.05  # seconds between the beginnings of two puts, at least
    chunk: int = 8 * _MIB  # bytes after which a chunk is put without waiting, and that it has at most
    segment: int = 64 * _MIB  # bytes of chunks that become a segment
    chunks: int = 512  # chunks that become a segment, whatever their size: a new owner reads the ends of all
    publishers: int = 100_000  # whose counts are kept
    snapshot: float = 0.125  # a large chunk has a snapshot of all records, if that is at most this part of its size
    grace: float = 0.0  # seconds for which messages that were removed can still be read without a broker
    check: float = 600.0  # seconds between two checks of an idle stream, at most: see `check_if_idle`


class State(Enum):
    """The states of a log."""

    ABSENT = "absent"
    TAKING = "taking"
    OWNER = "owner"
    DEPOSED = "deposed"
    RELEASED = "released"
    DELETED = "deleted"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Owned:
    """The broker owns the stream now; `end` is the end of its log."""

    end: End


@dataclass(frozen=True, slots=True)
class Stored:
    """All pieces up to a ticket are in the store; `last` is the last sequence of them."""

    ticket: int
    last: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The broker does not own the stream any more: it is deposed, released, deleted or broken."""

    state: State
    reason: str = ""


Event: TypeAlias = Owned | Stored | Ended


class _Put(NamedTuple):
    """A chunk that was put, or whose number another broker has."""

    is_ours: bool
    footer: Footer
    records: bytes
    positions: bytes
    has_snapshot: bool


def _split(records: bytes) -> list[bytes]:
    return [records[at : at + RECORD] for at in range(0, len(records), RECORD)]


class StreamLog:
    """The log of one stream."""

    def __init__(
        self, place: StreamPlace, owner: bytes, incarnation: bytes, settings: LogSettings | None = None
    ) -> None:
        self.place = place
        self.settings = settings or LogSettings()
        self.state = State.ABSENT
        self.last = 0  # the last sequence that is stored
        self.last_time = 0
        self.counts = Counts(self.settings.publishers)  # of the stored messages
        self.positions = PositionRecords()  # that are stored
        self.problem = ""  # why the last merge failed
        self.extents = StoredExtents()
        self.has_others = False  # whether the store may have leftovers of other generations of the stream
        self._owner = owner
        self._incarnation = incarnation  # that of `stream.json`
        self._author = Author(owner, 0, incarnation)
        self._runner = Runner()
        self._now = 0.0
        self._events: list[Event] = []
        self._pending: deque[Piece] = deque()
        self._pending_bytes = 0
        self._appended = 0  # the ticket of the last piece
        self._next_number = 0  # of a chunk
        self._is_putting = False
        self._next_put = 0.0  # the earliest time of the next put
        self._pause = _FIRST_CHECK  # between two checks
        self._next_check = 0.0
        self._last_words: Kind | None = None  # the chunk to put after all others
        self._tail: list[ChunkObject] = []
        self._large: dict[int, Footer] = {}  # chunks of the tail that have a snapshot, by number
        self._segments: list[SegmentObject] = []
        self._beginning = ALL
        self._begun: list[tuple[float, int]] = []  # when the stream got a new beginning, and which
        self._has_leftovers = False  # of the owners before
        self._is_tidying = False  # whether a merge, a sweep or a look is under way

    # For the shell

    def requests(self, now: float) -> list[Ticket]:
        """Return the requests that the shell must execute now."""
        self._now = now
        self._put_next(now)
        return self._runner.requests(now)

    def answer(self, number: int, answer: Answer, now: float) -> None:
        """Continue with the answer of a request."""
        self._now = now
        self._runner.answer(number, answer, now)

    @property
    def next_time(self) -> float | None:
        """The time at which `requests` must be called again; None if only an answer or a call matters."""
        times = [self._runner.next_time]
        if self._can_put:
            times.append(self._next_put)
        return min((time for time in times if time is not None), default=None)

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call."""
        events, self._events = self._events, []
        return events

    # For the broker

    @property
    def is_owner(self) -> bool:
        return self.state is State.OWNER

    @property
    def incarnation(self) -> bytes:
        """The incarnation of the stream, 16 bytes."""
        return self._author.incarnation

    @property
    def first(self) -> int:
        """The first sequence of the stream; one more than `last` if it has no messages."""
        first = self.extents.first
        return self.last + 1 if first is None else first

    @property
    def epoch(self) -> int:
        """The epoch of the owner."""
        return self._author.epoch

    @property
    def is_putting(self) -> bool:
        """Whether a put is under way."""
        return self._is_putting

    @property
    def pending_bytes(self) -> int:
        """The bytes that are appended and not in a chunk yet. The caller bounds them."""
        return self._pending_bytes

    def take(self, now: float, incarnation: bytes = UNCHANGED, prepared: Prepared | None = None) -> None:
        """Take the stream, from whichever broker owns it. With an incarnation, the stream gets that one."""
        if self.state in (State.TAKING, State.OWNER):
            return
        self.state = State.TAKING
        self._pending.clear()
        self._pending_bytes = 0
        self._last_words = None
        self._now = now
        self._start(take_over(self.place, self._owner, incarnation, prepared), self._take_end)

    def _take_end(self, end: End) -> None:
        incarnation = self._incarnation if end.incarnation == UNCHANGED else end.incarnation
        self._author = Author(self._owner, end.epoch, incarnation)
        self.last, self.last_time = end.last, end.last_time
        if end.is_deleted:
            self._end(State.DELETED)
            self._clear_deleted(end)
            return
        self.counts = Counts(self.settings.publishers)
        self.counts.note(end.records)
        self.extents.begin(end)
        self.positions = PositionRecords()
        self.positions.note(end.positions)
        self._tail = list(end.view.tail)
        self._large = {}
        self._segments = list(end.view.segments)
        self._beginning = end.view.beginning
        self._begun = [(self._now, self._beginning.first)]
        self._has_leftovers = bool(end.view.leftovers or end.view.merged_chunks or end.view.beginnings[1:])
        self._next_number = end.view.following
        self._is_putting = False
        self.state = State.OWNER
        self._postpone_check(self._now)
        self._events.append(Owned(end))

    def append(self, piece: Piece) -> int:
        """Append messages, counts or positions, and return the ticket that `Stored` will name."""
        assert self.state is State.OWNER, "only the owner appends"
        self._pending.append(piece)
        self._pending_bytes += piece.size
        self._appended += 1
        return self._appended

    def release(self) -> None:
        """Give the stream up after all pieces are stored: another broker can take it at once."""
        if self.is_owner:
            self._last_words = self._last_words or Kind.RELEASE

    def delete(self) -> None:
        """Delete the stream after all pieces are stored."""
        if self.is_owner:
            self._last_words = Kind.DELETION

    def check(self, now: float) -> None:
        """Find out whether another broker has taken the stream. An owner that puts chunks finds out by itself."""
        if self.is_owner and not self._is_putting:
            number = self._next_number
            self._now = now
            self._start(get(self.place.chunk(number)), lambda found: self._note_check(number, found))

    def check_if_idle(self, now: float) -> None:
        """Check now and then, ever less often, whether another broker has taken a stream to which nobody publishes."""
        if self.is_owner and now >= self._next_check:
            self._next_check = now + self._pause
            self._pause = min(2 * self._pause, self.settings.check)
            self.check(now)

    def _note_check(self, number: int, found: bytes | None) -> None:
        if found is not None and self.is_owner and not self._is_putting and number == self._next_number:
            self._depose(unpack_footer(found, self.place.chunk(number)))

    # Puts

    @property
    def _can_put(self) -> bool:
        return self.is_owner and not self._is_putting and bool(self._pending or self._last_words)

    def _put_next(self, now: float) -> None:
        if not self._can_put or (now < self._next_put and self._pending_bytes < self.settings.chunk):
            return
        self._is_putting = True
        self._next_put = now + self.settings.commit
        self._postpone_check(now)
        number, author = self._next_number, self._author
        if not self._pending:
            assert self._last_words is not None
            kind = self._last_words
            fence = pack_fence(kind, author, number)
            self._start(put_own(self.place.chunk(number), fence), lambda is_ours: self._note_last_words(kind, is_ours))
            return
        pieces = self._next_pieces()
        ticket = self._appended - len(self._pending)
        self._start(self._put_pieces(number, author, pieces), partial(self._note_put, ticket))

    def _postpone_check(self, now: float) -> None:
        self._pause = min(_FIRST_CHECK, self.settings.check)
        self._next_check = now + self._pause

    def _put_pieces(self, number: int, author: Author, pieces: Sequence[Piece]) -> Procedure[_Put]:
        """Put pieces as a chunk."""
        size = sum(piece.size for piece in pieces)
        snapshot = len(self.counts) * RECORD + self.positions.size
        has_snapshot = size >= self.settings.chunk // 2 and snapshot <= size * self.settings.snapshot
        records = b"".join([piece.records for piece in pieces])
        positions = b"".join([piece.positions for piece in pieces])
        ending = self._ending_with(records, positions) if has_snapshot else Ending(b"", positions)
        parts = pack_chunk(author, number, pieces, ending, self.last + 1, self.last_time)
        key = self.place.chunk(number)
        is_ours = yield from put_own(key, parts)
        return _Put(is_ours, unpack_footer(parts[-1], key), records, positions, has_snapshot)

    def _ending_with(self, records: bytes, positions: bytes) -> Ending:
        """Return the records that count, when these records are stored, too."""
        counts = self.counts.copy()
        counts.note(_split(records))
        return Ending(counts.snapshot(1)[RECORD:], self.positions.with_changes(positions))

    def _next_pieces(self) -> list[Piece]:
        """Return the pieces of the next chunk: as many as fit, and at least one."""
        pieces = [self._pending.popleft()]
        size = pieces[0].size
        while self._pending and size + self._pending[0].size <= self.settings.chunk:
            pieces.append(self._pending.popleft())
            size += pieces[-1].size
        self._pending_bytes -= size
        return pieces

    def _note_put(self, ticket: int, put: _Put) -> None:
        self._is_putting = False
        if not put.is_ours:
            self._depose()
            return
        footer = put.footer
        self._tail.append(ChunkObject(footer.number, footer.size))
        if put.has_snapshot:
            self._large[footer.number] = footer
        self._next_number += 1
        self.extents.add(footer)
        self.last, self.last_time = footer.last, footer.last_time
        self.counts.note(_split(put.records))
        self.positions.note(put.positions)
        self._events.append(Stored(ticket, self.last))
        self._merge_if_long()

    def _note_last_words(self, kind: Kind, is_ours: bool) -> None:
        self._is_putting = False
        if not is_ours:
            self._depose()
        elif kind is Kind.RELEASE:
            self._end(State.RELEASED)
        else:
            self._end(State.DELETED)
            self._start(clear(self.place, self._author, self.last, self._next_number), lambda _: None)

    def _depose(self, fence: Footer | None = None) -> None:
        other = f" (broker {fence.owner.hex()})" if fence is not None else ""
        self._end(State.DEPOSED, f"another broker{other} has taken the stream")

    def _end(self, state: State, reason: str = "") -> None:
        self.state = state
        self._pending.clear()
        self._pending_bytes = 0
        self._last_words = None
        self._events.append(Ended(state, reason))

    # Merging and retention

    @property
    def _view(self) -> View:
        return View(self._tail, self._segments, beginnings=[self._beginning])

    def _merge_if_long(self) -> None:
        if self._is_tidying or not self.is_owner:
            return
        size = sum(chunk.size for chunk in self._tail)
        if size < self.settings.segment and len(self._tail) < self.settings.chunks:
            return
        group = first_group(self._tail, self._large)
        large = self._large.get(group[-1].number)
        if large is None:
            absorbed = segments_to_absorb(self._view, self.settings.segment)
            # The head of the counts is for the file of a journal.
            ending = Ending(self.counts.snapshot(1)[RECORD:], self.positions.octets)
            plan = MergePlan(group[-1].number, absorbed, tuple(group), ending, self.last + 1, self.last_time)
        else:
            plan = MergePlan(large.number, (), tuple(group), None, large.last + 1, large.last_time)
        self._merge(plan, large)

    def _merge(self, plan: MergePlan, large: Footer | None) -> None:
        if large is not None and len(plan.data_chunks) == 1:
            self._tidy(promote(self.place, large), lambda made: self._note_merge(plan, made))
        else:
            self._tidy(merge(self.place, self._author, plan), lambda made: self._note_merge(plan, made))

    def _note_merge(self, plan: MergePlan, made: SegmentObject | None) -> None:
        if made is None:  # a broker that owned the stream before has merged some of it
            self._tidy(look(self.place), self._note_look)
            return
        absorbed = {*plan.segments, *plan.replaced}
        self._segments = sorted([*(one for one in self._segments if one not in absorbed), made])
        self._cut_tail(made.name.last_chunk)
        self._merge_if_long()

    def _cut_tail(self, reached: int) -> None:
        self._tail = [chunk for chunk in self._tail if chunk.number > reached]
        self._large = {number: footer for number, footer in self._large.items() if number > reached}
        self.extents.update(self._view)

    def sweep(self, keep_bytes: int | None, horizon: int | None) -> None:
        """Remove segments that are too old or too many, and leftovers of the owners before.

        Nothing is asked of the store if there is nothing to remove, as far as the log knows, or a merge is under way.
        """
        if not self.is_owner or self._is_tidying:
            return
        if self.has_others:
            self.has_others = False
            self._tidy(clear_others(self.place), lambda _: None)
            return
        view, first = self._view, self._removable
        expired = expired_segments(view, keep_bytes, horizon)
        if expired and self.settings.grace:
            beginning = begin_after(view, expired)
            self._tidy(put(self.place.listed(beginning), b""), lambda _: self._note_expired(beginning))
        elif self._must_rewrite(view, first):
            self._rewrite(view, first)
        elif self._has_leftovers or expired or any(one.name.last < first for one in view.readable[:-1]):
            self._has_leftovers = False
            self._tidy(sweep(self.place, keep_bytes, horizon, first), self._note_look)

    def _note_look(self, view: View) -> None:
        self._segments = list(view.segments)
        self._begin_at(view.beginning)
        self._cut_tail(view.reached)

    # Trimming

    def trim(self, first: int, done: Callable[[str], object]) -> None:
        """Remove all messages before a sequence, and call back, with the problem if there is one.

        The caller must then append something, and wait until it is stored: only that proves that no other broker has
        taken the stream before, and serves the messages.
        """
        if not self.is_owner:
            done(f"the broker does not own the stream: it is {self.state.value}")
            return

        def note(beginning: Beginning) -> None:
            self._note_beginning(beginning)
            done("")
            if not self._is_tidying:
                self.sweep(None, None)

        self._runner.start(trim(self.place, first), self._now, note, lambda error: done(str(error)))

    def _note_expired(self, beginning: Beginning) -> None:
        self._note_beginning(beginning)
        self.sweep(None, None)  # a busy stream has something that is too old each time, and must not wait for the rest

    def _note_beginning(self, beginning: Beginning) -> None:
        self._begin_at(beginning)
        self._has_leftovers = True  # the beginning before
        self.extents.update(self._view)

    def _begin_at(self, beginning: Beginning) -> None:
        if beginning.first > self._beginning.first:
            self._beginning = beginning
            self._begun.append((self._now, beginning.first))

    @property
    def _removable(self) -> int:
        """The first sequence that must stay: the messages before it were removed from the stream long enough ago."""
        old = [first for time, first in self._begun if time + self.settings.grace <= self._now]
        if len(old) > 1:
            self._begun = self._begun[len(old) - 1 :]
        return old[-1] if old else 1

    def _must_rewrite(self, view: View, first: int) -> bool:
        """Return whether the newest segment or a chunk above it has only messages before a sequence."""
        newest = view.newest
        is_old = newest is not None and newest.name.first <= newest.name.last < first
        return is_old or bool(self.extents.ends_before(first))

    def _rewrite(self, view: View, first: int) -> None:
        """Replace the newest segment and the chunks above it by a segment without messages before a sequence."""
        trimmed = self.extents.ends_before(first)
        replaced = tuple(segment for segment in self._segments if segment.name.last < first)
        large = {number: footer for number, footer in self._large.items() if number not in trimmed}
        group = tuple(first_group(self._tail, large))
        last = large.get(group[-1].number) if group else None
        if last is not None:
            plan = MergePlan(last.number, (), group, None, last.last + 1, last.last_time, trimmed, replaced)
        else:
            number = group[-1].number if group else view.reached
            ending = Ending(self.counts.snapshot(1)[RECORD:], self.positions.octets)
            plan = MergePlan(number, (), group, ending, self.last + 1, self.last_time, trimmed, replaced)
        self._has_leftovers = True
        self._merge(plan, last)

    def _tidy(self, procedure: Procedure[T], done: Callable[[T], object]) -> None:
        def note(result: T) -> None:
            self._is_tidying = False
            done(result)

        def fail(error: ZepsError) -> None:
            self._is_tidying = False
            self.problem = str(error)

        self._is_tidying = True
        self._runner.start(procedure, self._now, note, fail)

    def _clear_deleted(self, end: End) -> None:
        """Remove what an interrupted deletion has left behind."""
        deletion = find_deletion(end.view, [footer.kind for footer in end.footers])
        if deletion is not None:
            self._start(clear(self.place, self._author, end.last, deletion), lambda _: None)

    def _start(self, procedure: Procedure[Any], done: Callable[[Any], object]) -> None:
        self._runner.start(procedure, self._now, done, lambda error: self._end(State.BROKEN, str(error)))
