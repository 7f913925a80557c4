"""Nodes of ours on real networks: hosts in namespaces, with cables that can be pulled."""

import itertools
import subprocess
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import pytest

from tests.zmtp.waiting import wait_until
from tests.zre import namespaces
from tests.zre.member import Member, converse, stop
from tests.zre.namespaces import Host, Network, Program

NO_RESET = "this kernel cannot reset a TCP connection on command (CONFIG_INET_DIAG_DESTROY)"

pytestmark = pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as one:
        yield one


# The networks themselves


def test_nothing_is_left_of_a_network_in_which_something_failed() -> None:
    names = []

    def fail() -> None:
        with Network(2) as network:
            host = network.host(0, 1)
            host.start("tests.zre.member", "sync", '{"name": "ann"}').wait_for("Started")
            names.extend([network.hub, host.name])
            assert set(names) <= set(namespaces.names())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not set(names) & set(namespaces.names())


def test_namespaces_of_a_killed_process_are_removed() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = f"zambezi-{gone.pid}-0-hub"
    namespaces.run("ip", "netns", "add", left)
    with Network():
        assert left not in namespaces.names()


# Discovery


def test_nodes_find_each_other_by_broadcast(network: Network) -> None:
    hosts = [network.host() for _ in range(3)]
    ann, bob, eve = Member.all_ours(
        (hosts[0], "ann", {"headers": {"X-ROLE": "first"}, "groups": ["CHAT"]}),
        (hosts[1], "bob", {"groups": ["CHAT"]}),
        (hosts[2], "eve", {}),
    )
    ann.meet(bob, eve)
    bob.meet(ann, eve)
    eve.meet(ann, bob)
    enter = eve.wait_for("Enter", peer=ann.uuid)
    assert (enter["name"], enter["endpoint"]) == ("ann", ann.endpoint)
    assert enter["headers"] == {"X-ROLE": "first"}
    assert ann.endpoint.startswith(f"tcp://{hosts[0].address}:")
    eve.wait_for("Join", peer=bob.uuid, group="CHAT")
    eve.wait_for("Join", peer=ann.uuid, group="CHAT")
    eve.shout("CHAT", "one", "", "three")
    for member in (ann, bob):
        member.wait_for("Shout", peer=eve.uuid, group="CHAT", content=["one", "", "three"])
    converse(ann, bob, eve)
    assert bob.stop() == ""
    for member in (ann, eve):
        assert member.wait_for("Exit", peer=bob.uuid)["reason"] == "it left"
        assert member.story_of(bob) == ["Enter", "Exit"]
    stop(ann, eve)


def test_nodes_of_one_host_share_the_port_of_beacons(network: Network) -> None:
    here, there = network.host(), network.host()
    ann, bob, eve = Member.all_ours((here, "ann", {}), (here, "bob", {}), (there, "eve", {}))
    for member, others in ((ann, (bob, eve)), (bob, (ann, eve)), (eve, (ann, bob))):
        member.meet(*others)
    converse(ann, bob, eve)
    stop(ann, bob, eve)


def test_a_killed_node_expires(network: Network) -> None:
    ann, bob = Member.all_ours((network.host(), "ann", {}), (network.host(), "bob", {}))
    ann.meet(bob)
    bob.kill()
    assert ann.wait_for("Exit", peer=bob.uuid)["reason"] == "silent for 7.5 s"
    assert ann.story_of(bob, "Enter", "Evasive", "Silent", "Exit")[-3:] == ["Evasive", "Silent", "Exit"]
    assert ann.story_of(bob) == ["Enter", "Exit"]
    stop(ann)


def test_a_node_that_restarts_with_its_uuid_exits_and_enters(network: Network) -> None:
    host, uuid = network.host(), uuid4().hex
    ann, bob = Member.all_ours((network.host(), "ann", {}), (host, "bob", {"uuid": uuid, "port": 50001}))
    ann.meet(bob)
    bob.kill()
    again = Member.ours(host, "bob again", uuid=uuid, port=50002)
    ann.wait_for("Exit", peer=uuid)
    enter = ann.wait_for("Enter", 2, peer=uuid)
    assert (enter["name"], enter["endpoint"]) == ("bob again", f"tcp://{host.address}:50002")
    again.meet(ann)
    converse(ann, again)
    assert ann.story_of(again) == ["Enter", "Exit", "Enter"]
    assert again.story_of(ann) == ["Enter"]
    stop(ann, again)


# Several interfaces


