"""Claims: newcomers at an endpoint that another peer has already. One endpoint has one peer.

A node that restarts often returns at its endpoint with a new UUID (Zyre does so by default). As long as we keep the
peer that was there, the new node is unreachable: both DEALERs have our identity, and at the other side the connection
of one replaces the connection of the other, again and again. So the old peer must go. But every host can claim the
endpoint of a live peer, by a beacon, by HELLO or by gossip, and a claim alone must part no peer. These decide:

- The identity that the mailbox at the endpoint gave to our own connection. If it is another node's, the peer ends at
  once. Nodes of ours give their identity, Zyre and Pyre do not.
- The peer's answer to a PING. If it answers, the claim is refused. The peer has `evasive` seconds; it has a fifth of
  that if its connections were lost since its last message, and the claim comes from the address of the endpoint.
- The address from which HELLO came. A peer whose connections were lost in both directions, or whose own HELLO came
  from elsewhere, gives way at once to a HELLO that comes from the address of the endpoint.

In a mesh with keys a beacon claims nothing. A peer that has not greeted us yet has `evasive` seconds to do so, but
gives way at once to a HELLO from the address of the endpoint.

A peer is tested without a claim, too: if its connections were lost, our DEALER has connected to its endpoint again, and
the mailbox there did not say which node it is.

While a test runs, the messages of a newcomer that has sent HELLO wait, so that its session is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from zambezi.zre.agenda import NEVER
from zambezi.zre.contact import host_of
from zambezi.zre.counters import Counters
from zambezi.zre.outbox import Outbox
from zambezi.zre.peer import Peer
from zambezi.zre.peers import Peers
from zambezi.zre.seeds import Seeds
from zambezi.zre.timing import Timing

_TESTS: Final = 1_000  # at a time
_HELD: Final = 64 * 1024  # bytes of a newcomer's messages that wait, and 64 for each message
_FIFTH: Final = 0.2


class Claim:
    """The test of a peer. `key` is the newcomer's, or empty if there is none."""

    __slots__ = ("deadline", "endpoint", "held", "holder", "key", "near", "size")

    def __init__(self, holder: Peer, deadline: float) -> None:
        self.holder = holder
        self.deadline = deadline
        self.key = b""
        self.endpoint = holder.endpoint
        self.near = False
        self.held: list[list[bytes]] = []
        self.size = 0


