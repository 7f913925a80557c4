"""zambezi.zre.lookout: in a mesh with keys a forged beacon costs a connection attempt at most."""

import random
from typing import Any

import pytest

from tests.zre.mesh import Member, Mesh, address_of, check, uuid_of
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.beacon import Beacon
from zambezi.zre.departures import QUIET
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions

EVE = "10.0.0.66"


def encrypted_mesh(count: int = 3, **options: Any) -> tuple[Mesh, list[Member]]:
    mesh = Mesh()
    members = [mesh.add(number, encrypted=True, **options) for number in range(1, count + 1)]
    mesh.advance(3)
    for member in members:
        assert len(member.ready) == count - 1
    return mesh, members


def forge(mesh: Mesh, victim: Member, port: int, address: str = EVE) -> None:
    mesh.datagrams.append((Beacon(victim.uuid, port).encode(), address))
    mesh.settle()


def exits(members: list[Member]) -> int:
    return sum(len(member.told(events.Exit)) for member in members)


def test_a_beacon_that_says_nothing_new_gives_the_node_no_work() -> None:
    mesh = Mesh()
    ours, peer = mesh.add(1), mesh.add(2)
    mesh.advance(3)
    known = Beacon(peer.uuid, peer.port).encode()
    assert not ours.engine.receive_beacon(known, peer.address, mesh.now)
    assert not ours.engine.receive_beacon(Beacon(ours.uuid, ours.port).encode(), ours.address, mesh.now)
    assert ours.engine.receive_beacon(Beacon(uuid_of(9), 50_009).encode(), address_of(9), mesh.now)
    assert ours.engine.receive_beacon(Beacon(peer.uuid, 0).encode(), peer.address, mesh.now)


def test_forged_goodbyes_and_moves_end_no_peer() -> None:
    mesh, members = encrypted_mesh()
    connections = {id(one) for member in members for one in member.connections.values()}
    for victim in members:
        for port in (0, victim.port, victim.port + 1, 1):
            for address in (EVE, victim.address):
                forge(mesh, victim, port, address)
                mesh.advance(7)  # long enough for every rule that waits
    assert exits(members) == 0
    assert connections == {id(one) for member in members for one in member.connections.values()}
    assert all(member.engine.counters.unproved_beacons for member in members)
    for member in members:
        assert check(member.story) == member.ready


def test_a_mesh_without_keys_takes_the_word_of_a_beacon() -> None:
    """36/ZRE asks for it. This is the attack of the test above, and shows that it attacks."""
    mesh = Mesh()
    members = [mesh.add(number) for number in (1, 2, 3)]
    mesh.advance(3)
    forge(mesh, members[0], 0)
    mesh.advance(QUIET)
    assert exits(members) == 2


def test_a_node_that_stops_says_goodbye_on_its_encrypted_connections() -> None:
    mesh, members = encrypted_mesh()
    mesh.stop(members[0])
    mesh.settle()
    for member in members[1:]:
        (gone,) = member.told(events.Exit)
        assert (gone.peer, gone) == (members[0].uuid, events.Exit(members[0].uuid, "node1", "it left"))
        assert not member.told(events.Whisper)


def test_a_dead_peer_expires_although_beacons_go_on_in_its_name() -> None:
    mesh, members = encrypted_mesh()
    dead = members[0]
    mesh.kill(dead)
    for _ in range(32):
        forge(mesh, dead, dead.port, dead.address)
        mesh.advance(1)
    for member in members[1:]:
        assert [event.peer for event in member.told(events.Exit)] == [dead.uuid]
        assert dead.uuid not in member.ready


def test_peers_that_have_nothing_to_say_stay_and_are_not_evasive() -> None:
    mesh, members = encrypted_mesh()
    mesh.advance(120)
    assert exits(members) == 0
    assert not any(member.told(events.Evasive, events.Silent) for member in members)


def test_a_peer_that_restarts_or_moves_is_believed_on_its_encrypted_connection() -> None:
    mesh, members = encrypted_mesh(2)
    ann, bob = members
    mesh.kill(bob)
    again = mesh.add(2, encrypted=True)
    mesh.advance(3)
    assert ann.engine.peers[bob.uuid.bytes].endpoint == again.endpoint
    told = again.engine.endpoints_told()
    del mesh.members[again.endpoint]
    again.address, again.endpoint = "192.168.0.2", f"tcp://192.168.0.2:{again.port}"
    mesh.members[again.endpoint] = again
    again.engine.move(again.port, told, mesh.now)
    mesh.pump(again)
    mesh.advance(3)
    assert ann.engine.peers[bob.uuid.bytes].endpoint == again.endpoint
    assert check(ann.story) == ann.ready


