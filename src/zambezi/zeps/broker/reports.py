"""The reserved streams: what ZEPS has no words for, told in its own DELIVER messages.

    $streams          a message for each stream: key the stream's name, body JSON
    $clients          a message for each connection: key its number, body JSON
    $index/<stream>   the index of a stream's journal: key the stream's name, body many entries as in the journal

To subscribe gives all there is now, and PING-OK comes when that has gone out. From then on each change is told, about
once in a second: a message again for what has changed, and an empty body for what is no more. `latest` may say that
only changes are wanted; for `$index/` it says after which sequence entries are wanted. The sequences of a reserved
stream count the messages of one connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from zambezi.wire.text import as_bytes
from zambezi.zeps import messages
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.directory import CLIENTS, INDEX, STREAMS
from zambezi.zeps.filters import Filter
from zambezi.zeps.messages import Publish

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Outlet
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session
    from zambezi.zeps.broker.stream import BrokerStream

PAGE: Final = 1000  # index entries in a message

Told: TypeAlias = tuple[str, bytes]  # key and body

T = TypeVar("T")


class Teller(Protocol):
    """What is told on one connection."""

    def begin(self, wanted: Filter, latest: int) -> Iterator[Told]:
        """What a SUBSCRIBE asks for."""

    def go_on(self) -> Iterator[Told]:
        """What has changed since."""


class Report:
    """A connection's subscription to a reserved stream."""

    def __init__(self, teller: Teller, outlet: Outlet) -> None:
        self._teller = teller
        self._outlet = outlet
        self._coming: Iterator[Told] = iter(())
        self._subscribed = False
        self._sequence = 0
        self._done = True
        self.credit = 0
        self.delivered = 0
        self.on_complete: Callable[[], object] = lambda: None

    @property
    def complete(self) -> bool:
        """Whether all that was asked for has gone out."""
        return self._done

    def subscribe(self, wanted: Filter, latest: int) -> None:
        self._subscribed = True
        self._begin(self._teller.begin(wanted, latest))

    def add_credit(self, octets: int) -> None:
        self.credit += octets
        self._outlet.wake()

    def report_changes(self) -> None:
        """Send what has changed, unless something is being sent already."""
        if self._subscribed and self._done and self.credit > 0:
            self._begin(self._teller.go_on())

    def stop(self) -> None:
        """Tell no more."""
        self._subscribed = False
        self._coming = iter(())
        self._done = True
        self.on_complete()

    def _begin(self, coming: Iterator[Told]) -> None:
        self._coming = coming
        self._done = False
        self._outlet.wake()

    def pull(self) -> Block | None:
        """The next message, while there is credit."""
        if self._done or self.credit <= 0:
            return None
        found = next(self._coming, None)
        if found is None:
            self._done = True
            self.on_complete()
            return None
        self._sequence += 1
        block = deliver(Publish(*found).encode(), self._sequence)
        self.credit -= block.credit
        self.delivered += 1
        return block


class Bulletin:
    """All that there is to tell at one moment, and what of it is new."""

    __slots__ = ("before", "changed", "rows")

    def __init__(self, rows: dict[str, bytes], before: Mapping[str, bytes]) -> None:
        self.rows = rows
        self.before = before
        self.changed = dict(_changes(before, rows))


class Board(Generic[T]):
    """What is told of many things to any number of readers.

    Who comes is told what there is at that moment, made as it goes out. What changes is found once in a tick, if
    anybody asks, and all readers are told by the same bulletin: each of them has to look at the changes alone. Of what
    is as it was no JSON is made again.
    """

    def __init__(self, things: Callable[[], list[tuple[str, T]]], describe: Callable[[T], dict[str, object]]) -> None:
        self._things = things
        self._describe = describe
        self._bulletin = Bulletin({}, {})
        self._described: dict[str, dict[str, object]] = {}  # what the bulletin says
        self._outdated = True

    def outdate(self) -> None:
        """Time has passed."""
        self._outdated = True

    def now(self, wanted: Filter) -> Iterator[Told]:
        """What there is, of what is wanted."""
        for key, thing in self._things():
            if _matches(wanted, key):
                yield key, _json(self._describe(thing))

    def bulletin(self) -> Bulletin:
        """What there was when somebody asked for it first in this tick."""
        if self._outdated:
            self._outdated = False
            before, known = self._bulletin.rows, self._described
            self._described = {key: self._describe(thing) for key, thing in self._things()}
            rows = {key: before[key] if known.get(key) == it else _json(it) for key, it in self._described.items()}
            self._bulletin = Bulletin(rows, before)
        return self._bulletin


