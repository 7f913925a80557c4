"""A stream in the broker: it sequences and journals published messages, and hands them to live subscribers.

Messages wait for their neighbours: all that is read in one turn of the event loop becomes one block, with one write to
the journal and one send for each subscriber. After a quiet moment the first message does not wait. After a long one the
journal is idle and must be woken, which waits for the disk; messages that are published meanwhile wait too.

A message goes to subscribers only when it is in the journal: otherwise a broker that is killed in between would use its
sequence a second time. If the journal has no room, the messages stay pending, the publishers are paused, and the engine
calls `retry` about once a second. The counts of publishers (see `publishers`) go to the journal with the messages.

A stream does no I/O on sockets, and takes the time from the `clock` that it is given. It appends to the journal, whose
files are in the page cache; for everything that could wait for the disk it calls the broker's shell (`warm`, `sync`,
`wake`). Only `append` and `finish` may block, to wake an idle journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from zambezi.zeps import messages
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.broker.deliveries import Deliveries
from zambezi.zeps.broker.fetching import Fetched
from zambezi.zeps.broker.future_selections import FutureSelections
from zambezi.zeps.broker.groups import CallLater, Groups
from zambezi.zeps.broker.publishers import Publisher, Publishers
from zambezi.zeps.broker.readers import Readers
from zambezi.zeps.broker.turns import Turns, keys_in_slice
from zambezi.zeps.errors import Absent, Asleep, JournalError, JournalFull, OutOfRange
from zambezi.zeps.filters import Filter, PatternTable
from zambezi.zeps.histogram import Histogram
from zambezi.zeps.journal import Journal, Span
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.multicast.feed import FeedCounters

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Cursor

BLOCK: Final = 1 << 20  # pending bytes after which they are appended at once
WAITING: Final = 1 << 26  # bytes that may wait for room in the journal, of all publishers together
QUIET: Final = 100e-6  # seconds without an append, after which the next message is appended at once
SLOWEST: Final = 0.01  # messages per second: a lower rate is shown as 0
NEVER: Final = 1 << 64  # greater than every sequence


class Waiter(Protocol):
    """An object that waits for a barrier, as the stream sees it."""

    def confirm(self, barriers: int) -> None:
        """Note that all messages before this many barriers are safe, the oldest first."""

    def refuse(self, reason: str) -> None:
        """Note that the stream is stopped."""


class PublishingSession(Waiter, Protocol):
    """A session that publishes, as the stream sees it."""

    publisher: Publisher | None  # if the session counts its messages
    resumption: Waiter | None  # the barrier of its RESUME

    def pause(self) -> None:
        """Pass no more messages to the stream until `resume`."""

    def resume(self) -> None:
        """Pass messages to the stream again."""

    def dismiss(self) -> None:
        """Disconnect the client: too many messages wait for room on the disk."""


class Multicast(Protocol):
    """The multicast group of a stream, as the stream sees it. (ZEP-16)"""

    group: str
    sealed: bool

    @property
    def counters(self) -> FeedCounters: ...

    def send(self, block: Block) -> None:
        """Send a block that was appended. This never waits."""


class Audience:
    """Subscribers with the same patterns: they share a filter, and the messages that it selects from a block."""

    __slots__ = ("filter", "live", "picked", "users")

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.users = 0
        self.live: dict[Cursor, None] = {}  # the cursors in high gear
        self.picked: list[int] = []  # the selected messages of the block that is being handed out


class BrokerStream:
    """One stream of the broker."""

    # A broker can have ten thousand idle streams: a dictionary for this many attributes takes a kilobyte more.
    __slots__ = (
        "_appended_at",
        "_audiences",
        "_barriers",
        "_blocked",
        "_call_later",
        "_call_soon",
        "_everything",
        "_handing_out",
        "_matchers",
        "_paused",
        "_pending",
        "_pending_bytes",
        "_pending_since",
        "_pending_size",
        "_rate_measured",
        "_scheduled",
        "_stopped",
        "_sync",
        "_table",
        "_wake",
        "attached",
        "clock",
        "deliveries",
        "fetch",
        "future_selections",
        "groups",
        "held",
        "journal",
        "latency",
        "multicast",
        "name",
        "owner",
        "published",
        "publishers",
        "rate",
        "readers",
        "synced_at",
        "turns",
        "waiting_cursors",
        "warm",
    )

    is_shared = False  # whether another broker can take it at any time
    is_settling = False  # whether clients that the broker before had are perhaps on their way to this one

    def __init__(
        self,
        journal: Journal,
        matchers: Matchers,
        turns: Turns,
        *,
        call_soon: Callable[[Callable[[], object]], object],
        warm: Callable[[Span, Callable[[], object]], object],
        sync: Callable[[BrokerStream], object],
        wake: Callable[[BrokerStream], object],
        call_later: CallLater,
        clock: Callable[[], float],
    ) -> None:
        self.journal = journal
        journal.may_block = False
        self.name = journal.name
        self.turns = turns
        self.clock = clock
        self.warm = warm
        self.fetch: Callable[[Absent, Fetched], object] = _fetch_nothing  # loads messages that the disk does not have
        self.waiting_cursors: set[Cursor] = set()  # in low gear at the end: they are woken by the next append
        self.future_selections = FutureSelections()
        self.multicast: Multicast | None = None
        self.owner = ""  # the endpoint of this broker, if it shares the stream with others
        self._stopped = ""  # why an operator has taken the stream away
        self.held = ""  # why the journal cannot be appended to, if that is a problem
        self.synced_at = 0.0  # when the engine last asked for a sync because of the interval
        self.published = 0
        self.deliveries = Deliveries()  # to connections that have ended, and to groups
        self.latency = Histogram()  # from `publish` until the live subscribers have a message; all streams share one
        self.rate = 0.0  # messages per second, recently
        self.attached = 0
        self.publishers = Publishers(journal.counts)
        self.readers = Readers(self, call_soon)
        self.groups = Groups(self, call_soon, call_later)
        self._matchers = matchers
        self._call_soon = call_soon
        self._call_later = call_later
        self._sync = sync
        self._wake = wake
        self._audiences: dict[frozenset[str], Audience] = {}
        self._everything: Audience | None = None  # the audience without a filter, which needs no table
        self._table: PatternTable[Audience] = PatternTable(matchers)
        self._pending: list[bytes] = []  # PUBLISH messages that are not in the journal yet
        self._pending_bytes = 0
        self._pending_size = 0  # of each pending message, if it is known that all have one size
        self._pending_since = 0.0
        self._scheduled = False  # whether a flush will run in this turn of the loop
        # Whether a block is being handed out. A connection that is found broken then may have published messages: their
        # block must not overtake this one.
        self._handing_out = False
        self._blocked = False  # whether appends must wait: the disk is full, or the journal is being woken
        self._appended_at = 0.0
        self._rate_measured = (clock(), 0)  # when the rate was last measured, and `published` at that time
        self._paused: dict[PublishingSession, None] = {}  # publishers
        # The PINGs to answer when a sequence is safe: how many, by sequence and publisher. The last key may be NEVER,
        # for PINGs after messages that have no sequence yet.
        self._barriers: dict[int, dict[Waiter, int]] = {}

    # Appending

    def publish(self, frames: Sequence[bytes], publisher: PublishingSession, size: int = 0) -> None:
        """Accept valid PUBLISH messages, and append them now or in this turn of the loop. (ZEP-04)

        `size` is the size of each of them, if it is known that all have one size.
        """
        if self.journal.failed:
            publisher.refuse(self.stop_reason)
            return
        if self._blocked and self._pending_bytes >= WAITING:
            publisher.dismiss()
            return
        if not self._pending:
            self._pending_since = self.clock()
            self._pending_size = size
        elif size != self._pending_size:
            self._pending_size = 0
        self._pending += frames
        self._pending_bytes += size * len(frames) if size else sum(map(len, frames))
        if publisher.publisher is not None:
            self.publishers.note(publisher.publisher, len(frames))
        if not self._blocked:
            if not self._handing_out and (
                self._pending_bytes >= BLOCK
                or (not self._scheduled and self._pending_since - self._appended_at > QUIET)
            ):
                self._append_pending()
            elif not self._scheduled:
                self._scheduled = True
                self._call_soon(self._flush_scheduled)
        if self._blocked:
            self._pause(publisher)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Append the pending messages to the journal, and hand them out. Does nothing while appends must wait."""
        if self._has_unwritten and not self._blocked and not self._handing_out:
            self._append_pending()

    @property
    def _has_unwritten(self) -> bool:
        """Whether the journal does not have everything yet: messages, or the state of a publisher."""
        return bool(self._pending or self.publishers.unwritten)

    def _append_pending(self) -> None:
        try:
            block = self._append(self._pending, self._pending_size > 0) if self._pending else None
            if block is None:
                self._append_counts()
        except Asleep:
            self._blocked = True
            self._wake(self)
            return
        except JournalError as error:
            self._blocked = True
            self.held = str(error)
            return
        self._pending = []
        self._pending_bytes = 0
        if block is not None:
            began = self._pending_since
            self._hand_out(block)
            self.latency.add(self.clock() - began, block.count)
        if self._blocked:
            self._unblock()
        if self._barriers:
            self.confirm_barriers()

    def append(self, frames: list[bytes]) -> int:
        """Append valid PUBLISH messages now, hand them out, and return the sequence of the last one.

        For parts of the server that need the sequence. Raises `JournalError` if it fails; then none is appended.

        Blocks if the journal is idle: the sequence is used at once, so the messages must be in the journal at once, and
        the journal accepts none before its mark is on the disk.
        """
        self.journal.may_block = True
        try:
            self._append_all_pending()
            block = self._append(frames)
        finally:
            self.journal.may_block = False
        self._hand_out(block)
        return block.last

    def _append_all_pending(self) -> None:
        """Append the pending messages, also if the journal is being woken; raise `JournalFull` if they do not fit."""
        self.flush()
        if not self.held:
            self.retry()
        if self._has_unwritten:
            raise JournalFull(self.held)

    def _append(self, frames: list[bytes], alike: bool = False) -> Block:
        """Sequence PUBLISH messages, and append them to the journal. (ZEP-09)"""
        block = deliver(frames, self.journal.last + 1, alike)
        now = self.clock()
        unwritten = self.publishers.unwritten
        self.journal.append(block, now, [publisher.state for publisher in unwritten] if unwritten else ())
        if unwritten:
            self.publishers.note_written()
        self._appended_at = now
        self.published += block.count
        if self.future_selections.waiting:
            self.future_selections.begin(self.journal.last_time, block.first - 1)
        return block

    def _append_counts(self) -> None:
        """Append the state of publishers without messages."""
        self.journal.append_counts([publisher.state for publisher in self.publishers.unwritten], self.clock())
        self.publishers.note_written()

    def finish(self) -> None:
        """Append all pending messages before the broker closes. Blocks if the journal is idle."""
        self.journal.may_block = True
        self.flush()
        self.retry()
        self.readers.flush()
        self.groups.close()

    # While appends must wait

    def retry(self) -> None:
        """Try again to append the pending messages, if appends had to wait."""
        if self._blocked:
            self._append_pending()
            if self.journal.failed:
                self.stop()

    def on_woken(self, problem: str = "") -> None:
        """Append the pending messages: the journal was woken. With a problem, keep them for the next `retry`."""
        if not problem:
            self.retry()
        elif self.journal.failed:
            self.stop()
        elif self._blocked:
            self.held = problem

    def _pause(self, publisher: PublishingSession) -> None:
        self._paused[publisher] = None
        publisher.pause()
        if self.journal.failed:
            self.stop()

    def _unblock(self) -> None:
        self._blocked = False
        self.held = ""
        paused, self._paused = self._paused, {}
        for publisher in paused:
            publisher.resume()

    def stop(self, reason: str = "") -> None:
        """Refuse all publishers, and confirm nothing: the journal has failed, or an operator takes the stream away."""
        self._stopped = reason
        paused, self._paused = self._paused, {}
        barriers, self._barriers = self._barriers, {}
        self._pending = []
        self._pending_bytes = 0
        self.publishers.unwritten.clear()
        self._blocked = False
        self.held = ""
        refused: dict[Waiter, None] = dict.fromkeys(paused)
        for waiting in barriers.values():
            refused |= dict.fromkeys(waiting)
        for waiter in (*refused, *self.readers.take_waiters()):
            waiter.refuse(self.stop_reason)
        for publisher in paused:
            publisher.resume()  # so that its DETACH-OK is read

    @property
    def stop_reason(self) -> str:
        """The reason why the stream is stopped, for clients."""
        return f"the stream is stopped: {self._stopped or self.journal.failed}"

    @property
    def pending_bytes(self) -> int:
        """The bytes that are published, and not in the journal yet."""
        return self._pending_bytes

    def update_rate(self) -> None:
        """Update the rate: the mean of the old value and of the rate since the last update."""
        now = self.clock()
        since, before = self._rate_measured
        if now > since:
            self.rate = (self.rate + (self.published - before) / (now - since)) / 2
            if self.rate < SLOWEST:
                self.rate = 0.0
            self._rate_measured = now, self.published

    # Barriers

    def confirm_when_safe(self, waiter: Waiter) -> None:
        """Call the waiter's `confirm`, now or later, when all messages published so far are safe. (ZEP-06)

        If others wait already, the disk is busy: then the messages of all publishers in this turn of the loop are
        appended together, and one sync confirms them.
        """
        if not (self._barriers and self._scheduled):
            self.flush()
        self._add_barriers(NEVER if self._has_unwritten else self._written_mark, waiter, 1)
        if self.journal.failed:
            self.stop()
        else:
            self.confirm_barriers()

    def _add_barriers(self, sequence: int, waiter: Waiter, count: int) -> None:
        waiting = self._barriers.setdefault(sequence, {})
        waiting[waiter] = waiting.get(waiter, 0) + count

    def confirm_barriers(self) -> None:
        """Confirm the barriers whose messages are safe by now, and ask for a sync if others still wait for it."""
        if not self._has_unwritten:
            # The messages before these barriers have a sequence now.
            for waiter, count in self._barriers.pop(NEVER, {}).items():
                self._add_barriers(self._written_mark, waiter, count)
        safe = self._safe_mark
        while self._barriers and (oldest := next(iter(self._barriers))) <= safe:
            for waiter, count in self._barriers.pop(oldest).items():
                waiter.confirm(count)
        if self._barriers and not self._has_unwritten:
            self._make_safe()
        self.readers.confirm()

    @property
    def _written_mark(self) -> int:
        """The key of barriers whose messages are all written."""
        return self.journal.last

    @property
    def _safe_mark(self) -> int:
        """The highest key of barriers whose messages are all safe."""
        return self.journal.synced if self.journal.policy.sync == "always" else self.journal.last

    def _make_safe(self) -> None:
        """Begin to make the written messages safe. `confirm_barriers` follows."""
        self._sync(self)

    @property
    def safe_write(self) -> int:
        """The number of the last write of positions that is safe."""
        positions = self.journal.positions
        return positions.synced if self.journal.policy.sync == "always" else positions.written

    def prove_ownership(self) -> None:
        """Let `readers.when_safe` wait until it is certain that no other broker has the stream."""

    def make_positions_safe(self) -> None:
        """Begin to make the written positions safe. `readers.confirm` follows."""
        self._sync(self)

    def forget_publisher(self, publisher: PublishingSession) -> None:
        """Drop the barriers of a publisher that is disconnected. Its messages stay."""
        self._paused.pop(publisher, None)
        self.readers.forget(publisher)
        for waiting in self._barriers.values():
            waiting.pop(publisher, None)
            if publisher.resumption is not None:
                waiting.pop(publisher.resumption, None)

    # Handing out

    def _hand_out(self, block: Block) -> None:
        """Send a block that was appended to the group and to the live cursors, and wake the cursors that wait."""
        self._handing_out = True
        try:
            if self.multicast is not None:
                self.multicast.send(block)
            everything = self._everything
            if everything is not None:
                for cursor in tuple(everything.live):
                    cursor.send_live(block)
            if len(self._audiences) > (everything is not None):
                self._hand_out_filtered(block)
            if self.groups.is_active:
                self.groups.on_append(block, self._appended_at)
            if self.waiting_cursors:
                waiting, self.waiting_cursors = self.waiting_cursors, set()
                for cursor in waiting:
                    cursor.outlet.wake()
        finally:
            self._handing_out = False

    def _hand_out_filtered(self, block: Block) -> None:
        if self._table.weight and self._is_much_work(block):
            for audience in self._audiences.values():
                if audience is not self._everything:
                    for cursor in tuple(audience.live):
                        cursor.fall_back(block.first - 1)
            return
        touched: list[Audience] = []
        find = self._table.find
        for index, key in enumerate(block.keys):
            for audience in find(key):
                if not audience.picked:
                    touched.append(audience)
                audience.picked.append(index)
        for audience in touched:
            picked, audience.picked = audience.picked, []
            if audience.live:
                chosen = block if len(picked) == block.count else block.select(picked)
                for cursor in tuple(audience.live):
                    cursor.send_live(chosen)

    def _is_much_work(self, block: Block) -> bool:
        """Return whether the new keys of a block are more work for the patterns than a slice."""
        left = keys_in_slice(self._table.weight)
        knows = self._table.knows
        for key in block.keys:
            if not knows(key):
                left -= 1
                if left < 0:
                    return True
        return False

    # Audiences

    def filter_for(self, patterns: Iterable[str]) -> Filter:
        """Return the filter for some patterns: that of their audience, or a new one."""
        audience = self._audiences.get(frozenset(patterns))
        return audience.filter if audience is not None else Filter(patterns, self._matchers)

    def join_audience(self, patterns: Iterable[str]) -> Audience:
        """Add a subscriber to the audience with these patterns, and return it."""
        wanted = frozenset(patterns)
        audience = self._audiences.get(wanted)
        if audience is None:
            audience = self._audiences[wanted] = Audience(Filter(wanted, self._matchers))
            if audience.filter.everything and self._everything is None:
                self._everything = audience
            else:
                self._table.add(audience, wanted)
        audience.users += 1
        return audience

    def leave_audience(self, audience: Audience, cursor: Cursor) -> None:
        """Remove a subscriber from its audience."""
        audience.live.pop(cursor, None)
        audience.users -= 1
        if not audience.users:
            # Hundreds of subscribers with many patterns can leave at once.
            self.turns.wait(partial(self._drop_audience, audience))

    def _drop_audience(self, audience: Audience) -> int:
        """Remove an audience, unless another subscriber has joined it; return the units of work."""
        patterns = audience.filter.patterns
        if audience.users or self._audiences.get(patterns) is not audience:
            return 1
        del self._audiences[patterns]
        if self._everything is audience:
            self._everything = None
        else:
            self._table.remove(audience, patterns)
        return len(patterns)

    @property
    def subscribers(self) -> int:
        """The number of subscribers."""
        return sum(audience.users for audience in self._audiences.values())


def _fetch_nothing(absent: Absent, _done: Fetched) -> None:
    raise absent


def where_to_start(journal: Journal, latest: int) -> tuple[int, int]:
    """Return the sequence after which a subscription begins, by SUBSCRIBE's `latest`; and its time, if that is future.

    Raises `OutOfRange` for a number after the last sequence: it belongs to another stream than this one.
    """
    if latest & messages.TIME:
        time = (latest ^ messages.TIME) * 1000
        return (journal.before(time), 0) if time <= journal.last_time else (NEVER, time)
    if latest == messages.EARLIEST:
        return journal.first - 1, 0
    if latest == messages.LATEST:
        return journal.last, 0
    if latest > journal.last:
        raise OutOfRange(
            f"the last sequence of this stream is {journal.last}: {latest} is of another stream, or of one that was "
            f"deleted; give one from 0 to {journal.last}"
        )
    return latest, 0
