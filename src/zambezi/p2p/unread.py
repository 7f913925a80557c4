"""The queues of peers that have left, whose messages the program can still receive.

By the letter of 51/P2P a socket keeps no such queue: when a peer that connected to it disconnects, the socket "SHALL
destroy its double queue and SHALL discard any messages it contains". libzmq keeps the incoming messages. `keep_unread`
makes a socket do the same, and this class bounds the memory for them.

The bound is needed because the bound of each queue does not help: a stranger can connect, fill its queue, disconnect,
and begin again. So all kept queues share one bound. If they exceed it, the socket discards the longest queue first, and
the oldest among queues of about the same length. Then a stranger with a long queue cannot displace the last words of
other peers. The last queue is never discarded: it is bounded already, as the queue of a connected peer.
"""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp.options import Bound
from zambezi.zmtp.peer import Peer


@dataclass(frozen=True, slots=True)
class _Kept:
    routing_id: int
    messages: int
    octets: int
    rank: int


class Unread:
    """The peers whose queues are kept, with the sizes that the queues had when the peers left."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self._kept: dict[Peer, _Kept] = {}
        self._ids: set[int] = set()
        # The peers by the logarithm of their queue's length. So a search for a long queue takes the same time for any
        # number of peers.
        self._ranks: dict[int, dict[Peer, None]] = {}
        self._messages = 0
        self._octets = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, routing_id: int) -> bool:
        return routing_id in self._ids

    def keep(self, peer: Peer, routing_id: int, messages: int, octets: int) -> list[Peer]:
        """Keep the queue of a peer that has left; return the peers whose queues must be discarded now."""
        # Both bounds count alike: half of the messages are as long as half of the bytes.
        rank = (messages * self.bound.octets + octets * self.bound.messages).bit_length()
        self._kept[peer] = _Kept(routing_id, messages, octets, rank)
        self._ids.add(routing_id)
        self._ranks.setdefault(rank, {})[peer] = None
        self._messages += messages
        self._octets += octets
        discarded = []
        while len(self._kept) > 1 and (self._messages > self.bound.messages or self._octets > self.bound.octets):
            longest = next(iter(self._ranks[max(self._ranks)]))
            self.forget(longest)
            discarded.append(longest)
        return discarded

    def forget(self, peer: Peer) -> None:
        """Forget a queue that was received whole, or discarded."""
        kept = self._kept.pop(peer, None)
        if kept is None:
            return
        self._ids.discard(kept.routing_id)
        del self._ranks[kept.rank][peer]
        if not self._ranks[kept.rank]:
            del self._ranks[kept.rank]
        self._messages -= kept.messages
        self._octets -= kept.octets
