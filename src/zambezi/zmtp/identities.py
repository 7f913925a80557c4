"""Peers by identity, for a ROUTER: the identity is the one that the peer claims, or one that the ROUTER assigns."""

from __future__ import annotations

import random
from collections.abc import Mapping

from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.peer import Peer

IN_USE = "the identity is in use by another connection"


class Identities:
    """The peers of a socket, each with an identity of its own.

    If a second peer claims an identity that is in use, it is refused, or, with `handover`, it gets the identity and the
    older connection is ended, unless that one proved another key (CURVE). With `by_user`, each user has identities of
    its own: two users can claim the same one, and neither takes over the identity of the other.
    """

    def __init__(self, chance: random.Random, handover: bool = False, by_user: bool = False) -> None:
        self.peers: dict[bytes, Peer] = {}  # with `by_user`, those without a user
        self._by_user = by_user
        self._users: dict[str, dict[bytes, Peer]] = {}
        self._handover = handover
        self._next = chance.getrandbits(32)

    def of(self, user: str) -> dict[bytes, Peer]:
        """Return the peers of a user, by identity. All peers are in one mapping unless `by_user` is set."""
        if not self._by_user or not user:
            return self.peers
        return self._users.get(user, {})

    def admit(self, properties: Mapping[str, bytes]) -> None:
        """Refuse a peer during its handshake if its identity is in use."""
        identity = properties.get("identity")
        if identity and identity in self.peers and not (self._handover or self._by_user):
            raise ProtocolError(IN_USE)

    def identify(self, peer: Peer, claimed: bytes) -> bool:
        """Assign a peer its identity; return False to refuse the peer."""
        identity = claimed
        if not identity:
            if peer.identity[:1] == b"\0":
                return True  # it keeps the identity that it was assigned the first time
            self._next = (self._next + 1) & 0xFFFFFFFF
            identity = b"\0" + self._next.to_bytes(4, "big")
        before = self.of(peer.user).get(identity)
        if before is not None and before is not peer:
            if not self._handover or before.key != peer.key:
                return False
            before.abort("its identity was taken over by a newer connection")
        peer.identity = identity
        return True

    def add(self, peer: Peer) -> None:
        """Route messages to the peer's identity to this peer."""
        if self._by_user and peer.user:
            self._users.setdefault(peer.user, {})[peer.identity] = peer
        else:
            self.peers[peer.identity] = peer

    def remove(self, peer: Peer) -> None:
        """Stop routing messages to this peer."""
        peers = self.of(peer.user)
        if peers.get(peer.identity) is peer:
            del peers[peer.identity]
            if not peers:
                self._users.pop(peer.user, None)
