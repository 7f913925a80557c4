"""zambezi.zre.hub: nodes of ours that find each other by zgossip, on loopback, with a clock that the test moves."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.zre.test_node import drained, start, told
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer
from zambezi.zmtp.testing import PATIENCE, Simulation, received
from zambezi.zre import events, zgossip
from zambezi.zre.contact import with_key
from zambezi.zre.node import NodeShell
from zambezi.zre.tuples import Tuples

HUB = "tcp://127.0.0.1:*"
MESH = KeyPair.generate(seed=bytes([9]) * 32)
PAIRS = [KeyPair.generate(seed=bytes([number]) * 32) for number in range(1, 5)]


def names(node: NodeShell) -> list[str]:
    return sorted(peer.name for peer in node.peers)


def stop(sim: Simulation, *nodes: NodeShell) -> None:
    for node in nodes:
        node.stop(1.0)
    pass_until(sim, lambda: all(node.stopped for node in nodes))


def pass_until(sim: Simulation, condition: Callable[[], object]) -> None:
    """Let time pass until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        sim.run(0.002)
        sim.advance(0.02)


def tuples_of(node: NodeShell) -> Tuples:
    assert node._hub is not None
    return node._hub.tuples


@pytest.mark.parametrize("security", ["none", "mesh", "node"])
def test_nodes_find_each_other_by_a_hub_and_notice_who_leaves(sim: Simulation, security: str) -> None:
    def options(number: int) -> dict[str, Any]:
        if security == "mesh":
            return {"keys": MESH}
        allowed = {str(index): pair.public for index, pair in enumerate(PAIRS)}
        return {"node_keys": PAIRS[number], "allowed": allowed} if security == "node" else {}

    hub = start(sim, "hub", interface="lo", gossip_bind=HUB, **options(0))
    contact = with_key(hub.gossip_endpoint, PAIRS[0].public if security == "node" else b"")
    ann, bob = (
        start(sim, name, interface="lo", gossip_connect=[contact], **options(number))
        for number, name in enumerate(("ann", "bob"), 1)
    )
    pass_until(
        sim, lambda: [names(node) for node in (hub, ann, bob)] == [["ann", "bob"], ["bob", "hub"], ["ann", "hub"]]
    )
    ann.whisper(bob.engine.uuid, (b"hello",))
    pass_until(sim, lambda: told(bob, events.Whisper))
    assert all("|" not in peer.endpoint for peer in ann.peers)
    assert ("tuples", 3, 10_000) in hub.queues()
    for node in (hub, ann):
        drained(node)
    stop(sim, bob)
    for node in (hub, ann):
        pass_until(sim, lambda node=node: told(node, events.Exit))  # type: ignore[misc]
        assert told(node, events.Exit) == [events.Exit(bob.engine.uuid, "bob", "it left")]
    stop(sim, ann, hub)


