"""The reserved streams: reports that the broker sends as ordinary DELIVER messages.

    $streams          a message for each stream: the key is the stream's name, the body is JSON
    $clients          a message for each connection: the key is its number, the body is JSON
    $brokers          a message for each broker that shares the object store: the key is its id, the body is JSON
    $elsewhere        a message for each stream of the object store that is not here: the key is its name, the body is
                      JSON with its owner
    $readers/<stream> a message for each named reader of a stream: the key is its name, the body is JSON; and one for
                      each group of shared readers: the key is `shared:` and its name
    $index/<stream>   the index of a stream's journal: the key is the stream's name, the body is many index entries

A SUBSCRIBE returns the current content, and PING-OK follows when all of it has gone out. After that the broker sends
the changes, about once a second: a message again for each row that has changed, and an empty body for a row that is
gone. With `LATEST` as `latest` only the changes are sent; for `$index/`, `latest` is the sequence after which entries
are wanted. The sequences of a reserved stream count the messages of one connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from zambezi.wire.text import as_bytes
from zambezi.zeps import messages
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.broker.turns import SLICE, Turns, keys_in_slice
from zambezi.zeps.directory import CLIENTS, INDEX, READERS, SHARED, STREAMS
from zambezi.zeps.errors import Absent, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal.entry import SIZE, unpack
from zambezi.zeps.journal.positions import Position
from zambezi.zeps.messages import Publish

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Outlet
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session
    from zambezi.zeps.broker.stream import BrokerStream

PAGE: Final = 1000  # index entries in a message
_KEYS: Final = 1000  # keys that a filter refuses in a row, before other clients get their turn
_ROWS: Final = 64  # rows of a snapshot that are described in a row: about a millisecond

Row: TypeAlias = tuple[str, bytes]  # key and body
Step: TypeAlias = Row | Absent | None  # None lets other clients have their turn; `Absent` must be loaded first
Fetch: TypeAlias = Callable[[Absent, Callable[[ZepsError | None], object]], object]
_END: Final[Row] = ("", b"")
_MADE: Final = object()

T = TypeVar("T")


class RowSource(Protocol):
    """The rows of a reserved stream, for one connection."""

    def initial_rows(self, wanted: Filter, latest: int) -> Iterator[Step]:
        """Yield the rows that a SUBSCRIBE asks for."""

    def changed_rows(self) -> Iterator[Step]:
        """Yield the rows that have changed since the last call of either method."""


class Report:
    """A connection's subscription to a reserved stream."""

    def __init__(self, source: RowSource, outlet: Outlet, turns: Turns, fetch: Fetch) -> None:
        self._source = source
        self._outlet = outlet
        self._turns = turns
        self._fetch = fetch
        self._in_line = False
        self._rows: Iterator[Step] = iter(())
        self._subscribed = False
        self._sequence = 0
        self._done = True
        self.credit = 0
        self.delivered = 0
        self.on_complete: Callable[[], object] = lambda: None

    @property
    def complete(self) -> bool:
        """Whether all requested rows have gone out."""
        return self._done

    def subscribe(self, wanted: Filter, latest: int) -> None:
        """Begin to send the rows that a SUBSCRIBE asks for."""
        self._subscribed = True
        self._begin(self._source.initial_rows(wanted, latest))

    def add_credit(self, octets: int) -> None:
        """Allow so many bytes more. (ZEP-03)"""
        self.credit += octets
        self._outlet.wake()

    def report_changes(self) -> None:
        """Begin to send the rows that have changed, unless rows are being sent already."""
        if self._subscribed and self._done and self.credit > 0:
            self._begin(self._source.changed_rows())

    def stop(self) -> None:
        """End the subscription."""
        self._subscribed = False
        self._rows = iter(())
        self._done = True
        self.on_complete()

    def _begin(self, rows: Iterator[Step]) -> None:
        self._rows = rows
        self._done = False
        self._outlet.wake()

    def pull(self) -> Block | None:
        """Return the next message, or None if there is none or no credit."""
        if self._done or self._in_line or self.credit <= 0:
            return None
        found = next(self._rows, _END)
        if found is None:
            self._in_line = True
            self._turns.wait(self._take_turn)
            return None
        if isinstance(found, Absent):
            self._in_line = True
            self._fetch(found, partial(self._on_fetched, found))
            return None
        if found is _END:
            self._done = True
            self.on_complete()
            return None
        self._sequence += 1
        block = deliver(Publish(*found).encode(), self._sequence)
        self.credit -= block.credit
        self.delivered += 1
        return block

    def _on_fetched(self, absent: Absent, problem: ZepsError | None) -> None:
        absent.problem = problem
        self._in_line = False
        self._outlet.wake()

    def _take_turn(self) -> int:
        self._in_line = False
        self._outlet.wake()
        return SLICE


