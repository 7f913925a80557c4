"""zambezi.zre.logpublisher: logs for services that have subscribed, and for those that will."""

from collections.abc import Iterator
from itertools import count

import pytest

from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Sub
from zambezi.zmtp.security import Null
from zambezi.zmtp.testing import Simulation, received
from zambezi.zre.logpublisher import BACKLOG, LogPublisher

_names = count()


@pytest.fixture
def publisher(sim: Simulation) -> Iterator[LogPublisher]:
    made = LogPublisher(sim, Options(on_full="drop"), lambda _: Null())
    yield made
    made.transport.close(0)
    sim.run()


@pytest.fixture
def where() -> str:
    return f"inproc://logs-{next(_names)}"


def service(sim: Simulation, where: str) -> Sub:
    sub = Sub(sim, Options())
    sub.subscribe(b"")
    sub.bind(where)
    sim.run()
    return sub


def numbers(*some: range) -> list[list[bytes]]:
    return [[b"%d" % number] for numbers in some for number in numbers]


def publish(publisher: LogPublisher, some: range) -> None:
    for number in some:
        publisher.publish(b"%d" % number)


def test_logs_are_kept_for_a_service_until_it_subscribes(sim: Simulation, publisher: LogPublisher, where: str) -> None:
    publish(publisher, range(2))  # no service was found yet
    publisher.connect(where)
    publish(publisher, range(2, 5))
    sub = service(sim, where)
    publish(publisher, range(5, 7))
    sim.run()
    assert received(sub) == numbers(range(2, 7))
    assert publisher.transport.counters.dropped == 0
    sub.close(0)


def test_the_backlog_is_bounded_and_dropped_logs_are_counted(
    sim: Simulation, publisher: LogPublisher, where: str
) -> None:
    publisher.connect(where)
    publish(publisher, range(BACKLOG + 10))
    sub = service(sim, where)
    assert received(sub) == numbers(range(10, BACKLOG + 10))
    assert publisher.transport.counters.dropped == 10
    sub.close(0)


def test_a_service_that_comes_back_gets_what_it_missed(sim: Simulation, publisher: LogPublisher, where: str) -> None:
    publisher.connect(where)
    sub = service(sim, where)
    publish(publisher, range(2))
    sim.run()
    assert received(sub) == numbers(range(2))
    sub.close(0)
    sim.run()
    publish(publisher, range(2, 4))
    again = service(sim, where)
    sim.advance(5)  # it connects again after a while
    publish(publisher, range(4, 5))
    sim.run()
    assert received(again) == numbers(range(2, 5))
    again.close(0)


def test_nothing_is_kept_for_a_service_that_left(sim: Simulation, publisher: LogPublisher, where: str) -> None:
    publisher.connect(where)
    publish(publisher, range(3))
    publisher.disconnect(where)
    publish(publisher, range(3))
    sim.run()
    assert not publisher._backlogs
    assert publisher.transport.counters.dropped == 0


def test_each_service_has_its_own_backlog(sim: Simulation, publisher: LogPublisher, where: str) -> None:
    other = where + "-other"
    publisher.connect(where)
    first = service(sim, where)
    publish(publisher, range(1))
    publisher.connect(other)
    publish(publisher, range(1, 2))
    second = service(sim, other)
    sim.run()
    assert received(first) == numbers(range(2))
    assert received(second) == numbers(range(1, 2))
    for sub in (first, second):
        sub.close(0)
