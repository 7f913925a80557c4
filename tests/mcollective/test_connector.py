"""zambezi.mcollective.connector: a connector on a clock that is moved by hand, and a middleware played by a ROUTER."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from zambezi.mcollective.connector import QUIET, ConnectorShell, default_identity
from zambezi.mcollective.errors import McollectiveError
from zambezi.mcollective.events import Complaint, SessionLost, SessionReady
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.testing import Simulation

E = b""
ENDPOINTS = (f"inproc://connector-test-{number}" for number in count())


class Pair:
    """A connector, and a ROUTER that answers as a test wants."""

    def __init__(self, sim: Simulation, **options: Any) -> None:
        self.sim = sim
        self.router = Router(sim, Options(), handover=True)
        self.endpoint = self.router.bind(next(ENDPOINTS))
        given = Options(identity=b"me", backoff=Backoff(0.1, 0.1), **options)
        self.connector = ConnectorShell(sim, given, endpoint=self.endpoint)
        self.events: list[SocketEvent] = []
        self.connector.on_event = self.events.append
        self.connector.start()
        sim.run()

    def heard(self) -> list[list[bytes]]:
        """Return the new messages of the connector, without its identity and the empty frame."""
        self.sim.run()
        found = []
        while (message := self.router.try_recv()) is not None:
            found.append(message[2:])
        return found

    def say(self, *frames: bytes) -> None:
        self.router.try_send((b"me", E, *frames))
        self.sim.run()

    def make_ready(self) -> None:
        (connect,) = self.heard()
        assert connect[:2] == [b"CONNECT", b"ID"]
        self.say(b"OK", b"ID", connect[2])
        assert self.connector.ready

    def told(self, kind: type[SocketEvent]) -> list[SocketEvent]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def pair(sim: Simulation) -> Iterator[Pair]:
    made = Pair(sim, receive_bound=Bound(messages=4))
    yield made
    made.connector.close(0)
    made.router.close(0)
    sim.run()


def test_it_is_a_client_and_its_ttl_is_a_time(sim: Simulation) -> None:
    with pytest.raises(McollectiveError, match="more than zero seconds, or None for no heartbeats, not 0"):
        ConnectorShell(sim, Options(), endpoint="inproc://nowhere", ttl=0)
    with pytest.raises(McollectiveError, match="cannot be bound to tcp://"):
        ConnectorShell(sim, Options(), endpoint="inproc://nowhere").bind("tcp://127.0.0.1:1")


def test_operators_see_host_and_process_and_no_two_are_the_same() -> None:
    one, other = default_identity(), default_identity()
    assert re.fullmatch(rb".+ \d+ [0-9a-f]{8}", one)
    assert one != other
    assert len(one) <= 255


def test_nothing_is_sent_before_there_is_a_session(pair: Pair) -> None:
    connector = pair.connector
    assert not connector.try_put(b"a", {}, (b"x",))
    assert connector.try_request(b"NOOP", {}, ()) is None
    assert connector.problem == (
        f"there is no session with the middleware at {pair.endpoint}: it accepts connections, but does not answer as a "
        "middleware"
    )
    pair.make_ready()
    assert connector.problem == f"there is a session with the middleware at {pair.endpoint}"
    assert connector.try_put(b"a", {}, (b"x",))
    assert pair.heard() == [[b"PUT", b"TOPIC", b"a", E, b"x"]]
    assert pair.told(SessionReady) == [SessionReady(pair.endpoint, again=False)]


def test_a_program_that_does_not_read_pauses_the_connector_until_half_is_read(pair: Pair) -> None:
    pair.make_ready()
    for number in range(10):
        pair.say(b"MESSAGE", b"TOPIC", b"a", E, b"%d" % number)
    connector = pair.connector
    assert (len(connector.messages), connector.engine.paused, connector.readable) == (4, True, True)
    received = []
    for expected in (True, False):
        message = connector.next_message()
        assert message is not None
        received.append(message.body)
        assert connector.engine.paused is expected
    pair.sim.run()
    while (message := connector.next_message()) is not None:
        received.append(message.body)
        pair.sim.run()
    assert received == [b"%d" % number for number in range(10)]


def test_puts_that_had_not_gone_out_go_out_in_the_next_session(pair: Pair) -> None:
    pair.make_ready()
    peer = pair.router.peers[b"me"]
    peer.pause()
    for number in range(1000):
        pair.connector.try_put(b"a", {}, (b"%d" % number,))
    peer.abort("a cable was pulled")
    pair.sim.run()
    assert [type(event) for event in pair.told(SessionLost)] == [SessionLost]
    pair.sim.advance(1.0)
    *before, connect = pair.heard()
    assert connect[0] == b"CONNECT"
    pair.say(b"OK", b"ID", connect[2])
    after = pair.heard()
    assert after
    bodies = [int(message[-1]) for message in (*before, *after)]
    assert bodies == sorted(set(bodies))
    assert bodies[-1] == 999
    assert pair.told(SessionReady)[1:] == [SessionReady(pair.endpoint, again=True)]


def test_an_error_that_answers_nothing_is_an_event_and_the_likely_problem(pair: Pair) -> None:
    pair.say(b"ERROR", b"MESSAGE", b"we are full")
    assert pair.told(Complaint) == [Complaint(pair.endpoint, "we are full")]
    assert pair.connector.problem.endswith(": it says: we are full")


def test_the_end_is_told_to_the_middleware_if_there_is_time(pair: Pair) -> None:
    pair.make_ready()
    pair.connector.close(1.0)
    assert pair.heard() == [[b"DISCONNECT"]]
    pair.sim.run()
    assert pair.connector.transport.closed


def test_a_program_that_waits_for_a_session_is_warned_once(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(sim)
    sim.advance(QUIET - 0.1)
    assert not caplog.messages
    sim.advance(0.2)
    (warning,) = caplog.messages
    assert warning.startswith(f"waiting for a session: there is no session with the middleware at {pair.endpoint}")
    sim.advance(60)
    assert len(caplog.messages) == 1
    pair.connector.close(0)
    pair.router.close(0)
    sim.run()


def test_a_session_in_time_needs_no_warning(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.make_ready()
    pair.sim.advance(QUIET + 1)
    assert not caplog.messages
