"""zambezi.zre.discovery: beacons by broadcast on loopback, and in memory."""

import socket
from ipaddress import IPv4Interface

import pytest

from zambezi.zmtp.testing import Simulation
from zambezi.zre.discovery import Broadcast, MemoryNetwork
from zambezi.zre.errors import ZreError
from zambezi.zre.interfaces import Interface

LO = Interface("lo", IPv4Interface("127.0.0.1/8"))
Heard = list[tuple[bytes, str]]


def udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@pytest.fixture
def port() -> int:
    with udp() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(sim: Simulation, discovery: Broadcast) -> Heard:
    heard: Heard = []
    discovery.start(sim, heard.extend)
    return heard


def test_every_node_on_the_port_gets_a_beacon_and_its_address(sim: Simulation, port: int) -> None:
    there = Interface("lo", IPv4Interface("127.0.0.2/8"))
    discoveries = [Broadcast([LO], port), Broadcast([there], port), Broadcast([LO], port)]
    heard = [listening(sim, discovery) for discovery in discoveries]
    discoveries[1].send(b"beacon")
    sim.until(lambda: all(heard))
    assert heard == [[(b"beacon", "127.0.0.2")]] * 3
    for discovery in discoveries:
        discovery.close()
        discovery.close()
    assert not sim.watched


def test_beacons_from_other_networks_are_ignored(sim: Simulation, port: int) -> None:
    discovery = Broadcast([Interface("lo", IPv4Interface("127.0.0.1/24"))], port)
    heard = listening(sim, discovery)
    with udp() as near, udp() as far:
        near.bind(("127.0.0.9", 0))
        far.bind(("127.0.1.9", 0))
        far.sendto(b"far", ("127.0.0.1", port))
        near.sendto(b"near", ("127.0.0.1", port))
    sim.until(lambda: heard)
    assert heard == [(b"near", "127.0.0.9")]
    discovery.close()


def test_a_datagram_that_is_too_long_for_a_beacon_is_cut_and_no_more_is_kept(sim: Simulation, port: int) -> None:
    discovery = Broadcast([LO], port)
    heard = listening(sim, discovery)
    with udp() as sender:
        sender.sendto(bytes(60_000), ("127.0.0.1", port))
    sim.until(lambda: heard)
    assert 22 < len(heard[0][0]) <= 64
    discovery.close()


def test_a_beacon_goes_out_on_every_interface(sim: Simulation, port: int) -> None:
    networks = [Interface("a", IPv4Interface("127.1.0.1/16")), Interface("b", IPv4Interface("127.2.0.1/16"))]
    sender = Broadcast(networks, port)
    sender.start(sim, lambda *_: None)
    heard: list[bytes] = []
    targets = [target for _, target in sender._senders]
    assert targets == [("127.1.255.255", port), ("127.2.255.255", port)]
    # The loopback has one broadcast address, that of the whole network; those of its parts are ordinary addresses.
    with udp() as first, udp() as second:
        for listener, (address, number) in zip((first, second), targets, strict=True):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind((address, number))
            listener.settimeout(60)
        sender.send(b"beacon")
        for listener, interface in zip((first, second), networks, strict=True):
            octets, (address, _) = listener.recvfrom(100)
            heard.append(octets)
            assert address == interface.address
    assert heard == [b"beacon"] * 2
    sender.close()


def test_an_interface_that_is_gone_is_refused_and_nothing_stays_open(sim: Simulation, port: int) -> None:
    with pytest.raises(ZreError, match=f"UDP port {port}"):
        Broadcast([LO, Interface("eth9", IPv4Interface("203.0.113.5/24"))], port).start(sim, lambda *_: None)
    assert not sim.watched


def test_a_beacon_that_cannot_be_sent_is_swallowed(sim: Simulation, port: int) -> None:
    discovery = Broadcast([LO], port)
    listening(sim, discovery)
    for sender, _ in discovery._senders:
        sender.close()  # like a network that is gone
    discovery.send(b"beacon")
    discovery.close()
    discovery.send(b"beacon")


def test_in_memory_every_node_of_a_network_gets_a_beacon_and_no_other() -> None:
    sim = Simulation()
    network, other = MemoryNetwork(), MemoryNetwork()
    heard: list[tuple[str, bytes, str]] = []
    places = [network.discovery(), network.discovery(), other.discovery()]
    for name, place in zip("abc", places, strict=True):
        place.start(sim, lambda found, name=name: heard.extend((name, *one) for one in found))  # type: ignore[misc]
    places[0].send(b"beacon")
    assert heard == []  # each gets it in its own event loop
    sim.run()
    assert heard == [("a", b"beacon", "1"), ("b", b"beacon", "1")]
    places[1].close()
    places[1].close()
    heard.clear()
    places[0].send(b"again")
    sim.run()
    assert heard == [("a", b"again", "1")]
    assert network.mailbox_at("1", 50000) != other.mailbox_at("1", 50000)


def test_in_memory_a_flood_of_beacons_is_read_in_turns() -> None:
    sim = Simulation()
    network = MemoryNetwork()
    here, there = network.discovery(), network.discovery()
    got: list[bytes] = []
    turns: list[int] = []
    reads: list[int] = []

    def receive(found: list[tuple[bytes, str]]) -> None:
        reads.append(len(found))
        got.extend(octets for octets, _ in found)

    here.start(sim, receive)
    sent = [b"%d" % number for number in range(1000)]
    for octets in sent:
        there.send(octets)
    sim.call_soon(lambda: turns.append(len(got)))
    sim.run()
    assert got == sent
    assert 0 < turns[0] < 1000
    assert reads == [100] * 10  # a node does per read what it need not do per beacon
    there.send(b"again")
    sim.run()
    assert got[-1] == b"again"


def test_in_memory_a_node_that_is_gone_gets_no_beacon() -> None:
    sim = Simulation()
    network = MemoryNetwork()
    here, there = network.discovery(), network.discovery()
    got: list[bytes] = []
    here.start(sim, lambda found: got.extend(octets for octets, _ in found))
    there.send(b"x")
    here.close()
    there.send(b"y")
    sim.run()
    assert got == []
