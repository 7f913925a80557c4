"""Rendezvous: how a node finds its peers where there are no beacons. It is an extension of ours, carried by ZRE.

`seeds` are the mailboxes to begin with, and `gossip` spreads the news of the others. Both are repeated in rounds: in
each of them the node greets the seeds and meets the required nodes that are not its peers, looks for peers that it
lost, and tells one of the peers that ask for gossip of all others. A node that needs none of these has no rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from zambezi.zre.agenda import NEVER
from zambezi.zre.dialect import Dialect, Frames
from zambezi.zre.gossip import Gossip, Telling
from zambezi.zre.outbox import Outbox
from zambezi.zre.outputs import Adopt, Connect, Disconnect
from zambezi.zre.peer import Peer
from zambezi.zre.seeds import Seed, Seeds
from zambezi.zre.timing import Timing


class Rendezvous:
    """The seeds, the gossip and the rounds of a node.

    The engine lends it three of its own actions: `greet` sends our HELLO to a peer, `locate` returns the contact to
    connect to for one that a peer named, and `discover` meets a node that was found.
    """

    def __init__(
        self,
        us: bytes,
        dialect: Dialect,
        peers: Mapping[bytes, Peer],
        out: Outbox,
        *,
        asks: bool,
        timing: Timing,
        greet: Callable[[Peer, float], None],
        locate: Callable[[bytes, str], str],
        discover: Callable[[UUID, str, float], None],
    ) -> None:
        self.seeds = Seeds()
        self.gossip = Gossip(peers, asks)
        self.deadline = NEVER  # of the next round
        self._required: dict[UUID, str] = {}  # the contacts of nodes that the program requires
        self._us = us
        self._dialect = dialect
        self._peers = peers
        self._out = out
        self._timing = timing
        self._greet = greet
        self._locate = locate
        self._discover = discover

    def start(self, now: float) -> None:
        """Begin with rounds, if this node asks for gossip."""
        if self.gossip.asks:
            self._expect_round(now)

    def stop(self) -> None:
        """Have no more rounds."""
        self.deadline = NEVER

    def clear(self) -> None:
        """Forget all seeds and required nodes, and which peers ask."""
        self.seeds.clear()
        self._required.clear()
        self.gossip.clear()

    # Seeds

    def add_seed(self, endpoint: str, now: float) -> None:
        """Greet the node that has its mailbox at an endpoint, now and whenever it is not a peer."""
        seed = self.seeds.add(endpoint)
        if seed is not None:
            self._expect_round(now)
            self._greet_seed(seed, now)

    def _greet_seed(self, seed: Seed, now: float) -> None:
        if seed.greeting is not None:
            self._out.append(Disconnect(seed.dealer))
        greeting = seed.greet(self._dialect, now)
        self._out.append(Connect(seed.dealer, seed.endpoint))
        self._greet(greeting, now)

    def reached(self, endpoint: str, identity: bytes, address: str) -> None:
        """Note that our DEALER to a seed has connected: the address, and the identity, if the mailbox gave it."""
        seed = self.seeds.get(endpoint)
        if seed is None or seed.greeting is None:
            return
        seed.reached(identity, address)
        if seed.answers == self._us or seed.answers in self._peers:
            self._settle(seed, seed.answers)

    def parted(self, key: bytes, now: float) -> None:
        """Greet the seeds whose node has gone, and in whose place another node answers."""
        for seed in self.seeds:
            if seed.key == key:
                self._greet_seed(seed, now)

    def met_otherwise(self, peer: Peer, endpoint: str, source: str) -> None:
        """Close the DEALERs to seeds that are a peer which we met by other means.

        The peer's HELLO named an endpoint, and came from the address `source`.
        """
        for seed in self.seeds.unmet if self.seeds else ():
            is_there = not seed.answers and seed.is_at(endpoint, source)
            if is_there or seed.answers == peer.key or seed.endpoint in (peer.endpoint, endpoint):
                self._settle(seed, peer.key)

    def _settle(self, seed: Seed, key: bytes) -> None:
        seed.settle(key)
        self._out.append(Disconnect(seed.dealer))

    def adopt(self, key: bytes, endpoint: str, source: str, now: float) -> Peer | None:
        """Return the peer for a HELLO that is the answer of a seed, with the seed's DEALER; None if it is not."""
        seed = self.seeds.answered(key, endpoint, source)
        if seed is None or seed.greeting is None:
            return None
        greeting = seed.greeting
        seed.settle(key)
        self._out.append(Adopt(seed.dealer, key))
        peer = Peer(key, seed.endpoint, self._dialect, now)
        peer.sent, peer.waiting = greeting.sent, greeting.waiting
        return peer

    # Required nodes

    def require(self, uuid: UUID, contact: str, now: float) -> None:
        """Meet a node that the program knows by other means, now and whenever it is not a peer."""
        self._required[uuid] = contact
        self._expect_round(now)
        self._discover(uuid, contact, now)

    def forget(self, uuid: UUID) -> None:
        """Look no more for a node that the program required, or that was lost."""
        self._required.pop(uuid, None)
        self.gossip.lost.forget(uuid.bytes)

    # Gossip

    def introduce(self, newcomer: Peer, now: float) -> None:
        """Spread the news of a peer that is ready now."""
        for telling in self.gossip.introduce(newcomer):
            self._tell(telling)
        if self.gossip.has_askers:
            self._expect_round(now)

    def receive_gossip(self, teller: Peer, content: Frames, now: float) -> None:
        """Meet the nodes of which a peer tells us."""
        for entry in self.gossip.receive(content):
            if entry.key not in self._peers and (contact := self._locate(teller.key, entry.endpoint)):
                self._discover(UUID(bytes=entry.key), contact, now)

    def _tell(self, telling: Telling) -> None:
        self._out.send_all(telling.peers, lambda dialect: dialect.whisper(0, telling.content))

    # Rounds

    def _expect_round(self, now: float) -> None:
        if self.deadline == NEVER:
            self.deadline = now + self._timing.expired

    def tick(self, now: float) -> None:
        """Do the work of a round, if one is due."""
        if now < self.deadline:
            return
        needed = self.gossip.asks or self.seeds or self._required or self.gossip.has_askers
        self.deadline = now + self._timing.expired if needed else NEVER
        for seed in self.seeds:
            if seed.greeting is not None or not (seed.key in self._peers or seed.key == self._us):
                self._greet_seed(seed, now)
        for uuid, contact in self._required.items():
            self._discover(uuid, contact, now)
        for entry in self.gossip.lost.next_round():
            self._discover(UUID(bytes=entry.key), entry.endpoint, now)
        for telling in self.gossip.tell_next_asker():
            self._tell(telling)
