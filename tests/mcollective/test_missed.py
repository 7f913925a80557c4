"""zambezi.mcollective.missed: one line per interval says how many messages slow clients missed."""

from __future__ import annotations

from zambezi.mcollective.missed import CLIENTS, INTERVAL, MissedLog
from zambezi.zmtp.testing import Simulation


def test_missed_messages_are_logged_in_sum() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = MissedLog(reactor, lines.append)
    for _ in range(1000):
        log.add("ann", 1)
        log.add("bob", 2)
    assert lines == []
    reactor.advance(INTERVAL)
    assert lines == [
        "3000 messages were not delivered to 2 clients that did not read in time; most of them, 2000, to bob"
    ]
    reactor.advance(INTERVAL)
    assert reactor.alarms == []
    log.add("ann", 5)
    log.close()
    assert lines[1:] == ["5 messages were not delivered to 1 client that did not read in time; most of them, 5, to ann"]


def test_very_many_clients_do_not_fill_memory() -> None:
    reactor = Simulation()
    log = MissedLog(reactor, lambda _: None)
    for number in range(10 * CLIENTS):
        log.add(str(number), 1)
    assert len(log._clients) == CLIENTS + 1
    log.close()
