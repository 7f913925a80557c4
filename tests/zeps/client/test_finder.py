"""zambezi.zeps.client.finder: which broker a connection dials."""

from __future__ import annotations

import pytest

from zambezi.zeps.client.finder import LONGEST, Finder
from zambezi.zmtp.backoff import Backoff

A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"
BACKOFF = Backoff(0.1, 1.0)


def test_the_brokers_are_asked_in_turn() -> None:
    finder = Finder(lambda: (A, B), BACKOFF)
    assert [finder.endpoint, finder.has_choice] == [A, True]
    assert finder.fail() > 0
    assert finder.endpoint == B
    finder.fail()
    assert finder.endpoint == A


def test_the_pauses_grow_until_a_broker_serves_the_stream() -> None:
    finder = Finder(lambda: (A, B), BACKOFF)
    assert finder.endpoint == A
    pauses = [finder.fail() for _ in range(30)]
    assert pauses[0] <= 0.1
    assert pauses[-5:] == [LONGEST] * 5
    finder.succeed()
    assert finder.fail() <= 0.1


def test_a_broker_sends_the_client_to_another_one() -> None:
    finder = Finder(lambda: A, BACKOFF)
    assert [finder.endpoint, finder.has_choice] == [A, False]
    assert finder.follow(f"moved: {C}") == 0.0
    assert [finder.endpoint, finder.has_choice] == [C, True]
    assert finder.follow(f"moved: {B}") > 0  # brokers that do not agree must not keep the client busy
    assert finder.endpoint == B
    finder.fail()
    assert finder.endpoint == A


@pytest.mark.parametrize(
    "reason", ["moved:", "moved: nowhere", "moved: inproc://x", "moved: tcp://", "moved: tcp://h:0x"]
)
def test_an_answer_without_a_usable_endpoint_means_the_next_broker(reason: str) -> None:
    finder = Finder(lambda: (A, B), BACKOFF)
    assert finder.endpoint == A
    assert finder.follow(reason) > 0
    assert finder.endpoint == B


def test_no_broker_may_be_known() -> None:
    assert Finder(lambda: None, BACKOFF).endpoint is None
    assert Finder(lambda: (), BACKOFF).endpoint is None