class Snapshot(NamedTuple):
    """The rows at one moment, those of the snapshot before, and the differences."""

    rows: Mapping[str, bytes]
    before: Mapping[str, bytes]
    changed: Mapping[str, bytes]


class SharedRows(Generic[T]):
    """The rows of a reserved stream, shared by all its readers.

    A new reader gets the current rows, encoded as they go out. The changes are computed once per tick, if any reader
    asks, and all readers use the same snapshot: each of them only filters the changes. A row that has not changed is
    not encoded again. However many rows there are, other clients have their turn after some of them.
    """

    def __init__(
        self,
        things: Callable[[], Iterable[tuple[str, T]]],
        describe: Callable[[T], dict[str, object] | None],  # None: it is gone
        find: Callable[[str], T | None] | None = None,
        elsewhere: Callable[[str], ZepsError | None] = lambda _: None,
    ) -> None:
        self._things = things
        self._find = find
        self._elsewhere = elsewhere
        self._describe = describe
        self._snapshot = Snapshot({}, {}, {})
        self._described: dict[str, dict[str, object]] = {}  # the rows of the snapshot before they were encoded
        self._is_stale = True
        self._making: Iterator[None] | None = None  # of a snapshot that is not complete

    def invalidate(self) -> None:
        """Let the next reader that asks for changes have a new snapshot."""
        self._is_stale = True

    def check(self, wanted: Filter) -> None:
        """Raise `ZepsError` if only one row is wanted, and another broker has it."""
        only = wanted.only_key
        if only is not None and self._find is not None and self._find(only) is None:
            problem = self._elsewhere(only)
            if problem is not None:
                raise problem

    def current_rows(self, wanted: Filter) -> Iterator[Row | None]:
        """Yield the current rows whose keys match. If only one can, it is looked up, however many there are."""
        only = wanted.only_key
        if only is not None and self._find is not None:
            thing = self._find(only)
            if thing is not None and (row := self._describe(thing)) is not None:
                yield only, _json(row)
            return
        for found in _matching(self._things(), wanted):
            if found is None:
                yield None
            elif (row := self._describe(found[1])) is not None:
                yield found[0], _json(row)

    def snapshot(self) -> Snapshot | None:
        """Return the snapshot of this tick; None if some of it was made now, and the rest is for later turns."""
        if self._making is None and self._is_stale:
            self._is_stale = False
            self._making = self._make()
        if self._making is not None and next(self._making, _MADE) is None:
            return None
        self._making = None
        return self._snapshot

    def _make(self) -> Iterator[None]:
        """Make a snapshot, and pause after some rows."""
        before, known = self._snapshot.rows, self._described
        rows: dict[str, bytes] = {}
        changed: dict[str, bytes] = {}
        self._described = described = {}
        for number, (key, thing) in enumerate(self._things(), 1):
            row = self._describe(thing)
            if row is not None:
                described[key] = row
                rows[key] = body = before[key] if known.get(key) == row else _json(row)
                if before.get(key) != body:
                    changed[key] = body
            if number % _ROWS == 0:
                yield
        for number, key in enumerate(before, 1):
            if key not in rows:
                changed[key] = b""
            if number % _KEYS == 0:
                yield
        self._snapshot = Snapshot(rows, before, changed)


