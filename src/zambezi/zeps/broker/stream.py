"""A stream in the broker: what is published is sequenced, journalled, and handed to those who follow it live.

Messages wait for their neighbours: all that is read in one turn of the loop becomes one block, with one write to the
journal and one send for each subscriber. After a quiet moment the first message does not wait; after a long one the
journal is idle and has to be woken, which takes the disk a moment, and what is published meanwhile waits for that.

A message goes to subscribers only when it is in the journal: or a broker that is killed in between would use its
sequence a second time. If there is no room in the journal, what was published waits, the publishers are held back, and
it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from zambezi.zeps import messages
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.broker.dated import Dated
from zambezi.zeps.errors import Asleep, JournalError, JournalFull, OutOfRange
from zambezi.zeps.filters import Filter, PatternTable
from zambezi.zeps.journal import Journal, Span
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.multicast.feed import FeedCounters

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Cursor

BLOCK: Final = 1 << 20  # what waits is appended when it has so many octets
WAITING: Final = 1 << 26  # octets that wait for room in the journal at most, of all publishers together
QUIET: Final = 100e-6  # seconds
SLOWEST: Final = 0.01  # messages in a second: less is none
NEVER: Final = 1 << 64  # after all sequences


class PublishingSession(Protocol):
    """A session that publishes, as the stream sees it."""

    def pause(self) -> None:
        """Give nothing more to the stream until `resume`."""

    def resume(self) -> None:
        """Give to the stream again."""

    def confirm(self, barriers: int) -> None:
        """Answer the oldest PINGs, so many of them: everything before them is safe."""

    def refuse(self, reason: str) -> None:
        """Tell the client that the stream is stopped."""

    def dismiss(self) -> None:
        """Send the client away: too much waits for room on the disk already."""


class Feed(Protocol):
    """A multicast group, as the stream sees it. (ZEP-16)"""

    group: str
    sealed: bool

    @property
    def counters(self) -> FeedCounters: ...

    def send(self, block: Block) -> None:
        """Send what was appended; the stream does not wait for it."""


class Audience:
    """Subscribers with the same patterns: they share a filter, and what it selects of a block."""

    __slots__ = ("filter", "live", "picked", "users")

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.users = 0
        self.live: dict[Cursor, None] = {}  # those in high gear
        self.picked: list[int] = []  # of the block that is being handed out


class BrokerStream:
    """One stream of the broker."""

    def __init__(
        self,
        journal: Journal,
        matchers: Matchers,
        *,
        soon: Callable[[Callable[[], object]], object],
        warm: Callable[[Span, Callable[[], object]], object],
        sync: Callable[[BrokerStream], object],
        wake: Callable[[BrokerStream], object],
        clock: Callable[[], float],
    ) -> None:
        self.journal = journal
        journal.may_block = False
        self.name = journal.name
        self.warm = warm
        self.waiting: set[Cursor] = set()  # at the end, and yet in low gear: they are nudged by what is appended
        self.dated = Dated()
        self.feed: Feed | None = None  # where live messages go besides, to whoever listens
        self.held = ""  # why nothing can be appended now, if that is a problem
        self.synced_at = 0.0  # when it was last asked to be brought onto the disk, by the clock alone
        self.published = 0
        self.rate = 0.0  # messages in a second, of late
        self.attached = 0
        self._matchers = matchers
        self._soon = soon
        self._sync = sync
        self._wake = wake
        self._clock = clock
        self._audiences: dict[frozenset[str], Audience] = {}
        self._everything: Audience | None = None
        self._table: PatternTable[Audience] = PatternTable(matchers)
        self._pending: list[bytes] = []
        self._pending_octets = 0
        self._scheduled = False
        self._stuck = False  # nothing can be appended now: there is no room, or the journal is being woken
        self._last = 0.0
        self._looked = (clock(), 0)  # when the rate was measured last, and what was published by then
        self._publishers: dict[PublishingSession, None] = {}  # held back
        # Who waits for which sequence to be safe, and how often; NEVER, the last, stands for one that is not known yet.
        self._barriers: dict[int, dict[PublishingSession, int]] = {}

    # In

    def publish(self, frames: list[bytes], publisher: PublishingSession) -> None:
        """Take PUBLISH messages without fault. (ZEP-04)"""
        if self.journal.failed:
            publisher.refuse(self._stopped)
            return
        if self._stuck and self._pending_octets >= WAITING:
            publisher.dismiss()
            return
        self._pending += frames
        self._pending_octets += sum(map(len, frames))
        if not self._stuck:
            if self._pending_octets >= BLOCK or (not self._scheduled and self._clock() - self._last > QUIET):
                self.flush()
            elif not self._scheduled:
                self._scheduled = True
                self._soon(self._flush_scheduled)
        if self._stuck:
            self._hold(publisher)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Sequence and journal what waits, and hand it out. (ZEP-09)"""
        if self._pending and not self._stuck:
            self._flush()

    def _flush(self) -> None:
        try:
            block = self._append(self._pending)
        except Asleep:
            self._stuck = True
            self._wake(self)
            return
        except JournalError as error:
            self._stuck = True
            self.held = str(error)
            return
        self._pending = []
        self._pending_octets = 0
        self._hand_out(block)
        if self._stuck:
            self._go_on()
        if self._barriers:
            self.settle()

    def append(self, frames: list[bytes]) -> int:
        """Journal PUBLISH messages without fault now, and hand them out; the sequence of the last one.

        For those in this process who must know it. `JournalError` if it cannot be: then nothing of them is there.

        Blocks to wake an idle journal: a sequence that is told at once must be in the journal at once, and the journal
        can take nothing before the disk has its mark.
        """
        self.journal.may_block = True
        try:
            self.flush()
            if not self.held:
                self.retry()
            if self._pending:
                raise JournalFull(self.held)
            block = self._append(frames)
        finally:
            self.journal.may_block = False
        self._hand_out(block)
        return block.last

    def _append(self, frames: list[bytes]) -> Block:
        block = deliver(frames, self.journal.last + 1)
        now = self._clock()
        self.journal.append(block, now)
        self._last = now
        self.published += block.count
        if self.dated:
            self.dated.begin(self.journal.last_time, block.first - 1)
        return block

    @property
    def pending_octets(self) -> int:
        """What is published, and not in the journal yet."""
        return self._pending_octets

    def measure(self) -> None:
        """Bring the rate up to date: half of it is that of the time since the last look."""
        now = self._clock()
        since, before = self._looked
        if now > since:
            self.rate = (self.rate + (self.published - before) / (now - since)) / 2
            if self.rate < SLOWEST:
                self.rate = 0.0
            self._looked = now, self.published

    def retry(self) -> None:
        """Try again to append what could not be appended."""
        if self._stuck:
            self._flush()
            if self.journal.failed:
                self.stop()

    def woken(self, problem: str = "") -> None:
        """The journal takes messages again; or there is a problem, and it is tried again later."""
        if not problem:
            self.retry()
        elif self.journal.failed:
            self.stop()
        elif self._stuck:
            self.held = problem

    def finish(self) -> None:
        """Append all that waits, for the last time. Blocks if the journal has to be woken."""
        self.journal.may_block = True
        self.flush()
        self.retry()

    def _hold(self, publisher: PublishingSession) -> None:
        self._publishers[publisher] = None
        publisher.pause()
        if self.journal.failed:
            self.stop()

    def _go_on(self) -> None:
        self._stuck = False
        self.held = ""
        publishers, self._publishers = self._publishers, {}
        for publisher in publishers:
            publisher.resume()

    def stop(self) -> None:
        """The journal cannot be trusted any more: who publishes must know, and nothing is confirmed."""
        publishers, self._publishers = self._publishers, {}
        barriers, self._barriers = self._barriers, {}
        self._pending = []
        self._pending_octets = 0
        self._stuck = False
        self.held = ""
        for publisher in {**publishers, **{one: None for waiting in barriers.values() for one in waiting}}:
            publisher.refuse(self._stopped)
        for publisher in publishers:
            publisher.resume()  # to hear its goodbye

    @property
    def _stopped(self) -> str:
        return f"the stream is stopped: {self.journal.failed}"

    # Barriers

    def barrier(self, publisher: PublishingSession) -> None:
        """Confirm to the publisher when all that it has published is safe. (ZEP-06)"""
        self.flush()
        self._await(NEVER if self._pending else self.journal.last, publisher, 1)
        if self.journal.failed:
            self.stop()
        else:
            self.settle()

    def _await(self, sequence: int, publisher: PublishingSession, barriers: int) -> None:
        waiting = self._barriers.setdefault(sequence, {})
        waiting[publisher] = waiting.get(publisher, 0) + barriers

    def settle(self) -> None:
        """Confirm what is safe by now."""
        last = self.journal.last
        if not self._pending:
            for publisher, count in self._barriers.pop(NEVER, {}).items():
                self._await(last, publisher, count)
        safe = self.journal.synced if self.journal.policy.sync == "always" else last
        while self._barriers and (oldest := next(iter(self._barriers))) <= safe:
            for publisher, count in self._barriers.pop(oldest).items():
                publisher.confirm(count)
        if self._barriers and not self._pending:
            self._sync(self)

    def forget(self, publisher: PublishingSession) -> None:
        """The publisher is gone. What it published stays."""
        self._publishers.pop(publisher, None)
        for waiting in self._barriers.values():
            waiting.pop(publisher, None)

    # Out

    def _hand_out(self, block: Block) -> None:
        if self.feed is not None:
            self.feed.send(block)
        everything = self._everything
        if everything is not None:
            for cursor in tuple(everything.live):
                cursor.offer(block)
        if len(self._audiences) > (everything is not None):
            self._hand_out_filtered(block)
        if self.waiting:
            waiting, self.waiting = self.waiting, set()
            for cursor in waiting:
                cursor.outlet.wake()

    def _hand_out_filtered(self, block: Block) -> None:
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
                    cursor.offer(chosen)

    # Audiences

    def filter(self, patterns: Iterable[str]) -> Filter:
        """The filter for some patterns, shared with all who have the same."""
        audience = self._audiences.get(frozenset(patterns))
        return audience.filter if audience is not None else Filter(patterns, self._matchers)

    def join(self, patterns: Iterable[str]) -> Audience:
        """Add a subscriber to the audience with these patterns."""
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

    def leave(self, audience: Audience, cursor: Cursor) -> None:
        """Remove a subscriber from its audience."""
        audience.live.pop(cursor, None)
        audience.users -= 1
        if not audience.users:
            del self._audiences[audience.filter.patterns]
            if self._everything is audience:
                self._everything = None
            else:
                self._table.remove(audience, audience.filter.patterns)

    @property
    def subscribers(self) -> int:
        return sum(audience.users for audience in self._audiences.values())


def where_to_start(journal: Journal, latest: int) -> tuple[int, int]:
    """The sequence after which a subscription begins, by SUBSCRIBE's `latest`, and the time if that is to come.

    A number past the end is an `OutOfRange`: this is not the stream that the client knew. So is one before the
    beginning, where retention has removed what stood there.
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
            f"the last sequence of this stream is {journal.last}: {latest} is of another stream, or of one that is no "
            f"more; subscribe from 0 or {journal.last}"
        )
    return latest, 0
