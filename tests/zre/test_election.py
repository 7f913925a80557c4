"""zambezi.zre.election: one member of one election, message by message. `test_elections` has whole groups."""

import pytest

from zambezi.zre.agenda import NEVER
from zambezi.zre.dialect import STABLE
from zambezi.zre.election import Election
from zambezi.zre.peer import Peer, Voting

LOW, US, HIGH, TOP = (bytes([number]) * 16 for number in (1, 2, 3, 4))
PATIENCE = 5.0


class Stage:
    """An election with one peer of each kind, and what it sends: the command, the voter and the claimant."""

    def __init__(self, *voters: bytes, voting: Voting = Voting.DIRECT) -> None:
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.voters = {key: Peer(key, "tcp://10.0.0.1:1", STABLE, 0.0) for key in voters}
        for voter in self.voters.values():
            voter.voting = voting
        self.election = Election(
            US,
            self.voters.values(),
            PATIENCE,
            lambda voter, claimant: self.sent.append(("ELECT", voter.key, claimant)),
            lambda voter, claimant: self.sent.append(("LEADER", voter.key, claimant)),
        )

    def leader(self) -> bytes | None:
        return self.election.leader

    def elect(self, voter: bytes, claimant: bytes) -> None:
        self.election.receive_elect(self.voters[voter], claimant)

    def lead(self, voter: bytes, leader: bytes) -> None:
        self.election.receive_leader(self.voters[voter], leader)

    def take(self, *ticks: float) -> list[tuple[str, bytes, bytes]]:
        for now in ticks:
            self.election.tick(now)
        sent, self.sent = self.sent, []
        return sent


def test_a_claimant_leads_with_all_votes() -> None:
    stage = Stage(LOW, HIGH)
    stage.election.contest()
    assert stage.take(0.0, 0.1) == [("ELECT", LOW, US), ("ELECT", HIGH, US)]
    stage.elect(LOW, US)
    assert stage.take() == []
    stage.elect(HIGH, US)
    assert stage.take() == [("LEADER", LOW, US), ("LEADER", HIGH, US)]
    assert stage.leader() == US
    assert stage.election.deadline == NEVER


def test_a_claimant_leads_without_votes_that_do_not_come() -> None:
    stage = Stage(LOW, HIGH)
    stage.election.contest()
    stage.take(0.0, 0.1)
    stage.elect(LOW, US)
    stage.take(PATIENCE - 0.1)
    assert stage.leader() is None
    assert stage.take(PATIENCE) == [("LEADER", LOW, US), ("LEADER", HIGH, US)]
    assert stage.leader() == US


def test_a_higher_claim_waits_until_the_lower_one_is_gone() -> None:
    stage = Stage(LOW, HIGH, TOP)
    stage.election.contest()
    stage.elect(HIGH, HIGH)
    stage.elect(LOW, LOW)
    assert stage.take()[-1] == ("ELECT", LOW, LOW)
    stage.lead(LOW, LOW)
    assert stage.leader() == LOW
    stage.election.remove(LOW)
    assert stage.leader() is None
    assert sorted(stage.take(1.0, 1.1)) == [("ELECT", HIGH, US), ("ELECT", TOP, US)]


def test_a_leader_that_is_declared_behind_a_lower_claim_leads_when_that_is_gone() -> None:
    stage = Stage(LOW, HIGH)
    stage.elect(LOW, LOW)
    stage.elect(HIGH, HIGH)
    stage.lead(HIGH, HIGH)
    assert stage.leader() is None
    stage.election.remove(LOW)
    assert stage.leader() == HIGH


def test_leader_without_a_claim_says_nothing() -> None:
    stage = Stage(LOW)
    stage.lead(LOW, LOW)
    stage.lead(LOW, HIGH)
    stage.election.remove(HIGH)
    assert stage.leader() is None
    assert stage.take(0.0) == []


