"""The election of the leader of one group, without I/O: the rules of one member, in Zyre's two commands.

A member that contests sends ELECT with its own UUID to the others: its claim. The lowest claim wins. A member supports
the lowest claim that it knows, by an ELECT with that UUID to the claimant: its vote. A claimant that has all votes
sends LEADER with its UUID. Each claim is remembered, so that the next one takes over when a claimant leaves or dies.

Two kinds of members know these commands, see `Voting`. Zambezi nodes do what is written above. A Zyre node also relays:
it sends the claim that it supports to all members, and votes only when all of them have sent it back; it then relays
LEADER in the same way. It *counts* both, and does not look who sent them. So a Zyre node gets one ELECT for each ELECT
of its own, and one LEADER for each LEADER of its own, and never more: an ELECT too many begins an election anew, and a
LEADER too many aborts the release 2.0.1. That is why a member answers relays, and relays nothing by itself. The mesh is
full: a claimant reaches all members without relays, and only its own word counts here. No node can make another one
the leader.

A Zyre node begins its election anew with each member that comes, and cannot tell an answer to the old one from an
answer to the new one. So a member answers Zyre nodes after a short pause, once.

An election ends in any case. A claimant that does not get all votes in its time leads without them: a lower claim would
have reached it. A claimant that sends no LEADER for some time gets our vote again: among Zyre nodes votes get lost when
an election begins anew, and one that is counted twice makes up for that. If that does not help either, its claim is set
aside, if there is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from zambezi.zre.agenda import NEVER
from zambezi.zre.peer import Peer, Voting

# The pause before Zyre nodes are answered, and before a claim goes to all, as a part of `patience`: 0.1 s.
_PAUSE: Final = 0.02
_SOON: Final = float("-inf")


class Election:
    """The election of one group, as the member `us` sees it.

    `elect` and `lead` send ELECT and LEADER with the key of a claimant to a voter. `leader` is the key of the leader,
    or None while there is none. `tick` must be called at the `deadline`: time enters by it alone.
    """

    def __init__(
        self,
        us: bytes,
        voters: Iterable[Peer],
        patience: float,
        elect: Callable[[Peer, bytes], None],
        lead: Callable[[Peer, bytes], None],
    ) -> None:
        self.leader: bytes | None = None
        self._us = us
        self._patience = patience
        self._elect = elect
        self._lead = lead
        self._voters = {voter.key: voter for voter in voters}
        self._claims: set[bytes] = set()
        self._overdue: set[bytes] = set()  # the claims that are set aside
        self._declared: set[bytes] = set()  # the claimants that sent LEADER
        self._best: bytes | None = None  # the claim that we support
        self._awaited: set[bytes] = set()  # the voters whose vote for us we wait for
        self._hailed: set[bytes] = set()  # the voters that got our LEADER in their present election
        self._relayed: dict[bytes, bytes] = {}  # the claims that relaying voters support
        self._owed: dict[bytes, bytes] = {}  # the claims in the ELECTs that voters get after the pause
        self._end = NEVER  # when this election has taken too long
        self._is_reminded = False  # whether the claimant that we support got our vote again
        self._pause_end = NEVER

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called."""
        return min(self._end, self._pause_end)

    @property
    def is_contested_by_us(self) -> bool:
        """Whether this node claims the lead."""
        return self._us in self._claims

    # This node

    def contest(self) -> None:
        """Claim the lead for this node."""
        if self._us in self._claims:
            return
        self._claims.add(self._us)
        self._choose()
        if self._best != self._us:
            # The claim counts when the lower ones are gone. A Zyre node would begin an election with it.
            for voter in self._voters.values():
                if voter.voting is Voting.DIRECT:
                    self._elect(voter, self._us)

    def tick(self, now: float) -> None:
        """Send the ELECTs that are owed when the pause is over, and end an election that takes too long."""
        if self._pause_end == _SOON:
            self._pause_end = now + self._patience * _PAUSE
        elif now >= self._pause_end:
            self._pay()
        if self._end == _SOON:
            self._end = now + self._patience
        elif now >= self._end:
            self._give_up()

    def _give_up(self) -> None:
        self._end = NEVER
        if self._best == self._us:
            self._declare()
        elif self._best is not None:
            if self._is_reminded and self._set_aside(self._best):
                return
            self._is_reminded = True
            self._vote(self._voters[self._best])
            self._end = _SOON

    def _set_aside(self, claimant: bytes) -> bool:
        """Support the next claim; return False if there is none."""
        # If one Zyre node cannot end its election, the others cannot either.
        relaying = {key for key in self._claims if key != self._us and self._voters[key].voting is Voting.RELAYING}
        for aside in (relaying | {claimant}, {claimant}):
            if self._claims - self._overdue - aside:
                self._overdue |= aside
                self._choose()
                return True
        return False

    # The other members

    def add(self, voter: Peer) -> None:
        """Note a member that has come, has greeted us again, or has shown that it knows elections."""
        self.enlist(voter)
        self._awaited.discard(voter.key)
        self._hailed.discard(voter.key)
        if self._best == self._us:
            self._ask(voter)
        elif self._us in self._claims and voter.voting is Voting.DIRECT:
            self._elect(voter, self._us)

    def enlist(self, voter: Peer) -> None:
        """Note a member, and tell it nothing yet."""
        self._voters[voter.key] = voter

    def remove(self, key: bytes) -> None:
        """Forget a member that has left the group or the mesh."""
        if self._voters.pop(key, None) is None:
            return
        self._awaited.discard(key)
        self._hailed.discard(key)
        self._owed.pop(key, None)
        self._relayed.pop(key, None)
        self._declared.discard(key)
        self._overdue.discard(key)
        self._claims.discard(key)
        if key == self._best:
            self._choose()
        if self._best == self._us and not self._voters:
            self._declare()  # all others are gone
        self._count()

    def receive_elect(self, voter: Peer, challenger: bytes) -> None:
        """Receive an ELECT: the claim of its sender, a vote for us, or a relayed claim."""
        if challenger == voter.key:
            self._receive_claim(voter)
            return
        if voter.voting is Voting.RELAYING:
            self._withdraw(voter.key)
        if challenger == self._us:
            self._receive_vote(voter)
        elif voter.voting is Voting.RELAYING:
            self._relayed[voter.key] = challenger
            if challenger == self._best:
                self._owe(voter, challenger)
            elif self._best == self._us:
                self._ask(voter)

    def _withdraw(self, key: bytes) -> None:
        """Forget the claim of a Zyre node that supports another one, even a higher one: it claims again if it wants."""
        if key in self._claims:
            self._claims.discard(key)
            self._declared.discard(key)
            self._overdue.discard(key)
            self._choose()

    def _receive_claim(self, voter: Peer) -> None:
        key = voter.key
        self._owed.pop(key, None)
        self._relayed.pop(key, None)
        self._hailed.discard(key)
        self._overdue.discard(key)
        self._claims.add(key)
        if self._best is None or key < self._best:
            self._declared.clear()
            self._choose()
        elif key == self._best:
            self._vote(voter)
            if voter.voting is Voting.RELAYING:
                # It began an election anew, and may not be able to end it.
                self._declared.discard(key)
                self._is_reminded = False
                self.leader = None
                self._end = _SOON
        elif self._best == self._us:
            self._ask(voter)  # it began an election anew, and has forgotten our claim

    def _receive_vote(self, voter: Peer) -> None:
        if self._best != self._us:
            return
        if voter.key not in self._awaited:
            if voter.voting is Voting.RELAYING:
                self._hailed.discard(voter.key)
                self._owe(voter, self._us)  # it heard our claim from another member
            return
        self._awaited.discard(voter.key)
        if self.leader == self._us:
            self._hail(voter)
        self._count()

    def receive_leader(self, voter: Peer, leader: bytes) -> None:
        """Receive a LEADER: of the leader itself, or relayed."""
        is_relaying = voter.voting is Voting.RELAYING
        self._owed.pop(voter.key, None)
        self._relayed.pop(voter.key, None)
        if leader == voter.key:
            if leader in self._claims:
                self._declared.add(leader)
                self._overdue.discard(leader)
                self._choose()
                if is_relaying and leader == self._best:
                    self._lead(voter, leader)
        elif not is_relaying:
            return
        elif leader == self._us:
            if self.leader == self._us and voter.key not in self._hailed:
                self._hail(voter)
        elif leader == self._best:
            self._lead(voter, leader)

    # The claim that we support

    def _choose(self) -> None:
        """Support the lowest claim."""
        best = min(self._claims - self._overdue, default=None)
        if best != self._best:
            self._best = best
            self.leader = None
            self._awaited.clear()
            self._hailed.clear()
            self._end = NEVER if best is None else _SOON
            self._is_reminded = False
            if best == self._us:
                self._declared.discard(best)
                for voter in self._voters.values():
                    # After the pause: a peer that claims and withdraws at will must not make us send to all each time.
                    self._awaited.add(voter.key)
                    self._owe(voter, self._us)
            elif best is not None:
                self._vote(self._voters[best])
                for key in [key for key, claimant in self._relayed.items() if claimant == best]:
                    self._owe(self._voters[key], best)
        if best is not None and best in self._declared:
            self.leader = best
            self._end = NEVER

    def _vote(self, claimant: Peer) -> None:
        if claimant.voting is Voting.DIRECT:
            self._elect(claimant, claimant.key)
        else:
            self._owe(claimant, claimant.key)

    def _ask(self, voter: Peer) -> None:
        self._awaited.add(voter.key)
        if voter.voting is Voting.DIRECT:
            self._elect(voter, self._us)
        else:
            self._owe(voter, self._us)

    def _owe(self, voter: Peer, claimant: bytes) -> None:
        self._owed[voter.key] = claimant
        if self._pause_end == NEVER:
            self._pause_end = _SOON

    def _pay(self) -> None:
        self._pause_end = NEVER
        for key, claimant in self._owed.items():
            if claimant == self._best:
                self._relayed.pop(key, None)
                self._elect(self._voters[key], claimant)
        self._owed.clear()

    def _count(self) -> None:
        """Lead if all votes have come. A node that knows no voter waits: it may have just begun to look for peers."""
        if self._best == self._us and self._voters and not self._awaited:
            self._declare()

    def _declare(self) -> None:
        if self.leader == self._us:
            return
        self._declared.add(self._us)
        self.leader = self._us
        self._end = NEVER
        for voter in self._voters.values():
            # A Zyre node that has not voted cannot use LEADER yet.
            if voter.voting is Voting.DIRECT or voter.key not in self._awaited:
                self._hail(voter)

    def _hail(self, voter: Peer) -> None:
        if self._owed.pop(voter.key, None) == self._us:
            self._elect(voter, self._us)
        self._hailed.add(voter.key)
        self._lead(voter, self._us)
