"""Nodes of ours and nodes with the habits of Zyre that meet by zgossip, with and without CURVE; Zyre's beacon."""

import struct
import time

import pytest
import zmq

from tests.interop.libzmq import PATIENCE
from tests.interop.test_zyre import until
from tests.interop.zyre_gossip import FORGOTTEN, HELLO, PING, GossipingZyre, publish
from zambezi.zmtp import z85
from zambezi.zmtp.keys import KeyPair
from zambezi.zre import events
from zambezi.zre.beacon import Beacon
from zambezi.zre.messages import Goodbye, Hello, Whisper
from zambezi.zre.sync import Node

OURS = KeyPair.generate(seed=bytes([7]) * 32)


def entered(node: Node, zyre: GossipingZyre) -> events.Enter:
    """Wait until a node with the habits of Zyre has entered, and until it has met ours; let them talk."""
    event = node.recv(PATIENCE)
    while not (isinstance(event, events.Enter) and event.peer == zyre.uuid):
        event = node.recv(PATIENCE)
    until(lambda: node.uuid in zyre.peers)
    node.whisper(zyre.uuid, b"hello")
    until(lambda: any(isinstance(one, Whisper) for one in zyre.received))
    return event


@pytest.fixture(params=["clear", "CURVE"])
def keys(request: pytest.FixtureRequest) -> tuple[bytes, bytes] | None:
    return zmq.curve_keypair() if request.param == "CURVE" else None


def security(keys: tuple[bytes, bytes] | None) -> dict[str, object]:
    if keys is None:
        return {}
    return {"node_keys": OURS, "allowed": {"zyre": z85.decode(keys[0].decode())}}


def test_our_node_is_found_on_a_hub_of_zyre_and_finds_it(keys: tuple[bytes, bytes] | None) -> None:
    with GossipingZyre(keys=keys) as hub:
        contact = f"{hub.hub_endpoint}|{keys[0].decode()}" if keys else hub.hub_endpoint
        with Node("ours", interface="lo", gossip_connect=[contact], **security(keys)) as node:  # type: ignore[arg-type]
            event = entered(node, hub)
            assert (event.name, event.endpoint) == ("zyre", hub.endpoint)
            assert event.headers == ({"X-PUBLICKEY": keys[0].decode()} if keys else {})
            own = f"{node.endpoint}|{OURS.public_z85}" if keys else node.endpoint
            assert hub.heard[:2] == [HELLO, publish(node.uuid.hex.upper(), own)]
            hello = next(one for one in hub.received if isinstance(one, Hello))
            assert hello.headers.get("X-PUBLICKEY") == (OURS.public_z85 if keys else None)
        until(lambda: isinstance(hub.received[-1], Goodbye))  # the sign by which Zyre knows that a node leaves


def test_a_node_of_zyre_that_leaves_says_goodbye_and_is_gone_at_once() -> None:
    with Node("ours", interface="lo", gossip_bind="tcp://127.0.0.1:*") as hub:
        zyre = GossipingZyre(connect=hub.gossip_endpoint)
        entered(hub, zyre)
        zyre.leave()
        assert hub.recv(PATIENCE) == events.Exit(zyre.uuid, "zyre", "it left")


def test_nodes_of_zyre_meet_on_a_hub_of_ours(keys: tuple[bytes, bytes] | None) -> None:
    options = {**security(keys), "allowed": "any"} if keys else {}
    with Node("ours", interface="lo", gossip_bind="tcp://127.0.0.1:*", **options) as hub:  # type: ignore[arg-type]
        where, key = hub.gossip_endpoint, OURS.public_z85.encode()
        with GossipingZyre("first", connect=where, hub_key=key, keys=keys) as first:
            entered(hub, first)
            time.sleep(FORGOTTEN * 1.2)  # a hub of Zyre has forgotten it now, and ours has not
            with GossipingZyre("second", connect=where, hub_key=key, keys=keys) as second:
                entered(hub, second)
                until(lambda: second.uuid.hex.upper() in first.tuples)
                until(lambda: second.uuid in first.peers)
                until(lambda: first.uuid in second.peers)


def test_a_client_of_ours_stays_known_to_a_hub_of_zyre_and_hears_of_news() -> None:
    with GossipingZyre() as hub, Node("ours", interface="lo", gossip_connect=[hub.hub_endpoint]) as node:
        entered(node, hub)
        until(lambda: hub.heard.count(PING) > FORGOTTEN * 4)
        with GossipingZyre("late", connect=hub.hub_endpoint, shy=True) as late:
            entered(node, late)


def test_a_hub_of_zyre_that_starts_again_is_told_of_our_node_again() -> None:
    hub = GossipingZyre()
    with Node("ours", interface="lo", gossip_connect=[hub.hub_endpoint], evasive=1.0) as node:
        entered(node, hub)
        hub.die()
        with GossipingZyre("again", bind=hub.hub_endpoint) as again:
            entered(node, again)
            assert again.heard[0] == HELLO


def test_zyre_with_a_key_that_is_not_allowed_does_not_get_in() -> None:
    keys = zmq.curve_keypair()
    options = {"node_keys": OURS, "allowed": {"another": bytes(32)}}
    with Node("ours", interface="lo", gossip_bind="tcp://127.0.0.1:*", **options) as hub:  # type: ignore[arg-type]
        where, key = hub.gossip_endpoint, OURS.public_z85.encode()
        with GossipingZyre(connect=where, hub_key=key, keys=keys) as zyre:
            gossip = hub._shell._hub
            assert gossip is not None
            until(lambda: gossip.transports[0].counters.handshakes_failed)
            assert not hub.peers
            assert len(zyre.tuples) == 1


def test_the_beacon_of_zyre_with_a_key() -> None:
    """Zyre's beacon_t: ZRE, version 3, the UUID, the port in network order, and the public key."""
    uuid = bytes.fromhex("16dcde8c6de9434cac97cefa09230713")
    key = z85.decode("Qj<s[n<Mv+fqTPq&=DJKLSz}O>x5LfZ?=KR2(9yn")
    octets = b"ZRE\x03" + uuid + struct.pack(">H", 49152) + key
    beacon = Beacon.decode(octets)
    assert beacon is not None
    assert (beacon.uuid.bytes, beacon.port, beacon.key) == (uuid, 49152, key)
    assert beacon.encode() == octets
    assert Beacon(beacon.uuid, 0, key).encode() == octets[:20] + bytes(2) + key  # its goodbye