class _RowReader(Generic[T]):
    """The rows that one connection has received."""

    def __init__(self, shared: SharedRows[T]) -> None:
        self._shared = shared
        self._wanted: Filter
        self._sent: Mapping[str, bytes] = {}  # it may also contain rows that the reader does not want

    def initial_rows(self, wanted: Filter, latest: int) -> Iterator[Row | None]:
        self._shared.check(wanted)
        self._wanted = wanted
        return self._no_rows() if latest == messages.LATEST else self._all_rows()

    def _no_rows(self) -> Iterator[None]:
        while (snapshot := self._shared.snapshot()) is None:
            yield None
        self._sent = snapshot.rows

    def _all_rows(self) -> Iterator[Row | None]:
        self._sent = sent = {}
        for row in self._shared.current_rows(self._wanted):
            if row is not None:
                sent[row[0]] = row[1]
            yield row

    def changed_rows(self) -> Iterator[Row | None]:
        while (snapshot := self._shared.snapshot()) is None:
            yield None
        is_up_to_date = self._sent is snapshot.before
        rows: Iterable[Row | None] = snapshot.changed.items()
        if not is_up_to_date:
            rows = _changes(self._sent, snapshot.rows)
        yield from _matching(rows, self._wanted)
        self._sent = snapshot.rows