@pytest.mark.parametrize("first", ["claim", "relay"])
def test_zyre_gets_one_elect_for_each_claim_and_relay_after_a_pause(first: str) -> None:
    stage = Stage(LOW, HIGH, voting=Voting.RELAYING)
    told = [(LOW, LOW), (LOW, LOW), (HIGH, LOW), (HIGH, LOW)]  # it began anew meanwhile
    for voter, claimant in told if first == "claim" else reversed(told):
        stage.elect(voter, claimant)
    assert stage.take(0.0, 0.05) == []
    assert sorted(stage.take(0.1)) == [("ELECT", LOW, LOW), ("ELECT", HIGH, LOW)]
    stage.lead(HIGH, LOW)
    stage.lead(LOW, LOW)
    assert stage.take(0.2, 0.4) == [("LEADER", HIGH, LOW), ("LEADER", LOW, LOW)]


def test_zyre_gets_leader_only_after_its_vote() -> None:
    stage = Stage(HIGH, TOP, voting=Voting.RELAYING)
    stage.election.contest()
    stage.take(0.0, 0.1)
    stage.elect(HIGH, US)
    stage.take(PATIENCE)
    assert stage.leader() == US
    stage.elect(TOP, US)
    assert ("LEADER", TOP, US) in stage.take()
    stage.lead(TOP, US)
    stage.lead(HIGH, US)
    assert stage.take(8.0, 9.0) == []


def test_zyre_that_claims_anew_is_reminded_of_the_leader() -> None:
    stage = Stage(HIGH, voting=Voting.RELAYING)
    stage.election.contest()
    stage.take(0.0, 0.1)
    stage.elect(HIGH, US)
    assert stage.take() == [("LEADER", HIGH, US)]
    stage.elect(HIGH, HIGH)
    assert stage.take(1.0, 1.1) == [("ELECT", HIGH, US)]
    stage.elect(HIGH, US)
    assert stage.take() == [("LEADER", HIGH, US)]


def test_zyre_that_supports_another_one_has_withdrawn_its_claim() -> None:
    stage = Stage(LOW, HIGH, voting=Voting.RELAYING)
    stage.elect(LOW, LOW)
    stage.lead(LOW, LOW)
    assert stage.leader() == LOW
    stage.elect(LOW, HIGH)
    assert stage.leader() is None
    stage.elect(HIGH, HIGH)
    stage.lead(HIGH, HIGH)
    assert stage.leader() == HIGH


def test_a_claimant_that_does_not_lead_gets_the_vote_again_and_is_then_set_aside() -> None:
    stage = Stage(LOW, HIGH)
    stage.election.contest()
    stage.elect(LOW, LOW)
    stage.take(0.0)
    assert stage.take(PATIENCE) == [("ELECT", LOW, LOW)]
    stage.take(PATIENCE, 2 * PATIENCE)
    assert stage.take(10.1, 10.2) == [("ELECT", LOW, US), ("ELECT", HIGH, US)]
    stage.elect(LOW, LOW)  # it is back
    assert stage.take() == [("ELECT", LOW, LOW)]


def test_a_claimant_that_does_not_lead_is_voted_for_again_and_again_if_it_is_the_only_one() -> None:
    stage = Stage(LOW)
    stage.elect(LOW, LOW)
    stage.take(0.0)
    for turn in range(1, 5):
        assert stage.take(turn * PATIENCE, turn * PATIENCE) == [("ELECT", LOW, LOW)]


def test_the_last_member_leads_at_once() -> None:
    stage = Stage(LOW)
    stage.election.contest()
    stage.elect(LOW, LOW)
    stage.election.remove(LOW)
    assert stage.leader() == US


def test_a_peer_that_claims_and_withdraws_at_will_makes_us_send_little() -> None:
    stage = Stage(LOW, *(bytes([number]) * 16 for number in range(3, 103)))
    stage.voters[LOW].voting = Voting.RELAYING
    stage.election.contest()
    stage.take(0.0, 0.1)
    for _ in range(1000):
        stage.elect(LOW, LOW)
        stage.elect(LOW, HIGH)
    assert len(stage.take(1.0, 1.1)) <= 102
