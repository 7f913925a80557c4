"""36/ZRE, rule by rule: the stable protocol, its draft as a dialect, extension protocols and ZRE/LOG."""

import itertools
import socket
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tests.zmtp.stranger import Stranger, hello
from tests.zre.mesh import Member, Mesh, uuid_of
from tests.zre.puppet import Puppet, Witness
from zambezi.zmtp.frames import encode
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Pub
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events, log
from zambezi.zre.dialect import ELECTIONS
from zambezi.zre.discovery import PORT, MemoryNetwork
from zambezi.zre.engine import Engine
from zambezi.zre.logservice import LogShell
from zambezi.zre.messages import (
    Draft,
    DraftHello,
    DraftWhisper,
    Hello,
    Join,
    Leave,
    Ping,
    PingOk,
    Shout,
    Stable,
    Whisper,
)
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions
from zambezi.zre.outputs import Broadcast, Connect, Disconnect, Output, Send

OURS, THEIRS, OTHERS = UUID(int=0x0A), UUID(int=0x0B), UUID(int=0x0C)
MAILBOX = "tcp://10.0.0.1:50000"
NOW = 1000.0


def beacon(uuid: UUID = THEIRS, port: int = 50001) -> bytes:
    return b"ZRE\x01" + uuid.bytes + struct.pack(">H", port)


def identity(uuid: UUID = THEIRS) -> bytes:
    return b"\x01" + uuid.bytes


def greeting(**fields: Any) -> list[bytes]:
    """Return a HELLO as a peer sends it."""
    values = {"endpoint": "tcp://10.0.0.2:50001", "name": "bob", **fields}
    return list(Hello(1, **values).encode())


def engine(**options: Any) -> Engine:
    return Engine(OURS, "ann", lambda _: MAILBOX, **options)


def met(**fields: Any) -> Engine:
    """Return an engine that knows one peer, and has no outputs left."""
    ours = engine()
    ours.receive(identity(), greeting(**fields), NOW)
    ours.take()
    return ours


def sent(outputs: list[Output], to: UUID = THEIRS) -> list[Stable]:
    """Return the messages to a peer, decoded."""
    found = []
    for output in outputs:
        if isinstance(output, Send) and output.peer == to.bytes:
            message = Stable.decode(list(output.frames))
            assert isinstance(message, Stable)
            found.append(message)
    return found


def told(outputs: list[Output], *kinds: type[events.Event]) -> list[events.Event]:
    return [output for output in outputs if isinstance(output, kinds or events.Event)]


def free_port() -> int:
    """Return a UDP port that is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def nodes(sim: Simulation) -> Iterator["Nodes"]:
    made = Nodes(sim)
    yield made
    made.stop()


class Nodes:
    """Start nodes on the loopback, on a UDP port of their own."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._made: list[NodeShell] = []
        self.beacon_port = free_port()

    def start(self, name: str, **options: Any) -> NodeShell:
        node = NodeShell(self._sim, name, NodeOptions(interface="lo", beacon_port=self.beacon_port, **options))
        node.start()
        self._made.append(node)
        return node

    def stop(self) -> None:
        for node in self._made:
            node.stop(0)
        self._sim.run()


def heard(node: NodeShell, kind: type[events.Event]) -> list[events.Event]:
    """Return the events of a kind so far. They stay in the queue."""
    return [event for event in node.events if isinstance(event, kind)]


# Beacons


@pytest.mark.spec("BCN-01")
def test_beacons_are_heard_on_the_port_of_zre_or_a_configured_one(sim: Simulation, nodes: Nodes) -> None:
    assert PORT == 5670
    assert NodeOptions().beacon_port == 5670
    node = nodes.start("ann")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        sender.sendto(beacon(), ("127.0.0.1", nodes.beacon_port))
    sim.until(lambda: THEIRS.bytes in node.engine.peers)


@pytest.mark.spec("BCN-02")
def test_a_beacon_goes_out_at_regular_intervals() -> None:
    ours = engine(interval=1.0)
    ours.start(50000, NOW)
    times = [NOW]
    assert ours.take() == [Broadcast(beacon(OURS, 50000))]
    for _ in range(5):
        assert ours.deadline > times[-1]
        ours.tick(ours.deadline - 0.001)
        assert ours.take() == []
        times.append(ours.deadline)
        ours.tick(ours.deadline)
        assert ours.take() == [Broadcast(beacon(OURS, 50000))]
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [1.0] * 5


@pytest.mark.spec("BCN-02", "BCN-03")
def test_beacons_are_broadcast_on_the_wire_in_22_octets(sim: Simulation, nodes: Nodes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("", nodes.beacon_port))
        listener.settimeout(60)
        node = nodes.start("ann", uuid=OURS)
        port = int(node.endpoint.rpartition(":")[2])
        assert listener.recv(100) == b"ZRE\x01" + OURS.bytes + port.to_bytes(2, "big")
        sim.advance(1.0)
        assert listener.recv(100) == beacon(OURS, port)


@pytest.mark.spec("BCN-04")
@pytest.mark.parametrize(
    "octets",
    [
        b"",
        beacon()[:-1],
        beacon() + b"\0",
        b"ZRF\x01" + beacon()[4:],
        b"zre\x01" + beacon()[4:],
        b"ZRE\x02" + beacon()[4:],
        b"ZRE\x00" + beacon()[4:],
    ],
)
def test_an_invalid_beacon_is_discarded_in_silence(octets: bytes) -> None:
    ours = engine()
    ours.receive_beacon(octets, "10.0.0.2", NOW)
    assert ours.take() == []
    assert not ours.peers
    assert ours.counters.bad_beacons == 1


