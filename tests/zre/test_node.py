"""zambezi.zre.node: a node with its sockets, on a clock that is moved by hand, in memory and over loopback."""

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.zmtp.simulation import Simulation
from tests.zre.mesh import uuid_of
from tests.zre.puppet import Puppet
from zambezi.errors import ZambeziError
from zambezi.zmtp.keys import KeyPair
from zambezi.zre import events
from zambezi.zre import node as module
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import NodeStopped, ZreError
from zambezi.zre.messages import Whisper
from zambezi.zre.node import NodeCore, NodeOptions


@pytest.fixture
def sim() -> Iterator[Simulation]:
    simulation = Simulation()
    yield simulation
    simulation.close()


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(sim: Simulation, name: str, **options: Any) -> NodeCore:
    node = NodeCore(sim, name, NodeOptions(**options))
    node.start()
    return node


def drained(node: NodeCore) -> list[events.Event]:
    found = []
    while (event := node.next_event()) is not None:
        found.append(event)
    return found


def told(node: NodeCore, kind: type[events.Event]) -> list[events.Event]:
    return [event for event in node.events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"interval": 0}, "interval"),
        ({"evasive": -1}, "evasive"),
        ({"expired": 0}, "expired"),
        ({"evasive": 5, "expired": 4}, "not in order"),
        ({"dialect": "klingon"}, "klingon"),
        ({"interface": "no-such-interface"}, "no-such-interface"),
        ({"seeds": ["tcp://10.0.0.1:1"], "network": MemoryNetwork()}, "seeds"),
        ({"groups": ["x" * 256]}, "255"),
    ],
)
def test_bad_options_are_refused_with_a_reason(sim: Simulation, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ZreError, match=complaint):
        NodeCore(sim, "ann", NodeOptions(**{"interface": "lo", "beacon_port": free_port(), **options}))


def test_a_node_that_stops_delivers_what_it_said_before_it_says_goodbye(sim: Simulation) -> None:
    network = MemoryNetwork()
    ann, bob = (start(sim, name, network=network) for name in ("ann", "bob"))
    sim.run()
    drained(bob)
    for number in range(100):
        ann.whisper(bob.engine.uuid, (b"%d" % number,))
    ann.stop(1.0)
    sim.run()
    heard = drained(bob)
    assert [event.data for event in heard if isinstance(event, events.Whisper)] == [b"%d" % n for n in range(100)]
    assert heard[-1] == events.Exit(ann.engine.uuid, "ann", "it left")
    assert ann.stopped
    bob.stop(0)
    sim.run()


def test_after_stop_nothing_can_be_asked(sim: Simulation) -> None:
    node = start(sim, "ann", network=MemoryNetwork())
    node.stop(0)
    node.stop(0)
    sim.run()
    for ask in (
        partial(node.join, "A"),
        partial(node.leave, "A"),
        partial(node.whisper, uuid_of(2), (b"",)),
        partial(node.shout, "A", (b"",)),
        partial(node.announce, "X", "tcp://10.0.0.1:1"),
    ):
        with pytest.raises(NodeStopped):
            ask()


def test_events_that_nobody_reads_stop_the_reading_and_reading_goes_on_when_there_is_room(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVENTS_WAITING", 10)
    network = MemoryNetwork()
    node = start(sim, "ann", network=network)
    bob = Puppet(sim, network.mailbox_at("9", 50001), node.endpoint)
    bob.greet()
    sim.run()
    for number in range(60):
        bob.say(Whisper(number + 2, [b"%d" % number]))
        sim.run()
    assert 10 <= len(node.events) < 20
    heard = []
    for _ in range(100):
        event = node.next_event()
        sim.run()
        if isinstance(event, events.Whisper):
            heard.append(event.data)
    assert heard == [b"%d" % number for number in range(60)]
    node.stop(0)
    bob.close()
    sim.run()


def was_heard(node: NodeCore, number: int) -> bool:
    """Whether a greeting led to something: it was refused, or its sender is thought to be there."""
    return node.engine.counters.bad_messages + len(told(node, events.Enter)) > number


def test_a_peer_that_gives_an_endpoint_that_is_none_is_not_let_in(sim: Simulation) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port())
    for number, endpoint in enumerate(["nonsense", "tcp://999.1.1.1:1", "tcp://[", "tcp://1.2.3:x", "tcp://²:1", ""]):
        bob = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint, uuid_of(100 + number))
        bob.greet(endpoint=endpoint)
        sim.until(partial(was_heard, node, number))
        bob.close()
    good = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint)
    good.greet()
    sim.until(lambda: any(peer.uuid == good.uuid for peer in node.peers))
    good.close()
    node.stop(0)
    sim.run()


