"""zambezi.zre.farewell: a node that stops says goodbye when its peers have read its last messages."""

from typing import Any

import pytest

from tests.zre.puppet import Puppet
from tests.zre.test_engine import BOB, IDENTITY, NOW, engine, hello
from tests.zre.test_node import drained, start, told
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import ZreError
from zambezi.zre.messages import Ping, PingOk, Stable, Whisper
from zambezi.zre.options import NodeOptions


class Stage:
    """A node, a peer (a puppet) that reads when the test says so, and the beacons on their network."""

    def __init__(self, sim: Simulation, **options: Any) -> None:
        self.sim = sim
        self.network = MemoryNetwork()
        self.beacons: list[bytes] = []
        self.node = start(sim, "ann", network=self.network, **options)
        self.bob = Puppet(sim, self.network.mailbox_at("9", 50001), self.node.endpoint)
        self.bob.greet()
        self.network.discovery().start(sim, lambda octets, _: self.beacons.append(octets))
        sim.run()

    def said_goodbye(self) -> bool:
        return any(octets.endswith(b"\0\0") for octets in self.beacons)

    def heard(self) -> list[object]:
        self.sim.run()
        return [Stable.decode(frames) for frames in self.bob.heard()]

    def end(self) -> None:
        self.bob.close()
        self.sim.run()


def test_the_goodbye_waits_until_the_last_message_is_read(sim: Simulation) -> None:
    stage = Stage(sim)
    stage.node.whisper(stage.bob.uuid, (b"last words",))
    stage.node.stop()
    *_, last, ping = stage.heard()
    assert isinstance(last, Whisper)
    assert isinstance(ping, Ping)
    sim.advance(1.0)
    assert not stage.said_goodbye()
    stage.bob.say(PingOk(2))
    sim.run()
    assert stage.said_goodbye()
    assert stage.node.stopped
    stage.end()


def test_last_words_wait_for_a_connection_that_is_being_made(sim: Simulation) -> None:
    """A peer has greeted us, but our connection to its mailbox is not up yet when we send to it and stop."""
    network = MemoryNetwork()
    node = start(sim, "ann", network=network)
    bob = Puppet(sim, network.mailbox_at("9", 50001), node.endpoint)
    later = network.mailbox_at("9", 50002)
    bob.greet(endpoint=later)
    sim.run()
    assert node.whisper(bob.uuid, (b"last words",))
    node.stop()
    sim.run()
    bob.router.bind(later)
    sim.run()
    words = [Stable.decode(frames) for frames in bob.heard()]
    assert [type(word) for word in words[1:]] == [Whisper, Ping]
    bob.say(PingOk(2))
    sim.run()
    assert node.stopped
    bob.close()
    sim.run()


def test_the_answer_to_an_earlier_ping_is_not_enough(sim: Simulation) -> None:
    stage = Stage(sim, evasive=5.0)
    sim.advance(6.0)
    assert any(isinstance(message, Ping) for message in stage.heard())
    stage.node.whisper(stage.bob.uuid, (b"last words",))
    stage.node.stop()
    stage.bob.say(PingOk(2))
    sim.run()
    assert not stage.said_goodbye()
    stage.bob.say(PingOk(3))
    sim.run()
    assert stage.said_goodbye()
    stage.end()


@pytest.mark.parametrize("linger", [3.0, None, 0.0])
def test_a_peer_that_does_not_answer_delays_the_goodbye_for_the_linger_time_at_most(
    sim: Simulation, linger: float | None
) -> None:
    stage = Stage(sim, linger=2.0)
    stage.node.whisper(stage.bob.uuid, (b"last words",))
    began = sim.time()
    stage.node.stop(linger)
    ended: list[float] = []
    stage.node.on_stopped = lambda: ended.append(sim.time())
    sim.run()
    if not stage.node.stopped:
        sim.advance(4.0)
    assert stage.node.stopped
    assert stage.said_goodbye()
    assert [when <= began + {3.0: 3.0, None: 2.0}[linger] for when in ended] == ([True] if linger != 0 else [])
    stage.end()


def test_a_peer_that_is_gone_or_was_told_nothing_is_not_waited_for(sim: Simulation) -> None:
    stage = Stage(sim)
    stage.node.stop()
    sim.run()
    assert stage.node.stopped
    stage.end()
    stage = Stage(sim)
    stage.node.whisper(stage.bob.uuid, (b"last words",))
    stage.node.stop()
    sim.run()
    stage.bob.close()
    sim.run()
    assert stage.node.stopped
    stage.end()


def test_nodes_that_stop_at_once_do_not_wait_for_each_other(sim: Simulation) -> None:
    network = MemoryNetwork()
    nodes = [start(sim, name, network=network, groups=["CHAT"]) for name in ("ann", "bob", "eve")]
    sim.run()
    began = sim.time()
    for node in nodes:
        node.shout("CHAT", (b"bye",))
    for node in nodes:
        node.stop()
    sim.run()
    assert all(node.stopped for node in nodes)
    assert sim.time() == began


def test_large_last_words_reach_a_node_that_reads(sim: Simulation) -> None:
    hub = start(sim, "hub", interface="lo", beacons=False, max_message=11_000_000)
    ann = start(sim, "ann", interface="lo", seeds=[hub.endpoint], max_message=11_000_000)
    sim.until(lambda: ann.peers and hub.peers)
    for number in range(2):
        assert ann.whisper(hub.engine.uuid, (b"%d" % number, bytes(10_000_000)))
    for number in range(1000):
        ann.whisper(hub.engine.uuid, (b"%d" % number,))
    ann.stop()
    heard: list[events.Event] = []
    while not (heard and isinstance(heard[-1], events.Exit)):
        sim.until(lambda: hub.events)
        heard += drained(hub)
    words = [event for event in heard if isinstance(event, events.Whisper)]
    assert [len(word.content) for word in words].count(2) == 2
    assert heard[-1] == events.Exit(ann.engine.uuid, "ann", "it left")
    assert not told(ann, events.Exit)
    sim.until(lambda: ann.stopped)
    hub.stop()
    sim.run()


def test_an_engine_asks_only_peers_that_can_answer() -> None:
    ours = engine()
    ours.receive(IDENTITY, hello(), NOW)
    ours.whisper(BOB, (b"x",))
    ours.take()
    assert ours.farewell(is_lost=lambda _: True).is_over
    assert ours.take() == []
    assert not ours.farewell(is_lost=lambda _: False).is_over


def test_an_impossible_linger_is_refused() -> None:
    with pytest.raises(ZreError, match="linger must not be negative, but is -1"):
        NodeOptions(linger=-1)
