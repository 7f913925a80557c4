"""zambezi.zre.ending: a node that stops ends in its linger time, whatever its peers do."""

import socket

import pytest

from tests.zre.test_farewell import Stage
from tests.zre.test_node import drained, start, told
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import ZreError
from zambezi.zre.options import NodeOptions


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


def test_a_seed_that_has_not_answered_is_not_waited_for(sim: Simulation) -> None:
    with socket.socket() as deaf:  # it does not listen
        deaf.bind(("127.0.0.1", 0))
        seed = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        node = start(sim, "ann", interface="lo", seeds=[seed])
        sim.run()
        assert node.missing_seeds == [seed]
        node.stop(linger=100)
        sim.advance(1.0)
        assert node.stopped


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


def test_an_impossible_linger_is_refused() -> None:
    with pytest.raises(ZreError, match="linger must not be negative, but is -1"):
        NodeOptions(linger=-1)


def test_a_crash_says_no_goodbye_and_leaves_the_queues(sim: Simulation) -> None:
    stage = Stage(sim)
    stage.node.whisper(stage.bob.uuid, (b"last words",))
    stage.node.crash()
    sim.run()
    assert stage.node.stopped
    assert not stage.said_goodbye()
    stage.end()