def _changes(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[Row | None]:
    """Yield the rows that changed, and None after many rows. A removed row has an empty body."""
    for number, key in enumerate(before, 1):
        if key not in now:
            yield key, b""
        if number % _KEYS == 0:
            yield None
    for number, (key, body) in enumerate(now.items(), 1):
        if before.get(key) != body:
            yield key, body
        if number % _KEYS == 0:
            yield None


def _matching(pairs: Iterable[tuple[str, T] | None], wanted: Filter) -> Iterator[tuple[str, T] | None]:
    """Yield the pairs whose keys match, and None for None and whenever many keys in a row did not."""
    most = min(_KEYS, keys_in_slice(wanted.weight)) if wanted.weight else _KEYS
    tried = 0
    for pair in pairs:
        tried += 1
        if pair is None:
            yield None
        elif wanted(as_bytes(pair[0])):
            tried = 0
            yield pair
        elif tried == most:
            tried = 0
            yield None


class Reports:
    """The reserved streams of a broker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._streams = SharedRows(
            lambda: ((stream.name, stream) for stream in engine.streams), describe_stream, engine.find, engine.elsewhere
        )
        self._clients = SharedRows(
            lambda: ((str(session.number), session) for session in list(engine.sessions)), describe_session
        )
        self._readers: dict[BrokerStream, SharedRows[str]] = {}
        # The rows about brokers that share a store, by the name of the reserved stream.
        self._shared = {name: SharedRows(rows, lambda row: row) for name, rows in engine.shared_reports.items()}

    def open_report(self, name: str, outlet: Outlet) -> Report | None:
        """Return a report on the reserved stream of that name, or None if there is none."""
        turns = self._engine.turns
        if name == STREAMS:
            return Report(_RowReader(self._streams), outlet, turns, self._engine.fetch)
        if name == CLIENTS:
            return Report(_RowReader(self._clients), outlet, turns, self._engine.fetch)
        if name in self._shared:
            return Report(_RowReader(self._shared[name]), outlet, turns, self._engine.fetch)
        if name.startswith(READERS):
            stream = self._engine.find(name.removeprefix(READERS))
            return (
                Report(_RowReader(self._readers_of(stream)), outlet, turns, self._engine.fetch)
                if stream is not None
                else None
            )
        if name.startswith(INDEX):
            stream = self._engine.find(name.removeprefix(INDEX))
            return Report(_IndexPages(stream), outlet, turns, self._engine.fetch) if stream is not None else None
        return None

    def _readers_of(self, stream: BrokerStream) -> SharedRows[str]:
        """Return the rows of a stream's readers and groups; all clients that look at them share the rows."""
        rows = self._readers.get(stream)
        if rows is None:
            rows = self._readers[stream] = SharedRows(
                lambda: ((key, key) for key in (*stream.readers.names(), *map(SHARED.__add__, stream.groups.names()))),
                partial(_describe_reader_or_group, stream),
                lambda key: key,
            )
        return rows

    def invalidate(self) -> None:
        """Let the next reader see the changes of this tick."""
        self._streams.invalidate()
        self._clients.invalidate()
        for shared in self._shared.values():
            shared.invalidate()
        for stream, rows in tuple(self._readers.items()):
            rows.invalidate()
            if self._engine.find(stream.name) is not stream:
                del self._readers[stream]


class _IndexPages:
    """The index of a stream, page by page; each entry is sent once."""

    def __init__(self, stream: BrokerStream) -> None:
        self._stream = stream
        self._is_wanted = False
        self._after = 0

    def initial_rows(self, wanted: Filter, latest: int) -> Iterator[Row | Absent]:
        self._is_wanted = wanted(as_bytes(self._stream.name))
        self._after = min(latest, self._stream.journal.last)
        return self.changed_rows()

    def changed_rows(self) -> Iterator[Row | Absent]:
        while self._is_wanted:
            try:
                page = self._stream.journal.index_page(self._after, PAGE)
            except Absent as absent:
                yield absent
                absent.check()
                continue
            if not page:
                return
            last = unpack(page, len(page) - SIZE)
            assert last is not None  # `index_page` has checked it
            self._after = last.last
            yield self._stream.name, page


def describe_stream(stream: BrokerStream) -> dict[str, object]:
    """Return a row of `$streams`."""
    journal = stream.journal
    multicast = stream.multicast
    row: dict[str, object] = {
        "stream": stream.name,
        "incarnation": str(journal.incarnation),
        "first": journal.first,
        "last": journal.last,
        "removed": journal.removed,
        "octets": journal.octets,
        "first_time": journal.first_time,
        "last_time": journal.last_time,
        "sync": journal.policy.sync,
        "copied": journal.copied,
        "segment": journal.policy.segment_bytes,
        "keep_bytes": journal.policy.keep_bytes,
        "keep_seconds": journal.policy.keep_seconds,
        "compact": journal.policy.compact,
        "publishers": len(journal.counts),
        "max_publishers": journal.policy.publishers,
        "keep_publishers": journal.policy.keep_publishers,
        "readers": len(stream.readers),
        "groups": len(stream.groups),
        "reader_lag": stream.readers.largest_lag,
        "subscribers": stream.subscribers,
        "attached": stream.attached,
        "rate": round(stream.rate, 1),
        "owner": stream.owner,
        "held": stream.held or journal.failed or stream.readers.problem or stream.groups.problem,
        "multicast": multicast.group if multicast is not None else "",
    }
    if multicast is not None:
        row |= {"sealed": multicast.sealed, "feed": asdict(multicast.counters)}
    return row


def _describe_reader_or_group(stream: BrokerStream, key: str) -> dict[str, object] | None:
    if key.startswith(SHARED):
        return stream.groups.describe(key.removeprefix(SHARED))
    state = stream.readers.find(key)
    return describe_reader(stream, state) if state is not None else None


def describe_reader(stream: BrokerStream, state: Position) -> dict[str, object]:
    """Return a row of `$readers/<stream>`."""
    return {
        "reader": state.name,
        "position": state.position,
        "lag": stream.readers.lag_of(state.position),
        "behind": stream.readers.seconds_behind(state),
        "time": state.time,
        "user": state.user,
        "holder": stream.readers.described_holder_of(state.name),
    }


def describe_session(session: Session) -> dict[str, object]:
    """Return a row of `$clients`."""
    cursor = session.cursor
    row: dict[str, object] = {
        "client": session.number,
        "address": session.address,
        "user": session.user,
        "stream": session.stream_name,
        "published": session.published,
        "gear": cursor.gear if cursor is not None else "idle",
    }
    if cursor is not None and cursor.selections:
        row |= {
            "patterns": sorted(cursor.audience.filter.patterns) if cursor.audience else [],
            "position": cursor.position,
            "lag": cursor.lag,
            "credit": cursor.credit,
            "delivered": cursor.delivered,
            "delivered_bytes": cursor.octets,
            "skipped": cursor.skipped,
        }
    return row


def _json(value: dict[str, object]) -> bytes:
    # Bytes of a name that are not UTF-8 are escaped, so that the JSON always is UTF-8.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