@pytest.mark.spec("BCN-05")
@pytest.mark.parametrize("port", [50000, 50001, 0])
def test_a_node_discards_its_own_beacons(port: int) -> None:
    ours = engine()
    ours.start(50000, NOW)
    ours.take()
    ours.receive_beacon(beacon(OURS, port), "10.0.0.1", NOW)
    assert ours.take() == []
    assert not ours.peers
    assert ours.counters.bad_beacons == 0


@pytest.mark.spec("BCN-06")
def test_a_beacon_of_a_stranger_makes_a_peer_at_the_address_that_it_came_from() -> None:
    ours = engine()
    ours.receive_beacon(beacon(THEIRS, 50001), "10.0.0.99", NOW)
    connect, *rest = ours.take()
    assert connect == Connect(THEIRS.bytes, "tcp://10.0.0.99:50001")
    assert [type(message) for message in sent(rest)] == [Hello]
    ours.receive_beacon(beacon(THEIRS, 50001), "10.0.0.99", NOW)
    assert ours.take() == []  # it is known now


@pytest.mark.spec("BCN-06")
def test_a_beacon_of_a_stranger_that_leaves_makes_no_peer() -> None:
    ours = engine()
    ours.receive_beacon(beacon(THEIRS, 0), "10.0.0.2", NOW)
    assert ours.take() == []
    assert not ours.peers


@pytest.mark.spec("BCN-07")
def test_a_beacon_with_port_zero_disconnects_the_peer_at_once() -> None:
    ours = met()
    ours.receive_beacon(beacon(THEIRS, 0), "10.0.0.2", NOW)
    assert ours.take() == [Disconnect(THEIRS.bytes), events.Exit(THEIRS, "bob", "it left")]
    assert not ours.peers


@pytest.mark.spec("BCN-08")
def test_a_node_that_leaves_says_so_with_port_zero(sim: Simulation, nodes: Nodes) -> None:
    ours = engine()
    ours.start(50000, NOW)
    ours.take()
    ours.stop()
    assert ours.take() == [Broadcast(beacon(OURS, 0))]

    ann, bob = nodes.start("ann"), nodes.start("bob")
    sim.until(lambda: heard(ann, events.Enter) and heard(bob, events.Enter))
    ann.stop(1.0)
    sim.until(lambda: heard(bob, events.Exit))
    (gone,) = heard(bob, events.Exit)
    assert gone == events.Exit(ann.engine.uuid, "ann", "it left")


@pytest.mark.spec("BCN-09", "PING-02")
def test_a_peer_that_stops_to_send_beacons_is_gone_after_a_while() -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1), mesh.add(2)
    mesh.advance(100)
    assert list(ann.ready) == [bob.uuid]
    mesh.kill(bob)
    last = ann.engine.peers[bob.uuid.bytes].heard
    mesh.advance(last + 29.9 - mesh.now)
    assert list(ann.ready) == [bob.uuid]
    mesh.advance(0.2)
    assert ann.told(events.Exit) == [events.Exit(bob.uuid, "node2", "silent for 30 s")]
    assert not ann.engine.peers
    assert bob.uuid.bytes not in ann.connections  # disconnected


# The mailbox


@pytest.mark.spec("MBX-01")
def test_the_mailbox_is_a_router_on_an_ephemeral_port_that_is_broadcast(sim: Simulation, nodes: Nodes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("", nodes.beacon_port))
        listener.settimeout(60)
        node = nodes.start("ann", uuid=OURS)
        (port,) = struct.unpack(">H", listener.recv(100)[20:])
    assert 0xC000 <= port <= 0xFFFF
    assert node.endpoint == f"tcp://127.0.0.1:{port}"
    with Witness.calling(node.endpoint) as caller:
        caller.say(hello("DEALER", identity()))
        sim.until(lambda: caller.heard_all() and caller.commands)
        assert b"Socket-Type\x00\x00\x00\x06ROUTER" in caller.raw


@pytest.mark.spec("MBX-02", "MBX-04")
def test_nothing_goes_out_by_the_router_and_nothing_is_taken_from_a_dealer(sim: Simulation, nodes: Nodes) -> None:
    node = nodes.start("ann", uuid=OURS, evasive=0.5, expired=100.0, groups=["CHAT"])
    with socket.create_server(("127.0.0.1", 0)) as mailbox, Stranger.calling(node.endpoint) as caller:
        endpoint = f"tcp://127.0.0.1:{mailbox.getsockname()[1]}"
        caller.say(hello("DEALER", identity()))
        caller.say(encode([tuple(greeting(endpoint=endpoint, groups=["CHAT"]))]))
        sim.until(lambda: heard(node, events.Enter))
        with Stranger(mailbox.accept()[0]) as listener:
            # Cause every command: all of them come by the DEALER, and none by the ROUTER.
            listener.say(hello("ROUTER"))
            node.whisper(THEIRS, (b"1",))
            node.shout("CHAT", (b"2",))
            node.join("NEW")
            node.leave("NEW")
            caller.say(encode([Ping(2).encode()]))
            sim.until(lambda: listener.heard_all() and len(listener.messages) == 6)
            sim.advance(0.6)
            sim.until(lambda: listener.heard_all() and len(listener.messages) == 7)
            commands = [Stable.decode(message) for message in listener.messages]
            assert [type(command) for command in commands] == [Hello, Whisper, Shout, Join, Leave, PingOk, Ping]
            assert caller.heard_all()
            assert caller.messages == []
            # Messages that the peer's ROUTER sends back are ignored.
            listener.say(encode([Whisper(2, [b"the wrong way"]).encode()]))
            caller.say(encode([Whisper(3, [b"the right way"]).encode()]))
            sim.until(lambda: heard(node, events.Whisper))
            sim.run(0.02)
            assert heard(node, events.Whisper) == [events.Whisper(THEIRS, "bob", (b"the right way",))]


