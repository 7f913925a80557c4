"""The short form of the campaign: a few of everything, and proofs that it notices what must not happen."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.campaign import attacks, connections, disks, kills
from tests.campaign.inputs import Run, shares
from tests.campaign.load import Published, Reader, check_journal
from tests.campaign.mutations import LARGEST, Mutator
from tests.campaign.raw import PING_OK, attach, connect, read_until
from tests.campaign.server import Server
from tests.campaign.target import ParserTarget
from tests.campaign.targets import TARGETS
from tests.zeps.journal.streams import append
from tests.zeps.order import Lost
from zambezi.zeps.journal import Store

SEED = 1
FEW = 200


# Inputs


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs(name: str) -> None:
    """The memory of the inputs of the first chunk is measured, of the second not."""
    few = FEW if TARGETS[name][0] > 5 else FEW // 5  # the share of a slow target is small
    result = Run(name, SEED, few).run([0, 1])
    assert result.inputs == 2 * few
    assert not result.failures, "\n".join(map(str, result.failures))


def test_a_seed_repeats_the_inputs() -> None:
    one, same, other = (Mutator(Random(seed)) for seed in (7, 7, 8))
    seed = bytes(range(60))
    first = [one.mutate(seed, b"other") for _ in range(200)]
    assert first == [same.mutate(seed, b"other") for _ in range(200)]
    assert first != [other.mutate(seed, b"other") for _ in range(200)]
    assert len(set(first)) > 150
    assert max(map(len, first)) <= LARGEST


def test_no_mutation_of_nothing_fails() -> None:
    mutator = Mutator(Random(1))
    for _ in range(500):
        mutator.mutate(b"", b"")
        assert mutator.mutate_frames((b"",), ())


def test_every_target_gets_its_share() -> None:
    counts = shares(list(TARGETS), 10_000_000)
    assert min(counts.values()) > 1
    assert abs(sum(counts.values()) - 10_000) < len(TARGETS)


def _target(parse: Callable[[bytes], object]) -> Run:
    class Bad(ParserTarget):
        errors = (KeyError,)

        def __init__(self, chance: Random) -> None:
            super().__init__(chance, [b"seed" * 10], parse)

        def check(self) -> None:
            pass

    return Run("bad", SEED, 50, Bad)


def test_an_undeclared_error_is_a_failure_and_is_reported_once() -> None:
    def parse(octets: bytes) -> None:
        raise IndexError(len(octets)) if len(octets) % 2 else KeyError(octets)

    result = _target(parse).run([1])
    assert [failure.problem.partition(":")[0] for failure in result.failures] == ["IndexError"]
    assert 0 < result.refused < 50
    assert result.failures[0].history


def test_memory_above_the_bound_is_a_failure() -> None:
    result = _target(lambda octets: bytes(5 << 20)).run([0])
    assert ["one input took" in failure.problem for failure in result.failures] == [True]


def test_memory_that_is_kept_is_a_failure() -> None:
    kept: list[bytes] = []
    result = _target(lambda octets: kept.append(bytes(1 << 20))).run([0])
    assert any("are kept after" in failure.problem for failure in result.failures)


# A running server


def test_an_attack_is_measured() -> None:
    def pings(server: Server) -> str:
        sock = connect(server.ports["zeps"], attach("attacked") + attacks.PING * 100)
        found = read_until(sock, PING_OK, 100)
        sock.close()
        return "" if found == 100 else f"only {found} were answered"

    outcome = attacks.carry_out(attacks.Attack("100 PINGs", 18, pings))
    assert outcome.problems == ()
    assert outcome.answers > 0
    assert "100 PINGs" in attacks.report([outcome])


def test_connections_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(connections, "ROUNDS", 1)
    result = connections.busy(20, 1.5)
    assert (result.accepted, result.problems) == (20, [])
    assert result.confirmed > 0
    assert "20 busy" in connections.report([result])
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


# Brokers that fail


def test_kills() -> None:
    result = kills.run_kills(2, SEED, "always")
    assert result.messages >= 2 * kills.PROGRESS
    assert "always" in kills.report([result])


@pytest.mark.parametrize("fault", ["fills", "fails to sync", "loses power"])
def test_disks(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "PROGRESS", 200)
    monkeypatch.setattr(disks, "POWER_CUTS", 3)
    result = disks.run_fault(fault, "always", disks.Times(0.1, 0.1, 0.2))
    assert result.messages >= 400
    assert fault in disks.report([result])


# The check of a journal


def journal_of(path: Path, *numbers: int, key: str = "p0") -> Path:
    with Store(path) as store:
        for number in numbers:
            append(store.open("s"), b"%d" % number, key=key)
    return path


def test_a_whole_journal_passes(tmp_path: Path) -> None:
    assert check_journal(journal_of(tmp_path, 0, 1, 2), [Published("p0", 3)]) == (3, 0)


@pytest.mark.parametrize("numbers", [(0, 2), (1,), (0, 1)])
def test_a_missing_message_is_noticed(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    with pytest.raises(Lost):
        check_journal(journal_of(tmp_path, *numbers), [Published("p0", 3)])


@pytest.mark.parametrize("numbers", [(0, 1, 1, 2), (0, 1, 2, 1, 2), (0, 1, 0, 2), (0, 1, 2, 0)])
def test_a_message_that_came_twice_is_noticed(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    with pytest.raises(Lost, match="came again"):
        check_journal(journal_of(tmp_path, *numbers), [Published("p0", 3)])


@pytest.mark.parametrize("numbers", [(*range(31), 32, 33), tuple(range(34))])
def test_only_the_messages_that_the_broker_must_refuse_are_missing(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    data = journal_of(tmp_path, *numbers)
    if 31 in numbers:
        with pytest.raises(Lost, match="had to refuse"):
            check_journal(data, [Published("p0", 34)])
    else:
        assert check_journal(data, [Published("p0", 34)]) == (33, 0)


def test_only_a_publisher_that_drops_messages_leaves_some_out(tmp_path: Path) -> None:
    data = journal_of(tmp_path, 0, 3, 4, key="p2")
    assert check_journal(data, [Published("p2", 5, dropped=2)]) == (3, 0)
    with pytest.raises(Lost, match="1 were dropped"):
        check_journal(data, [Published("p2", 5, dropped=1)])


def test_what_a_power_cut_has_lost_is_counted_and_nothing_may_come_twice(tmp_path: Path) -> None:
    assert check_journal(journal_of(tmp_path / "1", 0, 3, 4), [Published("p0", 7)], lossy=True) == (3, 4)
    with pytest.raises(Lost, match="came again"):
        check_journal(journal_of(tmp_path / "2", 0, 3, 1), [Published("p0", 7)], lossy=True)


def test_a_reader_notices_gaps_and_repeats() -> None:
    reader = Reader()
    reader.take(1, "p0", 0)
    for sequence, number in ((1, 1), (3, 1), (2, 2), (2, 0)):
        with pytest.raises(Lost):
            reader.take(sequence, "p0", number)