def test_each_peer_is_greeted_with_the_address_of_its_own_network() -> None:
    with Network(segments=2) as network:
        middle, left, right = network.host(0, 1), network.host(0), network.host(1)
        middle.run("ip", "addr", "add", "169.254.7.7/16", "brd", "+", "dev", "eth0")
        witnesses = [host.start("tests.zre.witness", host.address) for host in (left, right)]
        ann = Member.ours(middle, "ann", interface="*")
        assert ann.endpoint.startswith("tcp://0.0.0.0:")
        port = ann.endpoint.rpartition(":")[2]
        for witness, address in zip(witnesses, middle.addresses, strict=True):
            assert witness.wait_for("Hello", peer=ann.uuid)["endpoint"] == f"tcp://{address}:{port}"
        bob, eve = Member.all_ours((left, "bob", {}), (right, "eve", {"interface": "*"}))
        ann.meet(bob, eve)
        assert ann.wait_for("Enter", peer=bob.uuid)["endpoint"] == bob.endpoint
        for member, address in zip((bob, eve), middle.addresses, strict=True):
            assert member.wait_for("Enter", peer=ann.uuid)["endpoint"] == f"tcp://{address}:{port}"
            converse(ann, member)
        assert not bob.story_of(eve)
        assert not eve.story_of(bob)
        stop(ann, bob, eve)


def test_two_nodes_that_share_two_networks_meet_once() -> None:
    with Network(segments=2) as network:
        ann, bob = Member.all_ours(
            (network.host(0, 1), "ann", {"interface": "*"}),
            (network.host(0, 1), "bob", {"interface": ["eth0", "eth1"]}),
        )
        ann.meet(bob)
        bob.meet(ann)
        for number in range(10):  # beacons continue on both networks
            converse(ann, bob, word=str(number))
            time.sleep(0.1)
        assert ann.story_of(bob) == bob.story_of(ann) == ["Enter"]
        stop(ann, bob)


# Interfaces that come and go


def test_a_node_moves_to_a_network_that_comes(network: Network) -> None:
    here, there = network.host(), network.host()
    here.run("ip", "addr", "flush", "dev", "eth0")
    ann, bob = Member.all_ours((here, "ann", {}), (there, "bob", {}))
    assert ann.endpoint.startswith("tcp://127.0.0.1:")
    here.run("ip", "addr", "add", f"{here.address}/24", "brd", "+", "dev", "eth0")
    enter = bob.wait_for("Enter", peer=ann.uuid)
    assert enter["endpoint"].startswith(f"tcp://{here.address}:")
    ann.meet(bob)
    converse(ann, bob)
    assert "no network but the loopback is up" in ann.stop()
    bob.wait_for("Exit", peer=ann.uuid)
    stop(bob)


@pytest.mark.parametrize("interface", [None, "eth0", "*"])
def test_a_node_whose_address_changes_is_found_at_the_new_one(network: Network, interface: str | None) -> None:
    here, there = network.host(), network.host()
    ann, bob = Member.all_ours((here, "ann", {"interface": interface}), (there, "bob", {}))
    ann.meet(bob)
    bob.meet(ann)
    converse(ann, bob)
    here.run("ip", "addr", "add", "10.77.0.99/24", "brd", "+", "dev", "eth0")
    here.run("ip", "addr", "del", f"{here.address}/24", "dev", "eth0")
    here.run("ip", "addr", "replace", "10.77.0.99/24", "brd", "+", "dev", "eth0")
    enter = bob.wait_for("Enter", 2, peer=ann.uuid)
    assert enter["endpoint"].startswith("tcp://10.77.0.99:")
    wait_until(partial(Member.whispers, ann, bob, "at the new one"))
    wait_until(partial(Member.whispers, bob, ann, "at the new one"))
    stop(ann, bob)


# Cables that are pulled


@pytest.mark.parametrize("how", ["unplugged", "switched off"])
def test_a_long_cut_is_an_exit_and_an_enter_on_both_sides(network: Network, how: str) -> None:
    here, there = network.host(), network.host()
    ann, bob = Member.all_ours((here, "ann", {"groups": ["CHAT"]}), (there, "bob", {}))
    ann.meet(bob)
    bob.meet(ann)
    converse(ann, bob)
    if how == "unplugged":
        there.unplug()
    else:
        there.switch_off()
    ann.whisper(bob, "lost")
    ann.wait_for("Exit", peer=bob.uuid)
    bob.wait_for("Exit", peer=ann.uuid)
    if how == "unplugged":
        there.plug()
    else:
        there.switch_on()
    ann.wait_for("Enter", 2, peer=bob.uuid)
    bob.wait_for("Enter", 2, peer=ann.uuid)
    bob.wait_for("Join", 2, peer=ann.uuid, group="CHAT")
    converse(ann, bob, word="here again")
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter", "Exit", "Enter"]
    assert ["lost"] not in bob.whispers_of(ann)
    assert ann.ask("counters")["gaps"] == bob.ask("counters")["gaps"] == 0
    stop(ann, bob)


