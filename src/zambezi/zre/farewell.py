"""The farewell of a node: it waits until its peers have read its last messages, before it says goodbye.

A peer ignores everything that it has not read when the goodbye comes, and a goodbye by a beacon overtakes messages that
are in the peer's buffers. So the node sends a PING after its last message to each peer. The PING-OK shows that the peer
has read all messages before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zambezi.zre.outbox import Outbox
from zambezi.zre.peer import Peer


class Farewell:
    """The peers that have not read our last messages yet.

    `is_lost` returns whether our connection to a peer was lost. A connection that is still being made is not lost: a
    node can send to a peer as soon as the peer has greeted it.
    """

    def __init__(self, peers: Mapping[bytes, Peer], out: Outbox, is_lost: Callable[[bytes], bool]) -> None:
        self._peers = peers
        self._is_lost = is_lost
        self._waiting = [peer for peer in peers.values() if peer.sent != 1 and self._reads(peer)]
        for peer in self._waiting:
            out.ping(peer)

    def _reads(self, peer: Peer) -> bool:
        return self._peers.get(peer.key) is peer and peer.ready and not self._is_lost(peer.key)

    @property
    def is_over(self) -> bool:
        """Whether all peers that can read have read all messages."""
        waiting = self._waiting
        while waiting and not (waiting[-1].pings and self._reads(waiting[-1])):
            waiting.pop()
        return not waiting
