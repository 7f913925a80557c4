"""zambezi.zre.seeds: which HELLO is the answer of which seed."""

from typing import Any
from uuid import UUID

import pytest

from tests.zre.mesh import Mesh
from tests.zre.test_engine import agree, whisper
from zambezi.zre import events
from zambezi.zre.dialect import STABLE
from zambezi.zre.engine import Engine
from zambezi.zre.messages import Hello
from zambezi.zre.outputs import Adopt, Connect, Disconnect, Send
from zambezi.zre.seeds import Seed, Seeds

BOB, EVE = UUID(int=0x0B), UUID(int=0x0E)
WHERE = "tcp://10.0.0.2:50000"
NOW = 1000.0


def engine(**options: Any) -> Engine:
    return Engine(UUID(int=0x0A), "ann", lambda _: "tcp://10.0.0.1:50000", **options)


def identity(uuid: UUID) -> bytes:
    return b"\x01" + uuid.bytes


def hello(endpoint: str, name: str = "bob") -> list[bytes]:
    return list(Hello(1, endpoint, name=name).encode())


def unmet(*endpoints: str) -> tuple[Seeds, list[Seed]]:
    seeds = Seeds()
    for endpoint in endpoints:
        seed = seeds.add(endpoint)
        assert seed is not None
        seed.greet(STABLE, NOW)
    return seeds, list(seeds)


def test_a_seed_is_known_by_its_identity_and_by_nothing_else() -> None:
    seeds, (first, second) = unmet("tcp://10.0.0.2:50000", "tcp://10.0.0.3:50000")
    first.answers, second.answers = EVE.bytes, BOB.bytes
    assert seeds.answered(BOB.bytes, first.endpoint, "10.0.0.2") is second
    assert seeds.answered(EVE.bytes, second.endpoint, "10.0.0.3") is first
    assert seeds.answered(UUID(int=7).bytes, first.endpoint, "10.0.0.2") is None


@pytest.mark.parametrize(
    ("endpoint", "source", "is_it"),
    [
        ("tcp://hub.example:50000", "", True),
        ("tcp://10.0.0.2:50000", "", True),
        ("tcp://10.0.0.2:50001", "10.0.0.2", False),
        ("tcp://192.168.0.2:50000", "10.0.0.2", True),
        ("tcp://192.168.0.2:50000", "192.168.0.2", False),
        ("tcp://192.168.0.2:50001", "10.0.0.2", False),
        ("tcp://[", "10.0.0.2", False),
        ("", "", False),
    ],
)
def test_without_an_identity_address_and_port_tell(endpoint: str, source: str, is_it: bool) -> None:
    seeds, (seed,) = unmet("tcp://hub.example:50000")
    assert seeds.answered(BOB.bytes, "tcp://10.0.0.2:50000", "10.0.0.2") is None  # not reached yet
    seed.address = "10.0.0.2"
    assert (seeds.answered(BOB.bytes, endpoint, source) is seed) == is_it
    seed.settle(EVE.bytes)
    assert seeds.answered(BOB.bytes, endpoint, source) is None


@pytest.mark.parametrize("told", [True, False])
def test_a_peer_with_the_port_of_a_seed_is_not_taken_for_it(told: bool) -> None:
    ours = engine()
    ours.rendezvous.add_seed(WHERE, NOW)
    ours.rendezvous.reached(WHERE, identity(BOB) if told else b"", "10.0.0.2")
    ours.take()
    ours.receive(identity(EVE), hello("tcp://10.0.0.9:50000", "eve"), NOW)
    outputs = ours.take()
    assert Connect(EVE.bytes, "tcp://10.0.0.9:50000") in outputs
    assert not [output for output in outputs if isinstance(output, Adopt)]
    ours.receive(identity(BOB), hello(WHERE), NOW)
    assert ours.take()[0] == Adopt(b"seed " + WHERE.encode(), BOB.bytes)


@pytest.mark.parametrize("identities", [True, False])
def test_nodes_that_all_have_the_same_port_get_their_own_messages(identities: bool) -> None:
    mesh = Mesh(identities)
    hub = mesh.add(1, beacons=False, gossip=True, port=50000)
    others = [
        mesh.add(number, beacons=False, gossip=True, seeds=[hub.endpoint, "tcp://10.0.0.2:50000"], port=50000)
        for number in (2, 3, 4, 5)
    ]
    mesh.advance(100)
    agree(mesh)
    for member in (hub, *others):
        member.story.clear()
    for one in (hub, *others):
        for other in (hub, *others):
            if one is not other:
                whisper(mesh, one, other, b"%d to %d" % (one.number, other.number))
    mesh.advance(100)
    for one in (hub, *others):
        heard = {event.data for event in one.story if isinstance(event, events.Whisper)}
        assert heard == {b"%d to %d" % (n, one.number) for n in (1, 2, 3, 4, 5) if n != one.number}
        assert one.told(events.Exit, events.Evasive) == []


