"""zambezi.zre.simulation: it finds every fault, and reports none where there is none."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from zambezi.zre.engine import Engine
from zambezi.zre.errors import ZreError
from zambezi.zre.lookout import Lookout
from zambezi.zre.simulation import MeshSimulation, Plan, Progress, Report, simulate

# The results that depend on the machine and not on the plan.
MACHINE = {"formed_in": 0.0, "took": 0.0, "memory": 0, "memory_per_link": 0.0, "descriptors": 0}
LIVELY = Plan(nodes=12, seconds=20, seed=4, moves=0.3, crashes=0.03)


def told(report: Report) -> Report:
    return replace(report, **MACHINE)  # type: ignore[arg-type]


def test_a_mesh_forms_and_nothing_is_lost() -> None:
    report = simulate(LIVELY)
    assert report.ok, report
    assert report.links == 12 * 11
    assert report.live == 12
    assert report.crashes == report.returns > 0
    assert report.joins > 0
    assert report.leaves > 0
    assert report.whispers > 0
    assert report.shouts > 0
    assert report.delivered + report.excused == report.sent
    assert report.delivered > report.excused


def test_the_same_seed_is_the_same_run() -> None:
    assert told(simulate(LIVELY)) == told(simulate(LIVELY))
    assert told(simulate(LIVELY)) != told(simulate(replace(LIVELY, seed=5)))


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_seed(seed: int) -> None:
    report = simulate(Plan(nodes=6, seconds=20, seed=seed, groups=3, talk=3, moves=0.5, crashes=0.05))
    assert report.ok, report


def test_the_interval_grows_with_the_number_of_nodes() -> None:
    assert Plan(nodes=10).beacon_interval == 1
    assert Plan(nodes=500).beacon_interval == 5
    assert Plan(nodes=500, interval=2).beacon_interval == 2


def test_progress_is_reported_in_order() -> None:
    seen: list[Progress] = []
    simulate(Plan(nodes=3, seconds=1), seen.append)
    assert list(dict.fromkeys(progress.phase for progress in seen))[:2] == ["forming", "talking"]
    assert [progress.now for progress in seen] == sorted(progress.now for progress in seen)
    assert all(0 <= progress.done <= 1 for progress in seen)


@pytest.mark.parametrize("wrong", [{"nodes": 1}, {"seconds": -1.0}, {"interval": 0.0}])
def test_impossible_plans_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ZreError):
        Plan(**wrong)  # type: ignore[arg-type]


def test_a_lost_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whisper = Engine.whisper
    monkeypatch.setattr(
        Engine,
        "whisper",
        lambda engine, uuid, content: whisper(engine, uuid, content) if engine.profile.name != "node-0" else None,
    )
    report = simulate(Plan(nodes=4, seconds=10, seed=1, crashes=0))
    assert report.lost > 0
    assert not report.ok


def test_a_repeated_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whisper = Engine.whisper

    def twice(engine: Engine, uuid: UUID, content: tuple[bytes, ...]) -> None:
        whisper(engine, uuid, content)
        whisper(engine, uuid, content)

    monkeypatch.setattr(Engine, "whisper", twice)
    report = simulate(Plan(nodes=4, seconds=10, seed=1, crashes=0))
    assert report.repeated > 0
    assert not report.ok


def test_a_message_to_the_wrong_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whisper = Engine.whisper

    def astray(engine: Engine, uuid: UUID, content: tuple[bytes, ...]) -> None:
        other = next((peer.uuid for peer in engine.peers.values() if peer.ready and peer.uuid != uuid), uuid)
        whisper(engine, other, content)

    monkeypatch.setattr(Engine, "whisper", astray)
    report = simulate(Plan(nodes=4, seconds=10, seed=1, crashes=0))
    assert report.strayed > 0
    assert report.lost > 0
    assert not report.ok


def test_a_mesh_that_does_not_form_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookout, "receive", lambda *_: None)
    report = simulate(Plan(nodes=3, seconds=1))
    assert report.links == 0
    assert report.wrong_views == 3
    assert not report.ok


def test_a_crash_says_no_goodbye() -> None:
    simulation = MeshSimulation(Plan(nodes=3, seconds=0))
    simulation._form()
    lives = list(simulation._lives.values())
    lives[0].node.crash()
    lives[0].node.crash()
    simulation.reactor.run_until(simulation.reactor.time() + 0.5)
    assert lives[1].node.engine.peers.keys() >= {lives[0].node.engine.key}
    simulation.reactor.run_until(simulation.reactor.time() + 20)
    assert lives[1].node.engine.peers.keys() == {lives[2].node.engine.key}
