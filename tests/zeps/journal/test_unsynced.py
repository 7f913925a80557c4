"""zambezi.zeps.journal.unsynced: power that fails between a new segment and its first sync."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, block, consistent, held, kill
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.identity import MARK, boot_id, read_mark
from zambezi.zeps.journal.unsynced import count_trusted

ANN = b"ann-------------"
POLICY = Policy(segment=400, batch=150)


def publish(journal: Journal, *bodies: bytes) -> None:
    """Append a batch of a publisher that counts its messages."""
    known = journal.counts.get(ANN) or Count(ANN, 1, 0)
    count = known._replace(count=known.count + len(bodies))
    journal.append(block(journal.last + 1, bodies), 1.0, [count])


def lose_power(store: Store) -> Path:
    """Let the mark be of another start of the system; return the directory of the stream."""
    kill(store)
    directory = store.path / "a"
    mark = directory / MARK
    mark.write_text(mark.read_text().replace(boot_id(), "11111111-2222-3333-4444-555555555555"))
    return directory


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def test_messages_after_a_hole_that_the_power_left_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    publish(journal, b"x" * 100)
    journal.sync()
    publish(journal, b"y" * 200)
    publish(journal, b"z" * 200)
    publish(journal, b"z" * 200)
    first, second, third = journal.segments
    directory = lose_power(store)
    cut(Path(f"{first.path}.log"), 150)  # the end of the first segment never came to the disk
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert list(consistent(journal)) == [1]
        known = journal.counts.get(ANN)
        assert known is not None
        assert known.count == 1
        assert [
            problem for problem in journal.problems if f"the messages from {second.first} on were removed" in problem
        ]
        assert sorted(path.stem for path in directory.glob("*.log")) == [Path(first.path).name]
        publish(journal, b"again")
        assert journal.last == 2
    assert third.first == 4


def test_zeros_in_place_of_messages_are_a_hole(tmp_path: Path) -> None:
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    append(journal, b"x" * 300)
    append(journal, b"y" * 300)
    first, _ = journal.segments
    lose_power(store)
    log = Path(f"{first.path}.log")
    log.write_bytes(bytes(log.stat().st_size))
    with Store(tmp_path, policy=POLICY) as store:
        assert consistent(store.open("a")) == {}


def test_damage_in_a_segment_that_was_synced_costs_nothing_else(tmp_path: Path) -> None:
    """The disk had it: the messages after it were confirmed."""
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    for _ in range(3):
        append(journal, b"x" * 300)
    journal.sync()
    append(journal, b"y")
    expected = held(journal)
    first = journal.segments[0]
    lose_power(store)
    cut(Path(f"{first.path}.log"), 100)
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert held(journal, after=1) == {key: value for key, value in expected.items() if key > 1}
        assert journal.last == 4


def test_segments_that_the_kernel_has_written_long_ago_are_trusted(tmp_path: Path) -> None:
    with Store(tmp_path, policy=Policy(sync="never", segment=400)) as store:
        journal = store.open("a")
        for _ in range(3):
            append(journal, b"x" * 300)
        log = Path(f"{journal.segments[0].path}.log")
        log.write_bytes(bytes(log.stat().st_size))
        assert count_trusted(journal.segments, 0, 150) == 1
        os.utime(log, (0, 0))
        assert count_trusted(journal.segments, 0, 150) == 3


def test_the_mark_follows_the_segments(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        append(journal, b"x")
        journal.sync()
        assert read_mark(tmp_path / "a") == (boot_id(), 0)  # the first segment of a stream without counts
        for _ in range(10):
            append(journal, b"x" * 150)
            journal.sync()
            mark = read_mark(tmp_path / "a")
            assert mark is not None
            assert mark.synced == (journal.segments[-1].first if len(journal.segments) > 1 else 0)
        assert len(journal.segments) > 3


@pytest.mark.parametrize("follower", ["plain", "counted"])
def test_counts_that_the_disk_never_had_cost_their_messages(tmp_path: Path, follower: str) -> None:
    """The new segment was never synced: the disk has its messages, and not the head of its counts."""
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    publish(journal, b"x" * 300)
    journal.sync()
    append(journal, b"plain" * 40)
    publish(journal, b"y")
    append(journal, b"plain") if follower == "plain" else publish(journal, b"z")
    last = journal.segments[-1]
    assert last.first == 2
    lose_power(store)
    cut(Path(f"{last.path}.cnt"), 0)
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert list(consistent(journal)) == [1, 2]
        known = journal.counts.get(ANN)
        assert known is not None
        assert known.count == 1


def test_a_damaged_file_of_counts_costs_no_message_if_the_disk_had_it(tmp_path: Path) -> None:
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    publish(journal, b"x" * 300)
    publish(journal, b"x" * 300)
    journal.sync()
    publish(journal, b"y")
    journal.sync()
    last = journal.segments[-1]
    lose_power(store)
    cut(Path(f"{last.path}.cnt"), 0)
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert list(consistent(journal)) == [1, 2, 3]
        assert [problem for problem in journal.problems if "was missing or damaged" in problem]
