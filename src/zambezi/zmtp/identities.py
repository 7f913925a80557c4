"""Peers by identity, for a ROUTER: the identity is the one that the peer claims, or one that the ROUTER assigns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.peer import Peer

IN_USE = "the identity is in use by another connection"


class Identities:
    """The peers of a socket, each with an identity of its own.

    If a second peer claims an identity that is in use, it is refused, or, with `handover`, it gets the identity and the
    older connection is ended. `may_take` can forbid that for a pair of an old and a new peer.
    """

    def __init__(
        self,
        chance: random.Random,
        handover: bool = False,
        may_take: Callable[[Peer, Peer], bool] = lambda _old, _new: True,
    ) -> None:
        self.peers: dict[bytes, Peer] = {}
        self._handover = handover
        self._may_take = may_take
        self._next = chance.getrandbits(32)

    def admit(self, properties: Mapping[str, bytes]) -> None:
        """Refuse a peer during its handshake if its identity is in use."""
        identity = properties.get("identity")
        if identity and identity in self.peers and not self._handover:
            raise ProtocolError(IN_USE)

    def identify(self, peer: Peer, claimed: bytes) -> bool:
        """Assign a peer its identity; return False to refuse the peer."""
        identity = claimed
        if not identity:
            if peer.identity[:1] == b"\0":
                return True  # it keeps the identity that it was assigned the first time
            self._next = (self._next + 1) & 0xFFFFFFFF
            identity = b"\0" + self._next.to_bytes(4, "big")
        before = self.peers.get(identity)
        if before is not None and before is not peer:
            if not self._handover or not self._may_take(before, peer):
                return False
            before.abort("its identity was taken over by a newer connection")
        peer.identity = identity
        return True

    def add(self, peer: Peer) -> None:
        """Route messages to the peer's identity to this peer."""
        self.peers[peer.identity] = peer

    def remove(self, peer: Peer) -> None:
        """Stop routing messages to this peer."""
        if self.peers.get(peer.identity) is peer:
            del self.peers[peer.identity]
