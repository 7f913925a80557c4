"""Nodes with keys of their own, as in Zyre: beacons of version 3, X-PUBLICKEY, and what a key cannot do."""

import logging
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.zre.mesh import Member, Mesh
from tests.zre.puppet import BOB, Puppet
from tests.zre.test_hub import pass_until
from tests.zre.test_node import drained, start, told
from zambezi.zmtp import z85
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.beacon import Beacon
from zambezi.zre.contact import PUBLIC_KEY, with_key
from zambezi.zre.departures import QUIET
from zambezi.zre.engine import Engine
from zambezi.zre.errors import ZreError
from zambezi.zre.logservice import LogShell
from zambezi.zre.messages import Ping, Whisper
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions
from zambezi.zre.outputs import Broadcast, Connect
from zambezi.zre.reach import Reach

OURS, ANN, EVE = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2, 3))
US = UUID(int=1)
NOW = 100.0


# The beacon of version 3


def test_a_beacon_with_a_key_has_the_bytes_of_zyre() -> None:
    octets = b"ZRE\x03" + BOB.bytes + struct.pack(">H", 49152) + ANN.public
    assert len(octets) == 54
    assert Beacon(BOB, 49152, ANN.public).encode() == octets
    assert Beacon.decode(octets) == Beacon(BOB, 49152, ANN.public)
    for malformed in (octets[:-1], octets + b"x", b"ZRE\x01" + octets[4:], octets[:22], b"ZRE\x02" + octets[4:22]):
        assert Beacon.decode(malformed) is None


def engine(**options: Any) -> Engine:
    allows = {ANN.public, EVE.public}.__contains__
    made = Engine(
        US,
        "us",
        lambda _: "tcp://10.0.0.1:1",
        reach=Reach(allows=allows),
        public_key=OURS.public,
        key_of=lambda _: ANN.public,
        proves=lambda _: True,
        **options,
    )
    made.start(1, NOW)
    return made


def connects(made: Engine) -> list[str]:
    return [output.endpoint for output in made.take() if isinstance(output, Connect)]


def test_a_node_with_a_key_sends_it_in_its_beacons_and_meets_nodes_with_allowed_keys() -> None:
    ours = engine()
    assert ours.take() == [Broadcast(Beacon(US, 1, OURS.public).encode())]
    ours.receive_beacon(Beacon(BOB, 5, ANN.public).encode(), "10.0.0.2", NOW)
    assert connects(ours) == [with_key("tcp://10.0.0.2:5", ANN.public)]
    ours.receive_beacon(Beacon(UUID(int=7), 5, bytes(32)).encode(), "10.0.0.3", NOW)
    assert connects(ours) == []
    assert ours.counters.refused_keys == 1
    ours.stop()
    assert Broadcast(Beacon(US, 0, OURS.public).encode()) in ours.take()


def test_nodes_with_and_without_keys_do_not_meet_by_beacons() -> None:
    """Zyre ignores beacons of the other version too, so that no forged beacon makes it speak in clear."""
    ours, plain = engine(), Engine(US, "us", lambda _: "tcp://10.0.0.1:1")
    ours.take()
    ours.receive_beacon(Beacon(BOB, 5).encode(), "10.0.0.2", NOW)
    plain.receive_beacon(Beacon(BOB, 5, ANN.public).encode(), "10.0.0.2", NOW)
    for one in (ours, plain):
        assert connects(one) == []
        assert one.counters.other_beacons == 1


def test_a_forged_beacon_with_another_key_is_given_up_for_the_true_one() -> None:
    ours = engine(evasive=5.0)
    ours.receive_beacon(Beacon(BOB, 6, EVE.public).encode(), "10.6.6.6", NOW)
    assert connects(ours) == [with_key("tcp://10.6.6.6:6", EVE.public)]
    ours.receive_beacon(Beacon(BOB, 5, ANN.public).encode(), "10.0.0.2", NOW + 5)
    assert connects(ours) == [with_key("tcp://10.0.0.2:5", ANN.public)]
    ours.receive_beacon(Beacon(BOB, 5, bytes(32)).encode(), "10.0.0.2", NOW + 11)
    assert connects(ours) == []


