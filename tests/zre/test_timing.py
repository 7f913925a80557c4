"""zambezi.zre.timing: the times of a node, also while it runs."""

import math

import pytest

from tests.zre.mesh import Mesh
from zambezi.zre import events
from zambezi.zre.errors import ZreError
from zambezi.zre.timing import Timing


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ((0, 5, 30), "interval"),
        ((1, 0, 30), "evasive"),
        ((1, 5, 5), "less than expired"),
        ((1, 5, math.nan), "expired"),
    ],
)
def test_times_that_make_no_sense_are_refused_and_change_nothing(times: tuple[float, ...], reason: str) -> None:
    timing = Timing()
    with pytest.raises(ZreError, match=reason):
        timing.set(*times)
    assert (timing.interval, timing.evasive, timing.expired) == (1.0, 5.0, 30.0)


def test_a_peer_expires_by_the_times_that_hold_now() -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1), mesh.add(2)
    mesh.advance(2)
    ann.engine.set_timing(0.5, 1.0, 4.0, mesh.now)
    mesh.kill(bob)
    mesh.advance(4.5)
    assert [event.reason for event in ann.told(events.Exit)] == ["silent for 4 s"]  # type: ignore[attr-defined]
    assert ann.engine.deadline <= mesh.now + 0.5  # the next beacon


def test_lost_seeds_are_looked_for_by_the_times_that_hold_now() -> None:
    mesh = Mesh()
    ann = mesh.add(1)
    ann.engine.set_timing(1.0, 2.0, 4.0, mesh.now)
    assert ann.engine.rendezvous.deadline > mesh.now + 30, "it has no seeds"
    ann.engine.set_timing(1.0, 5.0, 30.0, mesh.now)
    ann.engine.add_seed("tcp://127.0.0.1:1", mesh.now)
    ann.engine.set_timing(1.0, 2.0, 4.0, mesh.now)
    assert ann.engine.rendezvous.deadline == mesh.now + 4
