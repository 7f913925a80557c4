"""The agenda of a node: when to look at which peer again.

A heap has one entry for each peer. Every sign of life puts a peer off, and that must cost nothing: the entry stays
where it is, and only `Peer.due` changes. When the entry comes up too early, the peer gets another one. Entries of peers
that are gone stay until their time comes, or until there are too many of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Final

from zambezi.zre.peer import Peer

NEVER: Final = float("inf")
_STALE: Final = 1000  # entries of peers that are gone, before the agenda is cleared of them


class Agenda:
    """The times at which the peers in `peers` are due."""

    __slots__ = ("_entries", "_heap", "_peers")

    def __init__(self, peers: Mapping[bytes, Peer]) -> None:
        self._peers = peers
        self._heap: list[tuple[float, bytes]] = []
        self._entries: dict[bytes, float] = {}  # the time of each peer's entry in the heap

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def deadline(self) -> float:
        """The time of the first entry; infinity if there is none."""
        return self._heap[0][0] if self._heap else NEVER

    def set(self, peer: Peer, due: float) -> None:
        """Look at a peer at a time. This replaces the time that was set before."""
        peer.due = due
        self._enter(peer.key, due)

    def due(self, now: float) -> Iterator[Peer]:
        """Yield the peers to look at now. The caller can set new times meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            time, key = heapq.heappop(self._heap)
            if self._entries.get(key) != time:
                continue  # an earlier entry has replaced this one
            del self._entries[key]
            peer = self._peers.get(key)
            if peer is None:
                continue
            if peer.due > now:
                self._enter(key, peer.due)
            else:
                yield peer

    def _enter(self, key: bytes, time: float) -> None:
        if time >= self._entries.get(key, NEVER):
            return
        self._entries[key] = time
        heapq.heappush(self._heap, (time, key))
        if len(self._heap) > 2 * len(self._peers) + _STALE:
            self._entries = {key: time for key, time in self._entries.items() if key in self._peers}
            self._heap = [(time, key) for key, time in self._entries.items()]
            heapq.heapify(self._heap)
