"""zambezi.zmtp.handshakes: one timer ends all handshakes that take too long, each at its own time."""

from contextlib import ExitStack

from tests.zmtp.stranger import Stranger, hello
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.events import HandshakeFailed
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.testing import Simulation, history

PATIENT = Options(limits=Limits(handshake_time=2.0))


def test_one_timer_serves_all_and_each_has_its_own_time(sim: Simulation) -> None:
    start = sim.now
    hub = Router(sim, PATIENT)
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with ExitStack() as strangers:
        for count in (1, 2, 3):
            strangers.enter_context(Stranger.calling(endpoint))
            sim.until(lambda count=count: len(hub.transport.links) == count)  # type: ignore[misc]
            assert sim.alarms == [start + 2.0]
            sim.advance(0.5)
        sim.advance(0.25)
        assert hub.counters.handshakes_failed == 0
        sim.advance(0.25)
        assert hub.counters.handshakes_failed == 1
        sim.advance(0.5)
        assert hub.counters.handshakes_failed == 2
        sim.advance(0.5)
        assert hub.counters.handshakes_failed == 3
        failed = [event for event in events if isinstance(event, HandshakeFailed)]
        assert [event.reason for event in failed] == ["the handshake took longer than 2 s"] * 3
    hub.close(0)


def test_complete_and_lost_handshakes_are_forgotten(sim: Simulation) -> None:
    hub = Router(sim, PATIENT)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as stranger:
        stranger.say(hello(identity=b"s"))
        sim.until(lambda: hub.peers)
        with Stranger.calling(endpoint):
            sim.until(lambda: len(hub.transport.links) == 2)
        sim.until(lambda: len(hub.transport.links) == 1)
        assert hub.counters.handshakes_failed == 1  # the peer closed the connection
        sim.advance(60.0)
        assert hub.counters.handshakes_failed == 1
        assert list(hub.peers) == [b"s"]
        assert sim.alarms == []
    hub.close(0)


def test_a_timer_that_was_not_needed_serves_the_next(sim: Simulation) -> None:
    hub = Router(sim, PATIENT)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as quick, ExitStack() as others:
        quick.say(hello(identity=b"s"))
        sim.until(lambda: hub.peers)
        sim.advance(1.0)
        others.enter_context(Stranger.calling(endpoint))
        sim.until(lambda: len(hub.transport.links) == 2)
        sim.advance(1.9)
        assert hub.counters.handshakes_failed == 0
        sim.advance(0.1)
        assert hub.counters.handshakes_failed == 1
    hub.close(0)


def test_a_socket_that_is_closed_leaves_no_timer(sim: Simulation) -> None:
    hub = Router(sim, PATIENT)
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")):
        sim.until(lambda: hub.transport.links)
        assert sim.alarms
        hub.close(0)
        assert hub.closed
        assert sim.alarms == []
