"""zambezi.zre.peers: how many peers and strangers a node accepts."""

import pytest

from zambezi.zre import bounds
from zambezi.zre.dialect import STABLE
from zambezi.zre.errors import ZreError
from zambezi.zre.peer import Peer, together
from zambezi.zre.peers import Peers


def peer(number: int) -> Peer:
    return Peer(b"%d" % number, "tcp://10.0.0.1:1", STABLE, 0.0)


def test_strangers_and_ready_peers_are_bounded_apart() -> None:
    peers = Peers(max_peers=3, max_strangers=2)
    made = [peer(number) for number in range(5)]
    for stranger in made[:2]:
        assert peers.has_room
        peers.add(stranger)
    assert (peers.has_room, peers.full) == (False, False)
    peers.make_ready(made[0])
    assert (peers.has_room, peers.full) == (True, False)
    for each in (made[2], made[3]):
        peers.add(each)
        peers.make_ready(each)
    assert (len(peers), peers.strangers) == (4, 1)
    assert (peers.has_room, peers.full) == (False, True)  # a stranger could not become ready
    peers.remove(made[0])
    assert (peers.has_room, peers.full) == (True, False)
    peers.remove(made[1])
    assert (list(peers), peers.strangers) == ([b"2", b"3"], 0)


def test_a_peer_whose_session_ended_is_a_stranger_in_no_groups() -> None:
    peers = Peers(1, 1)
    ann = peer(1)
    peers.add(ann)
    peers.make_ready(ann)
    ann.groups = together(("A",))
    peers.make_stranger(ann)
    assert (ann.ready, ann.groups, peers.strangers, peers.full) == (False, frozenset(), 1, False)
    peers.clear()
    assert (len(peers), peers.strangers) == (0, 0)


def test_strangers_come_at_a_bounded_rate() -> None:
    peers = Peers(max_peers=10, max_strangers=2)
    met = 0
    for step in range(1000):  # one second
        if peers.admit_stranger(step / 1000):
            met += 1
            peers.add(peer(step))
            peers.remove(peers[b"%d" % step])
    assert met == 4
    assert peers.admit_stranger(10.0)


def test_the_cost_of_a_peer_goes_with_it() -> None:
    peers = Peers(10, 10)
    ann, bob = peer(1), peer(2)
    for each in (ann, bob):
        peers.add(each)
        peers.set_cost(each, 1000)
    peers.set_cost(bob, 10)
    assert peers.cost == 1010
    peers.remove(ann)
    assert peers.cost == 10
    assert peers.has_room_for(None, bounds.PEER)
    assert not peers.has_room_for(None, bounds.PEER + 1)
    peers.cost = bounds.PEERS
    assert peers.has_room_for(bob, 10)
    assert not peers.has_room_for(bob, 11)
    assert not peers.has_room_for(None, 1)


@pytest.mark.parametrize(("most", "strangers"), [(5, 0), (5, 6), (0, 0)])
def test_impossible_bounds_are_refused(most: int, strangers: int) -> None:
    with pytest.raises(ZreError, match=f"max_strangers must be 1 to max_peers, which is {most}; it is {strangers}"):
        Peers(most, strangers)