def test_two_that_move_at_once_meet_again_when_they_have_expired() -> None:
    mesh, members = encrypted_mesh(2)
    before = [one.engine.endpoints_told() for one in members]
    for one in members:
        del mesh.members[one.endpoint]
        one.address, one.endpoint = f"192.168.0.{one.number}", f"tcp://192.168.0.{one.number}:{one.port}"
        mesh.members[one.endpoint] = one
    for one, told in zip(members, before, strict=True):
        one.engine.move(one.port, told, mesh.now)
        mesh.pump(one)
    mesh.advance(40)
    for one, other in (members, members[::-1]):
        assert one.engine.peers[other.uuid.bytes].endpoint == other.endpoint
        assert check(one.story) == one.ready == {other.uuid: set()}


@pytest.mark.parametrize("port", [49152, 7])
def test_beacons_that_were_forged_before_two_nodes_meet_do_not_keep_them_apart(port: int) -> None:
    mesh = Mesh()
    ann = mesh.add(1, encrypted=True)
    ann.engine.receive_beacon(Beacon(uuid_of(2), port).encode(), EVE, mesh.now)
    mesh.pump(ann)
    bob = mesh.add(2, encrypted=True)  # it hears of ann, and greets her
    mesh.advance(3)
    assert ann.engine.peers[bob.uuid.bytes].endpoint == bob.endpoint
    assert list(ann.ready) == [bob.uuid]
    assert list(bob.ready) == [ann.uuid]


def test_a_stranger_that_does_not_answer_is_tried_where_its_next_beacons_come_from() -> None:
    mesh = Mesh()
    ann = mesh.add(1, encrypted=True)
    for address in (EVE, address_of(2)):
        ann.engine.receive_beacon(Beacon(uuid_of(2), 49152).encode(), address, mesh.now)
        mesh.pump(ann)
        mesh.advance(5)
    ann.engine.receive_beacon(Beacon(uuid_of(2), 49152).encode(), address_of(2), mesh.now)
    assert ann.engine.peers[uuid_of(2).bytes].endpoint == f"tcp://{address_of(2)}:49152"


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_flood_of_beacons_costs_a_bounded_number_of_connections(encrypted: bool) -> None:
    """Hello and goodbye in turn, in the names of few and of many nodes: each pair was a connection."""
    mesh = Mesh()
    ann = mesh.add(1, encrypted=encrypted, max_peers=100, max_strangers=10)
    mesh.settle()
    chance = random.Random(7)
    attempts = 0
    for step in range(10_000):
        uuid = uuid_of(1000 + chance.randrange(2 if step % 2 else 10_000))
        for port in (chance.randrange(1, 65536), 0):
            ann.engine.receive_beacon(Beacon(uuid, port).encode(), EVE, mesh.now + step / 1000)  # ten seconds of it
            attempts += sum(type(output).__name__ == "Connect" for output in ann.engine.take())
            assert ann.engine.peers.strangers <= 10
    assert attempts <= 2 * 2 * 10 + 20
    assert ann.engine.counters.refused_strangers > 1000


def test_real_nodes_with_keys_survive_forged_datagrams(sim: Simulation) -> None:
    network, keys = MemoryNetwork(), KeyPair.generate()
    nodes = [NodeShell(sim, f"n{one}", NodeOptions(uuid=uuid_of(one), network=network, keys=keys)) for one in (1, 2, 3)]
    for node in nodes:
        node.start()
    sim.advance(2)
    assert all(len(node.peers) == 2 for node in nodes)
    for node in nodes:
        for port in (0, 1, 49152, 50000):
            for address in ("1", "9"):
                network.broadcast(Beacon(node.engine.uuid, port).encode(), address)
        sim.advance(6)
    assert not any(isinstance(event, events.Exit) for node in nodes for event in node.events)
    assert all(len(node.peers) == 2 for node in nodes)
    nodes[0].stop(1)
    sim.advance(1)
    for node in nodes[1:]:
        assert [event.reason for event in node.events if isinstance(event, events.Exit)] == ["it left"]
        node.stop(0)
    sim.run()
