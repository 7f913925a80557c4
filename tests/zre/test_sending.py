"""zambezi.zre.sending: messages that wait for room: nodes with small queues, in memory and over loopback."""

from typing import Any

import pytest

from tests.zre.puppet import Puppet
from tests.zre.test_node import drained, start, told
from zambezi.zmtp import QueueFull
from zambezi.zmtp.options import Bound
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import NodeStopped, NoSuchPeer, ZreError
from zambezi.zre.messages import Leave, Ping
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions

SMALL = Bound(10, 100_000)


class Stage:
    """A node with small queues, a peer that reads, and a peer (a puppet) whose mailbox is closed, so it never reads."""

    def __init__(self, sim: Simulation, **options: Any) -> None:
        self.network = MemoryNetwork()
        self.node = start(sim, "ann", network=self.network, bound=SMALL, **options)
        self.reader = start(sim, "reader", network=self.network, groups=["CHAT"])
        self.bob = Puppet(sim, self.network.mailbox_at("9", 50001), self.node.endpoint)
        self.bob.greet(groups=["CHAT"])
        sim.run()
        assert len(self.node.peers) == 2
        self.bob.router.close(0)
        sim.run()
        drained(self.node)
        self.sim = sim

    def fill(self) -> None:
        """Fill the queue to the peer that does not read. A PING is in it already."""
        while self.node.whisper(self.bob.uuid, (b"x",)):
            pass

    def shouts_read(self) -> list[bytes]:
        self.sim.run()
        return [event.data for event in drained(self.reader) if isinstance(event, events.Shout)]

    def end(self) -> None:
        for node in (self.node, self.reader):
            node.stop(0)
        self.bob.close()
        self.sim.run()


def test_a_message_to_a_full_queue_waits_until_the_peer_is_given_up(sim: Simulation) -> None:
    stage = Stage(sim)
    stage.fill()
    woken: list[float] = []
    stage.node.on_room = lambda: woken.append(sim.time())
    began = sim.time()
    assert stage.node.whisper(stage.bob.uuid, (b"y",)) is None
    sim.advance(29)
    assert not told(stage.node, events.Exit)
    assert stage.node.whisper(stage.bob.uuid, (b"y",)) is None
    sim.advance(7)
    (gone,) = told(stage.node, events.Exit)
    assert isinstance(gone, events.Exit)
    assert gone.peer == stage.bob.uuid
    assert "does not respond" in gone.reason or "silent" in gone.reason
    assert began + 29 < woken[-1]
    with pytest.raises(NoSuchPeer):
        stage.node.whisper(stage.bob.uuid, (b"y",))
    stage.end()


def test_a_shout_reaches_peers_with_room_at_once_and_waits_for_the_others(sim: Simulation) -> None:
    stage = Stage(sim)
    stage.fill()
    shouting = stage.node.shout("CHAT", (b"news",))
    assert shouting.count == 1
    assert [peer.uuid for peer in shouting.waiting] == [stage.bob.uuid]
    assert shouting.problem == "the queues to bob had no room"
    assert stage.shouts_read() == [b"news"]
    assert stage.node.go_on(shouting) is None
    stage.bob.say(Leave(2, "CHAT", 2))  # then it is no member any more
    sim.run()
    assert stage.node.go_on(shouting) == 1
    assert stage.shouts_read() == []
    stage.end()


def test_with_drop_a_peer_without_room_misses_the_message(sim: Simulation) -> None:
    stage = Stage(sim, on_full="drop")
    stage.fill()
    assert stage.node.engine.counters.dropped == 1
    shouting = stage.node.shout("CHAT", (b"news",))
    assert (shouting.count, shouting.waiting) == (1, [])
    assert stage.shouts_read() == [b"news"]
    assert stage.node.engine.counters.dropped == 2
    assert not told(stage.node, events.Exit)
    stage.end()


def test_with_error_all_get_the_message_or_none(sim: Simulation) -> None:
    stage = Stage(sim, on_full="error")
    with pytest.raises(QueueFull, match="the queues to bob are full; their bound is 10 messages or 100000 bytes"):
        stage.fill()
    with pytest.raises(QueueFull, match="sent to no peer"):
        stage.node.shout("CHAT", (b"news",))
    assert stage.shouts_read() == []
    assert stage.node.whisper(stage.reader.engine.uuid, (b"still",))
    stage.end()


def test_messages_of_the_node_itself_go_beyond_the_bound_but_not_without_end(sim: Simulation) -> None:
    """A peer that asks and asks, and never reads the answers."""
    stage = Stage(sim)
    stage.fill()
    stage.node.join("NEW")
    for number in range(2, 30):
        stage.bob.say(Ping(number))
    sim.run()
    (gone,) = told(stage.node, events.Exit)
    assert isinstance(gone, events.Exit)
    assert "does not respond" in gone.reason
    stage.end()


def test_nothing_waits_for_room_on_a_node_that_stops(sim: Simulation) -> None:
    stage = Stage(sim)
    stage.fill()
    shouting = stage.node.shout("CHAT", (b"news",))
    stage.node.stop(0)
    with pytest.raises(NodeStopped):
        stage.node.go_on(shouting)
    stage.end()


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ZreError, match="on_full must be 'block', 'error' or 'drop', not 'wait'"):
        NodeOptions(on_full="wait")  # type: ignore[arg-type]


def large_pair(sim: Simulation, **options: Any) -> tuple[NodeShell, NodeShell]:
    hub = start(sim, "hub", interface="lo", beacons=False, max_message=11_000_000)
    ann = start(sim, "ann", interface="lo", seeds=[hub.endpoint], max_message=11_000_000, **options)
    sim.until(lambda: ann.peers and hub.peers)
    return ann, hub


def test_ten_large_messages_reach_a_peer_that_reads(sim: Simulation) -> None:
    ann, hub = large_pair(sim)
    got = 0
    for number in range(10):
        content = (b"%d" % number, bytes(10_000_000))
        while ann.whisper(hub.engine.uuid, content) is None:
            sim.until(lambda: not ann._dealers.stalls)
        assert ann._dealers.transport.longest_queue < 30_000_000
        got += len([event for event in drained(hub) if isinstance(event, events.Whisper)])
    while got < 10:
        sim.until(lambda: hub.events)
        got += len([event for event in drained(hub) if isinstance(event, events.Whisper)])
    assert not told(ann, events.Exit)
    for node in (ann, hub):
        node.stop(0)
    sim.run()


def test_a_program_that_stops_reading_holds_its_peers_back(sim: Simulation) -> None:
    """Its node keeps few messages; its peer's queue fills, and the peer gives it up after its time."""
    ann, hub = large_pair(sim, expired=6.0)
    sent = 0
    while ann.whisper(hub.engine.uuid, (bytes(1_000_000),)):
        sent += 1
        sim.run()
    before = 0
    while sent > before:  # until the kernel's buffers are full, too
        before = sent
        sim.run()
        sent += bool(ann.whisper(hub.engine.uuid, (bytes(1_000_000),)))
    assert sent < 100
    unread = [event for event in hub.events if isinstance(event, events.Whisper)]
    assert 16 <= len(unread) <= 18
    for _ in range(60):  # a busy kernel can still move some bytes, and then the time begins again
        sim.advance(1.0)
        if told(ann, events.Exit):
            break
    (gone,) = told(ann, events.Exit)
    assert isinstance(gone, events.Exit)
    for node in (ann, hub):
        node.stop(0)
    sim.run()