@pytest.mark.spec("MBX-03")
def test_each_peer_has_a_dealer_of_its_own_with_the_identity_of_the_node(sim: Simulation, nodes: Nodes) -> None:
    node = nodes.start("ann", uuid=OURS)
    mailboxes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("127.0.0.1", 0))
            for uuid, mailbox in zip((THEIRS, OTHERS), mailboxes, strict=True):
                sender.sendto(beacon(uuid, mailbox.getsockname()[1]), ("127.0.0.1", nodes.beacon_port))
        sim.until(lambda: len(node.engine.peers) == 2)
        for mailbox in mailboxes:
            mailbox.settimeout(60)
            with Witness(mailbox.accept()[0]) as listener:
                listener.say(hello("ROUTER"))
                sim.until(partial(Witness.has_messages, listener))
                assert b"Socket-Type\x00\x00\x00\x06DEALER" in listener.raw
                assert b"\x08Identity\x00\x00\x00\x11\x01" + OURS.bytes in listener.raw
                assert len(listener.messages) == 1  # its own HELLO, and not the one for the other
            mailbox.setblocking(False)
            with pytest.raises(BlockingIOError):
                mailbox.accept()
    finally:
        for mailbox in mailboxes:
            mailbox.close()


@pytest.mark.spec("MBX-04")
def test_what_comes_in_by_a_dealer_is_not_received(sim: Simulation) -> None:
    network = MemoryNetwork()
    node = NodeShell(sim, "ann", NodeOptions(network=network, uuid=OURS))
    node.start()
    bob = Puppet(sim, network.mailbox_at("9", 50001), node.endpoint)
    network.broadcast(beacon(), "9")
    sim.run()
    assert len(bob.heard()) == 1
    assert bob.router.try_send((identity(OURS), *greeting()))
    sim.run()
    assert not node.events
    assert not node.peers
    bob.greet()
    sim.run()
    assert heard(node, events.Enter)  # the right way
    node.stop(0)
    bob.close()
    sim.run()


@pytest.mark.spec("MBX-05")
def test_a_queue_that_is_full_for_the_expired_time_means_that_the_peer_does_not_respond(sim: Simulation) -> None:
    network = MemoryNetwork()
    node = NodeShell(sim, "ann", NodeOptions(network=network, bound=Bound(10, 100_000)))
    node.start()
    bob = Puppet(sim, network.mailbox_at("9", 50001), node.endpoint)
    bob.greet(groups=["CHAT"])
    sim.run()
    assert heard(node, events.Enter)
    bob.router.close(0)  # from now on it accepts nothing
    sim.run()
    for number in range(10):
        assert not heard(node, events.Exit), number
        node.shout("CHAT", (b"%d" % number,))  # never waits
    assert node.shout("CHAT", (b"one too many",)).waiting  # the queue is bounded
    for second in range(30):
        assert not heard(node, events.Exit), second
        bob.say(PingOk(2 + second))  # it is alive, but does not read
        sim.advance(1.0)
    sim.advance(5.0)
    (gone,) = heard(node, events.Exit)
    assert isinstance(gone, events.Exit)
    assert gone.peer == bob.uuid
    assert "does not respond" in gone.reason
    assert not node.peers
    node.stop(0)
    bob.close()
    sim.run()


@pytest.mark.spec("MBX-06", "HEL-03")
def test_a_valid_message_of_a_stranger_makes_a_peer() -> None:
    ours = engine()
    ours.receive(identity(), greeting(endpoint="tcp://10.0.0.2:50001"), NOW)
    connect, *rest = ours.take()
    assert connect == Connect(THEIRS.bytes, "tcp://10.0.0.2:50001")
    assert [type(message) for message in sent(rest)] == [Hello]  # it is greeted, as after a beacon
    assert told(rest) == [events.Enter(THEIRS, "bob", "tcp://10.0.0.2:50001", {})]


@pytest.mark.spec("MBX-06")
def test_without_beacons_a_greeting_is_enough_for_both_sides(sim: Simulation, nodes: Nodes) -> None:
    node = nodes.start("ann", uuid=OURS)
    bob = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint)
    bob.greet()
    sim.until(lambda: heard(node, events.Enter))
    sim.until(lambda: bob.router.readable)
    answer = Stable.decode(bob.heard()[0])
    assert isinstance(answer, Hello)
    assert (answer.sequence, answer.endpoint, answer.name) == (1, node.endpoint, "ann")
    bob.close()
    sim.run()


@pytest.mark.spec("MBX-07")
def test_many_nodes_run_in_one_process(sim: Simulation, nodes: Nodes) -> None:
    made = [nodes.start(f"node{number}") for number in range(8)]
    sim.until(lambda: all(len(node.peers) == 7 for node in made))
    names = {node.engine.profile.name for node in made}
    for node in made:
        assert {peer.name for peer in node.peers} == names - {node.engine.profile.name}


