"""The lookout of a node: what it concludes from beacons.

A beacon proves nothing: any host can send one, with any UUID, from any address. In a mesh without keys it counts as
the word of the node that it names, as 36/ZRE says. In a mesh with keys only the encrypted connections count:

- A beacon can make us connect to a node that is not a peer, and no more. `Peers` bounds how many nodes, and how often.
- It never moves a peer, and is no sign of life. A peer says goodbye, moves and answers PINGs on its encrypted
  connections; a peer that does none of these expires.
- It never ends a peer whose mailbox is open. A beacon that says goodbye ends a peer only if our connection to the
  mailbox is down, or is lost within the next `evasive` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from zambezi.zre.beacon import Beacon
from zambezi.zre.contact import with_key
from zambezi.zre.counters import Counters
from zambezi.zre.departures import Departures
from zambezi.zre.peer import Peer
from zambezi.zre.timing import Timing


class Lookout:
    """Receives beacons for an engine, which lends its departures and four of its own actions.

    `meet` meets a node that we found, `replace` ends a peer and meets it elsewhere, `regreet` connects again to a node
    that has not answered, at another endpoint, and `depart` ends a peer that leaves, when its last messages are read.
    `is_connected` returns whether our connection to a peer is up. If nodes have keys of their own (`keyed`), only
    beacons with keys count, else only those without.
    """

    def __init__(
        self,
        us: bytes,
        peers: Mapping[bytes, Peer],
        counters: Counters,
        departures: Departures,
        *,
        encrypted: bool,
        keyed: bool,
        is_connected: Callable[[bytes], bool],
        timing: Timing,
        mailbox_at: Callable[[str, int], str],
        meet: Callable[[bytes, str, float], None],
        replace: Callable[[Peer, str, str, float], None],
        regreet: Callable[[Peer, str, float], None],
        depart: Callable[[Peer, float], None],
    ) -> None:
        self._us = us
        self._peers = peers
        self._counters = counters
        self._leaving: Collection[Peer] = departures.leaving
        self._encrypted = encrypted
        self._keyed = keyed
        self._is_connected = is_connected
        self._timing = timing
        self._mailbox_at = mailbox_at
        self._meet = meet
        self._replace = replace
        self._regreet = regreet
        self._depart = depart

    def receive(self, octets: bytes, address: str, now: float) -> bool:
        """Receive a datagram from an address; return whether it can have changed more than the peer's time.

        A node in a mesh of a thousand gets a thousand beacons in each interval, and nearly all say nothing new.
        """
        peer = self._peers.get(octets[4:20])
        leaves = peer in self._leaving
        if peer is not None and octets == peer.beacon and address == peer.address and not leaves:
            if not (self._encrypted and peer.ready):
                peer.hear(now)
            return False
        beacon = Beacon.decode(octets)
        if beacon is None:
            self._counters.bad_beacons += 1
        elif beacon.uuid.bytes == self._us:  # BCN-05
            return False
        elif bool(beacon.key) != self._keyed:
            self._counters.other_beacons += 1
        elif peer is None:
            if beacon.port:
                self._meet(beacon.uuid.bytes, self._contact_of(beacon, address), now)  # BCN-06
        elif self._encrypted:
            self._receive_unproved(peer, beacon, octets, address, now)
        elif not beacon.port:
            self._depart(peer, now)
        elif leaves:
            self._replace(peer, self._contact_of(beacon, address), "it left", now)  # and is back already
        else:
            return self._receive_known(peer, beacon, octets, address, now)
        return True

    def contact_by_beacon(self, peer: Peer) -> str:
        """Return the contact of a peer by its last beacon; the one that we know if it sent none."""
        beacon = Beacon.decode(peer.beacon)
        return self._contact_of(beacon, peer.address) if beacon is not None else peer.endpoint

    def _contact_of(self, beacon: Beacon, address: str) -> str:
        return with_key(self._mailbox_at(address, beacon.port), beacon.key)

    def _receive_known(self, peer: Peer, beacon: Beacon, octets: bytes, address: str, now: float) -> bool:
        """Receive a beacon of a peer; return what `receive` returns."""
        endpoint = self._contact_of(beacon, address)
        if peer.port not in (None, beacon.port):
            # Another mailbox: it restarted. But a beacon that was under way when it greeted us says nothing new.
            if now - peer.greeted >= self._timing.interval:
                self._replace(peer, endpoint, "it restarted", now)
                return True
        elif endpoint == peer.endpoint:
            _note(peer, octets, address, now)
        elif peer.waiting and now - peer.greeted >= self._timing.evasive:
            # It does not answer at the endpoint that we greeted, and is alive at this one: its address changed.
            self._replace(peer, endpoint, "it moved", now)
            return True
        elif not peer.address:
            # Its HELLO named an endpoint from which its beacons do not come.
            _note(peer, octets, address, now)
        # Otherwise the peer shares a second network with us. This beacon says nothing of the network on which we talk
        # to it: if that one is dead, the peer must expire, and be met again at an endpoint that we can reach.
        return False

    def _receive_unproved(self, peer: Peer, beacon: Beacon, octets: bytes, address: str, now: float) -> None:
        """Receive a beacon in a mesh with keys, in the name of a node that we know."""
        endpoint = self._contact_of(beacon, address)
        if beacon.port and endpoint == peer.endpoint:
            peer.beacon, peer.address = octets, address
            if not peer.ready:
                peer.hear(now)
        elif peer.ready:
            # A beacon with the port of its mailbox comes from a second network that the peer shares with us.
            self._counters.unproved_beacons += beacon.port not in (0, peer.port)
            if not beacon.port:
                self._receive_unproved_goodbye(peer, now)
        elif beacon.port and now - peer.greeted >= self._timing.evasive:
            # No node answered at the endpoint of the last beacon, which can have been forged: try this one.
            peer.beacon, peer.address = octets, address
            self._regreet(peer, endpoint, now)

    def _receive_unproved_goodbye(self, peer: Peer, now: float) -> None:
        """Let a peer go if its mailbox is closed, now or soon: Zyre has no other goodbye in a mesh with beacons."""
        peer.farewell = now + self._timing.evasive
        if not self._is_connected(peer.key):
            self._depart(peer, now)


def _note(peer: Peer, octets: bytes, address: str, now: float) -> None:
    peer.beacon, peer.address = octets, address
    peer.hear(now)
