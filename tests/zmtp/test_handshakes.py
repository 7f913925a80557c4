"""zambezi.zmtp.handshakes: one timer ends all handshakes that take too long, and their number is bounded."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.zmtp.stranger import Stranger, hello
from zambezi.zmtp import descriptors
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.events import HandshakeFailed
from zambezi.zmtp.handshakes import Handshakes
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.testing import Simulation, history, received

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


def test_a_timer_that_comes_late_gives_handshakes_as_much_more_time(sim: Simulation) -> None:
    hub = Router(sim, PATIENT)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint), Stranger.calling(endpoint) as slow:
        sim.until(lambda: len(hub.transport.links) == 2)
        sim.now += 5.0  # the process gets no time for 5 s; the handshakes have 2
        slow.say(hello(identity=b"s"))  # which waits in its socket
        sim.advance(0.0)
        assert hub.counters.handshakes_failed == 0
        sim.until(lambda: hub.peers)
        sim.advance(2.9)
        assert hub.counters.handshakes_failed == 0
        sim.advance(0.1)
        assert hub.counters.handshakes_failed == 1
        assert list(hub.peers) == [b"s"]
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


# Half-open connections


class Flood:
    """Links that are never ready, as `Handshakes` sees them."""

    def __init__(self, sim: Simulation, limits: Limits) -> None:
        self.sim = sim
        self.handshakes = Handshakes(sim, limits)
        self.closed: list[tuple[str, int]] = []
        self.ticked = 0
        self.count = 0

    def connect(self, address: str) -> None:
        number = self.count
        self.count += 1
        self.handshakes.measure()  # as a listener does

        def abort(reason: str) -> None:
            assert "which is" in reason
            self.closed.append((address, number))
            self.handshakes.end(link)

        def tick() -> None:
            self.ticked += 1
            self.handshakes.end(link)
            raise RuntimeError("a bug in a handler")

        due = SimpleNamespace(deadline=self.sim.now + 2.0)
        link = cast("Any", _Link(address=address, connection=due, abort=abort, tick=tick))
        self.handshakes.begin(link, accepted=True)


class _Link(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def test_an_address_that_opens_many_connections_loses_its_oldest_ones_and_others_lose_none(sim: Simulation) -> None:
    flood = Flood(sim, Limits(half_open=1000, half_open_of_address=3))
    flood.connect("192.0.2.1")
    for _ in range(10):
        flood.connect("198.51.100.7")
    assert flood.closed == [("198.51.100.7", number) for number in range(1, 8)]


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_clients_on_this_machine_share_an_address_and_have_the_bound_of_all(sim: Simulation, address: str) -> None:
    flood = Flood(sim, Limits(half_open=20, half_open_of_address=3))
    for _ in range(25):
        flood.connect(address)
    assert flood.closed == [(address, number) for number in range(5)]


def test_half_open_connections_take_a_part_of_the_descriptors_only(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "usable", lambda: 40)
    flood = Flood(sim, Limits())
    for _ in range(15):
        flood.connect("127.0.0.1")
    assert len(flood.closed) == 5


def test_the_timer_goes_on_if_the_end_of_a_link_raises(sim: Simulation) -> None:
    flood = Flood(sim, Limits())
    for _ in range(3):
        flood.connect("127.0.0.1")
    for _ in range(3):
        with pytest.raises(RuntimeError):
            sim.advance(3.0)
    assert flood.ticked == 3
    sim.advance(10.0)
    assert sim.alarms == []


def test_strangers_that_say_nothing_do_not_keep_an_honest_peer_out(sim: Simulation) -> None:
    hub = Router(sim, Options(limits=Limits(half_open=10)))
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with ExitStack() as strangers:
        for count in range(1, 51):
            strangers.enter_context(Stranger.calling(endpoint))
            sim.until(lambda count=count: len(hub.transport.links) + hub.counters.handshakes_failed == count)  # type: ignore[misc]
            assert len(hub.transport.links) <= 10
        honest = Dealer(sim, Options(identity=b"honest"))
        honest.connect(endpoint)
        honest.try_send(b"hello")
        sim.until(lambda: hub.readable)
        assert received(hub) == [[b"honest", b"hello"]]
        assert hub.counters.handshakes_failed == 41
        honest.close(0)
    hub.close(0)


def test_an_accepted_connection_has_less_time_than_one_that_this_side_made(sim: Simulation) -> None:
    hub = Router(sim, Options(limits=Limits(handshake_time=30.0, accept_time=10.0)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")):
        sim.until(lambda: hub.transport.links)
        sim.advance(9.9)
        assert hub.counters.handshakes_failed == 0
        sim.advance(0.1)
        assert hub.counters.handshakes_failed == 1
    hub.close(0)
