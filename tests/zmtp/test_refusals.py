"""zambezi.zmtp.refusals: the first refusals one by one, then in sum."""

from zambezi.zmtp.refusals import FIRST, INTERVAL, RefusalLog
from zambezi.zmtp.testing import Simulation


def test_many_refusals_are_logged_in_sum() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = RefusalLog(reactor, lines.append)
    for number in range(100_000):
        log.add(f"refusal {number}")
    assert lines == [f"refusal {number}" for number in range(FIRST)]
    reactor.advance(INTERVAL)
    assert lines[FIRST:] == [f"{100_000 - FIRST} more like these; the last: refusal 99999"]
    log.add("another")
    assert len(lines) == FIRST + 1  # the attack goes on: one line per interval
    reactor.advance(INTERVAL)
    assert lines[-1] == "1 more like these; the last: another"


def test_after_a_quiet_interval_refusals_are_logged_at_once_again() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = RefusalLog(reactor, lines.append)
    for _ in range(FIRST + 1):
        log.add("one of many")
    reactor.advance(2 * INTERVAL)
    assert reactor.alarms == []  # a quiet socket has no timer
    log.add("much later")
    assert lines[-1] == "much later"


def test_closing_logs_what_was_counted() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = RefusalLog(reactor, lines.append)
    for number in range(FIRST + 5):
        log.add(f"refusal {number}")
    log.close()
    assert lines[FIRST:] == [f"5 more like these; the last: refusal {FIRST + 4}"]
    assert reactor.alarms == []
