"""zambezi.zre.rendezvous: rounds, in which seeds are greeted, lost peers looked for and gossip is told."""

from uuid import UUID

import pytest

from zambezi.zre.agenda import NEVER
from zambezi.zre.dialect import STABLE
from zambezi.zre.gossip import HEADER, MARK
from zambezi.zre.outbox import Outbox
from zambezi.zre.outputs import Adopt, Connect, Disconnect
from zambezi.zre.peer import Peer
from zambezi.zre.peers import Peers
from zambezi.zre.rendezvous import Rendezvous
from zambezi.zre.timing import Timing

US = bytes(16)
ANN, BOB = UUID(int=1), UUID(int=2)
SEED = "tcp://10.0.0.9:1"
DEALER = b"seed " + SEED.encode()


class Stage:
    """A rendezvous, and what it asks of its engine."""

    def __init__(self, asks: bool = False) -> None:
        self.peers = Peers(10, 10)
        self.out = Outbox()
        self.greeted: list[bytes] = []
        self.discovered: list[UUID] = []
        self.rendezvous = Rendezvous(
            US,
            STABLE,
            self.peers,
            self.out,
            asks=asks,
            timing=Timing(),
            greet=lambda peer, _: self.greeted.append(peer.key),
            locate=lambda _, endpoint: endpoint if endpoint.startswith("tcp://") else "",
            discover=lambda uuid, _, __: self.discovered.append(uuid),
        )

    def enter(self, uuid: UUID, *, asks: bool = False) -> Peer:
        peer = Peer(uuid.bytes, f"tcp://10.0.0.{uuid.int}:1", STABLE, 0.0)
        peer.headers = {HEADER: peer.endpoint} if asks else {}
        self.peers.add(peer)
        self.peers.make_ready(peer)
        self.rendezvous.introduce(peer, 0.0)
        return peer


def test_there_are_no_rounds_unless_something_needs_them() -> None:
    stage = Stage()
    stage.rendezvous.start(0.0)
    stage.enter(ANN)
    assert stage.rendezvous.deadline == NEVER
    stage.enter(BOB, asks=True)
    assert stage.rendezvous.deadline == 30.0
    asking = Stage(asks=True)
    asking.rendezvous.start(5.0)
    assert asking.rendezvous.deadline == 35.0


def test_rounds_end_when_nothing_needs_them_any_more() -> None:
    stage = Stage()
    ann = stage.enter(ANN, asks=True)
    stage.peers.remove(ann)
    stage.rendezvous.gossip.part(ann)
    stage.rendezvous.tick(30.0)
    assert stage.rendezvous.deadline == NEVER


def test_a_seed_that_does_not_answer_is_greeted_on_a_new_connection_in_each_round() -> None:
    stage = Stage()
    stage.rendezvous.add_seed(SEED, 0.0)
    stage.rendezvous.add_seed(SEED, 1.0)
    assert stage.out.take() == [Connect(DEALER, SEED)]
    stage.rendezvous.tick(29.0)
    assert stage.out.take() == []
    stage.rendezvous.tick(30.0)
    assert stage.out.take() == [Disconnect(DEALER), Connect(DEALER, SEED)]
    assert stage.greeted == [DEALER, DEALER]
    assert stage.rendezvous.deadline == 60.0


def test_a_seed_that_answers_is_a_peer_with_its_dealer_and_is_greeted_again_when_it_is_gone() -> None:
    stage = Stage()
    stage.rendezvous.add_seed(SEED, 0.0)
    assert stage.rendezvous.adopt(BOB.bytes, "tcp://10.0.0.2:1", "", 0.0) is None
    peer = stage.rendezvous.adopt(ANN.bytes, SEED, "", 0.0)
    assert peer is not None
    assert (peer.key, peer.endpoint) == (ANN.bytes, SEED)
    assert stage.out.take()[1:] == [Adopt(DEALER, ANN.bytes)]
    stage.peers.add(peer)
    stage.rendezvous.tick(30.0)
    assert stage.out.take() == []
    stage.peers.remove(peer)
    stage.rendezvous.tick(60.0)
    assert stage.out.take() == [Connect(DEALER, SEED)]


@pytest.mark.parametrize("found", [US, ANN.bytes])
def test_a_seed_that_is_known_already_needs_no_dealer(found: bytes) -> None:
    stage = Stage()
    stage.enter(ANN)
    stage.rendezvous.add_seed(SEED, 0.0)
    stage.out.take()
    stage.rendezvous.reached(SEED, b"\x01" + found, "10.0.0.9")
    assert stage.out.take() == [Disconnect(DEALER)]
    stage.rendezvous.tick(30.0)
    assert stage.out.take() == []


def test_peers_that_were_lost_are_looked_for() -> None:
    stage = Stage(asks=True)
    stage.rendezvous.start(0.0)
    ann = stage.enter(ANN)
    stage.peers.remove(ann)
    stage.rendezvous.gossip.part(ann)
    stage.rendezvous.tick(30.0)
    assert stage.discovered == [ANN]
    stage.rendezvous.gossip.left(ann)
    stage.rendezvous.tick(60.0)
    assert stage.discovered == [ANN]


def test_gossip_leads_to_peers() -> None:
    stage = Stage(asks=True)
    ann = stage.enter(ANN)
    stage.rendezvous.receive_gossip(ann, (MARK, BOB.bytes + b"tcp://10.0.0.2:1", BOB.bytes), 0.0)
    assert stage.discovered == [BOB]
    stage.rendezvous.stop()
    assert stage.rendezvous.deadline == NEVER


def test_a_required_node_is_looked_for_in_each_round_until_it_is_forgotten() -> None:
    stage = Stage()
    stage.rendezvous.require(ANN, "tcp://10.0.0.1:1", 5.0)
    assert (stage.discovered, stage.rendezvous.deadline) == ([ANN], 35.0)
    stage.rendezvous.tick(35.0)
    assert (stage.discovered, stage.rendezvous.deadline) == ([ANN, ANN], 65.0)
    stage.rendezvous.forget(ANN)
    stage.rendezvous.tick(65.0)
    assert (stage.discovered, stage.rendezvous.deadline) == ([ANN, ANN], NEVER)
