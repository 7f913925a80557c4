"""The limit of the disk, if it is a cache of streams in an object store: segments that are stored are removed.

The segments that were not used for longest go first. A segment whose messages are not all in the store stays, whatever
the limit says. The active segment of a stream goes last: the stream gets an empty one for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.segment import Segment

_log: Final = logging.getLogger("zambezi.zeps")
REST: Final = 0.9  # of the limit is used after an eviction, so that the next one need not follow at once


@dataclass(slots=True)
class CacheCounters:
    """Counters of a cache."""

    segments: int = 0  # evicted
    octets: int = 0  # evicted


class DiskCache:
    """The journals that are caches, and the bytes that they may have together; None is no limit.

    Any thread may call its methods; they block.
    """

    def __init__(self, limit: int | None, journals: Callable[[], Sequence[Journal]]) -> None:
        self.limit = limit
        self.counters = CacheCounters()
        self.used = 0  # bytes, when they were last counted, and those added since
        self._journals = journals
        self._lock = threading.Lock()

    def make_room(self, octets: int) -> None:
        """Evict segments so that so many bytes can be added, and count these."""
        with self._lock:
            self.used += octets
            if self.limit is not None and self.used > self.limit:
                self._evict(int(self.limit * REST) - octets)
                self.used += octets

    def step(self) -> None:
        """Count the bytes, and evict segments if there are too many."""
        with self._lock:
            journals = self._cached()
            self.used = sum(journal.local_octets for journal in journals)
            if self.limit is not None and self.used > self.limit:
                self._evict(int(self.limit * REST))

    def free(self, octets: int) -> int:
        """Evict segments of so many bytes: the disk is full. Return how many were evicted."""
        with self._lock:
            before = self.counters.octets
            self._evict(sum(journal.local_octets for journal in self._cached()) - octets)
            return self.counters.octets - before

    def _cached(self) -> list[Journal]:
        return [journal for journal in self._journals() if journal.backing is not None]

    def _evict(self, goal: int) -> None:
        """Evict segments until the rest has at most `goal` bytes, and count the rest."""
        journals = self._cached()
        self.used = sum(journal.local_octets for journal in journals)
        closed = [(segment, journal) for journal in journals for segment in journal.segments[:-1]]
        for segment, journal in sorted(closed, key=_use):
            if self.used <= goal:
                return
            self._remove(journal, segment)
        active = [(journal.segments[-1], journal) for journal in journals]
        for segment, journal in sorted(active, key=_use):
            if self.used <= goal:
                return
            if segment.entries and segment.disk_octets > segment.snapshot_bytes:
                self._remove_active(journal)

    def _remove(self, journal: Journal, segment: Segment) -> None:
        octets = segment.disk_octets
        if journal.evict(segment):
            self.used -= octets
            self.counters.segments += 1
            self.counters.octets += octets

    def _remove_active(self, journal: Journal) -> None:
        try:
            closed = journal.close_active()
        except JournalError as error:
            _log.warning("%s", error)
            return
        if closed is not None:
            self._remove(journal, closed)


def _use(place: tuple[Segment, Journal]) -> int:
    return place[0].used
