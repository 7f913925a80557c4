"""zambezi.zmtp.refusals: the first refusals one by one, then in sum."""

import logging
from collections.abc import Mapping

import pytest

from zambezi.zmtp.refusals import FIRST, INTERVAL, KEY_INTERVAL, KEYS, KeyLog, RefusalLog, Write, writer
from zambezi.zmtp.testing import Simulation


def into(lines: list[str]) -> Write:
    return lambda text, _fields: lines.append(text)


def test_the_same_refusal_is_logged_once_and_then_in_sum() -> None:
    reactor = Simulation()
    lines: list[tuple[str, Mapping[str, object]]] = []
    log = RefusalLog(reactor, lambda text, fields: lines.append((text, fields)))
    for _ in range(5):
        log.add("10.0.0.1 is refused: no key", address="10.0.0.1", reason="no key")
    told = ("10.0.0.1 is refused: no key", {"address": "10.0.0.1", "reason": "no key"})
    assert lines == [told]
    reactor.advance(INTERVAL)
    assert lines[1:] == [(f"4 more like these; the last: {told[0]}", {**told[1], "count": 4})]
    reactor.advance(INTERVAL)
    log.add(told[0], **told[1])
    assert lines[2:] == [told]


def test_two_refusals_that_take_turns_are_logged_once_each() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = RefusalLog(reactor, into(lines))
    for number in range(8):
        log.add(f"refusal {number % 2}")
    assert lines == ["refusal 0", "refusal 1"]


def test_a_refused_key_has_its_fields() -> None:
    reactor = Simulation()
    lines: list[Mapping[str, object]] = []
    log = KeyLog(reactor, lambda _, fields: lines.append(fields))
    for _ in range(3):
        log.add("k", "refused", address="10.0.0.1")
    log.close()
    assert lines == [{"key": "k", "address": "10.0.0.1"}, {"key": "k", "address": "10.0.0.1", "count": 2}]


def test_fields_reach_the_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "refusals"):
        writer(logging.getLogger("refusals").info)("100 % refused", {"address": "10.0.0.1"})
    assert (caplog.messages, caplog.records[0].__dict__["address"]) == (["100 % refused"], "10.0.0.1")


def test_many_refusals_are_logged_in_sum() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = RefusalLog(reactor, into(lines))
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
    log = RefusalLog(reactor, into(lines))
    for number in range(FIRST + 1):
        log.add(f"{number} of many")
    reactor.advance(2 * INTERVAL)
    assert reactor.alarms == []  # a quiet socket has no timer
    log.add("much later")
    assert lines[-1] == "much later"


def test_closing_logs_what_was_counted() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = RefusalLog(reactor, into(lines))
    for number in range(FIRST + 5):
        log.add(f"refusal {number}")
    log.close()
    assert lines[FIRST:] == [f"5 more like these; the last: refusal {FIRST + 4}"]
    assert reactor.alarms == []


def test_a_key_that_comes_again_and_again_has_one_line_and_then_sums() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = KeyLog(reactor, into(lines))
    for _ in range(30):
        for key in "ab":
            log.add(key, f"key {key} is refused")
        reactor.advance(10.0)
    assert lines == ["key a is refused", "key b is refused"]
    reactor.advance(KEY_INTERVAL)
    assert lines[2:] == ["58 more attempts with 2 refused keys; the last: key b is refused"]
    reactor.advance(KEY_INTERVAL)
    assert (len(lines), reactor.alarms) == (3, [])
    log.add("a", "key a is refused")
    log.close()
    assert lines[3:] == ["1 more attempts with 1 refused keys; the last: key a is refused"]


def test_very_many_keys_do_not_fill_memory_or_log() -> None:
    reactor = Simulation()
    lines: list[str] = []
    log = KeyLog(reactor, into(lines))
    for number in range(10 * KEYS):
        log.add(str(number), f"key {number} is refused")
    reactor.advance(INTERVAL)
    assert len(lines) == FIRST + 1
    assert len(log._known) == KEYS
    log.close()
