"""Streams that are not open here, and can be in the object store: finding them, and taking them.

A stream that another broker serves is `Moved`. One that no live broker serves is taken. Clients that attach to a
stream, and questions and orders about it, wait until that is known.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from zambezi.wire.text import printable
from zambezi.zeps.about import about
from zambezi.zeps.broker.depot import STORE, Depot
from zambezi.zeps.errors import Moved, ZepsError
from zambezi.zeps.store.catalog import StoredStream as StreamInStore
from zambezi.zeps.store.chunk import NOBODY
from zambezi.zeps.store.cluster import Located, Scanned

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.stream import BrokerStream

_log: Final = logging.getLogger("zambezi.zeps")

_MICRO: Final = 1_000_000
PREPARED_AT_ONCE: Final = 4  # few, so that heartbeats and clients do not wait


class Waiting(Protocol):
    """A session, a question or an order that waits for a stream."""

    def on_stream_ready(self, stream: BrokerStream) -> None:
        """Go on: the stream is open."""

    def on_stream_refused(self, reason: str) -> None:
        """Go on without the stream."""

    def on_stream_missing(self, name: str) -> None:
        """Go on: there is no such stream."""


class Sought:
    """A question or an order that waits: it goes on with the reason why it is refused; without one if it is not."""

    def __init__(self, go_on: Callable[[str], object]) -> None:
        self._go_on = go_on

    def on_stream_ready(self, _: BrokerStream) -> None:
        self._go_on("")

    def on_stream_refused(self, reason: str) -> None:
        self._go_on(reason)

    def on_stream_missing(self, _: str) -> None:
        self._go_on("")


class Seeking:
    """The search of one broker for streams of its store."""

    def __init__(self, engine: Engine, depot: Depot) -> None:
        self._engine = engine
        self._depot = depot
        self._unprepared: deque[str] = deque()  # streams that this broker will perhaps take
        self._held: set[str] = set()  # streams whose broker is failing, and that clients wait for here

    def seek(self, name: str, waiting: Waiting) -> bool:
        """Look for a stream that is not open. Return False if it cannot be in the store; raise `Moved` if it is known
        to be elsewhere. Otherwise one of the methods of `waiting` is called later.
        """
        making = self._engine.making
        if name in making:
            making[name].append(waiting)
            return True
        if not self._depot.can_be_elsewhere(name):
            return False
        if self._is_coming(name):
            self._held.add(name)
        else:
            self._depot.look_up(name, partial(self._on_located, name))
        making[name] = [waiting]
        return True

    def _is_coming(self, name: str) -> bool:
        """Return whether this broker will take a stream soon; raise `Moved` if another one will.

        Clients that wait for it here need not ask one broker after another.
        """
        heir = self._depot.cluster.heir_of(name)
        if heir is None:
            return False
        if heir.id != self._depot.id:
            raise Moved(heir.endpoint)
        return True

    def look_again(self) -> None:
        """Look for the streams that clients wait for, if the brokers have changed, and no scan finds them."""
        cluster = self._depot.cluster
        if cluster.is_scanning:
            return
        for name in tuple(self._held):
            try:
                if not cluster.is_cut and self._is_coming(name):
                    continue
                self._held.discard(name)
                self._depot.look_up(name, partial(self._on_located, name))
            except Moved as moved:
                self._held.discard(name)
                self._engine.on_stream_made(name, moved)

    def _on_located(self, name: str, found: Located | ZepsError) -> None:
        if isinstance(found, ZepsError):
            self._engine.on_stream_made(name, found)
        elif found.stream is not None:
            self._take(found.stream, found.owner)
        else:
            for waiting in self._engine.making.pop(name):
                waiting.on_stream_missing(name)

    def take(self, streams: Iterable[Scanned]) -> None:
        """Take streams that no live broker has, and serve them."""
        for stream, owner in streams:
            if stream.name in self._held:
                self._held.discard(stream.name)
            elif not self._engine.is_known(stream.name):
                self._engine.making[stream.name] = []
            else:
                continue
            self._take(stream, owner)

    def prepare(self, names: Iterable[str]) -> None:
        """Prepare to take streams of a broker that does not answer."""
        wanted = [name for name in names if not self._engine.is_known(name) or name in self._held]
        self._depot.preparations.expect(wanted)
        is_idle = not self._unprepared
        self._unprepared.extend(wanted)
        if is_idle:
            for _ in range(PREPARED_AT_ONCE):
                self._prepare_next()

    def _prepare_next(self) -> None:
        depot = self._depot
        while self._unprepared:
            name = self._unprepared.popleft()
            if depot.preparations.expects(name):
                known = depot.cluster.streams.get(name)
                prepare = partial(depot.preparations.prepare, name, known.stream if known is not None else None)
                self._engine.work_remote(prepare, partial(self._on_prepared, name))
                return

    def _on_prepared(self, name: str, problem: ZepsError | None) -> None:
        self._prepare_next()
        if problem is not None:
            _log.info(
                "stream %s could not be prepared, and will be taken all the same: %s",
                printable(name),
                problem,
                extra=about(name, problem),
            )
        stream = self._depot.preparations.stream_of(name)
        cluster = self._depot.cluster
        if stream is not None and name not in cluster.streams:
            owner = cluster.owner_of(name)
            cluster.streams[name] = Scanned(stream, owner.id if owner is not None else NOBODY)

    def _take(self, stream: StreamInStore, owner: bytes) -> None:
        def take() -> None:
            self._engine.check_open()
            self._depot.take(stream, owner)

        self._engine.work_remote(take, partial(self._on_taken, stream.name))

    def _on_taken(self, name: str, problem: ZepsError | None) -> None:
        if problem is None:
            _log.info("stream %s was taken, and is served here", printable(name), extra=about(name))
        else:
            if name not in self._depot.untaken:  # these are one problem of the server
                _log.warning("stream %s could not be taken: %s", printable(name), problem, extra=about(name, problem))
            self._depot.cluster.streams.pop(name, None)  # it can be another one of this name
        self._engine.on_stream_made(name, problem)

    # Reports

    def brokers(self) -> list[tuple[str, dict[str, object]]]:
        """Return the rows of `$brokers`."""
        depot = self._depot
        return [
            (
                member.id.hex(),
                {
                    "broker": member.id.hex(),
                    "endpoints": list(member.endpoints),
                    "since": int(member.since * _MICRO),
                    "heartbeat": round(depot.age_of(member), 1),
                    "streams": len(depot.cluster.owned if member.id == depot.id else member.streams),
                    "answers": member.id == depot.id,
                },
            )
            for member in sorted(depot.cluster.roll.members, key=lambda member: member.endpoint)
        ]

    def streams(self) -> list[tuple[str, dict[str, object]]]:
        """Return the rows of `$elsewhere`: the streams of the store that are not here."""
        cluster = self._depot.cluster
        endpoints = {member.id: member.endpoint for member in cluster.roll.members}
        owners = {**dict.fromkeys(self._depot.untaken, NOBODY), **cluster.owners}
        return [
            (name, {"stream": name, "owner": endpoints.get(owner, ""), "sync": STORE})
            for name, owner in sorted(owners.items())
            if self._engine.find(name) is None
        ]

    def is_at_home(self, name: str) -> bool:
        """Return whether a stream that is not open should be here: it is not in the store, or this is its home."""
        cluster = self._depot.cluster
        if not self._depot.is_stored(name):
            return True
        home = cluster.roll.home(name, self._depot.id)
        is_home = home is None or home.id == self._depot.id
        return is_home and not cluster.is_cut and cluster.owner_of(name) is None

    @property
    def other_endpoints(self) -> list[str]:
        """The endpoints of the other brokers, each at which streams of the store can be."""
        depot = self._depot
        return [one.endpoint for one in depot.cluster.roll.members if one.id != depot.id and one.endpoint]

    def moved(self, name: str) -> Moved | None:
        """Return where a stream is that is not open here; None if the store does not have it, as far as is known.

        The endpoint is empty if the stream is on its way from one broker to another.
        """
        if name not in self._depot.cluster.owners:
            return None
        return self.elsewhere(name) or Moved()

    def elsewhere(self, name: str) -> Moved | None:
        """Return where another broker serves a stream that is not open here, as far as it has named it."""
        server = self._depot.cluster.owner_of(name)
        return Moved(server.endpoint) if server is not None else None


def log_created(name: str, who: str, problem: ZepsError | None) -> None:
    """Log that a stream was created. A client that fails to do so is told why, and can try again and again."""
    if problem is None:
        _log.info("stream %s was created by %s", printable(name), printable(who), extra={"stream": name, "user": who})


def log_made(name: str, problem: ZepsError | None) -> None:
    """Log how the creation of a stream of the configuration has ended."""
    log_created(name, "the server", problem)
    if isinstance(problem, Moved):
        _log.info("stream %s is at another broker: %s", printable(name), problem, extra=about(name, problem))
    elif problem is not None:
        _log.error("stream %s could not be created: %s", printable(name), problem, extra=about(name, problem))
