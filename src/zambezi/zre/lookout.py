"""The lookout of a node: what it concludes from beacons.

A beacon proves nothing: any host can send one, with any UUID, from any address. In a mesh without keys it counts as
the word of the node that it names, as 36/ZRE says. In a mesh with keys only the encrypted connections count:

- A beacon can make us connect to a node that is not a peer, and no more. `Peers` bounds how many nodes, and how often.
- It never ends a peer, never moves it, and is no sign of life. A peer says goodbye, moves and answers PINGs on its
  encrypted connections; a peer that does none of these expires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zambezi.zre.beacon import Beacon
from zambezi.zre.counters import Counters
from zambezi.zre.peer import Peer


class Lookout:
    """Receives beacons for an engine, which lends four of its own actions.

    `meet` meets a node that we found, `replace` ends a peer and meets it elsewhere, `regreet` connects again to a node
    that has not answered, at another endpoint, and `let_go` ends a peer that leaves.
    """

    def __init__(
        self,
        us: bytes,
        peers: Mapping[bytes, Peer],
        counters: Counters,
        *,
        encrypted: bool,
        interval: float,
        evasive: float,
        mailbox_at: Callable[[str, int], str],
        meet: Callable[[bytes, str, float], None],
        replace: Callable[[Peer, str, str, float], None],
        regreet: Callable[[Peer, str, float], None],
        let_go: Callable[[Peer], None],
    ) -> None:
        self._us = us
        self._peers = peers
        self._counters = counters
        self._encrypted = encrypted
        self._interval = interval
        self._evasive = evasive
        self._mailbox_at = mailbox_at
        self._meet = meet
        self._replace = replace
        self._regreet = regreet
        self._let_go = let_go

    def receive(self, octets: bytes, address: str, now: float) -> None:
        """Receive a datagram from an address."""
        peer = self._peers.get(octets[4:20])
        if peer is not None and octets == peer.beacon and address == peer.address:
            if not (self._encrypted and peer.ready):
                peer.hear(now)  # nothing new, like most beacons
            return
        beacon = Beacon.decode(octets)
        if beacon is None:
            self._counters.bad_beacons += 1
        elif beacon.uuid.bytes == self._us:  # BCN-05
            return
        elif peer is None:
            if beacon.port:
                self._meet(beacon.uuid.bytes, self._mailbox_at(address, beacon.port), now)  # BCN-06
        elif self._encrypted:
            self._receive_unproved(peer, beacon, octets, address, now)
        elif not beacon.port:
            self._let_go(peer)
        else:
            self._receive_known(peer, beacon, octets, address, now)

    def _receive_known(self, peer: Peer, beacon: Beacon, octets: bytes, address: str, now: float) -> None:
        endpoint = self._mailbox_at(address, beacon.port)
        if peer.port not in (None, beacon.port):
            # Another mailbox: it restarted. But a beacon that was under way when it greeted us says nothing new.
            if now - peer.greeted >= self._interval:
                self._replace(peer, endpoint, "it restarted", now)
        elif endpoint == peer.endpoint:
            _note(peer, octets, address, now)
        elif peer.waiting and now - peer.greeted >= self._evasive:
            # It does not answer at the endpoint that we greeted, and is alive at this one: its address changed.
            self._replace(peer, endpoint, "it moved", now)
        elif not peer.address:
            # Its HELLO named an endpoint from which its beacons do not come.
            _note(peer, octets, address, now)
        # Otherwise the peer shares a second network with us. This beacon says nothing of the network on which we talk
        # to it: if that one is dead, the peer must expire, and be met again at an endpoint that we can reach.

    def _receive_unproved(self, peer: Peer, beacon: Beacon, octets: bytes, address: str, now: float) -> None:
        """Receive a beacon in a mesh with keys, in the name of a node that we know."""
        endpoint = self._mailbox_at(address, beacon.port)
        if beacon.port and endpoint == peer.endpoint:
            peer.beacon, peer.address = octets, address
            if not peer.ready:
                peer.hear(now)
        elif peer.ready:
            # A beacon with the port of its mailbox comes from a second network that the peer shares with us.
            self._counters.unproved_beacons += beacon.port != peer.port
        elif beacon.port and now - peer.greeted >= self._evasive:
            # No node answered at the endpoint of the last beacon, which can have been forged: try this one.
            peer.beacon, peer.address = octets, address
            self._regreet(peer, endpoint, now)


def _note(peer: Peer, octets: bytes, address: str, now: float) -> None:
    peer.beacon, peer.address = octets, address
    peer.hear(now)