@pytest.mark.spec("MBX-08")
@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        THEIRS.bytes,
        b"\x00" + THEIRS.bytes,
        b"\x02" + THEIRS.bytes,
        b"\x01" + THEIRS.bytes[:-1],
        identity() + b"\0",
    ],
)
def test_messages_under_another_kind_of_identity_are_dropped(wrong: bytes) -> None:
    ours = engine()
    ours.receive(wrong, greeting(), NOW)
    assert ours.take() == []
    assert not ours.peers
    assert ours.counters.bad_identities == 1


# Signature, version, sequence


@pytest.mark.spec("SIG-01")
@pytest.mark.parametrize("signature", [b"\xaa\xa0", b"\xaa\xa2", b"\xab\xa1", b"\x00\x00", b"", b"\xaa"])
def test_a_message_with_another_signature_is_discarded_in_silence(signature: bytes) -> None:
    ours = engine()
    ours.receive(identity(), [signature + greeting()[0][2:]], NOW)
    assert ours.take() == []
    assert not ours.peers
    assert ours.counters.bad_messages == 1
    ours = met()
    ours.receive(identity(), [signature + Whisper(2, []).encode()[0][2:], b"x"], NOW)
    assert ours.take() == []
    ours.receive(identity(), list(Whisper(2, [b"y"]).encode()), NOW)  # and it does not count
    assert ours.take() == [events.Whisper(THEIRS, "bob", (b"y",))]


@pytest.mark.spec("SIG-01", "SIG-02")
def test_all_that_we_send_has_the_signature_the_command_and_the_version() -> None:
    ours = engine()
    ours.receive(identity(), greeting(groups=["CHAT"]), NOW)
    ours.join("A")
    ours.leave("A")
    ours.whisper(THEIRS, (b"1",))
    ours.shout("CHAT", (b"2",))
    ours.receive(identity(), list(Ping(2).encode()), NOW)
    ours.tick(NOW + 5)
    heads = [output.frames[0][:4] for output in ours.take() if isinstance(output, Send)]
    assert heads == [bytes([0xAA, 0xA1, command, 2]) for command in (1, 4, 5, 2, 3, 7, 6)]


@pytest.mark.spec("SIG-02")
@pytest.mark.parametrize("version", [1, 3, 255])
def test_a_message_of_another_version_is_discarded(version: int) -> None:
    ours = engine()
    octets = bytearray(greeting()[0])
    octets[3] = version
    ours.receive(identity(), [bytes(octets)], NOW)
    assert ours.take() == []
    assert not ours.peers
    ours = met()
    octets = bytearray(Whisper(2, []).encode()[0])
    octets[3] = version
    ours.receive(identity(), [bytes(octets), b"x"], NOW)
    assert ours.take() == []
    assert ours.counters.bad_messages == 1
    assert THEIRS.bytes in ours.peers


@pytest.mark.spec("SEQ-01")
def test_the_sequence_begins_at_one_and_is_cyclic() -> None:
    ours = engine()
    ours.receive(identity(), greeting(), NOW)
    for _ in range(65540):
        ours.whisper(THEIRS, (b"",))
    numbers = [struct.unpack(">H", output.frames[0][4:6])[0] for output in ours.take() if isinstance(output, Send)]
    assert numbers == [number & 0xFFFF for number in range(1, 65542)]
    assert numbers[65534:65537] == [65535, 0, 1]


@pytest.mark.spec("SEQ-01")
def test_the_sequence_of_a_peer_is_followed_around_the_cycle() -> None:
    ours = met()
    for number in range(2, 65540):
        ours.receive(identity(), list(Ping(number & 0xFFFF).encode()), NOW)
    assert told(ours.take()) == []
    assert ours.counters.gaps == 0
    assert ours.peers[THEIRS.bytes].ready


@pytest.mark.spec("SEQ-01")
@pytest.mark.parametrize("number", [0, 2, 65535])
def test_a_hello_with_another_sequence_than_one_is_none(number: int) -> None:
    ours = engine()
    ours.receive(identity(), list(Hello(number, "tcp://10.0.0.2:50001").encode()), NOW)
    assert ours.take() == []
    assert not ours.peers


@pytest.mark.spec("SEQ-02")
@pytest.mark.parametrize("number", [0, 1, 3, 4, 258, 65535])
def test_a_gap_or_a_message_out_of_sequence_disconnects_the_peer(number: int) -> None:
    ours = met()
    ours.receive(identity(), list(Whisper(number, [b"x"]).encode()), NOW)
    outputs = ours.take()
    assert outputs[0] == Disconnect(THEIRS.bytes)
    assert [type(event) for event in told(outputs)] == [events.Exit]
    assert ours.counters.gaps == 1
    assert not told(outputs, events.Whisper)


# HELLO


@pytest.mark.spec("HEL-01")
def test_hello_comes_first_with_all_that_it_tells() -> None:
    ours = engine(groups=["B", "A"], headers={"X-ROLE": "test"})
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.join("C")
    first, then = sent(ours.take())
    assert first == Hello(1, MAILBOX, ["A", "B"], 2, "ann", {"X-ROLE": "test", ELECTIONS: ""})
    assert then == Join(2, "C", 3)


BEFORE_HELLO = (Whisper(2, [b"x"]), Join(3, "A", 1), Leave(4, "A", 2), Ping(5), PingOk(6), Shout(7, "A", [b"x"]))


