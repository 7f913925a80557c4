"""Streams that are not open here, and can be in the object store: finding them, and taking them.

A stream that another broker serves is `Moved`. One that no live broker serves is taken. Clients that attach to a
stream, and questions and orders about it, wait until that is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from zambezi.wire.text import printable
from zambezi.zeps.broker.depot import STORE, Depot
from zambezi.zeps.errors import Moved, ZepsError
from zambezi.zeps.store.catalog import StoredStream as StreamInStore
from zambezi.zeps.store.cluster import Located, Scanned

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.stream import BrokerStream

_log: Final = logging.getLogger("zambezi.zeps")

_MICRO: Final = 1_000_000


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
        self._depot.look_up(name, partial(self._on_located, name))
        making[name] = [waiting]
        return True

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
            if not self._engine.is_known(stream.name):
                self._engine.making[stream.name] = []
                self._take(stream, owner)

    def _take(self, stream: StreamInStore, owner: bytes) -> None:
        def take() -> None:
            self._engine.check_open()
            self._depot.take(stream, owner)

        self._engine.work_remote(take, partial(self._on_taken, stream.name))

    def _on_taken(self, name: str, problem: ZepsError | None) -> None:
        if problem is None:
            _log.info("stream %s was taken, and is served here", printable(name))
        else:
            _log.warning("stream %s could not be taken: %s", printable(name), problem)
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
        return [
            (name, {"stream": name, "owner": endpoints.get(owner, ""), "sync": STORE})
            for name, owner in sorted(cluster.owners.items())
            if self._engine.find(name) is None
        ]

    def elsewhere(self, name: str) -> Moved | None:
        """Return where another broker serves a stream that is not open here, as far as it has named it."""
        server = self._depot.cluster.owner_of(name)
        return Moved(server.endpoint) if server is not None else None
