"""zambezi.spark.broker_access: attempts to reach a broker, for as long as the option `timeout` says."""

from __future__ import annotations

import re
import socket

import pytest

from zambezi.spark.broker_access import BrokerAccess
from zambezi.spark.errors import ConnectionLost
from zambezi.zmtp.security import Null


class Clock:
    """A clock that passes while a program sleeps."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def access(clock: Clock, endpoint: str = "tcp://127.0.0.1:1", timeout: float = 10.0) -> BrokerAccess:
    return BrokerAccess(endpoint, Null(), timeout, clock=clock, sleep=clock.sleep)


def lose() -> None:
    raise ConnectionLost("refused")


def test_an_attempt_is_repeated_until_the_time_is_over() -> None:
    clock = Clock()
    with pytest.raises(ConnectionLost, match=r"refused \(tried for 10 seconds: option 'timeout'\)"):
        access(clock).retry(lose)
    assert 8 < clock.now - 1000 <= 10


def test_the_last_attempt_is_at_the_end_of_the_time() -> None:
    """A caller that compares times, as `SharedBackend` does, does not begin again."""
    clock = Clock()
    tries: list[float] = []

    def attempt() -> None:
        tries.append(clock.now)
        lose()

    with pytest.raises(ConnectionLost):
        access(clock).retry(attempt)
    assert tries[0] == 1000
    assert tries[-1] == pytest.approx(1010)
    assert clock.now >= 1010


def test_it_warns_once_after_two_seconds_and_says_how_long_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    warned: list[float] = []

    def attempt() -> None:
        if caplog.messages and not warned:
            warned.append(clock.now)
        lose()

    with pytest.raises(ConnectionLost):
        access(clock, timeout=30.0).retry(attempt)
    (text,) = caplog.messages
    told = re.fullmatch(r"refused; it is tried again for up to (\d+) s", text)
    assert told is not None
    assert caplog.records[0].levelname == "WARNING"
    assert 2 <= warned[0] - 1000 < 6
    assert 27 <= int(told[1]) <= 30


def test_it_does_not_warn_of_a_broker_that_answers_soon(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    def attempt() -> str:
        if clock.now == 1000:
            lose()
        return "an answer"

    assert access(clock).retry(attempt) == "an answer"
    with pytest.raises(ConnectionLost):
        access(clock, timeout=1.5).retry(lose)
    assert not caplog.messages


def test_it_warns_again_if_the_broker_has_answered_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    broker = access(clock, timeout=30.0)
    answered = False

    def attempt() -> None:
        nonlocal answered
        if not answered and clock.now > 1010:
            answered = True
            broker.note_progress()
        lose()

    with pytest.raises(ConnectionLost):
        broker.retry(attempt)
    assert len(caplog.messages) == 2


def test_the_time_of_attempts_within_attempts_does_not_add_up() -> None:
    clock = Clock()
    broker = access(clock)
    with pytest.raises(ConnectionLost):
        broker.retry(lambda: broker.retry(lambda: broker.retry(lose)))
    assert clock.now - 1000 <= 10


def test_a_connection_is_tried_for_the_same_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    clock = Clock()
    broker = access(clock, f"tcp://127.0.0.1:{port}")
    with pytest.raises(ConnectionLost, match=r"tried for 10 seconds"):
        broker.retry(lambda: broker.connect("s"))
    assert clock.now - 1000 <= 10


def test_the_time_begins_anew_when_the_broker_has_answered() -> None:
    clock = Clock()
    broker = access(clock)
    answers = 3

    def attempt() -> None:
        nonlocal answers
        if answers and clock.now > 1000 + 4 * (4 - answers):
            answers -= 1
            broker.note_progress()
        lose()

    with pytest.raises(ConnectionLost):
        broker.retry(attempt)
    assert 18 < clock.now - 1000 <= 26


def test_a_silent_broker_takes_no_longer_than_the_timeout() -> None:
    """It accepts connections, and says nothing: an attempt takes all of the time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        clock = Clock()
        broker = access(clock, endpoint, 0.05)
        with pytest.raises(ConnectionLost, match=r"sent nothing for 0.05 seconds \(tried for 0.05 seconds"):
            broker.connect("s")