@pytest.mark.spec("HEL-02")
def test_commands_before_hello_are_ignored_in_silence() -> None:
    for ours in (engine(), engine()):
        ours.receive_beacon(beacon(OTHERS), "10.0.0.3", NOW)
        ours.take()
        for uuid in (THEIRS, OTHERS):
            for command in BEFORE_HELLO:
                ours.receive(identity(uuid), list(command.encode()), NOW)
        assert ours.take() == []
        assert ours.counters.before_hello == 12
        assert list(ours.peers) == [OTHERS.bytes]
        ours.receive(identity(OTHERS), greeting(), NOW)  # and they do not count
        assert len(told(ours.take(), events.Enter)) == 1


@pytest.mark.spec("HEL-03")
def test_hello_of_a_peer_that_is_connected_makes_no_second_connection() -> None:
    ours = engine()
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.take()
    ours.receive(identity(), greeting(), NOW)
    outputs = ours.take()
    assert [type(output) for output in outputs] == [events.Enter]


@pytest.mark.spec("HEL-04", "GRP-03")
def test_the_groups_and_the_status_in_hello_are_those_of_the_sender() -> None:
    ours = engine()
    ours.receive(identity(), greeting(groups=["A", "B"], status=7), NOW)
    joins = told(ours.take(), events.Join)
    assert joins == [events.Join(THEIRS, "bob", "A"), events.Join(THEIRS, "bob", "B")]
    ours.receive(identity(), list(Join(2, "C", 8).encode()), NOW)
    assert ours.counters.status_mismatches == 0
    assert ours.shout("A", (b"x",)) == ours.shout("B", (b"x",)) == ours.shout("C", (b"x",)) == 1
    ours.receive(identity(), list(Join(3, "D", 10).encode()), NOW)
    assert ours.counters.status_mismatches == 1


# Groups


@pytest.mark.spec("GRP-01", "GRP-02", "GRP-03")
def test_join_and_leave_go_to_all_peers_with_the_status_after_them() -> None:
    ours = engine()
    ours.receive(identity(THEIRS), greeting(), NOW)
    ours.receive_beacon(beacon(OTHERS), "10.0.0.3", NOW)  # greeted, but has not answered yet
    ours.take()
    ours.join("A")
    ours.join("B")
    ours.leave("A")
    outputs = ours.take()
    for uuid in (THEIRS, OTHERS):
        assert sent(outputs, uuid) == [Join(2, "A", 1), Join(3, "B", 2), Leave(4, "A", 3)]
    assert not ours.join("B")
    assert not ours.leave("A")
    assert ours.take() == []  # nothing changed, so there is no event


@pytest.mark.spec("GRP-01", "GRP-02")
def test_join_and_leave_of_a_peer_are_told() -> None:
    ours = met()
    ours.receive(identity(), list(Join(2, "A", 1).encode()), NOW)
    assert ours.take() == [events.Join(THEIRS, "bob", "A")]
    assert ours.shout("A", (b"x",)) == 1
    ours.take()
    ours.receive(identity(), list(Leave(3, "A", 2).encode()), NOW)
    assert ours.take() == [events.Leave(THEIRS, "bob", "A")]
    assert ours.shout("A", (b"x",)) == 0


@pytest.mark.spec("GRP-03")
def test_the_status_is_one_octet() -> None:
    ours = met()
    for _ in range(150):
        ours.join("A")
        ours.leave("A")
    statuses = [message.status for message in sent(ours.take()) if isinstance(message, Join | Leave)]
    assert statuses == [number & 0xFF for number in range(1, 301)]
    theirs = met()
    for number in range(300):
        command = (Leave if number % 2 else Join)(number + 2, "A", (number + 1) & 0xFF)
        theirs.receive(identity(), list(command.encode()), NOW)
    assert theirs.counters.status_mismatches == 0


@pytest.mark.spec("GRP-04")
def test_group_names_are_case_sensitive() -> None:
    ours = met(groups=["chat"])
    assert ours.shout("CHAT", (b"x",)) == 0
    assert ours.join("CHAT")
    assert ours.join("chat")
    ours.leave("CHAT")
    ours.take()
    ours.receive(identity(), list(Shout(2, "CHAT", [b"x"]).encode()), NOW)
    ours.receive(identity(), list(Shout(3, "chat", [b"y"]).encode()), NOW)
    assert told(ours.take()) == [events.Shout(THEIRS, "bob", "chat", (b"y",))]


# Messages


@pytest.mark.spec("MSG-01")
def test_a_whisper_goes_to_one_peer() -> None:
    mesh = Mesh()
    ann, bob, cid = (mesh.add(number) for number in (1, 2, 3))
    mesh.settle()
    ann.engine.whisper(bob.uuid, (b"hello",))
    mesh.pump(ann)
    mesh.settle()
    assert bob.told(events.Whisper) == [events.Whisper(ann.uuid, "node1", (b"hello",))]
    assert cid.told(events.Whisper) == ann.told(events.Whisper) == []


@pytest.mark.spec("MSG-02")
def test_a_shout_goes_to_each_peer_in_the_group_and_to_no_other() -> None:
    mesh = Mesh()
    ann, bob, cid, dan = (mesh.add(number, groups=["CHAT"] if number != 4 else ["OTHER"]) for number in (1, 2, 3, 4))
    mesh.settle()
    assert ann.engine.shout("CHAT", (b"all",)) == 2
    targets = [output.peer for output in ann.engine.take() if isinstance(output, Send)]
    assert sorted(targets) == [bob.uuid.bytes, cid.uuid.bytes]  # by unicast
    ann.engine.shout("CHAT", (b"all",))
    assert dan.uuid.bytes not in {output.peer for output in ann.engine.take() if isinstance(output, Send)}
    ours = met()  # a SHOUT to a group that the node is not in is no event
    ours.receive(identity(), list(Shout(2, "CHAT", [b"x"]).encode()), NOW)
    assert ours.take() == []


