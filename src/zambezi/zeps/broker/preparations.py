"""Streams that this broker will perhaps take: their broker has put no heartbeat for a while, and is not dead yet.

The broker reads the ends of their logs, and makes their caches, before it may take them. So when the other broker
counts as dead, a take needs only the fence and the two LISTs that make it safe. If the other broker lives, or has
written meanwhile, nothing is lost: a take begins anew where the preparation is not right any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from zambezi.zeps.journal import Store
from zambezi.zeps.store.catalog import StoredStream as StreamInStore
from zambezi.zeps.store.catalog import latest_stream
from zambezi.zeps.store.commands import Procedure
from zambezi.zeps.store.copying import incarnation_of
from zambezi.zeps.store.takeover import Prepared, prepare

if TYPE_CHECKING:
    from zambezi.zeps.broker.depot import Depot

MOST: Final = 64 << 20  # bytes of ends that are kept
PATIENCE: Final = 2.0  # seconds for which a store may fail: a preparation is not needed


class _Found(NamedTuple):
    stream: StreamInStore
    prepared: Prepared

    @property
    def size(self) -> int:
        return sum(map(len, self.prepared.ends.values()))


class Preparations:
    """The preparations of one broker. `prepare` and `take` are called by any thread, the others in the event loop."""

    def __init__(self, depot: Depot) -> None:
        self._depot = depot
        self._expected: frozenset[str] = frozenset()
        self._found: dict[str, _Found] = {}
        self._running: set[str] = set()  # streams that are being prepared: only one thread may open a journal
        self._change = threading.Condition()
        self._octets = 0  # of all ends since the last `stop`, approximately

    def expect(self, names: Iterable[str]) -> None:
        """Expect some streams more."""
        self._expected |= frozenset(names)

    def expects(self, name: str) -> bool:
        """Return whether a stream is expected."""
        return name in self._expected

    def stop(self, keep: Iterable[str]) -> None:
        """Prepare no more, and forget what was prepared, except for some streams: they are being taken."""
        self._expected = frozenset()
        self._octets = 0
        self._found = {name: found for name in keep if (found := self._found.get(name)) is not None}

    def prepare(self, name: str, known: StreamInStore | None) -> None:
        """Read the end of a stream's log, and make its cache, if the stream is still expected. Blocks."""
        with self._change:
            if name not in self._expected or self._octets > MOST or self._depot.is_taking(name):
                return
            self._running.add(name)
        try:
            self._prepare(name, known)
        finally:
            with self._change:
                self._running.discard(name)
                self._change.notify_all()

    def _prepare(self, name: str, known: StreamInStore | None) -> None:
        depot = self._depot
        found = depot.remote.run(_prepare(name, known), PATIENCE)
        if found is None:
            return
        end = found.prepared.end
        depot.make_cache(name, found.stream.settings, end.last + 1, incarnation_of(found.stream, end.incarnation))
        Store.open(depot, name)
        self._found[name] = found
        self._octets += found.size

    def stream_of(self, name: str) -> StreamInStore | None:
        """Return a stream that was prepared."""
        found = self._found.get(name)
        return found.stream if found is not None else None

    def take(self, stream: StreamInStore) -> Prepared | None:
        """Return, once, what was prepared for a stream, which the depot is taking. Wait while it is being prepared."""
        with self._change:
            self._change.wait_for(lambda: stream.name not in self._running)
        found = self._found.pop(stream.name, None)
        return found.prepared if found is not None and found.stream.place == stream.place else None


def _prepare(name: str, known: StreamInStore | None) -> Procedure[_Found | None]:
    """Prepare a stream; return None if it cannot be taken, or changes at this moment."""
    stream = known or (yield from latest_stream(name))
    prepared = (yield from prepare(stream.place)) if stream is not None else None
    if stream is None or prepared is None or prepared.end.is_deleted:
        return None
    return _Found(stream, prepared)
