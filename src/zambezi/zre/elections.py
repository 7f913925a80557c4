"""The elections of a node: one for each of its groups in which a member claims the lead. `election` has the rules.

ELECT, LEADER and GOODBYE are Zyre's, and 36/ZRE does not define them. A node sends them only to peers that have shown
that they know them: by a header in the HELLO (ours, or Zyre's public key), or by sending one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from zambezi.zre import events
from zambezi.zre.agenda import NEVER
from zambezi.zre.counters import Counters
from zambezi.zre.election import Election
from zambezi.zre.outbox import Outbox
from zambezi.zre.peer import Peer, Voting
from zambezi.zre.profile import Profile
from zambezi.zre.timing import Timing

_DIGITS: Final = 32  # of a UUID in ELECT and LEADER


class Elections:
    """The elections of a node. Each election waits `evasive` seconds for votes."""

    def __init__(
        self, us: bytes, profile: Profile, peers: Mapping[bytes, Peer], out: Outbox, counters: Counters, timing: Timing
    ) -> None:
        self._timing = timing
        self._us = us
        self._profile = profile
        self._peers = peers
        self._out = out
        self._counters = counters
        self._elections: dict[str, Election] = {}  # by group
        self._told: dict[str, bytes | None] = {}  # the leader of each group, as the program knows it

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called."""
        if not self._elections:  # nearly always, and the engine asks after every message
            return NEVER
        return min(election.deadline for election in self._elections.values())

    def tick(self, now: float) -> None:
        """End the elections that take too long."""
        for group, election in self._elections.items():
            if now >= election.deadline:
                election.tick(now)
                self._tell(group)

    def leader(self, group: str) -> UUID | None:
        """Return the leader of a group; None if there is none, or if this node is not in the group."""
        election = self._elections.get(group)
        return UUID(bytes=election.leader) if election is not None and election.leader is not None else None

    def contests(self, group: str) -> bool:
        """Return whether this node claims the lead of a group."""
        election = self._elections.get(group)
        return election is not None and election.is_contested_by_us

    # This node

    def contest(self, group: str) -> None:
        """Claim the lead of a group that this node is in."""
        self._election(group).contest()
        self._tell(group)

    def leave(self, group: str) -> None:
        """Forget the election of a group that this node has left."""
        self._elections.pop(group, None)
        self._told.pop(group, None)

    def clear(self) -> None:
        """Forget all elections."""
        self._elections.clear()
        self._told.clear()

    # Peers

    def greeted(self, peer: Peer) -> None:
        """Note the groups of a peer that has greeted us, perhaps again."""
        if self._elections and peer.voting is not Voting.NOT:
            for group in peer.groups & self._elections.keys():
                self.joined(peer, group)

    def joined(self, peer: Peer, group: str) -> None:
        """Note that a peer joined a group."""
        election = self._elections.get(group)
        if election is not None and peer.voting is not Voting.NOT:
            election.add(peer)
            self._tell(group)

    def left(self, peer: Peer, group: str) -> None:
        """Note that a peer left a group."""
        election = self._elections.get(group)
        if election is not None:
            election.remove(peer.key)
            self._tell(group)

    def ended(self, peer: Peer) -> None:
        """Note that a peer is gone."""
        for group in list(self._elections):
            self.left(peer, group)

    def receive_elect(self, peer: Peer, group: str, challenger: str) -> None:
        """Receive an ELECT."""
        self._receive(peer, group, challenger, Election.receive_elect)

    def receive_leader(self, peer: Peer, group: str, leader: str) -> None:
        """Receive a LEADER."""
        self._receive(peer, group, leader, Election.receive_leader)

    def _receive(self, peer: Peer, group: str, text: str, pass_on: Callable[[Election, Peer, bytes], None]) -> None:
        """Receive a command from a peer, which so shows that it knows elections."""
        candidate = _key_of(text)
        if candidate is None:
            self._counters.bad_messages += 1
            return
        is_new = peer.voting is Voting.NOT
        if is_new:
            peer.voting = Voting.RELAYING
        if group not in self._profile.groups or group not in peer.groups:
            self._counters.not_members += 1
        else:
            election = self._election(group)
            election.enlist(peer)
            pass_on(election, peer, candidate)
            if is_new and candidate not in (self._us, peer.key):
                election.add(peer)
            self._tell(group)
        if is_new:
            for other in (peer.groups & self._elections.keys()) - {group}:
                self.joined(peer, other)

    def _election(self, group: str) -> Election:
        election = self._elections.get(group)
        if election is None:
            voters = [
                peer
                for peer in self._peers.values()
                if peer.ready and group in peer.groups and peer.voting is not Voting.NOT
            ]

            def elect(voter: Peer, claimant: bytes) -> None:
                self._out.send(voter, voter.dialect.elect(0, group, claimant.hex().upper()))

            def lead(voter: Peer, claimant: bytes) -> None:
                self._out.send(voter, voter.dialect.leader(0, group, claimant.hex().upper()))

            election = self._elections[group] = Election(self._us, voters, self._timing.evasive, elect, lead)
        return election

    def _tell(self, group: str) -> None:
        """Tell the program if a group has another leader than before."""
        leader = self._elections[group].leader
        if leader != self._told.get(group):
            self._told[group] = leader
            if leader == self._us:
                self._out.append(events.Leader(UUID(bytes=leader), self._profile.name, group, True))
            elif leader is not None:
                peer = self._peers[leader]
                self._out.append(events.Leader(peer.uuid, peer.name, group, False))


def _key_of(text: str) -> bytes | None:
    """Return the key of a UUID in 32 hexadecimal digits, as Zyre writes it; None if it is something else."""
    try:
        return bytes.fromhex(text) if len(text) == _DIGITS else None
    except ValueError:
        return None
