"""zambezi.zre.farewell: a node that stops says goodbye when its peers have read its last messages."""

from typing import Any

from tests.zre.puppet import Puppet
from tests.zre.test_engine import BOB, IDENTITY, NOW, engine, hello
from tests.zre.test_node import start
from zambezi.zmtp.testing import Simulation
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.messages import Ping, PingOk, Stable, Whisper


class Stage:
    """A node, a peer (a puppet) that reads when the test says so, and the beacons on their network."""

    def __init__(self, sim: Simulation, **options: Any) -> None:
        self.sim = sim
        self.network = MemoryNetwork()
        self.beacons: list[bytes] = []
        self.node = start(sim, "ann", network=self.network, **options)
        self.bob = Puppet(sim, self.network.mailbox_at("9", 50001), self.node.endpoint)
        self.bob.greet()
        self.network.discovery().start(sim, lambda found: self.beacons.extend(octets for octets, _ in found))
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


def test_an_engine_asks_only_peers_that_can_answer() -> None:
    ours = engine()
    ours.receive(IDENTITY, hello(), NOW)
    ours.whisper(BOB, (b"x",))
    ours.take()
    assert ours.farewell(is_lost=lambda _: True).is_over
    assert ours.take() == []
    assert not ours.farewell(is_lost=lambda _: False).is_over
