"""zambezi.zre.node: a node with its sockets, on a clock that the test moves, in memory and over loopback."""

import contextlib
import errno
import logging
import socket
from functools import partial
from ipaddress import IPv4Interface
from typing import Any

import pytest

from tests.zre.mesh import uuid_of
from tests.zre.puppet import Puppet
from zambezi.errors import ZambeziError
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events, interfaces, log, unread
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import NodeStopped, ZreError
from zambezi.zre.interfaces import Interface
from zambezi.zre.logservice import LogShell
from zambezi.zre.messages import Hello, Whisper
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(sim: Simulation, name: str, **options: Any) -> NodeShell:
    node = NodeShell(sim, name, NodeOptions(**options))
    node.start()
    return node


def drained(node: NodeShell) -> list[events.Event]:
    found = []
    while (event := node.next_event()) is not None:
        found.append(event)
    return found


def told(node: NodeShell, kind: type[events.Event]) -> list[events.Event]:
    return [event for event in node.events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"interval": 0}, "interval"),
        ({"evasive": -1}, "evasive"),
        ({"expired": 0}, "expired"),
        ({"evasive": 5, "expired": 4}, "evasive must be less"),
        ({"dialect": "klingon"}, "klingon"),
        ({"interface": "no-such-interface"}, "no-such-interface"),
        ({"seeds": ["tcp://10.0.0.1:1"], "network": MemoryNetwork()}, "seeds"),
        ({"groups": ["x" * 256]}, "255"),
        ({"seeds": ["10.0.0.1:1"]}, "no endpoint"),
        ({"max_peers": 0}, "max_peers"),
        ({"max_peers": 10, "max_strangers": 11}, "max_strangers"),
    ],
)
def test_bad_options_are_refused_with_a_reason(sim: Simulation, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ZambeziError, match=complaint):
        NodeShell(sim, "ann", NodeOptions(**{"interface": "lo", "beacon_port": free_port(), **options}))


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


def test_unread_events_stop_the_node_from_reading_until_there_is_room(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "EVENTS_WAITING", 10)
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


def was_heard(node: NodeShell, number: int) -> bool:
    """Return whether a HELLO was handled: it was refused, or its sender has entered."""
    return node.engine.counters.refused_endpoints + len(told(node, events.Enter)) > number


def test_a_peer_with_a_malformed_endpoint_does_not_enter(sim: Simulation) -> None:
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


def test_peers_are_never_told_a_wildcard_as_our_mailbox(sim: Simulation) -> None:
    port = free_port()
    plain = start(sim, "ann", interface="lo", beacon_port=port)
    for address in ("127.0.0.1", "10.9.9.9", "", "host.example", "999.1.1.1", "::1", "fe80::1"):
        told_endpoint = plain.endpoint_for(address)
        assert told_endpoint == plain.endpoint
        assert told_endpoint.startswith("tcp://127.0.0.1:")
    host = start(sim, "bob", interface="lo", beacon_port=port, advertise="gate.example")
    assert host.endpoint_for("127.0.0.1") == f"tcp://gate.example:{host.endpoint.rpartition(':')[2]}"
    whole = start(sim, "cid", interface="lo", beacon_port=port, advertise="tcp://gate.example:7")
    assert whole.endpoint_for("127.0.0.1") == "tcp://gate.example:7"
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


def test_a_beacon_port_that_is_taken_raises_and_leaves_nothing_open(sim: Simulation) -> None:
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
    assert others[0].shout("CHAT", (b"hello",)).count == 2
    sim.until(lambda: told(hub, events.Shout) and told(others[1], events.Shout))
    for node in nodes:
        assert not told(node, events.Exit)
        node.stop(0)
    sim.run()


def test_a_node_without_the_key_of_the_mesh_reads_nothing(sim: Simulation) -> None:
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


def test_a_seed_is_known_by_the_identity_of_its_mailbox(sim: Simulation) -> None:
    """The seed is configured by a host name, and its HELLO has another address than the one of that name."""
    hub = start(sim, "hub", interface="lo", beacons=False, advertise="127.0.0.9")
    port = hub.endpoint.rpartition(":")[2]
    sim.names["hub.example"] = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", int(port)))]
    ann = start(sim, "ann", interface="lo", seeds=[f"tcp://hub.example:{port}"])
    sim.until(lambda: ann.peers and hub.peers)
    assert [peer.endpoint for peer in ann.peers] == [f"tcp://hub.example:{port}"]
    assert len(ann.engine.peers) == 1
    assert not ann.engine.rendezvous.seeds.unmet
    for node in (ann, hub):
        node.stop(0)
    sim.run()


