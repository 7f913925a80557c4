"""Nodes of ours on IPv6: on the loopback, and with real beacons on hosts in namespaces."""

import sys
from collections.abc import Iterator

import pytest

from tests.zmtp.waiting import wait_until
from tests.zre import namespaces
from tests.zre.ipv6 import NO_IPV6, has_ipv6
from tests.zre.member import Member, converse, stop
from tests.zre.namespaces import Host, Network
from tests.zre.test_hub import pass_until
from tests.zre.test_node import free_port, start, told
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.errors import ZreError
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions

on_loopback = pytest.mark.skipif(not has_ipv6(), reason=NO_IPV6)
in_namespaces = pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")


@on_loopback
@pytest.mark.parametrize("how", ["seeds", "zgossip"])
def test_nodes_on_the_loopback_of_ipv6_find_each_other_without_beacons(sim: Simulation, how: str) -> None:
    first = start(sim, "first", interface="::1", beacons=False, gossip_bind="tcp://[::1]:*")
    assert first.endpoint.startswith("tcp://[::1]:")
    found = {"seeds": [first.endpoint]} if how == "seeds" else {"gossip_connect": [first.gossip_endpoint]}
    second = start(sim, "second", interface="lo", ipv6=True, **found)
    pass_until(sim, lambda: first.peers and second.peers)
    assert [peer.endpoint for peer in second.peers] == [first.endpoint]
    second.whisper(first.engine.uuid, (b"hello",))
    pass_until(sim, lambda: told(first, events.Whisper))
    for node in (first, second):
        node.stop(0)
    pass_until(sim, lambda: first.stopped and second.stopped)


@on_loopback
def test_the_loopback_carries_no_beacons_of_ipv6(sim: Simulation) -> None:
    with pytest.raises(ZreError, match="the loopback carries no multicast"):
        NodeShell(sim, "ann", NodeOptions(interface="::1", beacon_port=free_port()))


# Hosts in namespaces


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as one:
        yield one


def link_local(host: Host) -> str:
    """Return the link-local address of a host, after the kernel has made sure that no other host has it."""
    found: list[str] = []

    def is_ready() -> bool:
        lines = host.run("ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link").splitlines()
        found[:] = [line.split()[3].partition("/")[0] for line in lines if "tentative" not in line]
        return bool(found)

    wait_until(is_ready)
    return found[0]


def add_address(host: Host, address: str, prefix: int = 64) -> str:
    host.run("ip", "addr", "add", f"{address}/{prefix}", "dev", "eth0", "nodad")
    link_local(host)
    return address


@in_namespaces
def test_nodes_find_each_other_on_a_network_that_has_nothing_but_link_local_addresses(network: Network) -> None:
    hosts = [network.host() for _ in range(3)]
    addresses = [link_local(host) for host in hosts]
    for host in hosts:
        host.run("ip", "-4", "addr", "flush", "dev", "eth0")
    ann, bob, eve = Member.all_ours(
        (hosts[0], "ann", {"ipv6": True, "groups": ["CHAT"]}),
        (hosts[1], "bob", {"interface": "eth0", "ipv6": True}),
        (hosts[2], "eve", {"interface": addresses[2]}),
    )
    for member, address in zip((ann, bob, eve), addresses, strict=True):
        assert member.endpoint.startswith(f"tcp://[{address}%eth0]:")
    ann.meet(bob, eve)
    bob.meet(ann, eve)
    eve.meet(ann, bob)
    assert ann.wait_for("Enter", peer=bob.uuid)["endpoint"] == bob.endpoint  # on the interface of the same name
    converse(ann, bob, eve)
    assert bob.stop() == ""
    for member in (ann, eve):
        assert member.wait_for("Exit", peer=bob.uuid)["reason"] == "it left"
        assert member.story_of(bob) == ["Enter", "Exit"]
    assert set(ann.ask("counters").values()) == {0}
    stop(ann, eve)


