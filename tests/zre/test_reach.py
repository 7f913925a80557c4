"""zambezi.zre.reach: to which endpoints of others a node connects."""

import pytest

from tests.zre.puppet import Puppet
from tests.zre.test_node import drained, free_port, start
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.contact import with_key
from zambezi.zre.reach import Reach

REMOTE = "10.0.0.9"


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://10.0.0.9:49152",
        "tcp://10.1.2.3:49152",  # another interface of the same machine, or a router that translates addresses
        "tcp://[2001:db8::1]:49152",
        "tcp://node7.example:49152",
    ],
)
def test_a_mailbox_can_be_anywhere_on_the_network(endpoint: str) -> None:
    assert Reach().locate(endpoint, REMOTE) == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "ipc:///run/docker.sock",
        "ipc://@abstract",
        "inproc://zambezi-zeps-1",
        "tcp://127.0.0.1:22",
        "tcp://127.9.9.9:22",
        "tcp://localhost:22",
        "tcp://LOCALHOST.:22",
        "tcp://www.localhost:22",
        "tcp://[::1]:22",
        "tcp://[::ffff:127.0.0.1]:22",
        "tcp://[::ffff:0.0.0.0]:22",
        "tcp://0.0.0.0:22",
        "tcp://*:22",
        "tcp://239.1.2.3:22",
        "tcp://[ff02::1]:22",
        "tcp://[::ffff:127.0.0.1%eth0]:22",
        "tcp://[::1%eth0]:22",
        "tcp://::1:22",
        "tcp://[::]:22",
        "tcp://[fe80::1%eth0]:22",  # no interface of ours is known, and one that the peer names does not count
        "tcp://fe80::1:22",
        "tcp://fe80::1",
        "tcp://[fe80::zz:22",
        "tcp://10.0.0.9:0",
        "tcp://10.0.0.9:1-9",
        "udp://10.0.0.9:1",
        "nonsense",
        "",
    ],
)
def test_no_peer_makes_the_node_connect_to_its_own_machine_or_to_a_file(endpoint: str) -> None:
    assert not Reach().locate(endpoint, REMOTE)
    assert not Reach().locate(endpoint, "")


def test_peers_on_loopback_have_their_mailboxes_there() -> None:
    reach = Reach()
    for endpoint in ("tcp://127.0.0.1:49152", "tcp://[::1]:49152", "tcp://localhost:49152", "tcp://10.0.0.7:49152"):
        assert reach.locate(endpoint, "127.0.0.1")
    assert not reach.locate("ipc:///run/docker.sock", "127.0.0.1")


def test_a_network_in_memory_is_a_network_of_its_own() -> None:
    assert Reach(memory=True).locate("inproc://memory-1/1/49152", "")
    for endpoint in ("tcp://10.0.0.7:49152", "ipc:///run/docker.sock"):
        assert not Reach(memory=True).locate(endpoint, "")


@pytest.mark.parametrize(
    "endpoint", ["tcp://fe80::7:5", "tcp://[fe80::7:5", "tcp://[fe80::7]:5", "tcp://[fe80::7%x]:5"]
)
def test_a_link_local_address_is_used_on_our_own_interface(endpoint: str) -> None:
    assert Reach().locate(endpoint, "fe80::7%eth1") == "tcp://[fe80::7%eth1]:5"
    assert Reach(scope=lambda: "eth0").locate(endpoint, "fd00::7") == "tcp://[fe80::7%eth0]:5"
    assert Reach(scope=lambda: "eth0").locate(endpoint, "fe80::7%eth1") == "tcp://[fe80::7%eth1]:5"
    assert Reach().locate(endpoint, "fd00::7") == ""


def test_nodes_with_keys_of_their_own_connect_to_allowed_keys_alone() -> None:
    good, bad = bytes([1]) * 32, bytes([2]) * 32
    reach = Reach(allows=lambda key: key == good)
    contact = with_key("tcp://10.0.0.9:5", good)
    assert reach.locate(contact, REMOTE) == contact
    assert reach.allows(contact)
    assert not reach.allows(with_key("tcp://10.0.0.9:5", bad))
    assert not reach.allows("tcp://10.0.0.9:5")
    assert reach.locate("tcp://10.0.0.9:5", REMOTE) == ""
    assert reach.locate("tcp://10.0.0.9:5|nonsense", REMOTE) == ""
    assert reach.locate(with_key("tcp://127.0.0.1:5", good), REMOTE) == ""
    assert Reach().locate(contact, REMOTE) == ""  # it has keys, and we have none


def test_a_hello_with_the_path_of_a_unix_socket_connects_to_nothing(sim: Simulation) -> None:
    node = start(sim, "ann", interface="lo", beacon_port=free_port())
    eve = Puppet(sim, "tcp://127.0.0.1:*", node.endpoint)
    eve.greet(endpoint="ipc:///run/docker.sock")
    sim.until(lambda: node.engine.counters.refused_endpoints)
    assert not node.engine.peers
    assert not node._dealers.transport.connectors
    eve.greet()
    sim.until(lambda: node.peers)
    assert [type(event) for event in drained(node)] == [events.Enter]
    eve.close()
    node.stop(0)
    sim.run()
