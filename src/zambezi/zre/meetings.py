"""Meetings of a node with its peers: how a node meets, greets and ends them.

A peer begins as a stranger: a DEALER to its mailbox, with our HELLO in it. It ends with its DEALER, and the program is
told if the peer was ready. `engine` decides when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from zambezi.zre import events
from zambezi.zre.agenda import NEVER, Agenda
from zambezi.zre.claims import Claims
from zambezi.zre.contact import PUBLIC_KEY, host_of
from zambezi.zre.contact import key_of as contact_key
from zambezi.zre.counters import Counters
from zambezi.zre.departures import Departures
from zambezi.zre.dialect import Dialect, Greeting
from zambezi.zre.elections import Elections
from zambezi.zre.outbox import Outbox
from zambezi.zre.outputs import Connect, Disconnect, Send
from zambezi.zre.peer import Peer
from zambezi.zre.peers import Peers
from zambezi.zre.profile import Profile
from zambezi.zre.reach import Reach
from zambezi.zre.rendezvous import Rendezvous
from zambezi.zre.timing import Timing

_DOUBLINGS: Final = 10  # of the time that a peer has for its answer


class Meetings:
    """Meets, greets and ends the peers of a node. The arguments are those of `Engine`, and parts of it."""

    def __init__(
        self,
        us: bytes,
        profile: Profile,
        dialect: Dialect,
        peers: Peers,
        out: Outbox,
        counters: Counters,
        elections: Elections,
        *,
        endpoint_for: Callable[[str], str],
        connects_to_us: Callable[[bytes], bool],
        has_unread: Callable[[bytes], bool],
        source_of: Callable[[bytes], str],
        reach: Reach | None,
        key_of: Callable[[bytes], bytes] | None,
        encrypted: bool,
        gossip: bool,
        timing: Timing,
    ) -> None:
        self.peers = peers
        self.elections = elections
        self.agenda = Agenda(peers)
        self.rendezvous = Rendezvous(
            us,
            dialect,
            peers,
            out,
            asks=gossip,
            timing=timing,
            greet=self.greet,
            locate=self.locate,
            discover=self.discover,
        )
        self.claims = Claims(
            peers,
            self.rendezvous.seeds,
            out,
            counters,
            encrypted=encrypted,
            timing=timing,
            connects_to_us=connects_to_us,
            part=self.part,
        )
        self.departures = Departures(timing, connects_to_us, has_unread)
        self._us = us
        self._profile = profile
        self._timing = timing
        self._dialect = dialect
        self._out = out
        self._counters = counters
        self._endpoint_for = endpoint_for
        self._source_of = source_of
        self._reach = reach or Reach()
        self._key_of = key_of

    def discover(self, uuid: UUID, endpoint: str, now: float) -> None:
        """Meet a node that was found by other means than a beacon."""
        key = uuid.bytes
        known = key in self.peers or key == self._us or self.rendezvous.seeds.awaits(key, endpoint)
        if not known and self.claims.by_hearsay(key, endpoint, now):
            self.meet_stranger(key, endpoint, now)

    def meet_beacon(self, key: bytes, endpoint: str, now: float) -> None:
        """Meet a node that was found by its beacon."""
        awaited = self.rendezvous.seeds.awaits(key, endpoint, since=now - self._timing.evasive)
        if not awaited and self.claims.by_beacon(key, endpoint, now):
            self.meet_stranger(key, endpoint, now)

    def told(self, uuid: UUID, contact: str, source: str, now: float) -> None:
        """Meet a node of which a program at the address `source` told us by zgossip."""
        if uuid.bytes in self.peers or uuid.bytes == self._us:
            return
        if not self.peers.has_room:
            self._counters.refused_strangers += 1  # before the work that a flood of tuples would cause
        elif located := self._located(contact, source):
            self.discover(uuid, located, now)

    def meet_stranger(self, key: bytes, endpoint: str, now: float) -> None:
        """Meet a node that we found, if its key is allowed and there is room for one more."""
        if not self._reach.allows(endpoint):
            self._counters.refused_keys += 1
        elif self.peers.admit_stranger(now):
            self.meet(key, endpoint, now)
        else:
            self._counters.refused_strangers += 1

    def meet(self, key: bytes, endpoint: str, now: float, dialect: Dialect | None = None) -> Peer:
        """Add a peer, connect to it and greet it."""
        peer = Peer(key, endpoint, dialect or self._dialect, now)
        self.peers.add(peer)
        self._out.append(Connect(key, endpoint))
        self.greet(peer, now)
        self.schedule(peer, now)
        return peer

    def greet(self, peer: Peer, now: float) -> None:
        """Send our HELLO to a peer."""
        peer.sent = 1
        peer.waiting += 1
        peer.greeted = now
        # Longer after each attempt: if every node of a busy machine greeted all others again and again, none would come
        # to the answers.
        patience = self._timing.evasive * 2 ** min(peer.attempts, _DOUBLINGS)
        peer.overdue = now + min(patience, self._timing.expired)
        mailbox = self._endpoint_for(host_of(peer.endpoint))
        hello = self._profile.hello(mailbox, peer.dialect, self.rendezvous.gossip.headers(mailbox))
        self._out.append(Send(peer.key, hello))  # HEL-01

    def greet_afresh(self, peer: Peer, endpoint: str, now: float) -> None:
        """Greet a peer on a new connection, to the endpoint that it had or to another one."""
        self.peers.move(peer, endpoint)
        self._out.append(Disconnect(peer.key))
        self._out.append(Connect(peer.key, peer.endpoint))
        if peer.waiting:
            peer.expected = now + self._timing.expired  # the HELLO on the old connection can have an answer, too
        peer.waiting = 0
        peer.attempts += 1
        self.greet(peer, now)
        peer.doubtful = peer.ready
        if peer.ready:
            # It can have lost its session with us. Then our HELLO is an answer for it, and it answers only this.
            peer.pings = 0  # those on the old connection do not count any more
            self._out.ping(peer)

    def regreet_stranger(self, peer: Peer, endpoint: str, now: float) -> None:
        """Greet a peer that has not answered at another endpoint, if the key there is allowed."""
        if self._reach.allows(endpoint):
            self.greet_afresh(peer, endpoint, now)
        else:
            self._counters.refused_keys += 1

    def end(self, peer: Peer, reason: str) -> None:
        """End a peer. The program is told only if it was told of the peer before."""
        if self.claims.tests:
            self.claims.passed(peer)
        self.departures.forget(peer)
        self.peers.remove(peer)
        self.rendezvous.gossip.part(peer)
        self._out.append(Disconnect(peer.key))
        if peer.ready:
            self._out.append(events.Exit(peer.uuid, peer.name, reason))
            self.elections.ended(peer)

    def replace(self, peer: Peer, endpoint: str, reason: str, now: float) -> None:
        """End a peer, and meet it at another endpoint."""
        if self.claims.by_beacon(peer.key, endpoint, now):
            self.end(peer, reason)
            self.meet(peer.key, endpoint, now)

    def part(self, peer: Peer, now: float) -> None:
        """End a peer whose endpoint is another node's now."""
        self.end(peer, "another node has its endpoint now")
        self.rendezvous.gossip.left(peer)
        self.rendezvous.parted(peer.key, now)

    def let_go(self, peer: Peer) -> None:
        """End a peer that leaves. (BCN-07)"""
        self.claims.left(peer)
        self.end(peer, "it left")
        self.rendezvous.gossip.left(peer)

    def depart(self, peer: Peer, now: float) -> None:
        """End a peer that said goodbye by a beacon, when its last messages are read. (BCN-07)"""
        if not self.departures.begin(peer, now):
            self.let_go(peer)

    def end_refused(self) -> None:
        """End the peers whose keys the operator does not allow any more."""
        for peer in [peer for peer in self.peers.values() if not self._reach.allows(peer.endpoint)]:
            self.end(peer, "its key is no longer allowed")

    def expire(self, peer: Peer) -> None:
        """End a peer that was silent for too long. (PING-02)"""
        self.claims.left(peer)
        self.end(peer, f"silent for {self._timing.expired:g} s")

    def unresponsive(self, key: bytes) -> None:
        """End a peer because the queue of its DEALER is full, and it reads nothing. (MBX-05)"""
        peer = self.peers.get(key)
        if peer is not None:
            self.end(peer, "it does not respond: its queue is full, and it does not read")

    def unreachable(self, key: bytes) -> None:
        """End a peer whose HELLO named an endpoint to which nothing can connect."""
        self._counters.bad_messages += 1
        peer = self.peers.get(key)
        if peer is not None:
            self.end(peer, f"we cannot connect to its endpoint {peer.endpoint!r}")

    def connection_lost(self, key: bytes, now: float) -> None:
        """Send a PING to a peer to whose mailbox the connection was lost; it goes out on the next connection.

        Our last message can be lost with the old connection. No gap would show that, but the PING does. If a beacon
        said that the peer leaves, the peer has left.
        """
        peer = self.peers.get(key)
        if peer is not None and peer.ready:
            if now < peer.farewell:
                self.depart(peer, now)
                return
            self._out.ping(peer)  # SEQ-02
            peer.lost = now
            self.claims.connection_lost(peer, now)

    def reached(self, key: bytes, identity: bytes, now: float) -> None:
        """Note the identity that the mailbox at the other end of our DEALER to a peer gave, if it gave one."""
        peer = self.peers.get(key)
        other = identity[1:] if len(identity) == 17 and identity[0] == 1 else b""
        if peer is None or other == key:
            return
        if other:
            self.part(peer, now)
            self.discover(UUID(bytes=other), peer.endpoint, now)
        else:
            self.claims.reached_again(peer, now)

    def locate(self, key: bytes, contact: str) -> str:
        """Return the contact to connect to for one that a peer named; empty, and counted, if it is refused."""
        return self._located(contact, self._source_of(key))

    def _located(self, contact: str, source: str) -> str:
        located = self._reach.locate(contact, source)
        self._counters.refused_endpoints += not located
        return located

    def locate_greeter(self, key: bytes, greeting: Greeting, source: str) -> str:
        """Return the contact of the sender of a HELLO, which came from an address; empty, and counted, if refused.

        If nodes have keys of their own, the header must name the key that the sender's connection has proved.
        """
        if self._key_of is None:
            return self._located(greeting.endpoint, source)
        contact = f"{greeting.endpoint}|{greeting.headers.get(PUBLIC_KEY, '')}"
        if not self._key_of(key) or contact_key(contact) != self._key_of(key):
            self._counters.refused_keys += 1
            return ""
        return self._located(contact, source)

    def schedule(self, peer: Peer, now: float) -> None:
        """Set the time at which we look at a peer again: for a PING, another HELLO, or its end."""
        wanted = peer.heard + self._timing.evasive * (peer.evasive + 1) if peer.ready else NEVER
        if peer.overdue != NEVER:
            wanted = min(wanted, peer.overdue if peer.overdue > now else now + self._timing.evasive)
        self.agenda.set(peer, max(min(wanted, peer.heard + self._timing.expired), now + 1e-3))

    def greeted_peers(self) -> Collection[Peer]:
        """Return all peers that we greeted, and the seeds that have not answered yet."""
        seeds = self.rendezvous.seeds
        return (*self.peers.values(), *seeds.greetings) if seeds else self.peers.values()