def test_a_seed_that_gives_its_identity_after_its_hello_has_one_dealer() -> None:
    ours = engine()
    ours.rendezvous.add_seed("tcp://hub.example:50000", NOW)
    ours.take()
    ours.receive(identity(BOB), hello("tcp://10.0.0.2:50000"), NOW)
    assert Connect(BOB.bytes, "tcp://10.0.0.2:50000") in ours.take()
    ours.rendezvous.reached("tcp://hub.example:50000", identity(BOB), "10.0.0.2")
    assert ours.take() == [Disconnect(b"seed tcp://hub.example:50000")]
    ours.tick(NOW + 4)
    assert ours.take() == []


@pytest.mark.parametrize("told", [True, False])
def test_a_seed_that_is_met_by_its_beacon_meanwhile_has_one_dealer(told: bool) -> None:
    ours = engine()
    ours.rendezvous.add_seed("tcp://hub.example:50000", NOW)
    ours.receive_beacon(b"ZRE\x01" + BOB.bytes + (50000).to_bytes(2, "big"), "10.0.0.2", NOW)
    ours.rendezvous.reached("tcp://hub.example:50000", identity(BOB) if told else b"", "10.0.0.2")
    ours.receive(identity(BOB), hello("tcp://10.0.0.2:50000"), NOW)
    outputs = ours.take()
    assert [output for output in outputs if isinstance(output, Connect | Disconnect)] == [
        Connect(b"seed tcp://hub.example:50000", "tcp://hub.example:50000"),
        Connect(BOB.bytes, "tcp://10.0.0.2:50000"),
        Disconnect(b"seed tcp://hub.example:50000"),
    ]
    assert not ours.rendezvous.seeds.unmet


def test_a_seed_that_is_about_to_answer_is_not_met_by_its_beacon() -> None:
    ours = engine()
    ours.rendezvous.add_seed("tcp://hub.example:50000", NOW)
    ours.rendezvous.reached("tcp://hub.example:50000", identity(BOB), "10.0.0.2")
    ours.take()
    ours.receive_beacon(b"ZRE\x01" + BOB.bytes + (50000).to_bytes(2, "big"), "10.0.0.2", NOW)
    assert ours.take() == []
    ours.receive(identity(BOB), hello("tcp://10.0.0.2:50000"), NOW)
    assert ours.take()[0] == Adopt(b"seed tcp://hub.example:50000", BOB.bytes)


def test_a_node_that_is_its_own_seed_is_not_greeted_again() -> None:
    ours = engine(gossip=True)
    ours.start(50000, NOW, beacons=False)
    ours.rendezvous.add_seed("tcp://10.0.0.1:50000", NOW)
    ours.take()
    ours.rendezvous.reached("tcp://10.0.0.1:50000", identity(ours.uuid), "10.0.0.1")
    assert ours.take() == [Disconnect(b"seed tcp://10.0.0.1:50000")]
    for _ in range(5):
        ours.tick(ours.deadline)
    assert ours.take() == []


def test_another_node_can_have_the_mailbox_of_a_seed_later() -> None:
    ours = engine(gossip=True)
    ours.start(50000, NOW, beacons=False)
    ours.rendezvous.add_seed(WHERE, NOW)
    ours.rendezvous.reached(WHERE, identity(BOB), "10.0.0.2")
    ours.take()
    ours.tick(NOW + 31)  # no answer: it is greeted again
    assert [type(output) for output in ours.take()] == [Disconnect, Connect, Send]
    ours.rendezvous.reached(WHERE, identity(EVE), "10.0.0.2")
    ours.receive(identity(EVE), hello(WHERE, "eve"), NOW + 31)
    assert ours.take()[0] == Adopt(b"seed " + WHERE.encode(), EVE.bytes)


def test_dealers_to_peers_that_are_no_seeds_are_ignored() -> None:
    ours = engine()
    ours.rendezvous.reached(WHERE, identity(BOB), "10.0.0.2")
    ours.rendezvous.add_seed(WHERE, NOW)
    ours.rendezvous.reached(WHERE, b"strange", "10.0.0.2")
    ours.receive(identity(BOB), hello(WHERE), NOW)
    ours.take()
    ours.rendezvous.reached(
        WHERE, identity(EVE), "10.0.0.2"
    )  # the DEALER belongs to the peer now, and only reconnected
    assert ours.take() == []