def test_a_hub_that_comes_back_is_told_again_of_all_its_clients(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    where = hub.gossip_endpoint
    ann, bob = (start(sim, name, interface="lo", gossip_connect=[where]) for name in ("ann", "bob"))
    pass_until(sim, lambda: names(ann) == ["bob", "hub"] and names(bob) == ["ann", "hub"])
    assert ann.missing_hubs == hub.missing_hubs == []
    stop(sim, hub)
    pass_until(sim, lambda: names(ann) == ["bob"] and names(bob) == ["ann"])
    assert ann.missing_hubs == [where]
    again = start(sim, "again", interface="lo", gossip_bind=where)
    pass_until(sim, lambda: names(again) == ["ann", "bob"] and names(ann) == ["again", "bob"])
    eve = start(sim, "eve", interface="lo", gossip_connect=[where])
    pass_until(sim, lambda: names(eve) == ["again", "ann", "bob"])
    assert not told(ann, events.Evasive)
    stop(sim, again, ann, bob, eve)


def test_hubs_can_be_clients_of_each_other(sim: Simulation) -> None:
    first = start(sim, "first", interface="lo", gossip_bind=HUB)
    second = start(sim, "second", interface="lo", gossip_bind=HUB, gossip_connect=[first.gossip_endpoint])
    ann = start(sim, "ann", interface="lo", gossip_connect=[first.gossip_endpoint])
    bob = start(sim, "bob", interface="lo", gossip_connect=[second.gossip_endpoint])
    pass_until(sim, lambda: names(ann) == ["bob", "first", "second"] and names(bob) == ["ann", "first", "second"])
    stop(sim, first, second, ann, bob)


def test_the_tuple_of_a_node_that_dies_is_forgotten_in_time(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    ann = start(sim, "ann", interface="lo", gossip_connect=[hub.gossip_endpoint])
    pass_until(sim, lambda: names(hub) == ["ann"])
    ann.crash()
    pass_until(sim, lambda: names(hub) == [])
    assert len(tuples_of(hub)) == 2
    pass_until(sim, lambda: len(tuples_of(hub)) == 1)
    stop(sim, hub)


def test_a_stranger_with_too_large_or_too_many_messages_is_cut_off(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    stranger = Dealer(sim, Options())
    stranger.connect(hub.gossip_endpoint)
    assert hub._hub is not None
    server = hub._hub.transports[0]
    pass_until(sim, lambda: server.links)
    stranger.try_send(zgossip.Publish("k", "v" * 3000).encode()[0])
    pass_until(sim, lambda: not server.links)
    pass_until(sim, lambda: server.links)  # it connects again
    for _ in range(3):
        stranger.try_send(zgossip.Hello().encode()[0])
    pass_until(sim, lambda: server.counters.cut_off)
    stranger.close(0)
    stop(sim, hub)


def test_a_stranger_without_the_key_is_no_client(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB, keys=MESH)
    assert hub._hub is not None
    server = hub._hub.transports[0]
    eve = start(sim, "eve", interface="lo", gossip_connect=[hub.gossip_endpoint], keys=PAIRS[3])
    pass_until(sim, lambda: server.counters.handshakes_failed)
    assert len(tuples_of(hub)) == 1
    assert not hub.engine.peers
    stop(sim, hub, eve)


def test_nodes_that_zgossip_tells_are_connected_to_only_where_they_can_be(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    stranger = Dealer(sim, Options())
    stranger.connect(hub.gossip_endpoint)
    stranger.try_send(zgossip.Hello().encode()[0])
    for number, endpoint in enumerate(("ipc:///run/docker.sock", "inproc://x", "tcp://239.1.1.1:5"), 100):
        stranger.try_send(zgossip.Publish(f"{number:032X}", endpoint).encode()[0])
    pass_until(sim, lambda: hub.engine.counters.refused_endpoints == 3)
    assert not hub.engine.peers
    stranger.close(0)
    stop(sim, hub)


def test_an_endpoint_that_is_taken_stops_the_start_and_leaves_nothing_open(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    with pytest.raises(EndpointError, match="another program"):
        start(sim, "second", interface="lo", gossip_bind=hub.gossip_endpoint)
    stop(sim, hub)
    assert not sim.watched


def test_a_link_that_tells_very_many_tuples_does_not_keep_others_waiting(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    eager, other = Dealer(sim, Options()), Dealer(sim, Options())
    for dealer in (eager, other):
        dealer.connect(hub.gossip_endpoint)
        dealer.try_send(zgossip.Hello().encode()[0])
    pass_until(sim, lambda: received(eager) and received(other))
    gossip = hub._hub
    assert gossip is not None
    first, second = (link.peer for link in gossip.transports[0].links)
    for peer, start_at in ((first, 100), (second, 1_000)):
        batch = [
            [zgossip.Publish(f"{n:032X}", f"tcp://239.0.0.1:{n}").encode()[0]] for n in range(start_at, start_at + 250)
        ]
        gossip.received(peer, cast("Any", batch))
        assert peer.paused
    assert len(tuples_of(hub)) == 101  # the rest waits, and both links have their turns
    sim.run()
    assert len(tuples_of(hub)) == 501
    assert [first.paused, second.paused] == [False, False]
    for dealer in (eager, other):
        dealer.close(0)
    stop(sim, hub)


def test_a_link_that_ends_while_its_messages_wait_is_forgotten(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", gossip_bind=HUB)
    eve = Dealer(sim, Options())
    eve.connect(hub.gossip_endpoint)
    eve.try_send(zgossip.Hello().encode()[0])
    for number in range(500):
        eve.try_send(zgossip.Publish(f"{number + 100:032X}", "tcp://239.0.0.1:5").encode()[0])
    eve.try_send(b"nonsense")
    pass_until(sim, lambda: hub.engine.counters.bad_tuples)
    eve.close(0)
    ann = start(sim, "ann", interface="lo", gossip_connect=[hub.gossip_endpoint])
    pass_until(sim, lambda: names(hub) == ["ann"])
    stop(sim, hub, ann)