def test_a_short_cut_is_not_seen(network: Network) -> None:
    here, there = network.host(), network.host()
    patient: dict[str, object] = {"evasive": 8.0, "expired": 16.0}
    ann, bob = Member.all_ours((here, "ann", patient), (there, "bob", patient))
    ann.meet(bob)
    bob.meet(ann)
    converse(ann, bob)
    there.unplug()
    for number in range(100):
        ann.whisper(bob, f"{number}")
        bob.whisper(ann, f"{number}")
    time.sleep(1)  # the length of the cut
    assert bob.whispers_of(ann) == [["hello"]]
    there.plug()
    for member, other in ((ann, bob), (bob, ann)):
        member.wait_for("Whisper", peer=other.uuid, content=["99"])
        assert member.whispers_of(other) == [["hello"], *([f"{number}"] for number in range(100))]
        assert member.story_of(other, "Enter", "Exit", "Evasive") == ["Enter"]
    stop(ann, bob)


def test_the_rest_of_a_mesh_goes_on_when_one_node_is_cut_off(network: Network) -> None:
    hosts = [network.host() for _ in range(3)]
    ann, bob, eve = Member.all_ours(
        *((host, name, {}) for host, name in zip(hosts, ("ann", "bob", "eve"), strict=True))
    )
    for member, others in ((ann, (bob, eve)), (bob, (ann, eve)), (eve, (ann, bob))):
        member.meet(*others)
    hosts[2].unplug()
    ann.wait_for("Exit", peer=eve.uuid)
    bob.wait_for("Exit", peer=eve.uuid)
    converse(ann, bob)
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter"]
    hosts[2].plug()
    for member in (ann, bob):
        member.wait_for("Enter", 2, peer=eve.uuid)
    for member in (ann, bob):
        eve.wait_for("Enter", 2, peer=member.uuid)
    converse(ann, bob, eve, word="here again")
    stop(ann, bob, eve)


# Connections that are reset


def gone(host: Host, before: Set[tuple[str, str]], *query: str) -> bool:
    """Return whether the kernel of a host has closed all of these connections."""
    return not before & host.connections(*query).keys()


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_a_reset_that_loses_nothing_is_not_seen(network: Network, side: str) -> None:
    here, there = network.host(), network.host()
    ann, bob = Member.all_ours((here, "ann", {}), (there, "bob", {}))
    ann.meet(bob)
    bob.meet(ann)
    converse(ann, bob)
    port = bob.endpoint.rpartition(":")[2]
    host, mailbox = (here, ["dport", "=", port]) if side == "sender" else (there, ["sport", "=", port])
    for number in range(3):
        before = here.connections("dport", "=", port).keys()
        if not host.reset(*mailbox):
            pytest.skip(NO_RESET)
        # Wait until the sender's kernel knows: messages that it accepts before that are lost.
        wait_until(partial(gone, here, before, "dport", "=", port))
        converse(ann, bob, word=f"{number}")
    assert bob.whispers_of(ann) == [["hello"], ["0"], ["1"], ["2"]]
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter"]
    assert bob.ask("counters")["gaps"] == 0
    stop(ann, bob)


def test_a_reset_that_loses_messages_is_an_exit_and_an_enter(network: Network) -> None:
    here, there = network.host(), network.host()
    patient: dict[str, object] = {"evasive": 8.0, "expired": 16.0}
    ann, bob = Member.all_ours((here, "ann", patient), (there, "bob", patient))
    ann.meet(bob)
    bob.meet(ann)
    converse(ann, bob)
    mailbox = ["dport", "=", bob.endpoint.rpartition(":")[2]]
    there.unplug()
    ann.whisper(bob, "lost")
    # Wait until the kernel has the message: it has bytes to send.
    wait_until(lambda: any(here.connections(*mailbox).values()))
    reset = here.reset(*mailbox)
    there.plug()
    if not reset:
        pytest.skip(NO_RESET)
    # The test sends nothing more: a node sends a PING after a lost connection.
    assert "gap" in bob.wait_for("Exit", peer=ann.uuid)["reason"]
    ann.wait_for("Exit", peer=bob.uuid)
    bob.wait_for("Enter", 2, peer=ann.uuid)
    ann.wait_for("Enter", 2, peer=bob.uuid)
    converse(ann, bob, word="here again")
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter", "Exit", "Enter"]
    assert bob.whispers_of(ann) == [["hello"], ["here again"]]
    stop(ann, bob)