@pytest.mark.parametrize("way", ["beacons", "seeds"])
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_node_that_returns_on_its_port_with_another_uuid_is_met_again(
    sim: Simulation, way: str, encrypted: bool
) -> None:
    common: dict[str, Any] = {"interface": "lo", "keys": KeyPair.generate() if encrypted else None}
    ways: dict[str, dict[str, Any]] = {"beacons": {"beacon_port": free_port()}, "seeds": {"beacons": False}}
    hub = start(sim, "hub", **common, **ways[way])
    ann = start(sim, "ann", **common, **(ways[way] if way == "beacons" else {"seeds": [hub.endpoint]}))
    sim.advance(1.0)
    sim.until(lambda: ann.peers and hub.peers)
    port = int(hub.endpoint.rpartition(":")[2])
    for _ in range(3):
        drained(ann)
        last = hub
        last.crash()
        sim.until(lambda: ann._dealers._lost)
        hub = start(sim, "hub", **common, **ways[way], port=port)
        sim.advance(2.0)
        sim.until(lambda: hub.peers and told(ann, events.Enter))  # noqa: B023
        assert [event.peer for event in told(ann, events.Exit)] == [last.engine.uuid]
        assert [event.peer for event in told(ann, events.Enter)] == [hub.engine.uuid]
        ann.whisper(hub.engine.uuid, (b"hello",))
        sim.until(lambda: told(hub, events.Whisper))  # noqa: B023
        assert len(ann.engine.peers) == len(ann._dealers.transport.connectors) == 1
    for node in (ann, hub):
        node.stop(0)
    sim.run()


