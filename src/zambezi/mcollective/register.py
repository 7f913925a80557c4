"""The register: sessions that outlive their connection, and a restart of the middleware. Without I/O.

A client that has a TTL, and whose connection ends without DISCONNECT, is absent until its TTL is over. So is a client
of a middleware that was killed and started again: its record is in a file (`register_file`). Such a client comes back
in one of three ways:

- libzmq connects again under the same identity, and the client does not notice. Its first command is not CONNECT, or
  nothing comes for a moment. Then the session goes on: the same topics, the same TTL (`comeback`).
- The client makes a new connection under the same identity, and says CONNECT.
- The Ruby connector has given up. It says CONNECT under another identity, which begins with the same name and process.

In the last two the client subscribes to its topics itself.

In the first the client gets all messages that came meanwhile: those of topics that are not kept are in the `backlog`.
In all three it gets the messages of kept topics that it missed. A record has the *position* of its client: the sequence
up to which everything has left this process; and the sequence at which each subscription began. One number is enough,
because all kept topics share the sequences of one archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from zambezi.mcollective.backlog import Absentee, Backlog
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.session import THREAD, Session
from zambezi.mcollective.vigil import EXPIRY

SLOTS: Final = 65_536  # the greatest number of records
RETURN_TIME: Final = 10.0  # seconds after DISCONNECT in which the Ruby connector comes back under another identity
_OVERHEAD: Final = 100  # bytes of a record, and of each of its topics, beside their names


class Record:
    """A session, as the register keeps it. `topics` has the sequence at which each subscription began."""

    __slots__ = (
        "absentee",
        "delimited",
        "identity",
        "position",
        "resumable",
        "size",
        "slot",
        "topics",
        "ttl",
        "until",
        "user",
    )

    def __init__(self, slot: int, user: str, identity: bytes, delimited: bool, ttl: float) -> None:
        self.slot = slot
        self.user = user
        self.identity = identity
        self.delimited = delimited
        self.ttl = ttl
        self.topics: dict[bytes, int] = {}
        self.position = 0  # all messages of kept topics up to here have left this process
        self.until = float("inf")  # an absent client is forgotten then; the others are connected
        self.absentee: Absentee | None = None  # in the backlog, as long as the client is absent and `resumable`
        self.resumable = True  # whether a client of the same identity goes on without CONNECT
        self.size = _OVERHEAD + len(identity) + len(user)  # about the bytes that it takes in memory and in the file

    @property
    def key(self) -> tuple[str, bytes]:
        """The user and the identity: they are the same when the client comes back."""
        return self.user, self.identity

    def join(self, topics: Mapping[bytes, int]) -> int:
        """Add topics; return how much larger the record is."""
        more = sum(len(name) + _OVERHEAD for name in topics if name not in self.topics)
        self.topics.update(topics)
        self.size += more
        return more

    def leave(self, topics: Iterable[bytes]) -> int:
        """Remove topics that the record has; return how much smaller it is."""
        less = 0
        for name in topics:
            del self.topics[name]
            less += len(name) + _OVERHEAD
        self.size -= less
        return less


class Store(Protocol):
    """A file that keeps records."""

    def add(self, record: Record) -> None:
        """Write a record, with its topics."""

    def subscribe(self, record: Record, topics: Mapping[bytes, int]) -> None:
        """Write more topics of a record."""

    def unsubscribe(self, record: Record, topics: Iterable[bytes]) -> None:
        """Write which topics a record has lost."""

    def remove(self, record: Record) -> None:
        """Write that a record has ended."""

    def advance(self, record: Record) -> None:
        """Write the position of a record. This is on the hot path, and must be quick."""


class Register:
    """The records of all sessions with a TTL: those of connected clients, and of absent ones."""

    def __init__(self, bounds: Bounds, store: Store | None = None) -> None:
        self.bytes = 0
        self.unregistered = 0  # sessions without a record, because the register is full
        self.records: dict[int, Record] = {}  # by slot
        self.backlog = Backlog(bounds.backlog_bytes, bounds.held_bytes)
        self._absent: dict[tuple[str, bytes], Record] = {}
        self._processes: dict[tuple[str, bytes], Record] = {}  # absent ones with an identity of the Ruby connector
        self._bounds = bounds
        self._store = store
        self._free = 0  # no slot before this one is free

    def __len__(self) -> int:
        return len(self.records)

    @property
    def absent(self) -> int:
        """The number of absent clients."""
        return len(self._absent)

    # Connected clients

    def begin(self, session: Session, ttl: float) -> None:
        """Begin to keep a session: its client said CONNECT."""
        record = session.record
        if record is None:
            if not session.identity or session.identity[:1] == b"\0":
                return  # an identity that we assigned ourselves: the client cannot come back under it
            self._make_room()
            slot = self._free_slot()
            if slot is None or self.bytes >= self._bounds.register_bytes:
                self.unregistered += 1
                return
            record = session.record = Record(slot, session.user, session.identity, session.delimited, ttl)
            self.records[slot] = record
            self.bytes += record.size
        record.ttl = ttl
        record.delimited = session.delimited
        if self._store is not None:
            self._store.add(record)

    def subscribed(self, session: Session, topics: Mapping[bytes, int]) -> None:
        """Note the topics that a client subscribed to, and the sequence at which each begins."""
        record = session.record
        if record is None:
            return
        self.bytes += record.join(topics)
        self._make_room()
        if self.bytes > self._bounds.register_bytes:
            self.unregistered += 1
            self.end(session)
        elif self._store is not None:
            self._store.subscribe(record, topics)

    def unsubscribed(self, session: Session, topics: Iterable[bytes]) -> None:
        """Note that a client left topics."""
        record = session.record
        if record is not None:
            self._leave(record, topics)

    def advance(self, session: Session) -> None:
        """Note that all messages to a client, up to its sequence, have left this process."""
        record = session.record
        if record is not None:
            record.position = session.sequence
            if self._store is not None:
                self._store.advance(record)

    def end(self, session: Session) -> None:
        """Forget a session: its client said DISCONNECT, or was silent for too long."""
        record, session.record = session.record, None
        if record is not None:
            self._remove(record)

    def connection_lost(self, session: Session) -> None:
        """Keep a session whose connection ended, until its TTL is over."""
        record = session.record
        if record is not None and record.topics:
            session.record = None
            self._add_absent(record, session.heard + EXPIRY * record.ttl)
        else:
            self.end(session)

    def disconnected(self, session: Session, now: float) -> None:
        """End a session by DISCONNECT, which the Ruby connector also says before it returns under another identity."""
        record = session.record
        if record is not None and record.topics and THREAD in record.identity:
            session.record = None
            record.resumable = False
            self._add_absent(record, now + RETURN_TIME)
            if self._store is not None:
                self._store.add(record)
        else:
            self.end(session)

    # Absent clients

    def restore(self, records: Iterable[Record]) -> None:
        """Add the records of a file, in order. All clients are absent; the last record of a client counts."""
        for record in records:
            slot = self._free_slot()
            if slot is not None:
                record.slot = slot
                self.records[slot] = record
                self.bytes += record.size
                self._add_absent(record, record.until)

    def expire(self, now: float) -> None:
        """Forget the absent clients whose TTL is over."""
        for record in [record for record in self._absent.values() if now >= record.until]:
            self._remove(record)

    def find(self, user: str, identity: bytes, now: float) -> Record | None:
        """Return the record of an absent client that can go on with its session."""
        record = self._absent.get((user, identity))
        if record is None:
            return None
        if now >= record.until:
            self._remove(record)
            return None
        return record if record.resumable else None

    def find_predecessor(self, session: Session, now: float) -> Record | None:
        """Return the record that a client left when it was absent, now that it has said CONNECT."""
        record = self._absent.get((session.user, session.identity))
        if record is None and THREAD in session.identity:
            record = self._processes.get((session.user, _process_of(session.identity)))
        if record is not None and now >= record.until:
            self._remove(record)
            return None
        return record

    def drop_backlog(self, record: Record) -> None:
        """Hold no messages for an absent client: its session will not go on."""
        if record.absentee is not None:
            self.backlog.leave(record.absentee)
            record.absentee = None

    def revive(self, record: Record, session: Session) -> None:
        """Give the record of an absent client to its new session."""
        self._remove_absent(record)
        record.until = float("inf")
        session.record = record

    def take_over(self, record: Record, names: Iterable[bytes]) -> dict[bytes, int]:
        """Remove topics from the record of an absent client, so that no other session takes them over.

        Return those that the record had, each with the sequence after which the client has missed messages.
        """
        found = {name: max(record.position, record.topics[name]) for name in names if name in record.topics}
        self._leave(record, found)
        if not record.topics:
            self._remove(record)
        return found

    def _add_absent(self, record: Record, until: float) -> None:
        before = self._absent.pop(record.key, None)
        if before is not None:
            self._remove(before)
        record.until = until
        self._absent[record.key] = record
        if record.resumable:
            record.absentee = self.backlog.join(record.topics)
        if THREAD in record.identity:
            self._processes[record.user, _process_of(record.identity)] = record

    def _make_room(self) -> None:
        """If the register is full, forget the clients that have been absent for the longest time."""
        while self._absent and (self.bytes >= self._bounds.register_bytes or len(self.records) >= SLOTS):
            self._remove(next(iter(self._absent.values())))

    def _remove_absent(self, record: Record) -> None:
        self.drop_backlog(record)
        if self._absent.get(record.key) is record:
            del self._absent[record.key]
        process = (record.user, _process_of(record.identity))
        if self._processes.get(process) is record:
            del self._processes[process]

    def _leave(self, record: Record, topics: Iterable[bytes]) -> None:
        left = [name for name in topics if name in record.topics]
        if left:
            self.bytes -= record.leave(left)
            if self._store is not None:
                self._store.unsubscribe(record, left)

    def _remove(self, record: Record) -> None:
        self._remove_absent(record)
        if self.records.pop(record.slot, None) is not None:
            self.bytes -= record.size
            self._free = min(self._free, record.slot)
            if self._store is not None:
                self._store.remove(record)

    def _free_slot(self) -> int | None:
        while self._free in self.records:
            self._free += 1
        return self._free if self._free < SLOTS else None


def _process_of(identity: bytes) -> bytes:
    """Return the name and the process in an identity of the Ruby connector."""
    return identity.partition(THREAD)[0]
