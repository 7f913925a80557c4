"""The process of a server: memory, descriptors, the event loop and the disk."""

import resource
import shutil
from types import SimpleNamespace

import pytest

from zambezi.server import process


def test_the_limit_of_descriptors_is_raised_as_far_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.update(now=wanted))
    assert process.raise_descriptor_limit() == 4096
    assert limits["now"] == (4096, 4096)


def test_a_system_that_refuses_leaves_the_limit_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert process.raise_descriptor_limit() == 1024


def test_the_latency_is_the_mean_of_the_latest_syncs() -> None:
    latency = process.SyncLatency()
    latency.update(10, 1.0)
    latency.update(12, 3.0)
    assert latency.mean == 1.0
    latency.update(22, 3.5)
    assert latency.mean == pytest.approx(0.05)
    assert 0.9 < latency.worst < 1.0


def test_the_worst_lag_of_the_loop_decays() -> None:
    lag = process.LoopLag()
    lag.add(0.5)
    lag.add(-0.001)
    assert lag.lag == 0.0
    for _ in range(1000):
        lag.add(0.0)
    assert lag.worst < 0.001


def test_a_low_disk_is_a_problem_until_it_has_a_tenth_more_than_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = process.DiskSpace("data", 1000)
    found = []
    for free in (1000, 999, 1050, 1100, 1050):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        disk.measure()
        found.append(len(disk.problems))
    assert found == [0, 1, 1, 0, 0]


def test_a_disk_that_does_not_answer_has_no_free_space_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = process.DiskSpace("no/such/directory", 1)
    disk.measure()
    assert (disk.free, disk.problems) == (None, [])