@pytest.mark.spec("MSG-03")
@pytest.mark.parametrize("content", [(), (b"",), (b"one",), (b"one", b"", b"three")])
def test_any_number_of_frames_is_received(content: tuple[bytes, ...]) -> None:
    ours = met()
    ours.join("A")
    ours.take()
    ours.receive(identity(), list(Whisper(2, content).encode()), NOW)
    ours.receive(identity(), list(Shout(3, "A", content).encode()), NOW)
    assert ours.take() == [
        events.Whisper(THEIRS, "bob", content),
        events.Shout(THEIRS, "bob", "A", content),
    ]


@pytest.mark.spec("MSG-03")
def test_one_frame_is_sent_unless_the_caller_gives_more() -> None:
    ours = met(groups=["A"])
    for content in ((), (b"x",), (b"x", b"y")):
        ours.whisper(THEIRS, content)
        ours.shout("A", content)
    contents = [output.frames[1:] for output in ours.take() if isinstance(output, Send)]
    assert contents == [(b"",), (b"",), (b"x",), (b"x",), (b"x", b"y"), (b"x", b"y")]


# PING


@pytest.mark.spec("PING-01")
def test_a_silent_peer_gets_a_ping_and_one_that_is_heard_gets_none() -> None:
    ours = met()
    ours.receive(identity(OTHERS), greeting(endpoint="tcp://10.0.0.3:50001"), NOW)
    ours.take()
    for second in range(1, 5):
        ours.receive_beacon(beacon(OTHERS), "10.0.0.3", NOW + second)
        ours.tick(NOW + second)
    ours.tick(NOW + 4.9)
    assert ours.take() == []
    ours.tick(NOW + 5)
    outputs = ours.take()
    assert sent(outputs) == [Ping(2)]
    assert sent(outputs, OTHERS) == []
    assert told(outputs) == [events.Evasive(THEIRS, "bob")]


@pytest.mark.spec("PING-01")
@pytest.mark.parametrize("sign", ["beacon", "message"])
def test_a_beacon_or_a_message_is_a_sign_of_life(sign: str) -> None:
    ours = met()
    for number in range(2, 60):
        now = NOW + 2.0 * number
        if sign == "beacon":
            ours.receive_beacon(beacon(), "10.0.0.2", now)
        else:
            ours.receive(identity(), list(PingOk(number).encode()), now)
        ours.tick(now)
        if number > 2:
            assert ours.take() == []
        ours.take()


@pytest.mark.spec("PING-02")
def test_a_peer_that_is_silent_for_the_expired_time_is_dead() -> None:
    ours = met()
    story: list[tuple[float, str]] = []
    while ours.peers:
        now = ours.deadline
        ours.tick(now)
        story += [(now - NOW, type(event).__name__) for event in told(ours.take())]
    assert story == [(5.0, "Evasive"), (10.0, "Silent"), (30.0, "Exit")]


@pytest.mark.spec("PING-03")
def test_ping_is_answered() -> None:
    ours = met()
    ours.receive(identity(), list(Ping(2).encode()), NOW)
    assert sent(ours.take()) == [PingOk(2)]


# Security


@pytest.mark.spec("SEC-01")
def test_a_mesh_can_be_closed_to_strangers_by_curve(sim: Simulation, nodes: Nodes) -> None:
    keys, wrong = KeyPair.generate(), KeyPair.generate()
    ann, bob = nodes.start("ann", keys=keys, groups=["CHAT"]), nodes.start("bob", keys=keys, groups=["CHAT"])
    others = [nodes.start("eve", keys=wrong, groups=["CHAT"]), nodes.start("mallory", groups=["CHAT"])]
    sim.until(lambda: ann.peers and bob.peers)
    with Witness.calling(ann.endpoint) as caller:
        caller.say(hello("DEALER", identity()) + encode([tuple(greeting())]))
        sim.until(lambda: caller.heard_all() and caller.ended)
        assert b"ROUTER" not in caller.raw
    sim.until(lambda: ann.engine.peers.keys() >= {other.engine.key for other in others})
    ann.shout("CHAT", (b"secret",))
    sim.until(lambda: heard(bob, events.Shout))
    for second in range(3):
        sim.advance(1.0)
        sim.run(0.01)
        assert [peer.name for peer in ann.peers] == ["bob"], second
        assert [peer.name for peer in bob.peers] == ["ann"]
        assert not any(other.peers or other.events for other in others)


# The draft dialect