@in_namespaces
@pytest.mark.parametrize("prefix", [64, 128])
def test_a_global_address_is_used_where_there_is_one(network: Network, prefix: int) -> None:
    """A host whose address came by DHCP has a network of its own alone (/128), and the others are on its link."""
    hosts = [network.host(), network.host()]
    addresses = [add_address(host, f"fd77::{number}", prefix) for number, host in enumerate(hosts, 1)]
    if prefix == 128:
        for host in hosts:
            host.run("ip", "-6", "route", "add", "fd77::/64", "dev", "eth0")
    ann, bob = Member.all_ours((hosts[0], "ann", {"ipv6": True}), (hosts[1], "bob", {"ipv6": True}))
    assert ann.endpoint.startswith(f"tcp://[{addresses[0]}]:")
    ann.meet(bob)
    bob.meet(ann)
    assert ann.wait_for("Enter", peer=bob.uuid)["endpoint"] == bob.endpoint
    converse(ann, bob)
    stop(ann, bob)


@in_namespaces
def test_a_node_can_be_in_both_networks_at_once(network: Network) -> None:
    hosts = [network.host() for _ in range(3)]
    address = add_address(hosts[1], "fd77::2")
    add_address(hosts[2], "fd77::3")
    four, both, six = Member.all_ours(
        (hosts[0], "four", {}),
        (hosts[1], "both", {"interface": ["eth0", address]}),
        (hosts[2], "six", {"ipv6": True}),
    )
    assert both.endpoint.startswith("tcp://[::]:")
    both.meet(four, six)
    four.meet(both)
    six.meet(both)
    port = both.endpoint.rpartition(":")[2]
    assert four.wait_for("Enter", peer=both.uuid)["endpoint"] == f"tcp://{hosts[1].address}:{port}"
    assert six.wait_for("Enter", peer=both.uuid)["endpoint"] == f"tcp://[{address}]:{port}"
    converse(four, both)
    converse(both, six)
    stop(four, both, six)


@in_namespaces
def test_a_node_whose_address_of_ipv6_changes_is_found_at_the_new_one(network: Network) -> None:
    here, there = network.host(), network.host()
    add_address(here, "fd77::1")
    add_address(there, "fd77::2")
    ann, bob = Member.all_ours((here, "ann", {"ipv6": True}), (there, "bob", {"ipv6": True}))
    ann.meet(bob)
    bob.meet(ann)
    add_address(here, "fd77::99")
    here.run("ip", "addr", "del", "fd77::1/64", "dev", "eth0")
    enter = bob.wait_for("Enter", 2, peer=ann.uuid)
    assert enter["endpoint"].startswith("tcp://[fd77::99]:")
    wait_until(lambda: ann.whispers(bob, "at the new one"))
    wait_until(lambda: bob.whispers(ann, "at the new one"))
    stop(ann, bob)


@in_namespaces
def test_a_datagram_to_one_address_is_no_beacon_of_the_network() -> None:
    """A host on another network can reach the port, but not the group of all nodes."""
    with Network(segments=2, routed=True) as network:
        here, far = network.host(0), network.host(1)
        for number, host in enumerate((here, far), 1):
            add_address(host, f"fd77:{number}::1")
            host.run("ip", "-6", "route", "add", "default", "via", f"fd77:{number}::fe", "dev", "eth0")
            hub = ["ip", "-n", network.hub]
            namespaces.run(*hub, "addr", "add", f"fd77:{number}::fe/64", "dev", f"segment{number - 1}", "nodad")
        namespaces.run(
            "ip", "netns", "exec", network.hub, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"
        )
        ann = Member.ours(here, "ann", ipv6=True)
        port = ann.endpoint.rpartition(":")[2]
        # There is a route.
        far.run(sys.executable, "-c", f"import socket; socket.create_connection(('fd77:1::1', {port}))")
        forged = "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto({}, ('fd77:1::1', 5670))"
        beacon = b"ZRE\x01" + bytes(15) + b"\x07" + b"\xc0\x00"
        for _ in range(3):
            far.run(sys.executable, "-c", forged.format(beacon))
        # The same, of the own network.
        here.run(sys.executable, "-c", forged.format(beacon[:19] + b"\x08" + beacon[20:]))
        wait_until(lambda: ann.ask("known"))
        assert ann.ask("known") == ["0" * 30 + "08"]
        stop(ann)