def test_resets_in_a_flood_leave_gaps_but_never_disorder(network: Network) -> None:
    here, there = network.host(), network.host()
    ann, bob = Member.all_ours((here, "ann", {}), (there, "bob", {}))
    ann.meet(bob)
    bob.meet(ann)
    mailbox = ["dport", "=", bob.endpoint.rpartition(":")[2]]
    for number in range(2000):
        ann.whisper(bob, f"{number}")
        if number % 400 == 399:
            here.run("ss", "-HtnK", "state", "established", *mailbox)
    deadline = time.monotonic() + namespaces.PATIENCE
    while ["done"] not in bob.whispers_of(ann):  # until the mesh has healed
        assert time.monotonic() < deadline
        ann.whisper(bob, "done")
        time.sleep(0.05)
    numbers = [int(text) for (text,) in bob.whispers_of(ann) if text != "done"]
    assert numbers == sorted(set(numbers))
    # Between Enter and Exit no message is missing.
    stays = [
        [int(line["content"][0]) for line in lines if line["content"] != ["done"]]
        for whispers, lines in itertools.groupby(bob.heard_of(ann), lambda line: line["event"] == "Whisper")
        if whispers
    ]
    assert all(stay == list(range(stay[0], stay[0] + len(stay))) for stay in stays if stay)
    assert set(itertools.pairwise(bob.story_of(ann))) <= {("Enter", "Exit"), ("Exit", "Enter")}
    assert set(itertools.pairwise(ann.story_of(bob))) <= {("Enter", "Exit"), ("Exit", "Enter")}
    stop(ann, bob)


@dataclass(frozen=True)
class Relayed:
    """Two nodes without a common network; each reaches the other by a relay."""

    ann: Member
    bob: Member
    relay: Program  # to bob
    host: Host  # of ann

    def reset(self, count: int) -> None:
        """Reset the relay's connections, and wait until the kernel of ann's host knows; her node need not know yet."""
        before = self.host.connections("dport", "=", "50002")
        self.relay.tell("reset")
        assert self.relay.wait_for("Reset", count)["count"] == len(before) == 1
        wait_until(partial(gone, self.host, before.keys(), "dport", "=", "50002"))


@pytest.fixture
def relayed() -> Iterator[Relayed]:
    with Network(segments=2) as network:
        here, between, there = network.host(0), network.host(0, 1), network.host(1)
        to_bob = between.start("tests.zre.relay", f"{between.addresses[0]}:50002", f"{there.address}:50002")
        to_ann = between.start("tests.zre.relay", f"{between.addresses[1]}:50001", f"{here.address}:50001")
        at_bob, at_ann = f"tcp://{between.addresses[0]}:50002", f"tcp://{between.addresses[1]}:50001"
        patient: dict[str, object] = {"evasive": 8.0, "expired": 16.0, "beacons": False}
        bob = Member.ours(there, "bob", port=50002, advertise=at_bob, **patient)
        for relay in (to_ann, to_bob):
            relay.wait_for("Started")
        ann = Member.ours(here, "ann", port=50001, advertise=at_ann, seeds=[at_bob], **patient)
        assert ann.wait_for("Enter", peer=bob.uuid)["endpoint"] == at_bob
        assert bob.wait_for("Enter", peer=ann.uuid)["endpoint"] == at_ann
        converse(ann, bob)
        yield Relayed(ann, bob, to_bob, here)
        stop(ann, bob)
        assert (to_ann.errors(), to_bob.errors()) == ("", "")


def test_a_relay_that_resets_when_nothing_is_under_way_is_not_seen(relayed: Relayed) -> None:
    ann, bob = relayed.ann, relayed.bob
    for number in (1, 2, 3):
        relayed.reset(number)
        converse(ann, bob, word=f"{number}")
    assert bob.whispers_of(ann) == [["hello"], ["1"], ["2"], ["3"]]
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter"]


def test_a_relay_that_loses_messages_is_an_exit_and_an_enter(relayed: Relayed) -> None:
    ann, bob, relay = relayed.ann, relayed.bob, relayed.relay
    relay.tell("swallow")
    relay.wait_for("Obeyed", command="swallow")
    ann.whisper(bob, "lost")
    relay.wait_for("Swallowed")
    relay.tell("pass")
    relay.wait_for("Obeyed", command="pass")
    relayed.reset(1)
    # The test sends nothing more: a node sends a PING after a lost connection.
    assert "gap" in bob.wait_for("Exit", peer=ann.uuid)["reason"]
    bob.wait_for("Enter", 2, peer=ann.uuid)
    ann.wait_for("Enter", 2, peer=bob.uuid)
    converse(ann, bob, word="here again")
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter", "Exit", "Enter"]
    assert bob.whispers_of(ann) == [["hello"], ["here again"]]


