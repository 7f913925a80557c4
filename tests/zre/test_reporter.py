"""zambezi.zre.reporter: what a node does goes to every log service that it has found."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Sub
from zambezi.zmtp.security import Null
from zambezi.zmtp.testing import Simulation
from zambezi.zre import events, log
from zambezi.zre.reporter import Reporter

ANN, BOB, EVE = UUID(int=1), UUID(int=2), UUID(int=3)
SERVICE = "inproc://reporter-test"


@pytest.fixture
def service(sim: Simulation) -> Iterator[Sub]:
    made = Sub(sim, Options())
    made.subscribe(b"")
    made.bind(SERVICE)
    yield made
    made.close(0)
    sim.run()


def locate(_: UUID, endpoint: str) -> str:
    return endpoint if endpoint.startswith("inproc://") else ""


def security(_: str) -> Null:
    return Null()


def enters(peer: UUID, endpoint: str = SERVICE) -> events.Enter:
    return events.Enter(peer, "bob", "tcp://10.0.0.2:1", {log.SERVICE: endpoint} if endpoint else {})


def heard(sim: Simulation, service: Sub) -> list[tuple[str, int, str]]:
    sim.run()
    found = []
    while (batch := service.try_recv_batch()) is not None:
        for message in batch:
            record = log.read(message[0])
            assert record is not None
            assert record.log.node == log.hash_of(ANN)
            found.append((record.log.event.name, record.log.peer, record.log.data))
    return found


def test_every_event_is_reported_and_a_service_hears_of_its_own_enter(sim: Simulation, service: Sub) -> None:
    reporter = Reporter(ANN, sim, Options(), security, locate)
    reporter.report(log.What.JOIN, None, "unheard")
    reporter.note(enters(BOB))
    reporter.note(events.Whisper(EVE, "eve", (b"secret",)))
    reporter.note(events.Shout(EVE, "eve", "CHAT", (b"secret",)))
    reporter.note(events.Join(EVE, "eve", "CHAT"))  # ZRE/LOG has JOIN for the node's own groups alone
    reporter.report(log.What.SEND, BOB, "WHISPER")
    reporter.note(events.Exit(EVE, "eve", "it left"))
    assert heard(sim, service) == [
        ("ENTER", log.hash_of(BOB), "bob"),
        ("RECV", log.hash_of(EVE), "WHISPER"),
        ("RECV", log.hash_of(EVE), "SHOUT CHAT"),
        ("SEND", log.hash_of(BOB), "WHISPER"),
        ("EXIT", log.hash_of(EVE), "it left"),
    ]


def test_one_service_of_two_peers_gets_each_log_once_and_until_both_are_gone(sim: Simulation, service: Sub) -> None:
    reporter = Reporter(ANN, sim, Options(), security, locate)
    reporter.note(enters(BOB))
    reporter.note(enters(EVE))
    assert len(heard(sim, service)) == 2
    reporter.note(events.Exit(BOB, "bob", "it left"))
    reporter.report(log.What.JOIN, None, "A")
    assert [data for _, _, data in heard(sim, service)] == ["it left", "A"]
    reporter.note(events.Exit(EVE, "eve", "it left"))
    reporter.report(log.What.JOIN, None, "B")
    assert "B" not in [data for _, _, data in heard(sim, service)]
    assert not reporter.transport.connectors


def test_a_peer_that_offers_nonsense_offers_no_service(sim: Simulation, service: Sub) -> None:
    reporter = Reporter(ANN, sim, Options(), security, locate)
    reporter.note(enters(BOB, "nonsense"))
    reporter.note(enters(EVE, ""))
    reporter.report(log.What.JOIN, None, "A")
    assert heard(sim, service) == []
    assert not reporter.transport.connectors


def test_a_service_at_an_endpoint_that_the_node_does_not_accept_is_no_service(sim: Simulation, service: Sub) -> None:
    reporter = Reporter(ANN, sim, Options(), security, locate)
    reporter.note(enters(BOB, "ipc:///run/docker.sock"))
    reporter.report(log.What.JOIN, None, "A")
    assert not reporter.transport.connectors


def test_a_node_that_moved_connects_to_its_services_again(sim: Simulation, service: Sub) -> None:
    reporter = Reporter(ANN, sim, Options(), security, locate)
    reporter.note(enters(BOB))
    assert len(heard(sim, service)) == 1
    reporter.reconnect()
    reporter.report(log.What.JOIN, None, "A")
    assert [data for _, _, data in heard(sim, service)] == ["A"]