def test_a_node_may_be_among_its_own_seeds(sim: Simulation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    node = start(sim, "ann", interface="lo", seeds=[f"tcp://127.0.0.1:{port}"], port=port)
    sim.until(lambda: not node.engine.rendezvous.seeds.unmet)
    assert not node.engine.peers
    assert not node._dealers.transport.connectors
    node.stop(0)
    sim.run()


def test_a_node_without_beacons_says_goodbye_after_its_last_words(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", beacons=False)
    ann = start(sim, "ann", interface="lo", seeds=[hub.endpoint])
    sim.until(lambda: ann.peers and hub.peers)
    for number in range(100):
        ann.whisper(hub.engine.uuid, (b"%d" % number,))
    ann.stop(1.0)
    sim.until(lambda: told(hub, events.Exit))
    heard = drained(hub)
    assert [event.data for event in heard if isinstance(event, events.Whisper)] == [b"%d" % n for n in range(100)]
    assert heard[-1] == events.Exit(ann.engine.uuid, "ann", "it left")
    hub.stop(0)
    sim.run()


# Interfaces that come and go


class Machine:
    """The interfaces of a machine, as a test wants them."""

    def __init__(self) -> None:
        self.interfaces: list[Interface] = []

    def has(self, *addresses: str, name: str = "eth0") -> None:
        self.interfaces = [Interface(name, IPv4Interface(address)) for address in addresses]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(interfaces, "interfaces", lambda: made.interfaces)
    return made


def test_a_node_follows_its_interface_to_another_address(sim: Simulation, machine: Machine) -> None:
    machine.has("127.0.0.2/8")
    port = free_port()
    ann, bob = (start(sim, name, interface="eth0", beacon_port=port, evasive=50.0, expired=99.0) for name in "ab")
    sim.until(lambda: ann.peers and bob.peers)
    mailbox = ann.endpoint.rpartition(":")[2]
    assert ann.endpoint == f"tcp://127.0.0.2:{mailbox}"
    sim.advance(10)
    assert ann.endpoint == f"tcp://127.0.0.2:{mailbox}"  # nothing changed
    machine.has("127.0.0.3/8")
    sim.advance(3.1)
    for node in (ann, bob):
        assert node.endpoint.startswith("tcp://127.0.0.3:")
        assert list(node._mailbox.transport.listeners) == [node.endpoint]
    assert ann.endpoint.endswith(f":{mailbox}")  # the port stays the same if it is free
    # A third node finds them at the new address: both the beacon and HELLO have it.
    cid = start(sim, "c", interface="eth0", beacon_port=port)
    sim.until(lambda: len(cid.peers) == 2)
    assert {peer.endpoint for peer in cid.peers} == {ann.endpoint, bob.endpoint}
    sim.until(lambda: [peer.endpoint for peer in ann.peers if peer.name == "b"] == [bob.endpoint])
    ann.whisper(bob.engine.uuid, (b"here",))
    sim.until(lambda: told(bob, events.Whisper))
    for node in (ann, bob, cid):
        node.stop(0)
    sim.run()
    assert not sim.watched


@pytest.mark.parametrize("failure", [OSError(24, "Too many open files"), RuntimeError("a bug")])
def test_a_node_goes_on_after_a_look_at_the_interfaces_has_failed(
    sim: Simulation, machine: Machine, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    machine.has("127.0.0.2/8")
    node = start(sim, "ann", interface="eth0", beacon_port=free_port())
    looks = 0

    def fail() -> list[Interface]:
        nonlocal looks
        looks += 1
        raise failure

    monkeypatch.setattr(interfaces, "interfaces", fail)
    while looks < 3:
        with contextlib.suppress(RuntimeError):
            sim.advance(1.0)
    monkeypatch.setattr(interfaces, "interfaces", lambda: machine.interfaces)
    machine.has("127.0.0.3/8")
    sim.advance(5.0)
    assert node.endpoint.startswith("tcp://127.0.0.3:")
    node.stop(0)
    sim.run()


def test_a_node_that_cannot_open_sockets_does_not_move_and_tries_again(
    sim: Simulation, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("127.0.0.2/8")
    node = start(sim, "ann", interface="eth0", beacon_port=free_port())
    before = node.endpoint

    def exhausted(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", exhausted)
        machine.has("127.0.0.3/8")
        sim.advance(10.0)
        assert node.endpoint == before
        assert list(node._mailbox.transport.listeners) == [before]
    sim.advance(5.0)
    assert node.endpoint.startswith("tcp://127.0.0.3:")
    node.stop(0)
    sim.run()


def test_a_peer_is_told_the_new_address(sim: Simulation, machine: Machine) -> None:
    machine.has("127.0.0.2/8")
    node = start(sim, "ann", interface="eth0", beacon_port=free_port())
    bob = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint)
    bob.greet()
    sim.until(lambda: bob.router.readable)
    assert Hello.decode(bob.heard()[0]).endpoint == node.endpoint
    machine.has("127.0.0.3/8")
    sim.advance(3.1)
    sim.until(lambda: bob.router.readable)
    told_endpoint = Hello.decode(bob.heard()[0]).endpoint
    assert told_endpoint == node.endpoint
    assert told_endpoint.startswith("tcp://127.0.0.3:")
    bob.close()
    node.stop(0)
    sim.run()


def test_a_node_waits_for_an_interface_that_is_gone(sim: Simulation, machine: Machine) -> None:
    machine.has("127.0.0.2/8")
    node = start(sim, "ann", interface="eth0", beacon_port=free_port())
    before = node.endpoint
    machine.has()
    sim.advance(20)
    assert node.endpoint == before
    machine.has("127.0.0.3/8")
    sim.advance(3.1)
    assert node.endpoint.startswith("tcp://127.0.0.3:")
    node.stop(0)
    sim.run()


def test_a_node_waits_for_its_fixed_port_at_the_new_address(
    sim: Simulation, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.has("127.0.0.2/8")
    with socket.create_server(("127.0.0.3", 0)) as taken:
        port = taken.getsockname()[1]
        node = start(sim, "ann", interface="eth0", beacon_port=free_port(), port=port)
        machine.has("127.0.0.3/8")
        sim.advance(7)
        assert node.endpoint == f"tcp://127.0.0.2:{port}"
    assert {record.levelname for record in caplog.records if record.name == "zambezi.zre"} == {"WARNING"}
    assert "cannot move from eth0 (127.0.0.2) to eth0 (127.0.0.3)" in caplog.text
    sim.advance(3.1)
    assert node.endpoint == f"tcp://127.0.0.3:{port}"
    node.stop(0)
    sim.run()


def test_a_node_takes_another_port_if_its_own_is_taken_at_the_new_address(sim: Simulation, machine: Machine) -> None:
    machine.has("127.0.0.2/8")
    node = start(sim, "ann", interface="eth0", beacon_port=free_port())
    port = int(node.endpoint.rpartition(":")[2])
    with socket.create_server(("127.0.0.3", port)):
        machine.has("127.0.0.3/8")
        sim.advance(3.1)
    assert node.endpoint.startswith("tcp://127.0.0.3:")
    assert node.engine.port == int(node.endpoint.rpartition(":")[2]) != port
    node.stop(0)
    sim.run()


def test_an_address_that_is_gone_again_changes_nothing(sim: Simulation, machine: Machine) -> None:
    machine.has("127.0.0.2/8")
    node = start(sim, "ann", interface="eth0", beacon_port=free_port(), advertise="gate.example")
    before = node.endpoint
    machine.has("203.0.113.77/24")  # not an address of this machine: it was gone again before we could bind to it
    sim.advance(7)
    assert node.endpoint == before
    assert list(node._mailbox.transport.listeners) == [before]
    node.stop(0)
    sim.run()
    assert not sim.watched


def test_with_no_network_a_node_is_on_the_loopback_and_says_so(
    sim: Simulation, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.has("127.0.0.1/8", name="lo")
    for interface, warned in (("lo", False), (None, True), ("*", True)):
        caplog.clear()
        node = start(sim, "ann", interface=interface, beacon_port=free_port())
        records = [record for record in caplog.records if record.name == "zambezi.zre"]
        assert [record.levelno for record in records] == [logging.WARNING] * warned
        assert ("no network but the loopback" in caplog.text) == warned
        assert node.endpoint_for("127.0.0.1").startswith("tcp://127.0.0.1:")
        node.stop(0)
        sim.run()


@pytest.mark.parametrize(
    ("interface", "address", "told_address"),
    [
        ("*", "10.0.0.9", "10.0.0.5"),
        ("*", "192.168.1.9", "192.168.1.5"),
        ("*", "", "10.0.0.5"),
        ("*", "gate.example", "10.0.0.5"),
        ("*", "127.0.0.9", "127.0.0.1"),  # on this machine, and the mailbox is bound to the loopback too
        ("*", "169.254.3.3", "10.0.0.5"),  # our address there is link-local
        ("*", "203.0.113.7", "10.8.0.5"),  # reached by another network of ours
        ("eth0", "192.168.1.9", "10.0.0.5"),
        ("eth0", "203.0.113.7", "10.0.0.5"),
        ("eth0", "127.0.0.9", "10.0.0.5"),
    ],
)
def test_a_peer_is_told_an_address_that_it_can_reach(
    sim: Simulation,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    interface: str,
    address: str,
    told_address: str,
) -> None:
    routes = {"127.0.0.9": "127.0.0.1", "169.254.3.3": "169.254.7.7", "203.0.113.7": "10.8.0.5"}
    monkeypatch.setattr(interfaces, "local_address_for", lambda address: routes.get(address, ""))
    machine.interfaces = [
        Interface("eth0", IPv4Interface("10.0.0.5/24")),
        Interface("wlan0", IPv4Interface("192.168.1.5/24")),
        Interface("tun0", IPv4Interface("10.8.0.5/32")),
        Interface("lo", IPv4Interface("127.0.0.1/8")),
    ]
    node = NodeShell(sim, "ann", NodeOptions(interface=interface, beacons=False))
    node._whereabouts.endpoint = "tcp://0.0.0.0:50000"
    assert node.endpoint_for(address) == f"tcp://{told_address}:50000"


def test_a_log_service_goes_with_its_node(sim: Simulation, machine: Machine) -> None:
    machine.has("127.0.0.2/8")
    port = free_port()
    collector = start(sim, "collector", interface="eth0", beacon_port=port)
    service = LogShell(sim, collector)
    collector.announce(log.SERVICE, service.endpoint)
    ann = start(sim, "ann", interface="eth0", beacon_port=port, log=True)
    sim.until(lambda: service.next_record() is not None)
    machine.has("127.0.0.3/8")
    sim.advance(3.1)
    assert service.endpoint.startswith("tcp://127.0.0.3:")
    sim.until(lambda: list(ann.engine.services(log.SERVICE).values()) == [service.endpoint])
    while service.next_record() is not None:
        pass
    ann.join("CHAT")
    sim.until(lambda: service.next_record() is not None)
    service.close()
    assert not collector.on_moved
    for node in (ann, collector):
        node.stop(0)
    sim.run()
    assert not sim.watched


# Timers and logs


def test_a_node_whose_descriptors_have_run_out_looks_again(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port())
    looks = []

    def exhausted() -> list[Interface]:
        looks.append(sim.time())
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(interfaces, "interfaces", exhausted)
        sim.advance(10)
    assert len(looks) == 3
    assert "cannot list the interfaces of this machine, will try again" in caplog.text
    beacons: list[bytes] = []
    monkeypatch.setattr(node._whereabouts._discovery, "send", beacons.append)
    sim.advance(10)
    assert len(beacons) == 10
    node.stop(0)
    sim.run()


def test_a_tick_that_fails_is_not_the_last_one(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port())
    sent: list[bytes] = []
    failures = iter([OSError("no"), RuntimeError("no")])

    def send(octets: bytes) -> None:
        for failure in failures:
            raise failure
        sent.append(octets)

    monkeypatch.setattr(node._whereabouts._discovery, "send", send)
    for _ in range(2):
        with pytest.raises((OSError, RuntimeError), match="no"):
            sim.advance(1.5)
    sim.advance(3)
    assert sent
    node.stop(0)
    sim.run()


def test_refusals_are_logged_in_sum(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port())
    eve = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint)
    for _ in range(500):
        eve.greet(endpoint="ipc:///run/docker.sock")
    sim.until(lambda: node.engine.counters.refused_endpoints == 500)
    sim.advance(61)
    lines = [record.message for record in caplog.records if "refused endpoints" in record.message]
    assert 1 <= len(lines) <= 2
    assert sum(int(line.split()[1]) for line in lines) == 500
    eve.close()
    node.stop(0)
    sim.run()