# Keys


def knows(member: Member, count: int) -> bool:
    return len(member.ask("known")) == count


def test_only_nodes_with_the_key_of_a_mesh_are_in_it(network: Network) -> None:
    hosts = [network.host() for _ in range(3)]
    ann, bob, eve, mallory, trudy = Member.all_ours(
        (hosts[0], "ann", {"keys": 1}),
        (hosts[1], "bob", {"keys": 1, "groups": ["CHAT"]}),
        (hosts[2], "eve", {}),
        (hosts[1], "mallory", {}),
        (hosts[2], "trudy", {"keys": 2}),
    )
    inside, outside = (ann, bob), (eve, mallory, trudy)
    ann.meet(bob)
    bob.meet(ann)
    eve.meet(mallory)
    mallory.meet(eve)
    converse(ann, bob)
    converse(eve, mallory)
    # Beacons are not encrypted: each node knows that the others exist, and greets them without success.
    for member in (*inside, *outside):
        wait_until(partial(knows, member, 4))
    time.sleep(1.5)  # all have sent a second HELLO by now
    for member, other in itertools.product(inside, outside):
        assert not member.heard_of(other)
        assert not other.heard_of(member)
    assert not trudy.heard_of(eve)
    assert not eve.heard_of(trudy)
    assert ann.story_of(bob) == bob.story_of(ann) == ["Enter"]
    stop(*inside, *outside)


# Seeds


def test_seeds_spread_a_mesh_over_networks_that_no_beacon_crosses() -> None:
    with Network(segments=3, routed=True) as network:
        hosts = [network.host(segment) for segment in range(3)]
        lone, deaf = Member.all_ours(
            (hosts[0], "lone", {"beacon_port": 5671}), (hosts[1], "deaf", {"beacon_port": 5671})
        )
        ann = Member.ours(hosts[0], "ann", beacons=False, port=50001)
        seeds: dict[str, object] = {"seeds": [f"tcp://{hosts[0].address}:50001"]}
        bob, eve, joe = Member.all_ours((hosts[1], "bob", seeds), (hosts[2], "eve", seeds), (hosts[1], "joe", seeds))
        mesh = (ann, bob, eve, joe)
        for member, other in itertools.permutations(mesh, 2):
            assert member.wait_for("Enter", peer=other.uuid)["endpoint"] == other.endpoint
        converse(*mesh)
        for member, other in itertools.permutations(mesh, 2):
            assert member.story_of(other) == ["Enter"]
        assert not lone.ask("known")
        assert not deaf.ask("known")
        stop(lone, deaf, *mesh)


# Networks that lose, delay and shuffle


def test_a_bad_network_loses_delays_and_shuffles_packets_but_no_messages() -> None:
    with Network(bridged=False) as network:
        hosts = [network.host() for _ in range(3)]
        ports = [port for host in hosts for port in host.ports]
        switch = namespaces.Program(network, network.hub, "tests.zre.switch", *ports)
        switch.wait_for("Started")
        patient: dict[str, object] = {"evasive": 5.0, "expired": 15.0, "groups": ["CHAT"]}
        ann, bob, eve = mesh = Member.all_ours(
            (hosts[0], "ann", patient), (hosts[1], "bob", patient), (hosts[2], "eve", patient)
        )
        for member, other in itertools.permutations(mesh, 2):
            member.wait_for("Join", peer=other.uuid, group="CHAT")
        for number in range(200):
            ann.shout("CHAT", f"{number}", "x" * 1000)
            bob.whisper(eve, f"{number}")
        for member in (bob, eve):
            member.wait_for("Shout", 200, peer=ann.uuid)
            shouts = [line["content"][0] for line in member.heard_of(ann) if line["event"] == "Shout"]
            assert shouts == [f"{number}" for number in range(200)]
        eve.wait_for("Whisper", 200, peer=bob.uuid)
        assert eve.whispers_of(bob) == [[f"{number}"] for number in range(200)]
        for member, other in itertools.permutations(mesh, 2):
            assert member.story_of(other) == ["Enter"]
        switch.tell("count")
        counts = switch.wait_for("Counts")
        assert counts["lost"] > 10
        assert counts["overtaken"] > 10
        stop(*mesh)
