"""zambezi.zeps.journal.scrub: closed segments are checked in steps, and damage is reported until it is gone."""

import os
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.counts import RECORD
from zambezi.zeps.journal.scrub import PASS, Scrub

SEGMENTS = 5


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a stream of six segments; the last one is active."""
    store = Store(tmp_path, policy=Policy(segment=100))
    for _ in range(SEGMENTS + 1):
        append(store.open("a"), b"x" * 60, b"y" * 20)
    assert len(store.open("a").segments) == SEGMENTS + 1
    return store


def damage(path: str, offset: int = -1) -> None:
    """Change a byte of a file."""
    content = bytearray(Path(path).read_bytes())
    content[offset] ^= 1
    Path(path).write_bytes(content)


def passes(scrub: Scrub, now: float = 0.0) -> None:
    """Let a whole pass run."""
    before = scrub.counters.passes
    while scrub.counters.passes == before:
        scrub.step(1 << 20, now)


def test_good_segments_have_no_problem(store: Store) -> None:
    scrub = Scrub(store.journals)
    passes(scrub)
    assert scrub.problems == []
    closed = store.open("a").segments[:-1]
    assert (scrub.counters.segments, scrub.counters.octets) == (SEGMENTS, sum(one.size for one in closed))


@pytest.mark.parametrize(
    ("suffix", "offset", "problem"),
    [
        (".log", 50, "byte 0: the batch of 3 to 4 does not have its CRC"),
        (".idx", 3, "byte 0: the entry does not have its CRC"),
    ],
)
def test_damage_is_reported_with_the_command_that_repairs(suffix: str, offset: int, problem: str, store: Store) -> None:
    journal = store.open("a")
    path = journal.segments[1].path
    damage(path + suffix, offset)
    scrub = Scrub(store.journals)
    passes(scrub)
    (told,) = scrub.problems
    assert told.startswith(f"stream 'a': {path}{suffix}, {problem}")
    assert f"`zambezi journal repair a --data {store.path} --from COPY`" in told
    assert scrub.counters.segments == SEGMENTS  # the others are checked
    damage(path + suffix, offset)  # as it was
    passes(scrub, PASS)
    assert scrub.problems == []


def test_a_log_that_is_short_or_long_is_damage(store: Store) -> None:
    first, second, third, *_ = store.open("a").segments
    os.truncate(first.path + ".log", 30)
    with Path(second.path + ".log").open("ab") as log:
        log.write(b"more")
    os.truncate(third.path + ".idx", 0)
    scrub = Scrub(store.journals)
    passes(scrub)
    assert [problem.count("ends inside") for problem in scrub.problems[:1]] == [1]
    assert "4 unexpected bytes at the end" in scrub.problems[1]
    assert len(scrub.problems) == 3


def test_the_active_segment_is_left_alone(store: Store) -> None:
    damage(store.open("a").segments[-1].path + ".log")
    scrub = Scrub(store.journals)
    passes(scrub)
    assert scrub.problems == []


def test_a_step_reads_no_more_than_it_may(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(descriptor, length, offset)

    scrub = Scrub(store.journals)
    monkeypatch.setattr(os, "pread", counted)
    steps = 0
    while not scrub.counters.passes:
        before = scrub.counters.octets
        scrub.step(1, 0.0)
        steps += 1
        assert scrub.counters.octets - before <= store.open("a").segments[0].size  # one batch
        assert sum(length for length in read if length < 256 * RECORD) <= 3000
        read.clear()
    assert steps > SEGMENTS


def test_a_pass_begins_once_a_day(store: Store) -> None:
    scrub = Scrub(store.journals)
    passes(scrub)
    scrub.step(1 << 20, PASS - 1)
    assert (scrub.counters.passes, scrub.counters.segments) == (1, SEGMENTS)
    passes(scrub, PASS)
    assert (scrub.counters.passes, scrub.counters.segments) == (2, 2 * SEGMENTS)


def test_segments_that_retention_removes_are_no_problem(store: Store) -> None:
    """Before the check of a segment, during it, and after it was found damaged."""
    journal = store.open("a")
    damage(journal.segments[0].path + ".log")
    scrub = Scrub(store.journals)
    while not scrub.problems:
        scrub.step(1, 0.0)
    journal.policy = Policy(segment=100, keep_bytes=0)
    assert journal.retain(0.0) == 2 * SEGMENTS
    passes(scrub)
    assert scrub.problems == []
    assert scrub.counters.segments <= 2


def test_a_closed_journal_and_a_stop_end_the_work(store: Store) -> None:
    scrub = Scrub(store.journals)
    scrub.step(1, 0.0)
    scrub.stop()
    scrub.step(1 << 40, 0.0)
    assert (scrub.counters.passes, scrub.counters.segments) == (0, 0)
    other = Scrub(store.journals)
    store.close()
    passes(other)
    assert other.problems == []


def test_it_uses_no_descriptor_of_the_cache(store: Store) -> None:
    store._file_cache.clear()
    passes(Scrub(store.journals))
    assert len(store._file_cache) == 0


def test_a_disk_that_cannot_be_read_is_a_problem(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, length: int, offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    scrub = Scrub(store.journals)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        passes(scrub)
    assert len(scrub.problems) == SEGMENTS
    assert "cannot be read: Input/output error" in scrub.problems[0]
