"""zambezi.zmtp.doorstep: refused peers that may be allowed later get no answer, and come back when the rules change."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from zambezi.zmtp import Authenticator, CurveClient, CurveServer, KeyPair, KeyRefused, Limits, curve
from zambezi.zmtp.connection import Connection
from zambezi.zmtp.doorstep import STAY
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.testing import Simulation

SERVER, DAEMON = KeyPair.generate(), KeyPair.generate()


class Stranger:
    """A client on a bare socket, which says nothing about its product, as libzmq."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.sock = socket.create_connection((host, int(port)))
        self.sock.setblocking(False)
        self.connection = Connection("DEALER", 0.0, security=CurveClient(SERVER.public, DAEMON))
        self.ended = False
        self.got = b""

    def step(self) -> None:
        """Send and receive all there is."""
        if self.connection.output:
            self.sock.sendall(self.connection.take_output())
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.ended = not data
        self.got += data
        self.connection.receive(data, 0.0)


class Stage:
    """A ROUTER that allows no key, and the strangers that try."""

    def __init__(self, half_open: int = 4096) -> None:
        self.simulation = Simulation()
        self.guard = Authenticator(keys={})
        options = Options(security=CurveServer(SERVER), authenticator=self.guard, limits=Limits(half_open=half_open))
        self.router = Router(self.simulation, options)
        self.events: list[SocketEvent] = []
        self.router.on_event = self.events.append
        self.endpoint = self.router.bind("tcp://127.0.0.1:*")
        self.strangers: list[Stranger] = []

    def stranger(self) -> Stranger:
        """Return a client whose key was just refused."""
        one = Stranger(self.endpoint)
        self.strangers.append(one)
        before = self.router.transport.counters.keys_refused
        self.until(lambda: self.router.transport.counters.keys_refused > before)
        return one

    def until(self, condition: object) -> None:
        def stepped() -> bool:
            for stranger in self.strangers:
                if not stranger.ended:
                    stranger.step()
            return bool(condition())  # type: ignore[operator]

        self.simulation.until(stepped)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(curve, "_PRODUCT", {})
    stage = Stage()
    yield stage
    stage.router.close(0)
    for stranger in stage.strangers:
        stranger.sock.close()


def test_a_refused_peer_gets_no_answer_and_its_connection_is_closed_after_a_while(stage: Stage) -> None:
    stranger = stage.stranger()
    event = next(event for event in stage.events if isinstance(event, KeyRefused))
    assert event.key == DAEMON.public_z85
    assert event.key in event.reason
    stage.simulation.advance(STAY - 0.1)
    stranger.step()
    assert not stranger.ended
    stage.simulation.advance(0.2)
    stage.until(lambda: stranger.ended)
    assert b"ERROR" not in stranger.got


def test_it_is_closed_at_once_when_the_rules_change(stage: Stage) -> None:
    stranger = stage.stranger()
    stage.guard.update(keys={"daemon": DAEMON.public})
    stage.simulation.advance(1.1)
    stage.until(lambda: stranger.ended)
    assert stage.router.transport.counters.keys_refused == 1


def test_it_is_closed_when_it_sends_anything_and_when_it_leaves(stage: Stage) -> None:
    talks, leaves = stage.stranger(), stage.stranger()
    doorstep = stage.router.transport._doorstep
    assert doorstep is not None
    talks.sock.sendall(b"more")
    leaves.sock.close()
    leaves.ended = True
    stage.until(lambda: len(doorstep) == 0)
    stage.until(lambda: talks.ended)


def test_their_number_is_bounded_and_the_oldest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "_PRODUCT", {})
    stage = Stage(half_open=3)
    first, *others = [stage.stranger() for _ in range(4)]
    stage.until(lambda: first.ended)
    assert not any(one.ended for one in others)
    stage.router.close(0)
    stage.until(lambda: all(one.ended for one in others))
    for stranger in stage.strangers:
        stranger.sock.close()
