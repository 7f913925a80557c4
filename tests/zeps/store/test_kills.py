"""The short form of `kills`: a few faults, with brokers that start quickly; and its check finds what it must find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.zeps.store.kills import Pace, Told, check, run
from tests.zeps.store.weed import Weed

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

A, B = (b"a", 1), (b"a", 2)
LOG = {"s": {1: A, 2: B}}


def told() -> Told:
    """Return a story without faults: both messages are confirmed, and a subscriber has seen them."""
    return Told(
        begun={("s", A): 1.0, ("s", B): 3.0},
        confirmed={("s", A): 2.0, ("s", B): 4.0},
        seen=[("s", [(1, A), (2, B)], [2.5, 3.5])],
    )


def test_confirmed_messages_survive_kills_and_stops_of_brokers(tmp_path: Path) -> None:
    found = run(2, 3, tmp_path, None, period=0.5, pace=Pace(stop=2), forked=True)
    assert (found.kills, found.stops) == (2, 1)
    assert found.confirmed


@pytest.mark.xdist_group("weed")
def test_a_server_that_is_cut_off_from_the_store_confirms_nothing(weed: Weed, tmp_path: Path) -> None:
    found = run(1, 4, tmp_path, weed, period=0.3, pace=Pace(kill=2, cut=1), forked=True)
    assert (found.kills, found.cuts.total()) == (0, 1)
    assert found.refused
    assert found.confirmed


def test_a_story_without_faults_is_accepted() -> None:
    check(told(), LOG)


@pytest.mark.parametrize(
    ("story", "logs", "problem"),
    [
        (told(), {"s": {1: A}}, "lost"),
        (told(), {"s": {1: A, 2: A, 3: B}}, "twice"),
        (told(), {"s": {1: B, 2: A}}, "too early"),
        (told(), {"s": {1: A, 3: B}}, "missing"),
        (replace(told(), seen=[("s", [(1, B)], [9.0])]), LOG, "something else"),
        (replace(told(), seen=[("s", [(1, A), (2, B)], [2.5, 2.9])]), LOG, "not published yet"),
    ],
)
def test_each_fault_is_found(story: Told, logs: dict[str, dict[int, tuple[bytes, int]]], problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check(story, logs)