@pytest.mark.spec("DIA-01")
def test_a_peer_that_greets_in_the_draft_dialect_is_greeted_anew_in_it() -> None:
    ours = engine(groups=["A"])
    ours.receive_beacon(beacon(), "10.0.0.2", NOW)
    ours.join("B")
    assert [type(message) for message in sent(ours.take())] == [Hello, Join]
    ours.receive(identity(), list(DraftHello(1, "10.0.0.2", 50001, ["A"], 1, {"X": "y"}).encode()), NOW)
    ours.whisper(THEIRS, (b"x",))
    outputs = ours.take()
    messages = [Draft.decode(list(output.frames)) for output in outputs if isinstance(output, Send)]
    assert messages == [DraftHello(1, "10.0.0.1", 50000, ["A", "B"], 2, {ELECTIONS: ""}), DraftWhisper(2, [b"x"])]
    name = THEIRS.hex[:6]  # the draft has no names
    assert told(outputs, events.Enter) == [events.Enter(THEIRS, name, "tcp://10.0.0.2:50001", {"X": "y"})]
    assert told(outputs, events.Join) == [events.Join(THEIRS, name, "A")]
    ours.receive(identity(), list(DraftWhisper(2, [b"y"]).encode()), NOW)
    assert ours.take() == [events.Whisper(THEIRS, name, (b"y",))]


@pytest.mark.spec("DIA-01")
def test_a_node_set_to_draft_speaks_nothing_else_and_meets_both_kinds() -> None:
    mesh = Mesh()
    members = [mesh.add(number, dialect=dialect, groups=["CHAT"]) for number, dialect in DIALECTS]
    for frames in everything_sent(mesh, members[0]):
        assert frames[0][3] == 0  # not the version, but the first byte of the sequence
    for one in members:
        assert set(one.ready) == {other.uuid for other in members if other is not one}
        assert one.engine.shout("CHAT", (b"hello",)) == 3
        mesh.pump(one)
        mesh.settle()
    for one in members:
        assert {event.peer for event in one.told(events.Shout)} == {other.uuid for other in members if other is not one}
        assert len(one.told(events.Enter)) == 3
        assert not one.told(events.Exit)


DIALECTS = ((1, "draft"), (2, "stable"), (3, "draft"), (4, "stable"))


def everything_sent(mesh: Mesh, member: Member) -> list[tuple[bytes, ...]]:
    """Return the messages that a member sends until the mesh is settled."""
    frames: list[tuple[bytes, ...]] = []
    while mesh.datagrams or mesh.connections:
        if mesh.datagrams:
            mesh.deliver_datagram()
            continue
        connection = mesh.connections[0]
        if connection.owner is member:
            frames.append(connection.queue[0])
        mesh.deliver(connection)
    assert frames
    return frames


@pytest.mark.spec("DIA-02")
def test_the_endpoint_of_a_draft_peer_is_its_address_and_its_mailbox() -> None:
    ours = engine()
    ours.receive(identity(), list(DraftHello(1, "10.0.0.2", 50009).encode()), NOW)
    assert Connect(THEIRS.bytes, "tcp://10.0.0.2:50009") in ours.take()
    theirs = engine(dialect="draft")
    theirs.receive_beacon(beacon(), "10.0.0.2", NOW)
    (greeted,) = [Draft.decode(list(output.frames)) for output in theirs.take() if isinstance(output, Send)]
    assert isinstance(greeted, DraftHello)
    assert f"tcp://{greeted.ipaddress}:{greeted.mailbox}" == MAILBOX


# Extension protocols


@pytest.mark.spec("EXT-01")
@pytest.mark.parametrize("dialect", ["stable", "draft"])
def test_a_service_is_announced_by_a_header_in_hello(dialect: str) -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1, dialect=dialect), mesh.add(2)
    ann.engine.set_header("X-CLOCK", "tcp://10.0.0.1:50100", mesh.now)
    mesh.settle()
    (entered,) = bob.told(events.Enter)
    assert isinstance(entered, events.Enter)
    assert entered.headers == {"X-CLOCK": "tcp://10.0.0.1:50100"}


@pytest.mark.spec("EXT-02")
def test_peers_can_look_up_who_offers_a_service() -> None:
    mesh = Mesh()
    ann, bob, cid = (mesh.add(number) for number in (1, 2, 3))
    mesh.settle()
    ann.engine.set_header("X-CLOCK", "tcp://10.0.0.1:50100", mesh.now)
    bob.engine.set_header("X-CLOCK", "tcp://10.0.0.2:50100", mesh.now)
    for one in (ann, bob):
        mesh.pump(one)
    mesh.settle()
    assert cid.engine.services("X-CLOCK") == {ann.uuid: "tcp://10.0.0.1:50100", bob.uuid: "tcp://10.0.0.2:50100"}
    assert ann.engine.services("X-CLOCK") == {bob.uuid: "tcp://10.0.0.2:50100"}
    assert cid.engine.services("X-OTHER") == {}
    mesh.stop(bob)
    mesh.settle()
    assert cid.engine.services("X-CLOCK") == {ann.uuid: "tcp://10.0.0.1:50100"}


# ZRE/LOG


@pytest.mark.spec("LOG-01", "EXT-01")
def test_the_log_service_is_a_sub_on_an_ephemeral_port_that_is_announced(sim: Simulation, nodes: Nodes) -> None:
    collector, node = nodes.start("collector"), nodes.start("ann")
    service = LogShell(sim, collector)
    collector.announce(log.SERVICE, service.endpoint)
    sim.until(lambda: node.engine.services("X-ZRELOG"))
    (where,) = node.engine.services("X-ZRELOG").values()
    assert where == service.endpoint
    assert 0xC000 <= int(where.rpartition(":")[2]) <= 0xFFFF
    with Witness.calling(where) as caller:
        caller.say(hello("PUB"))
        sim.until(lambda: caller.heard_all() and len(caller.commands) > 1)
        assert b"Socket-Type\x00\x00\x00\x03SUB" in caller.raw
        caller.say(encode([LOG.encode()]))
        sim.until(lambda: service.records)
        assert service.records[0].log == LOG
    service.close()
    sim.run()


