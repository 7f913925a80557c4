"""The named readers of a stream: which session holds each name, and how far the reader has come.

A session claims a name, and acknowledges messages. The position of a name is the sequence up to which its messages are
acknowledged. It is in the file of positions (`zambezi.zeps.journal.positions`): all acknowledgements of one turn of the
event loop are one write. A client that waits for its acknowledgements sends PING, and gets PING-OK when they are
written; with `sync = "always"`, when the disk has them; with `sync = "store"`, when the store has them.

A name has one holder. A client has a random id, its owner id, with which it claims the name again after a lost
connection: that takes the name away from its own old connection. A claim of another client takes the name away, or is
refused, as that client wants. The file knows the owner, too: so a client that comes back late learns that another one
has had the name meanwhile, even if the broker was restarted.

If the disk is full, positions are kept in memory, and written when there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from zambezi.zeps.errors import Absent, BrokerError, JournalError, ZepsError
from zambezi.zeps.journal.positions import NO_OWNER, READER, Position

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream

_NEVER: Final = 1 << 64  # greater than every number of writes
_MICRO: Final = 1_000_000
_UNREAD: Final = 100  # readers for which the time of the next message is remembered


class Taken(ZepsError):
    """Another client has the name, or has had it meanwhile."""

    def __init__(self, by: str) -> None:
        super().__init__(f"the reader is held by {by or 'another client'}")
        self.by = by


class Holder(Protocol):
    """The session that holds a name."""

    address: str
    user: str

    def lose_reader(self, by: str) -> None:
        """End: another client has claimed the name."""

    def abandon_reader(self) -> None:
        """End: the same client has claimed the name on a newer connection."""


class Refusable(Protocol):
    """An object that waits for positions to be safe."""

    def refuse(self, reason: str) -> None:
        """Note that the stream is stopped."""


class Reader:
    """A reader whose name a session holds, or whose position is not written yet."""

    __slots__ = ("holder", "name", "owner", "position", "time", "user")

    def __init__(self, state: Position) -> None:
        self.name, self.position, self.time = state.name, state.position, state.time
        self.owner, self.user = state.owner, state.user
        self.holder: Holder | None = None

    @property
    def state(self) -> Position:
        """Its state, for the file."""
        return Position(READER, self.name, self.position, 0, self.time, self.owner, self.user)


class _Waiting(NamedTuple):
    """An action that waits until positions are safe."""

    write: int  # the number of the write that must be safe
    waiter: Refusable
    action: Callable[[], object]


class Readers:
    """The named readers of a stream."""

    def __init__(self, stream: BrokerStream, call_soon: Callable[[Callable[[], object]], object]) -> None:
        self._stream = stream
        self._positions = stream.journal.positions
        self._call_soon = call_soon
        self._held: dict[str, Reader] = {}
        self._unwritten: dict[str, Reader] = {}  # their position is not in the file yet
        self._scheduled = False
        self._waiting: deque[_Waiting] | None = None  # an empty one has 760 bytes, and most streams need none
        self._lowest = (-1, 0)  # the lowest position, and the number of writes when it was found
        self._unread: dict[str, tuple[int, int]] = {}  # by name: a position, and the time of the message after it
        self._is_compacting = False
        self._is_confirming = False
        self.problem = ""  # why positions cannot be written now
        self.is_closed = False  # whether an operator has taken the stream away

    def __len__(self) -> int:
        return self._positions.count(READER)

    # Names

    def find(self, name: str) -> Position | None:
        """Return the state of a reader, or None if there is none."""
        reader = self._held.get(name) or self._unwritten.get(name)
        return reader.state if reader is not None else self._positions.get(READER, name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all readers, in order."""
        self.flush()
        return self._positions.names(READER)

    def all(self) -> list[Position]:
        """Return the states of all readers, in the order of their names."""
        self.flush()
        return self._positions.all(READER)

    def holder_of(self, name: str) -> Holder | None:
        """Return the session that holds a name."""
        reader = self._held.get(name)
        return reader.holder if reader is not None else None

    def described_holder_of(self, name: str) -> str:
        """Return the client that holds a name, as text; empty if none does."""
        return _described(self.holder_of(name))

    def lag_of(self, position: int) -> int:
        """Return how many messages of the stream are after a position."""
        journal = self._stream.journal
        return max(0, journal.last - max(position, journal.first - 1))

    def seconds_behind(self, state: Position) -> float:
        """Return the age of the first message after a reader's position; 0 if there is none on the disk."""
        journal = self._stream.journal
        after = max(state.position, journal.first - 1)
        if after >= journal.last:
            return 0.0
        known, time = self._unread.get(state.name, (-1, 0))
        if known != after:
            with suppress(Absent, JournalError):
                time = journal.time_after(after)
            if len(self._unread) >= _UNREAD:
                self._unread.clear()
            self._unread[state.name] = after, time
        return round(max(0.0, self._stream.clock() - time / _MICRO), 1) if time else 0.0

    @property
    def largest_lag(self) -> int:
        """The lag of the reader that is furthest behind; 0 without readers."""
        written, lowest = self._lowest
        if written != self._positions.written:
            found = self._positions.lowest(READER)
            lowest = found if found is not None else _NEVER
            self._lowest = self._positions.written, lowest
        return self.lag_of(lowest)

    def check_room(self, name: str) -> None:
        """Raise `BrokerError` if no name can be added."""
        limit = self._stream.journal.policy.readers
        if len(self) >= limit:
            raise BrokerError(
                f"the stream has {limit} named readers already, the limit: {name} was not added; remove others, or "
                "set readers in [zeps.journal]"
            )

    # Claims

    def claim(self, found: Position | None, new: Position, holder: Holder, *, again: bool, take: bool) -> Reader:
        """Make a session the holder of a name, and return the reader.

        `found` is what `find` returns; `new` is the reader if there is none, and its owner is the client that claims
        the name. With `again` the client has held the name before. Without `take` it does not want the name of another
        client. Raises `Taken` if the client cannot have the name, and `JournalError` if that cannot be written.
        """
        name, owner = new.name, new.owner
        before = self._held.get(name)
        if (again and (found is None or found.owner != owner)) or (
            before is not None and before.owner != owner and not take
        ):
            raise Taken(_described(before.holder if before is not None else None))
        state = found._replace(owner=owner) if found is not None else new
        is_unwritten = name in self._unwritten
        if state != found or self._stream.is_shared:
            self._write([state])
            self._unwritten.pop(name, None)
            is_unwritten = False
        if before is not None and before.holder is not None:
            loser, before.holder = before.holder, None
            if before.owner == owner:
                loser.abandon_reader()
            else:
                loser.lose_reader(_described(holder))
        reader = self._held[name] = Reader(state)
        if is_unwritten:
            self._unwritten[name] = reader
        reader.holder = holder
        return reader

    def leave(self, reader: Reader, holder: Holder) -> None:
        """Note that a session has ended."""
        if reader.holder is holder:
            reader.holder = None
            self._held.pop(reader.name, None)
            self.flush()
            if not self._held:
                self._positions.release()

    # Acknowledgements

    def acknowledge(self, reader: Reader, sequence: int) -> None:
        """Move a reader forward; a sequence before its position changes nothing."""
        if sequence > self._stream.journal.last:
            raise BrokerError(f"the last sequence of this stream is {self._stream.journal.last}, not {sequence}")
        if sequence > reader.position:
            reader.position = sequence
            self._unwritten[reader.name] = reader
            if not self._scheduled:
                self._scheduled = True
                self._call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write all positions that are not in the file yet; keep them if there is no room."""
        if not self._unwritten or self.is_closed:
            return
        now = int(self._stream.clock() * _MICRO)
        for reader in self._unwritten.values():
            reader.time = now
        try:
            self._write([reader.state for reader in self._unwritten.values()])
        except JournalError as error:
            self.problem = str(error)
            return
        self._unwritten.clear()
        self.problem = ""
        self.confirm()

    def _write(self, states: list[Position]) -> None:
        self._positions.write(states)

    # By an operator

    def set(self, state: Position) -> None:
        """Set the position of a reader that no session holds, or add a reader."""
        self._check_free(state.name)
        found = self.find(state.name)
        if found is None:
            self.check_room(state.name)
        user = found.user if found is not None else state.user
        self._write([state._replace(owner=NO_OWNER, user=user)])
        self._unwritten.pop(state.name, None)

    def remove(self, name: str) -> None:
        """Remove a reader that no session holds."""
        if self.find(name) is None:
            raise BrokerError(f"the stream {self._stream.name} has no reader {name}")
        self._check_free(name)
        self._unwritten.pop(name, None)
        self._positions.remove([(READER, name)])

    def _check_free(self, name: str) -> None:
        holder = self.holder_of(name)
        if holder is not None:
            raise BrokerError(f"the reader {name} is in use by {_described(holder)}: stop that program first")

    # Confirmation

    def when_safe(self, waiter: Refusable, action: Callable[[], object]) -> None:
        """Act when all positions so far are safe, now or later; or let the waiter refuse if the stream is stopped."""
        self.flush()
        self._stream.groups.flush()
        write = _NEVER if self._has_unwritten else self._positions.written
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(_Waiting(write, waiter, action))
        self.confirm()

    def confirm(self) -> None:
        """Act for those whose positions are safe by now, and ask for a sync if others still wait for it."""
        if not self._waiting or self._is_confirming:
            return  # an action can lead here again: the loop below goes on with the rest
        self._is_confirming = True
        try:
            while self._waiting and self._first_write(self._waiting) <= self._stream.safe_write:
                self._waiting.popleft().action()
        finally:
            self._is_confirming = False
        if self._waiting and not self._has_unwritten:
            self._stream.make_positions_safe()

    def _first_write(self, waiting: deque[_Waiting]) -> int:
        """Return the number of the write for which the first one waits."""
        if waiting[0].write == _NEVER and not self._has_unwritten:
            # The positions for which these wait are written now. Later ones must not make them wait longer.
            written = self._positions.written
            self._waiting = waiting = deque([one._replace(write=min(one.write, written)) for one in waiting])
        return waiting[0].write

    @property
    def _has_unwritten(self) -> bool:
        """Whether the file does not have all positions and groups."""
        return bool(self._unwritten) or self._stream.groups.has_unwritten

    def forget(self, waiter: Refusable) -> None:
        """Drop the actions of a session that has ended."""
        if self._waiting:
            self._waiting = deque([one for one in self._waiting if one.waiter is not waiter])

    def take_waiters(self) -> list[Refusable]:
        """Return those that wait, and forget them: the stream is stopped."""
        waiting, self._waiting = self._waiting, None
        return [one.waiter for one in waiting or ()]

    def close(self) -> None:
        """Write nothing any more: an operator takes the stream away."""
        self.flush()
        self.is_closed = True

    def take_compaction(self) -> Callable[[], object] | None:
        """Return the work that makes the file smaller, for another thread, if that is necessary; else None."""
        if self._is_compacting or not self._positions.is_mostly_old:
            return None
        self._is_compacting = True
        return self._positions.compact

    def note_compacted(self, _problem: ZepsError | None = None) -> None:
        """Note that the work is done, or has failed: then a later tick tries again."""
        self._is_compacting = False


def _described(holder: Holder | None) -> str:
    if holder is None:
        return ""
    return f"{holder.user} at {holder.address}" if holder.user else holder.address