class _Reading(Generic[T]):
    """A reader's place before a board."""

    def __init__(self, board: Board[T]) -> None:
        self._board = board
        self._wanted: Filter
        self._told: Mapping[str, bytes] = {}  # what it knows; of what it does not want there may be more here

    def begin(self, wanted: Filter, latest: int) -> Iterator[Told]:
        self._wanted = wanted
        if latest == messages.LATEST:
            self._told = self._board.bulletin().rows
            return iter(())
        return self._all()

    def _all(self) -> Iterator[Told]:
        self._told = told = {}
        for key, body in self._board.now(self._wanted):
            told[key] = body
            yield key, body

    def go_on(self) -> Iterator[Told]:
        bulletin = self._board.bulletin()
        known = self._told is bulletin.before
        for key, body in bulletin.changed.items() if known else _changes(self._told, bulletin.rows):
            if _matches(self._wanted, key):
                yield key, body
        self._told = bulletin.rows


def _changes(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[Told]:
    """What is other than it was; an empty body for what is no more."""
    for key in before:
        if key not in now:
            yield key, b""
    for key, body in now.items():
        if before.get(key) != body:
            yield key, body


def _matches(wanted: Filter, key: str) -> bool:
    return wanted(as_bytes(key))


class Reports:
    """What the reserved streams have to tell."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._streams = Board(lambda: [(one.name, one) for one in engine.streams], describe_stream)
        self._clients = Board(lambda: [(str(one.number), one) for one in engine.sessions], describe_session)

    def open(self, name: str, outlet: Outlet) -> Report | None:
        """The report of that name, if there is one."""
        if name == STREAMS:
            return Report(_Reading(self._streams), outlet)
        if name == CLIENTS:
            return Report(_Reading(self._clients), outlet)
        if name.startswith(INDEX):
            stream = self._engine.find(name.removeprefix(INDEX), create=False)
            return Report(_IndexPages(stream), outlet) if stream is not None else None
        return None

    def outdate(self) -> None:
        """Time has passed, and things may have changed."""
        self._streams.outdate()
        self._clients.outdate()


class _IndexPages:
    """The index of a stream, page by page; what has been told once is not told again."""

    def __init__(self, stream: BrokerStream) -> None:
        self._stream = stream
        self._is_wanted = False
        self._after = 0

    def begin(self, wanted: Filter, latest: int) -> Iterator[Told]:
        self._is_wanted = _matches(wanted, self._stream.name)
        self._after = min(latest, self._stream.journal.last)
        return self.go_on()

    def go_on(self) -> Iterator[Told]:
        while self._is_wanted and (entries := self._stream.journal.entries(self._after, PAGE)):
            self._after = entries[-1].last
            yield self._stream.name, b"".join([entry.pack() for entry in entries])


def describe_stream(stream: BrokerStream) -> dict[str, object]:
    journal = stream.journal
    feed = stream.feed
    told: dict[str, object] = {
        "stream": stream.name,
        "incarnation": str(journal.incarnation),
        "first": journal.first,
        "last": journal.last,
        "octets": journal.octets,
        "first_time": journal.first_time,
        "last_time": journal.last_time,
        "sync": journal.policy.sync,
        "subscribers": stream.subscribers,
        "attached": stream.attached,
        "rate": round(stream.rate, 1),
        "held": stream.held or journal.failed,
        "multicast": feed.group if feed is not None else "",
    }
    if feed is not None:
        told |= {"sealed": feed.sealed, "feed": asdict(feed.counters)}
    return told


def describe_session(session: Session) -> dict[str, object]:
    cursor = session.cursor
    told: dict[str, object] = {
        "client": session.number,
        "address": session.address,
        "user": session.user,
        "stream": session.stream_name,
        "published": session.published,
        "gear": cursor.gear if cursor is not None else "idle",
    }
    if cursor is not None and cursor.selections:
        told |= {
            "patterns": sorted(cursor.audience.filter.patterns) if cursor.audience else [],
            "position": cursor.position,
            "lag": cursor.lag,
            "credit": cursor.credit,
            "delivered": cursor.delivered,
            "delivered_octets": cursor.octets,
            "skipped": cursor.skipped,
        }
    return told


def _json(value: dict[str, object]) -> bytes:
    # Names that are no UTF-8 are told with the octets escaped, so that what is told always is.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
