"""zambezi.mcollective.vigil: which session is checked when."""

from __future__ import annotations

from zambezi.mcollective.session import Session
from zambezi.mcollective.vigil import Vigil


def sessions(count: int) -> list[Session]:
    return [Session(None, b"%d" % number, "", "", 0.0) for number in range(count)]


def test_sessions_are_due_in_the_order_of_their_times() -> None:
    vigil = Vigil()
    one, two, three = sessions(3)
    for session, when in ((one, 3.0), (two, 1.0), (three, 2.0)):
        vigil.watch(session, when, 3)
    assert vigil.deadline == 1.0
    assert list(vigil.due(0.5)) == []
    assert list(vigil.due(2.5)) == [(two, 1.5), (three, 0.5)]
    assert vigil.deadline == 3.0
    assert list(vigil.due(3.0)) == [(one, 0.0)]
    assert vigil.deadline == float("inf")


def test_only_the_earliest_check_counts() -> None:
    vigil = Vigil()
    (one,) = sessions(1)
    for when in (5.0, 3.0, 4.0):
        vigil.watch(one, when, 1)
    assert list(vigil.due(10.0)) == [(one, 7.0)]
    vigil.watch(one, 20.0, 1)
    assert list(vigil.due(20.0)) == [(one, 0.0)]


def test_a_session_that_is_gone_is_not_checked() -> None:
    vigil = Vigil()
    one, two = sessions(2)
    for session in (one, two):
        vigil.watch(session, 1.0, 2)
    one.open = False
    assert list(vigil.due(1.0)) == [(two, 0.0)]


def test_old_entries_are_removed() -> None:
    vigil = Vigil()
    one, *others = sessions(5)
    for session in others:
        vigil.watch(session, 1e9, 5)
    for step in range(10_000):
        vigil.watch(one, 1e6 - step, 5)
    assert len(vigil) <= 20
    assert [session for session, _ in vigil.due(2e9)] == [one, *others]