LOG = log.Log(log.Level.WARNING, log.What.EXIT, 0x1234, 0xABCD, 0x0102030405060708, "gone")


@pytest.mark.spec("LOG-02")
def test_a_node_that_logs_connects_a_pub_to_the_service(sim: Simulation, nodes: Nodes) -> None:
    node = nodes.start("ann", log=True)
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(60)
        nodes.start("collector", headers={"X-ZRELOG": f"tcp://127.0.0.1:{service.getsockname()[1]}"})
        sim.until(lambda: node.peers)
        with Witness(service.accept()[0]) as listener:
            listener.say(hello("SUB"))
            listener.say(encode([b"\x01"]))
            sim.until(lambda: listener.heard_all() and listener.messages)
            assert b"Socket-Type\x00\x00\x00\x03PUB" in listener.raw
            record = log.read(listener.messages[0][0])
            assert record is not None
            assert record.log.event is log.What.ENTER


@pytest.mark.spec("LOG-03")
@pytest.mark.parametrize("signature", [b"\xaa\xa1", b"\xab\xa2", b"", b"\x00\x00"])
def test_what_is_no_log_is_discarded_in_silence(signature: bytes, sim: Simulation) -> None:
    assert LOG.encode()[0][:2] == b"\xaa\xa2"
    network = MemoryNetwork()
    node = NodeShell(sim, "collector", NodeOptions(network=network))
    node.start()
    service = LogShell(sim, node)
    publisher = Pub(sim, Options())
    publisher.connect(service.endpoint)
    sim.run()
    publisher.try_send(signature + LOG.encode()[0][2:])
    publisher.try_send(LOG.encode()[0])
    sim.run()
    assert [record.log for record in service.records] == [LOG]
    assert service.discarded == 1
    publisher.close(0)
    service.close()
    node.stop(0)
    sim.run()


@pytest.mark.spec("LOG-04", "LOG-05")
def test_the_octets_of_a_log() -> None:
    assert LOG.encode() == (bytes.fromhex("aaa2 01 02 04 1234 abcd 0102030405060708 04 676f6e65"),)
    record = log.read(LOG.encode()[0])
    assert record is not None
    assert record.log == LOG
    assert {level.name: level.value for level in log.Level} == {"ERROR": 1, "WARNING": 2, "INFO": 3}
    assert [what.name for what in log.What] == ["JOIN", "LEAVE", "ENTER", "EXIT", "SEND", "RECV"]
    assert [what.value for what in log.What] == [1, 2, 3, 4, 5, 6]
    octets = bytearray(LOG.encode()[0])
    for place, wrong in ((2, 2), (3, 0), (3, 4), (4, 0), (4, 7)):
        octets = bytearray(LOG.encode()[0])
        octets[place] = wrong
        assert log.read(bytes(octets)) is None


@pytest.mark.spec("LOG-05", "LOG-06")
def test_a_node_reports_what_it_does(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zre.reporter.wall_clock", lambda: 1234.5678)
    network = MemoryNetwork()
    options = partial(NodeOptions, network=network, groups=["CHAT"])
    collector = NodeShell(sim, "collector", options(uuid=uuid_of(1)))
    collector.start()
    service = LogShell(sim, collector)
    collector.announce(log.SERVICE, service.endpoint)
    ann = NodeShell(sim, "ann", options(uuid=uuid_of(2), log=True))
    ann.start()
    sim.run()
    bob = NodeShell(sim, "bob", options(uuid=uuid_of(3)))
    bob.start()
    sim.run()
    ann.join("NEW")
    ann.leave("NEW")
    ann.whisper(uuid_of(3), (b"x",))
    ann.shout("CHAT", (b"y",))
    bob.whisper(uuid_of(2), (b"z",))
    sim.run()
    bob.shout("CHAT", (b"w",))
    sim.run()
    bob.stop(0)
    sim.run()
    me, them, none = log.hash_of(uuid_of(2)), log.hash_of(uuid_of(3)), 0
    records = []
    while (record := service.next_record()) is not None:
        assert (record.log.level, record.log.node, record.log.time) == (log.Level.INFO, me, 1234567)
        records.append((record.log.event.name, record.log.peer, record.log.data))
    assert records == [
        ("ENTER", log.hash_of(uuid_of(1)), "collector"),
        ("ENTER", them, "bob"),
        ("JOIN", none, "NEW"),
        ("LEAVE", none, "NEW"),
        ("SEND", them, "WHISPER"),
        ("SEND", none, "SHOUT CHAT"),
        ("RECV", them, "WHISPER"),
        ("RECV", them, "SHOUT CHAT"),
        ("EXIT", them, "it left"),
    ]
    service.close()
    for node in (collector, ann):
        node.stop(0)
    sim.run()


@pytest.mark.spec("LOG-06")
def test_a_node_with_logging_off_reports_nothing(sim: Simulation) -> None:
    network = MemoryNetwork()
    collector = NodeShell(sim, "collector", NodeOptions(network=network))
    collector.start()
    service = LogShell(sim, collector)
    collector.announce(log.SERVICE, service.endpoint)
    ann = NodeShell(sim, "ann", NodeOptions(network=network))
    ann.start()
    sim.run()
    ann.join("NEW")
    sim.run()
    assert ann.peers
    assert service.next_record() is None
    service.close()
    for node in (collector, ann):
        node.stop(0)
    sim.run()
