"""The peers of a node, and how many it accepts.

Any host can make up UUIDs without end, so a node bounds two numbers: the peers that are ready (`max_peers`), and beside
them the strangers, which we found by a beacon or by gossip and which have not greeted us (`max_strangers`). A newcomer
above a bound is refused. No peer has to go to make room for it.

Two further bounds: how many strangers a node meets in a time, because each of them is an attempt to connect, and how
many bytes the headers and groups of all peers take.
"""

from __future__ import annotations

from typing import Final

from zambezi.zre import bounds
from zambezi.zre.contact import endpoint_of
from zambezi.zre.errors import ZreError
from zambezi.zre.peer import Peer, together

_PERIOD: Final = 10.0  # seconds in which a node meets `max_strangers` twice, and no more


class Peers(dict[bytes, Peer]):
    """The peers of a node by their key. Only the methods below add and remove any: they count the strangers."""

    def __init__(self, max_peers: int, max_strangers: int) -> None:
        if not 0 < max_strangers <= max_peers:
            raise ZreError(f"max_strangers must be 1 to max_peers, which is {max_peers}; it is {max_strangers}")
        super().__init__()
        self.strangers = 0  # peers that have not greeted us
        self.cost = 0  # bytes of the headers and groups of all peers
        self._max_peers = max_peers
        self._max_strangers = max_strangers
        self._by_endpoint: dict[str, Peer] = {}
        self._met = 0  # strangers in this period,
        self._period_end = 0.0  # which ends at this time

    @property
    def full(self) -> bool:
        """Whether no further peer can become ready."""
        return len(self) - self.strangers >= self._max_peers

    @property
    def has_room(self) -> bool:
        """Whether one more stranger is accepted."""
        return self.strangers < self._max_strangers and not self.full

    def admit_stranger(self, now: float) -> bool:
        """Count one more stranger and return True, or return False if there is no room for it now."""
        if now >= self._period_end:
            self._period_end = now + _PERIOD
            self._met = 0
        if not self.has_room or self._met >= 2 * self._max_strangers:
            return False
        self._met += 1
        return True

    def has_room_for(self, peer: Peer | None, cost: int) -> bool:
        """Return whether a peer can have headers and groups of so many bytes; None is a new peer."""
        before = peer.cost if peer is not None else 0
        return cost <= bounds.PEER and self.cost - before + cost <= bounds.PEERS

    def set_cost(self, peer: Peer, cost: int) -> None:
        """Note the bytes that the headers and groups of a peer take."""
        self.cost += cost - peer.cost
        peer.cost = cost

    def add(self, stranger: Peer) -> None:
        """Add a peer that has not greeted us."""
        self[stranger.key] = stranger
        self._by_endpoint[endpoint_of(stranger.endpoint)] = stranger
        self.strangers += 1

    def remove(self, peer: Peer) -> None:
        """Remove a peer."""
        del self[peer.key]
        self._forget_endpoint(peer)
        self.cost -= peer.cost
        if not peer.ready:
            self.strangers -= 1

    def at(self, endpoint: str) -> Peer | None:
        """Return the peer that has its mailbox at an endpoint."""
        return self._by_endpoint.get(endpoint_of(endpoint))

    def move(self, peer: Peer, endpoint: str) -> None:
        """Note another endpoint of a peer's mailbox."""
        self._forget_endpoint(peer)
        peer.move(endpoint)
        self._by_endpoint[endpoint_of(endpoint)] = peer

    def _forget_endpoint(self, peer: Peer) -> None:
        endpoint = endpoint_of(peer.endpoint)
        if self._by_endpoint.get(endpoint) is peer:
            del self._by_endpoint[endpoint]

    def make_ready(self, stranger: Peer) -> None:
        """Mark a stranger as ready: it has greeted us."""
        stranger.ready = True
        self.strangers -= 1

    def make_stranger(self, peer: Peer) -> None:
        """Mark a ready peer as a stranger that is in no groups: its session ended, and the next one begins."""
        peer.ready = False
        peer.groups = together(())
        self.strangers += 1

    def clear(self) -> None:
        """Remove all peers."""
        super().clear()
        self._by_endpoint.clear()
        self.strangers = 0
        self.cost = 0
