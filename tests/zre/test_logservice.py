"""zambezi.zre.logservice: messages are read as logs, and others are counted."""

from collections.abc import Iterator

import pytest

from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Pub
from zambezi.zmtp.testing import Simulation
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.log import Level, Log, What
from zambezi.zre.logservice import LogShell
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions


@pytest.fixture
def node(sim: Simulation) -> Iterator[NodeShell]:
    made = NodeShell(sim, "collector", NodeOptions(network=MemoryNetwork()))
    made.start()
    yield made
    made.stop(0)
    sim.run()


@pytest.fixture
def service(sim: Simulation, node: NodeShell) -> Iterator[LogShell]:
    made = LogShell(sim, node)
    yield made
    made.close()
    sim.run()


@pytest.fixture
def reporter(sim: Simulation, service: LogShell) -> Iterator[Pub]:
    pub = Pub(sim, Options(send_bound=Bound(100_000)))
    pub.connect(service.endpoint)
    sim.run()
    yield pub
    pub.close(0)
    sim.run()


def log(number: int) -> bytes:
    return Log(Level.INFO, What.ENTER, 1, 2, number, "bob").encode()[0]


def times(service: LogShell) -> list[int]:
    found = []
    while (record := service.next_record()) is not None:
        found.append(record.log.time)
    return found


def test_logs_come_in_order_with_their_bytes(sim: Simulation, service: LogShell, reporter: Pub) -> None:
    for number in range(10):
        reporter.try_send(log(number))
    sim.run()
    first = service.next_record()
    assert first is not None
    assert first.octets == log(0)
    assert times(service) == list(range(1, 10))
    assert service.next_record() is None


@pytest.mark.spec("LOG-03")
def test_what_is_no_log_is_passed_over_and_counted(sim: Simulation, service: LogShell, reporter: Pub) -> None:
    for message in (b"", b"\xaa\xa1\x01", log(1)[:-1], log(1) + b"x", (log(1), b"more")):
        reporter.try_send(message)
        sim.run()
    assert service.next_record() is None
    assert service.discarded == 5
    reporter.try_send(log(7))
    sim.run()
    assert times(service) == [7]


def test_on_record_is_called_once_when_logs_come(sim: Simulation, service: LogShell, reporter: Pub) -> None:
    called = []
    service.on_record = lambda: called.append(len(service.records))
    reporter.try_send(b"no log")
    sim.run()
    assert called == []
    reporter.try_send(log(1))
    sim.run()
    assert called == [1]
    assert times(service) == [1]


def test_a_service_that_is_not_read_holds_no_more_than_its_bounds(
    sim: Simulation, service: LogShell, reporter: Pub
) -> None:
    for number in range(50_000):
        reporter.try_send(log(number))
        if number % 100 == 0:
            sim.run()
    sim.run()
    waiting = len(service.records) + sum(map(service._sub.inbox.waiting, service._sub.inbox.peers))
    assert waiting < 25_000
    assert times(service)[:3] == [0, 1, 2]


def test_a_service_is_where_its_node_is(node: NodeShell, service: LogShell) -> None:
    assert service.endpoint.startswith(node.endpoint)


def test_closing_is_told_and_the_node_goes_on_without_it(sim: Simulation, node: NodeShell) -> None:
    service = LogShell(sim, node)
    ended = []
    service.on_closed = lambda: ended.append(service.closing)
    assert not service.closing
    service.close()
    service.close()
    sim.run()
    assert ended == [True]
    assert node.on_moved == []
    assert not node.stopping
