"""A stream whose messages go to an object store first: `sync = "store"`.

Messages get their sequences, and go to the log in the store as pieces of a chunk. When the chunk is stored, the stream
appends them to the journal, hands them out and confirms them. So the journal is a cache: it has only messages that are
stored, and no subscriber has seen a sequence that another broker could give to another message.

Barriers count the pieces: a barrier is safe when all pieces before it are in the store and in the journal.

The positions of named readers and groups are records in the chunks, too. They go with the next messages; if there are
none, they wait for others for a moment, unless a client waits for them. So acknowledgements cost few puts, or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.broker.publishers import Publisher
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import Asleep, BrokerError, JournalError, JournalFull, Moved, OutOfRange, ZepsError
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.stored_policy import pack_settings
from zambezi.zeps.store.chunk import piece_of, piece_of_counts, piece_of_positions
from zambezi.zeps.store.position_records import PositionRecords
from zambezi.zeps.store.stream_log import Ended, State, Stored, StreamLog

MOST: Final = 32 << 20  # bytes that can be on their way to the store; then publishers are paused
SWEEP: Final = 60.0  # seconds between two applications of the retention in the store
PATIENCE: Final = 1.0  # seconds that positions for which no client waits can wait for messages
SETTLING: Final = 10.0  # seconds in which clients of the broker before come to this one
_AT_ONCE: Final = 2  # pieces with positions that are on their way: one that is being put, and one for the next put
_MICRO: Final = 1_000_000
Done: TypeAlias = Callable[[ZepsError | None], object]


@dataclass(frozen=True, slots=True)
class _Sent:
    """Messages, or states of publishers, that are on their way to the store."""

    ticket: int
    block: Block | None
    counts: Sequence[Count]
    publishers: Sequence[Publisher]
    time: int  # microseconds since 1970
    since: float  # when the first message came

    @property
    def size(self) -> int:
        return len(self.block.octets) if self.block is not None else 0


class _Finishing:
    """An order whose changes are on their way to the store."""

    def __init__(self, done: Done) -> None:
        self._done = done

    def refuse(self, reason: str) -> None:
        self._done(BrokerError(reason))


def finish_when_safe(stream: BrokerStream, done: Done) -> None:
    """Finish an order when the positions of a stream are safe."""
    stream.readers.when_safe(_Finishing(done), partial(done, None))


class StoredStream(BrokerStream):
    """One stream of the broker, in an object store. The broker must own the log."""

    is_shared = True

    def __init__(self, log: StreamLog, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert log.is_owner
        self.log = log
        self.advance: Callable[[], object] = lambda: None  # called when the log has something to do
        self.on_lost: Callable[[BrokerStream, str], object] = lambda _stream, _reason: None
        self.on_full: Callable[[], object] = lambda: None  # called when the disk has no room for messages
        self._sequenced = self.journal.last  # the last sequence that was given out
        self._last_time = self.journal.last_time
        self._sent: deque[_Sent] = deque()  # not stored yet
        self._stored: deque[_Sent] = deque()  # stored, and not in the journal yet
        self._under_way = 0  # bytes of both
        self._last_ticket = 0
        self._safe_ticket = 0
        self._trims: list[Done] = []
        self._swept_at = self._opened_at = self.synced_at = self.clock()
        self._positions = PositionRecords(keeps_removals=True)  # that were not sent to the store
        self._positions_sent: deque[tuple[int, int]] = deque()  # tickets, and the numbers of writes
        self._positions_timer = False
        self._safe_write = self.journal.positions.written
        self.journal.positions.on_write = self._note_positions

    @property
    def is_settling(self) -> bool:  # type: ignore[override]
        return self.clock() < self._opened_at + SETTLING

    @property
    def pending_bytes(self) -> int:
        return super().pending_bytes + self._under_way

    @property
    def _written_mark(self) -> int:
        return self._last_ticket

    @property
    def _safe_mark(self) -> int:
        return self._safe_ticket

    def _make_safe(self) -> None:
        """Do nothing: the log stores everything by itself."""

    def _append_pending(self) -> None:
        """Send the pending messages to the store."""
        if self._under_way >= MOST or self.held or not self.log.is_owner:
            self._blocked = True
            return
        frames, self._pending = self._pending, []
        self._pending_bytes = 0
        now = self.clock()
        time = self._last_time = max(int(now * _MICRO), self._last_time)
        publishers = self.publishers.take_unwritten()
        counts = [publisher.state for publisher in publishers]
        block = deliver(frames, self._sequenced + 1, self._pending_size > 0) if frames else None
        if block is not None:
            self._sequenced = block.last
            piece = piece_of(block, time, self.journal.policy.batch, counts)
        elif counts:
            piece = piece_of_counts(counts, self._sequenced, time)
        else:
            self._unblock()
            return
        self._last_ticket = self.log.append(piece)
        self._send_positions()
        sent = _Sent(self._last_ticket, block, counts, publishers, time, self._pending_since)
        self._sent.append(sent)
        self._under_way += sent.size
        self._appended_at = now
        self.advance()
        if self._blocked:
            self._unblock()
        if self._barriers:
            self.confirm_barriers()

    def append(self, frames: list[bytes]) -> int:
        """Raise `JournalError`: the sequence would be needed before the messages are stored."""
        raise JournalError(f"stream {self.name!a} is in an object store, and this service needs a stream on the disk")

    def on_events(self) -> None:
        """Note what has happened to the log."""
        for event in self.log.take_events():
            if isinstance(event, Stored):
                while self._sent and self._sent[0].ticket <= event.ticket:
                    self._stored.append(self._sent.popleft())
                self._append_stored()
                self._note_stored_positions(event.ticket)
            elif isinstance(event, Ended) and event.state is not State.RELEASED:
                self.on_lost(self, event.reason or f"the stream is {event.state.value}")

    def _append_stored(self) -> None:
        """Append the messages that are stored to the journal, hand them out, and confirm them."""
        while self._stored and not self._handing_out:
            one = self._stored[0]
            try:
                self._append_to_journal(one)
            except Asleep:
                self._wake(self)
                return
            except JournalError as error:
                if isinstance(error, JournalFull) and not self.held:
                    self.on_full()
                self.held = str(error)
                return
            self._stored.popleft()
            self._under_way -= one.size
            self._safe_ticket = one.ticket
            self.publishers.note_stored(one.publishers)
            if one.block is not None:
                self.published += one.block.count
                if self.future_selections:
                    self.future_selections.begin(self.journal.last_time, one.block.first - 1)
                self._hand_out(one.block)
                self.latency.add(self.clock() - one.since, one.block.count)
        if not self._stored:
            self.held = ""
        if self._blocked and self._under_way < MOST // 2 and not self.held:
            self._append_pending()
        if self._barriers:
            self.confirm_barriers()

    # Positions

    @property
    def safe_write(self) -> int:
        return self._safe_write

    def make_positions_safe(self) -> None:
        self._send_positions()
        self.advance()

    def _note_positions(self, records: bytes) -> None:
        """Send records of positions to the store, soon."""
        self._positions.note(records)
        if not self._positions_timer:
            self._positions_timer = True
            self._call_later(PATIENCE, self._send_late_positions)

    def _send_late_positions(self) -> None:
        self._positions_timer = False
        self.make_positions_safe()

    def _send_positions(self) -> None:
        """Put the positions into the next chunk. Those that the log has not put yet bound what waits in memory."""
        if self._positions and self.log.is_owner and len(self._positions_sent) < _AT_ONCE:
            ticket = self.log.append(piece_of_positions(self._positions.take()))
            self._positions_sent.append((ticket, self.journal.positions.written))

    def _note_stored_positions(self, ticket: int) -> None:
        sent = self._positions_sent
        if sent and sent[0][0] <= ticket:
            while sent and sent[0][0] <= ticket:
                self._safe_write = sent.popleft()[1]
            self.readers.confirm()

    def keep_settings(self) -> None:
        """Let the settings that a client has changed move with the stream; raise `JournalError` if that fails."""
        settings = pack_settings(self.journal.settings, int(self.clock() * _MICRO))
        self.journal.positions.write([settings])

    def prove_ownership(self) -> None:
        self.keep_settings()  # a short record, which the store takes from the owner only

    def send_all_positions(self) -> None:
        """Send the positions of all readers and groups to the store, before the stream is handed over."""
        self.readers.close()
        self.groups.close()
        if self._positions and self.log.is_owner:
            self.log.append(piece_of_positions(self._positions.take()))

    def _append_to_journal(self, one: _Sent) -> None:
        now = (one.time + 0.5) / _MICRO  # so that the journal has the same microsecond as the store
        if one.block is not None:
            self.journal.append(one.block, now, one.counts)
        else:
            self.journal.append_counts(one.counts, now)

    def retry(self) -> None:
        """Try again to append what is stored to the journal, and to send what is pending."""
        self.held = ""
        self._append_stored()
        if self.journal.failed:
            self.stop()

    def finish(self) -> None:
        self._append_stored_blocking()
        super().finish()

    def _append_stored_blocking(self) -> None:
        self.journal.may_block = True
        self.on_events()
        self._append_stored()

    def trim(self, first: int, done: Done) -> None:
        """Remove all messages before a sequence from the store, and call back; raise `OutOfRange` if that cannot be.

        The disk can have them still: see `drop_trimmed` of the journal.
        """
        journal = self.journal
        if not 1 <= first <= journal.last + 1:
            raise OutOfRange(
                f"stream {self.name!a} has sequences {journal.first} to {journal.last}: it cannot begin at {first}",
                journal.first,
            )

        def prove(problem: str) -> None:
            """Let the store take a record from the owner, which shows that no other broker has the stream."""
            if done not in self._trims:
                return
            self._trims.remove(done)
            try:
                if problem:
                    raise JournalError(f"stream {self.name!a} was not trimmed: {problem}")
                self.prove_ownership()
            except JournalError as error:
                done(error)
            else:
                finish_when_safe(self, done)

        self._trims.append(done)
        self.log.trim(first, prove)
        self.advance()

    def stop(self, reason: str = "") -> None:
        trims, self._trims = self._trims, []
        self._sent.clear()
        self._stored.clear()
        self._under_way = 0
        self._positions_sent.clear()
        super().stop(reason)
        for done in trims:
            done(BrokerError(self.stop_reason))

    @property
    def stop_reason(self) -> str:
        return self._stopped if self._stopped.startswith(Moved.PREFIX) else super().stop_reason

    def sweep(self, now: float) -> None:
        """Apply the retention to the store, about once a minute."""
        policy = self.journal.policy
        if now < self._swept_at + SWEEP:
            return
        self._swept_at = now
        horizon = None if policy.keep_seconds is None else int((now - policy.keep_seconds) * _MICRO)
        self.log.sweep(policy.keep_bytes, horizon)
        self.advance()