def test_what_a_peer_is_told_of_our_mailbox_is_never_a_wildcard(sim: Simulation) -> None:
    port = free_port()
    plain = start(sim, "ann", interface="lo", beacon_port=port)
    for address in ("127.0.0.1", "10.9.9.9", "", "host.example", "999.1.1.1", "::1", "fe80::1"):
        told_endpoint = plain.engine._endpoint_for(address)
        assert told_endpoint == plain.endpoint
        assert told_endpoint.startswith("tcp://127.0.0.1:")
    host = start(sim, "bob", interface="lo", beacon_port=port, advertise="gate.example")
    assert host.engine._endpoint_for("127.0.0.1") == f"tcp://gate.example:{host.endpoint.rpartition(':')[2]}"
    whole = start(sim, "cid", interface="lo", beacon_port=port, advertise="tcp://gate.example:7")
    assert whole.engine._endpoint_for("127.0.0.1") == "tcp://gate.example:7"
    for node in (plain, host, whole):
        node.stop(0)
    sim.run()


def test_the_port_of_the_mailbox_can_be_fixed(sim: Simulation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    node = start(sim, "ann", interface="lo", beacon_port=free_port(), port=port)
    assert node.endpoint == f"tcp://127.0.0.1:{port}"
    with pytest.raises(REFUSALS, match=str(port)):
        start(sim, "bob", interface="lo", beacon_port=free_port(), port=port)
    node.stop(0)
    sim.run()


REFUSALS = (ZambeziError, OSError)


def test_a_beacon_port_that_cannot_be_had_is_told_and_leaves_nothing_open(sim: Simulation) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        with pytest.raises(ZreError, match="beacons"):
            start(sim, "ann", interface="lo", beacon_port=taken.getsockname()[1])
    sim.run()
    assert not sim.watched


def test_seeds_on_loopback_need_no_beacons(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", beacons=False, groups=["CHAT"])
    others = [start(sim, name, interface="lo", seeds=[hub.endpoint], groups=["CHAT"]) for name in ("ann", "bob")]
    nodes = [hub, *others]
    sim.until(lambda: all(len(node.peers) == 2 for node in nodes))
    assert others[0].shout("CHAT", (b"hello",)) == 2
    sim.until(lambda: told(hub, events.Shout) and told(others[1], events.Shout))
    for node in nodes:
        assert not told(node, events.Exit)
        node.stop(0)
    sim.run()


def test_without_the_key_of_the_mesh_nobody_reads_anything(sim: Simulation) -> None:
    port, keys = free_port(), KeyPair.generate()
    common = {"interface": "lo", "beacon_port": port, "groups": ["CHAT"]}
    ann, bob = (start(sim, name, keys=keys, **common) for name in ("ann", "bob"))
    eve = start(sim, "eve", **common)
    sim.advance(1.0)
    sim.until(lambda: ann.peers and bob.peers and len(eve.engine.peers) == 2)
    ann.shout("CHAT", (b"secret",))
    sim.until(lambda: told(bob, events.Shout))
    assert not eve.events
    assert [peer.name for peer in ann.peers] == ["bob"]
    for node in (ann, bob, eve):
        node.stop(0)
    sim.run()
