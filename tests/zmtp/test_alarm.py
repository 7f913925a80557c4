"""zambezi.zmtp.alarm: a timer that only moves to earlier times."""

from collections.abc import Callable

import pytest

from zambezi.zmtp.alarm import RETRY, Alarm
from zambezi.zmtp.testing import Simulation


def set_up() -> tuple[Simulation, Alarm, list[float]]:
    reactor = Simulation()
    rung: list[float] = []
    ring: Callable[[], object] = lambda: rung.append(reactor.time())  # noqa: E731
    return reactor, Alarm(reactor, ring), rung


def test_it_rings_once_at_the_earliest_time() -> None:
    reactor, alarm, rung = set_up()
    now = reactor.time()
    for after in (5.0, 3.0, 4.0):
        alarm.set(now + after)
    reactor.advance(10.0)
    assert rung == [now + 3.0]


def test_it_can_be_set_again_when_it_has_rung() -> None:
    reactor, alarm, rung = set_up()
    now = reactor.time()
    alarm.set(now + 1.0)
    reactor.advance(2.0)
    alarm.set(now + 4.0)
    reactor.advance(5.0)
    assert rung == [now + 1.0, now + 4.0]


def test_it_never_rings_after_its_end() -> None:
    reactor, alarm, rung = set_up()
    alarm.set(reactor.time() + 1.0)
    alarm.end()
    alarm.set(reactor.time() + 1.0)
    reactor.advance(10.0)
    assert rung == []


def test_it_rings_again_if_the_callback_raises() -> None:
    reactor = Simulation()
    failures = [OSError("too many open files")] * 3
    rung: list[float] = []

    def ring() -> None:
        rung.append(reactor.time())
        alarm.set(reactor.time() + 100.0)
        if failures:
            raise failures.pop()

    alarm = Alarm(reactor, ring)
    now = reactor.time()
    alarm.set(now + 1.0)
    for _ in range(3):
        with pytest.raises(OSError, match="too many"):
            reactor.advance(RETRY)
    reactor.advance(200.0)
    assert rung == [now + 1.0, now + 1.0 + RETRY, now + 1.0 + 2 * RETRY, now + 1.0 + 3 * RETRY, now + 104.0]
