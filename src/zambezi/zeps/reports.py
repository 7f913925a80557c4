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
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, TypeAlias

from zambezi.zeps import messages
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.directory import CLIENTS, INDEX, STREAMS
from zambezi.zeps.filters import Filter
from zambezi.zeps.messages import Publish

if TYPE_CHECKING:
    from zambezi.zeps.cursor import Outlet
    from zambezi.zeps.engine import Engine
    from zambezi.zeps.session import Session
    from zambezi.zeps.stream import Stream

PAGE: Final = 1000  # index entries in a message


# What there is to tell: all of it, or by the `latest` of a SUBSCRIBE; keys and bodies.
Tell: TypeAlias = Callable[[int | None], Iterator[tuple[str, bytes]]]


class Report:
    """A connection's subscription to a reserved stream."""

    def __init__(self, tell: Tell, outlet: Outlet, *, grows: bool = False) -> None:
        self._tell = tell
        self._outlet = outlet
        self._grows = grows  # whether it tells only what it has not told before: that does not change, and stays
        self._told: dict[str, bytes] = {}
        self._coming: Iterator[tuple[str, bytes]] = iter(())
        self._filter: Filter | None = None
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
        self._filter = wanted
        if latest == messages.LATEST and not self._grows:
            self._told.update(self._tell(latest))
            return
        self._told.clear()
        self._begin(self._tell(latest))

    def add_credit(self, octets: int) -> None:
        self.credit += octets
        self._outlet.nudge()

    def look(self) -> None:
        """Tell what has changed, if nothing is being told already."""
        if self._filter is not None and self._done and self.credit > 0:
            self._begin(self._tell(None) if self._grows else self._changes())

    def stop(self) -> None:
        """Tell no more."""
        self._filter = None
        self._coming = iter(())
        self._done = True
        self.on_complete()

    def _begin(self, coming: Iterator[tuple[str, bytes]]) -> None:
        self._coming = coming
        self._done = False
        self._outlet.nudge()

    def _changes(self) -> Iterator[tuple[str, bytes]]:
        now = dict(self._tell(None))
        for key in [key for key in self._told if key not in now]:
            del self._told[key]
            yield key, b""
        yield from now.items()

    def pull(self) -> Block | None:
        """The next message, while there is credit."""
        while not self._done and self.credit > 0:
            found = next(self._coming, None)
            if found is None:
                self._done = True
                self.on_complete()
                return None
            key, body = found
            assert self._filter is not None
            if not self._filter(key.encode("utf-8", "surrogateescape")) or (body and self._told.get(key) == body):
                continue
            if body and not self._grows:
                self._told[key] = body
            self._sequence += 1
            block = deliver(Publish(key, body).encode(), self._sequence)
            self.credit -= block.credit
            self.delivered += 1
            return block
        return None


class Reports:
    """What the reserved streams have to tell."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def open(self, name: str, outlet: Outlet) -> Report | None:
        """The report of that name, if there is one."""
        if name == STREAMS:
            return Report(self._streams, outlet)
        if name == CLIENTS:
            return Report(self._clients, outlet)
        if name.startswith(INDEX):
            stream = self._engine.find(name.removeprefix(INDEX), create=False)
            return Report(_IndexPages(stream), outlet, grows=True) if stream is not None else None
        return None

    def _streams(self, _latest: int | None) -> Iterator[tuple[str, bytes]]:
        for name in self._engine.names():
            stream = self._engine.find(name, create=False)
            if stream is not None:
                yield name, _json(describe_stream(stream))

    def _clients(self, _latest: int | None) -> Iterator[tuple[str, bytes]]:
        for session in list(self._engine.sessions):
            yield str(session.number), _json(describe_session(session))


class _IndexPages:
    """The index of a stream, page by page; what has been told once is not told again."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._after = 0

    def __call__(self, latest: int | None) -> Iterator[tuple[str, bytes]]:
        journal = self._stream.journal
        if latest is not None:
            self._after = min(latest, journal.last)
        while entries := journal.entries(self._after, PAGE):
            self._after = entries[-1].last
            yield self._stream.name, b"".join([entry.pack() for entry in entries])


def describe_stream(stream: Stream) -> dict[str, object]:
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
    if cursor is not None and cursor.subscriptions:
        told |= {
            "patterns": sorted(cursor.group.filter.patterns) if cursor.group else [],
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