# The goodbye of Zyre in a mesh with keys and beacons: a beacon, and a mailbox that closes


def goodbye(mesh: Mesh, leaver: Member) -> None:
    mesh.datagrams.append((Beacon(leaver.uuid, 0).encode(), leaver.address))
    mesh.settle()


def test_a_goodbye_by_beacon_counts_if_the_mailbox_closes() -> None:
    connected: set[bytes] = set()
    mesh = Mesh()
    ann, bob, eve = (mesh.add(number, encrypted=True, is_connected=connected.__contains__) for number in (1, 2, 3))
    connected.update(member.uuid.bytes for member in (ann, bob, eve))
    mesh.advance(3)
    goodbye(mesh, bob)
    assert not ann.told(events.Exit)
    ann.engine.connection_lost(bob.uuid.bytes, mesh.now)
    mesh.advance(QUIET)
    assert ann.told(events.Exit) == [events.Exit(bob.uuid, "node2", "it left")]
    goodbye(mesh, eve)
    mesh.advance(6)  # too long ago
    ann.engine.connection_lost(eve.uuid.bytes, mesh.now)
    mesh.pump(ann)
    assert len(ann.told(events.Exit)) == 1
    connected.discard(eve.uuid.bytes)
    goodbye(mesh, eve)  # the mailbox is closed already
    mesh.advance(QUIET)
    assert ann.told(events.Exit)[1:] == [events.Exit(eve.uuid, "node3", "it left")]


# Nodes on loopback


def node(sim: Simulation, name: str, keys: KeyPair, allowed: Any, **options: Any) -> NodeShell:
    return start(sim, name, interface="lo", node_keys=keys, allowed=allowed, **{"beacons": False, **options})


def stop(sim: Simulation, *nodes: NodeShell) -> None:
    for one in nodes:
        one.stop(0)
    pass_until(sim, lambda: all(one.stopped for one in nodes))


def puppet(sim: Simulation, target: NodeShell, keys: KeyPair, uuid: UUID = BOB) -> Puppet:
    return Puppet(sim, "tcp://127.0.0.1:*", target.endpoint, uuid, keys, OURS.public)


def header(keys: KeyPair) -> dict[str, str]:
    return {PUBLIC_KEY: keys.public_z85}


def test_two_nodes_meet_and_know_each_other_by_their_keys(sim: Simulation) -> None:
    ann = node(sim, "ann", ANN, {"us": OURS.public}, log=True)
    us = node(sim, "us", OURS, {"ann": ANN.public}, seeds=[with_key(ann.endpoint, ANN.public)])
    service = LogShell(sim, us)
    us.announce("X-ZRELOG", service.endpoint)
    pass_until(sim, lambda: us.peers and ann.peers and service.records)
    (entered,) = told(us, events.Enter)
    assert isinstance(entered, events.Enter)
    assert (entered.endpoint, entered.headers[PUBLIC_KEY]) == (ann.endpoint, z85.encode(ANN.public))
    ann.whisper(us.engine.uuid, (b"hello",))
    pass_until(sim, lambda: told(us, events.Whisper))
    service.close()
    stop(sim, us, ann)


def test_our_gossip_tells_the_keys_of_nodes(sim: Simulation) -> None:
    us = node(sim, "us", OURS, "any")
    seed = with_key(us.endpoint, OURS.public)
    ann, eve = (node(sim, name, keys, "any", seeds=[seed]) for name, keys in (("ann", ANN), ("eve", EVE)))
    pass_until(sim, lambda: len(ann.peers) == len(eve.peers) == 2)
    stop(sim, us, ann, eve)