class Claims:
    """Decides about claims, for the meetings of a node.

    `connects_to_us` returns whether a peer has a connection to our mailbox, and `part` ends a peer whose endpoint is
    another node's now.
    """

    def __init__(
        self,
        peers: Peers,
        seeds: Seeds,
        out: Outbox,
        counters: Counters,
        *,
        encrypted: bool,
        timing: Timing,
        connects_to_us: Callable[[bytes], bool],
        part: Callable[[Peer, float], None],
    ) -> None:
        self.deadline = NEVER  # of the next test that ends
        self.tests: dict[bytes, Claim] = {}  # by the key of the peer that is tested
        self._peers = peers
        self._seeds = seeds
        self._out = out
        self._counters = counters
        self._encrypted = encrypted
        self._timing = timing
        self._connects_to_us = connects_to_us
        self._part = part

    # Claims

    def by_beacon(self, key: bytes, endpoint: str, now: float) -> bool:
        """Return whether a node can have the endpoint that its beacon names; test the peer that has it."""
        holder = self._holder(key, endpoint, host_of(endpoint))
        if holder is None:
            return True
        if self._encrypted and holder.ready:
            return False
        return self._settle(holder, key, endpoint, now, near=True, greeting=None)

    def by_hearsay(self, key: bytes, endpoint: str, now: float) -> bool:
        """Return whether a node can have the endpoint that another node named; test the peer that has it."""
        holder = self._holder(key, endpoint, "")
        return holder is None or self._settle(holder, key, endpoint, now, near=False, greeting=None)

    def by_hello(self, key: bytes, endpoint: str, source: str, frames: list[bytes], now: float) -> bool:
        """Return whether a node can have the endpoint in its HELLO, which came from an address; or keep the HELLO."""
        holder = self._holder(key, endpoint, source)
        if holder is None:
            return True
        return self._settle(holder, key, endpoint, now, near=source == host_of(endpoint), greeting=frames)

    def _holder(self, key: bytes, endpoint: str, source: str) -> Peer | None:
        """Return the other peer that has an endpoint. A seed can have it under the name of its host."""
        peer = self._peers.at(endpoint)
        if peer is None and self._seeds:
            seed = next((seed for seed in self._seeds if seed.key and seed.is_at(endpoint, source)), None)
            peer = self._peers.get(seed.key) if seed is not None and seed.key else None
        return None if peer is None or peer.key == key else peer

    def _settle(
        self, holder: Peer, key: bytes, endpoint: str, now: float, near: bool, greeting: list[bytes] | None
    ) -> bool:
        if self._gives_way(holder, near and greeting is not None, now):
            self._forget(holder)
            self._part(holder, now)
            return True
        claim = self.tests.get(holder.key) or self._begin(holder, now)
        if claim is None:
            self._counters.refused_claims += 1
            return False
        if not claim.held or claim.key == key:
            if claim.key != key:
                claim.key, claim.endpoint, claim.near = key, endpoint, False
            claim.near = claim.near or near
            if greeting is not None:
                claim.held.clear()
                claim.size = 0
                self._hold(claim, greeting)
            if near and holder.ready and self._is_lost(holder):
                self._shorten(claim, now)
        return False

    def _gives_way(self, holder: Peer, greets_from_there: bool, now: float) -> bool:
        if holder.ready:
            return greets_from_there and (not holder.near or self._is_lost(holder))
        return greets_from_there or now - holder.greeted >= self._timing.evasive

    def _is_lost(self, peer: Peer) -> bool:
        """Return whether the connections to and from a peer were lost, and it has given no sign of life since."""
        return peer.lost >= peer.heard and not self._connects_to_us(peer.key)

    # Tests

    def _begin(self, holder: Peer, now: float) -> Claim | None:
        """Begin a test, but not more often than a peer is tested by its silence."""
        if len(self.tests) >= _TESTS or now - holder.tested < self._timing.evasive * _FIFTH:
            return None
        holder.tested = now
        if holder.ready:
            self._out.ping(holder)
        return self._add(Claim(holder, (now if holder.ready else holder.greeted) + self._timing.evasive))

    def _add(self, claim: Claim) -> Claim:
        self.tests[claim.holder.key] = claim
        self.deadline = min(self.deadline, claim.deadline)
        return claim

    def _shorten(self, claim: Claim, now: float) -> None:
        claim.deadline = min(claim.deadline, now + self._timing.evasive * _FIFTH)
        self.deadline = min(self.deadline, claim.deadline)

    def connection_lost(self, peer: Peer, now: float) -> None:
        """Note that our connection to a peer was lost; it has less time if it is tested."""
        claim = self.tests.get(peer.key)
        if claim is not None and claim.near:
            self._shorten(claim, now)

    def reached_again(self, peer: Peer, now: float) -> None:
        """Test a peer whose mailbox can be another node's: our DEALER has connected again, and was told no identity."""
        if peer.ready and self._is_lost(peer) and len(self.tests) < _TESTS:
            # The PING is under way: it was queued when the connection was lost.
            self._shorten(self.tests.get(peer.key) or self._add(Claim(peer, NEVER)), now)

    def passed(self, peer: Peer) -> None:
        """End the test of a peer that gave a sign of life: the claim to its endpoint is refused."""
        claim = self.tests.get(peer.key)
        if claim is not None and claim.deadline > 0:
            self._counters.refused_claims += bool(claim.key)
            self._forget(peer)

    def left(self, peer: Peer) -> None:
        """End the test of a peer that is gone with the next `due`: the newcomer can have its endpoint."""
        claim = self.tests.get(peer.key)
        if claim is not None:
            claim.deadline = 0.0
            self.deadline = 0.0

    def hold(self, key: bytes, frames: list[bytes]) -> None:
        """Keep a message of a newcomer whose HELLO is kept; if there are too many, keep none."""
        claim = next((claim for claim in self.tests.values() if claim.key == key and claim.held), None)
        if claim is not None:
            self._hold(claim, frames)

    def _hold(self, claim: Claim, frames: list[bytes]) -> None:
        claim.size += sum(map(len, frames)) + 64
        if claim.size > _HELD:
            claim.held.clear()
        else:
            claim.held.append(frames)

    def due(self, now: float) -> Iterator[Claim]:
        """Yield the claims whose tests have ended without an answer, and part the peers that were tested."""
        if now < self.deadline:
            return
        ended = [claim for claim in self.tests.values() if claim.deadline <= now]
        for claim in ended:
            del self.tests[claim.holder.key]
        self._set_deadline()
        for claim in ended:
            if self._peers.get(claim.holder.key) is claim.holder:
                self._part(claim.holder, now)
            yield claim

    def _forget(self, peer: Peer) -> None:
        if self.tests.pop(peer.key, None) is not None:
            self._set_deadline()

    def clear(self) -> None:
        """Forget all claims."""
        self.tests.clear()
        self.deadline = NEVER

    def _set_deadline(self) -> None:
        self.deadline = min((claim.deadline for claim in self.tests.values()), default=NEVER)
