"""zambezi.zre.departures: a goodbye by a beacon ends a peer after its last messages, which the beacon overtook."""

from tests.zre.puppet import BOB, Puppet
from tests.zre.test_engine import IDENTITY, NOW, engine, hello
from tests.zre.test_node import drained, start
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events
from zambezi.zre.beacon import Beacon
from zambezi.zre.departures import QUIET, Departures
from zambezi.zre.dialect import STABLE
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.engine import Engine
from zambezi.zre.messages import Goodbye, Whisper
from zambezi.zre.peer import Peer
from zambezi.zre.timing import Timing

ADDRESS = "10.0.0.2"
GOODBYE = Beacon(BOB, 0).encode()
LEFT = events.Exit(BOB, "bob", "it left")


class Stage:
    """An engine with one peer, whose connection and unread messages the test decides about."""

    def __init__(self) -> None:
        self.connected = self.unread = True
        self.engine: Engine = engine(connects_to_us=lambda _: self.connected, has_unread=lambda _: self.unread)
        self.engine.receive(IDENTITY, hello(), NOW)
        self.unread = False
        self.engine.take()

    def say(self, sequence: int, when: float) -> None:
        self.engine.receive(IDENTITY, list(Whisper(sequence, [b"x"]).encode()), NOW + when)

    def told(self) -> list[events.Event]:
        return [output for output in self.engine.take() if isinstance(output, events.Event)]

    def exits(self, when: float) -> bool:
        self.engine.tick(NOW + when)
        return LEFT in self.told()


def test_messages_that_the_goodbye_overtook_are_received() -> None:
    stage = Stage()
    stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW)
    assert stage.engine.deadline <= NOW + QUIET
    assert stage.told() == []
    for number in range(10):
        stage.say(number + 2, number * QUIET / 2)
        stage.engine.tick(NOW + number * QUIET / 2)
        assert stage.told() == [events.Whisper(BOB, "bob", (b"x",))]
    assert stage.exits(6 * QUIET)
    assert not stage.engine.peers


def test_a_peer_whose_connection_is_closed_and_read_ends_at_once() -> None:
    stage = Stage()
    stage.connected, stage.unread = False, True
    stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW)
    assert stage.told() == []
    assert not stage.exits(2 * QUIET)  # quiet, but its messages wait in the mailbox
    stage.unread = False
    assert stage.exits(4 * QUIET)
    stage = Stage()
    stage.connected = False
    stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW)
    assert stage.told() == [LEFT]


def test_a_peer_that_talks_on_has_the_time_of_a_silent_one_at_most() -> None:
    stage = Stage()
    stage.unread = True
    stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW)
    for number in range(590):
        when = number * QUIET / 2
        stage.say(number + 2, when)
        stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW + when)  # a second goodbye does not begin anew
        assert not stage.exits(when)
    assert stage.exits(30.0)


def test_goodbye_on_the_connection_ends_a_peer_at_once() -> None:
    stage = Stage()
    stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW)
    stage.engine.receive(IDENTITY, list(Goodbye(2).encode()), NOW)
    assert stage.told() == [LEFT]
    stage.engine.tick(NOW + 1)
    assert stage.told() == []


def test_a_peer_that_is_back_before_it_has_ended_enters_again() -> None:
    for again in ("beacon", "hello"):
        stage = Stage()
        stage.engine.receive_beacon(Beacon(BOB, 50001).encode(), ADDRESS, NOW + 10)
        stage.engine.take()
        stage.engine.receive_beacon(GOODBYE, ADDRESS, NOW + 11)
        if again == "beacon":
            stage.engine.receive_beacon(Beacon(BOB, 50001).encode(), ADDRESS, NOW + 11)
            assert stage.told() == [LEFT]
        stage.engine.receive(IDENTITY, hello(), NOW + 11)
        assert events.Enter in map(type, stage.told())
        stage.engine.tick(NOW + 12)
        assert LEFT not in stage.told()


def test_a_node_reads_what_is_in_its_mailbox_before_the_exit(sim: Simulation) -> None:
    network = MemoryNetwork()
    ann = start(sim, "ann", network=network)
    bob = Puppet(sim, network.mailbox_at("9", 50001), ann.endpoint)
    bob.greet()
    sim.run()
    drained(ann)
    network.discovery().send(GOODBYE)
    sim.run()
    for number in range(100):
        bob.say(Whisper(number + 2, [b"%d" % number]))
    sim.run()
    sim.advance(2 * QUIET)
    told = drained(ann)
    assert [type(event) for event in told] == [events.Whisper] * 100 + [events.Exit]
    bob.close()
    ann.stop(0)
    sim.run()


def test_departures_look_only_while_there_are_some() -> None:
    departures = Departures(Timing(), lambda _: True, lambda _: False)
    peer = Peer(BOB.bytes, "tcp://10.0.0.2:50001", STABLE, NOW)
    assert not departures.begin(peer, NOW)  # it never greeted us
    peer.ready = True
    assert departures.begin(peer, NOW)
    assert peer in departures.leaving
    assert departures.due(NOW) == []
    assert departures.due(NOW + QUIET) == [peer]
    assert departures.deadline == float("inf")
    departures.begin(peer, NOW)
    departures.forget(peer)
    assert departures.deadline == float("inf")
    departures.begin(peer, NOW)
    departures.clear()
    assert departures.due(NOW + 1) == []