def test_a_key_that_is_not_allowed_does_not_get_in(sim: Simulation) -> None:
    us = node(sim, "us", OURS, {"ann": ANN.public})
    eve = puppet(sim, us, EVE)
    eve.greet(headers=header(EVE))
    pass_until(sim, lambda: us._mailbox.counters.handshakes_failed)
    ann = puppet(sim, us, ANN)
    ann.greet(headers=header(ANN))
    pass_until(sim, lambda: us.peers)
    assert [peer.name for peer in us.peers] == ["bob"]
    eve.close()
    ann.close()
    stop(sim, us)


@pytest.mark.parametrize("headers", [{}, header(EVE), {PUBLIC_KEY: ""}, {PUBLIC_KEY: "nonsense"}])
def test_a_hello_must_name_the_key_that_its_connection_proved(sim: Simulation, headers: dict[str, str]) -> None:
    us = node(sim, "us", OURS, "any")
    ann = puppet(sim, us, ANN)
    ann.greet(headers=headers)
    pass_until(sim, lambda: us.engine.counters.refused_keys == 1)
    assert not us.engine.peers
    ann.greet(headers=header(ANN))
    pass_until(sim, lambda: us.peers)
    ann.close()
    stop(sim, us)


def test_the_holder_of_another_key_does_not_speak_for_a_peer(sim: Simulation) -> None:
    us = node(sim, "us", OURS, "any")
    ann = puppet(sim, us, ANN)
    ann.greet(headers=header(ANN))
    pass_until(sim, lambda: us.peers)
    drained(us)
    eve = puppet(sim, us, EVE)  # with the UUID of the other one
    eve.say(Whisper(2, (b"forged",)))
    pass_until(sim, lambda: us.engine.counters.refused_keys)
    ann.say(Whisper(2, (b"true",)))
    pass_until(sim, lambda: told(us, events.Whisper))
    ann.dealer.close(0)  # now only the other one is connected
    sim.run(0.01)
    refused = us.engine.counters.refused_keys
    pass_until(sim, lambda: us.engine.counters.refused_keys > refused)
    assert [event.data for event in drained(us) if isinstance(event, events.Whisper)] == [b"true"]
    assert [peer.uuid for peer in us.peers] == [BOB]
    eve.close()
    ann.close()
    stop(sim, us)


def test_a_peer_whose_key_is_removed_exits(sim: Simulation, tmp_path: Path) -> None:
    write_pair(tmp_path, "ann", ANN)
    (tmp_path / "ann.key").unlink()
    us = node(sim, "us", OURS, Keyring(tmp_path))
    ann = puppet(sim, us, ANN)
    ann.greet(headers=header(ANN))
    pass_until(sim, lambda: us.peers)
    (tmp_path / "ann.pub").unlink()
    pass_until(sim, lambda: not us.peers)
    assert told(us, events.Exit) == [events.Exit(BOB, "bob", "its key is no longer allowed")]
    ann.say(Ping(2))
    ann.close()
    stop(sim, us)


def test_a_seed_or_a_hub_needs_a_key(sim: Simulation) -> None:
    mistakes: list[dict[str, Any]] = [
        {"seeds": ["tcp://10.0.0.1:1"]},
        {"gossip_connect": ["tcp://10.0.0.1:1|short"]},
    ]
    for options in mistakes:
        with pytest.raises(ZreError, match=r"write ENDPOINT\|KEY"):
            NodeShell(sim, "us", NodeOptions(interface="lo", node_keys=OURS, allowed="any", **options))


def test_a_key_that_zyre_takes_for_none_is_told(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    odd = next(pair for number in range(10_000) if not (pair := KeyPair.generate(number.to_bytes(32, "big"))).public[0])
    with caplog.at_level(logging.WARNING, "zambezi.zre"):
        NodeShell(sim, "odd", NodeOptions(interface="lo", node_keys=odd, allowed="any"))
        NodeShell(sim, "good", NodeOptions(interface="lo", node_keys=OURS, allowed="any"))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the public key of odd begins with a zero byte"
    ]
