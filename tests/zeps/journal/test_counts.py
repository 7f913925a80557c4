"""zambezi.zeps.journal.counts: records, the table of publishers, and the recovery of both with the messages."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import block, consistent, directory, kill
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.counts import (
    COUNTS,
    NO_MARK,
    RECORD,
    Count,
    Counts,
    has_snapshot,
    pack,
    read_places,
    unpack,
)
from zambezi.zeps.journal.identity import MARK
from zambezi.zeps.journal.restore import restore
from zambezi.zeps.journal.segment import Segment
from zambezi.zeps.journal.verify import Checked, Damage, Unfinished, verify

ANN, BEN = b"ann-------------", b"ben-------------"
POLICY = Policy(sync="never", segment=1_000)


def append(journal: Journal, *publishers: bytes) -> None:
    """Append a message for each of the publishers, with their counts."""
    counts: dict[bytes, Count] = {}
    for publisher in publishers:
        known = counts.get(publisher) or journal.counts.get(publisher) or Count(publisher, 1, 0)
        counts[publisher] = known._replace(count=known.count + 1)
    bodies = [publisher * 3 for publisher in publishers]
    journal.append(block(journal.last + 1, bodies), 1.0, list(counts.values()))


def check_counts(journal: Journal) -> None:
    """Check that each publisher has as many messages as its count says."""
    bodies = b"".join(consistent(journal).values())
    for publisher in (ANN, BEN):
        known = journal.counts.get(publisher)
        assert bodies.count(publisher * 3) == (known.count if known is not None else 0)


def sizes_of(stem: str) -> list[int]:
    return [Path(stem + suffix).stat().st_size for suffix in (COUNTS, ".log", ".idx")]


def test_the_format_of_a_record() -> None:
    octets = pack(Count(ANN, 2, 3, 1, b"m" * 16, 5), 7, 9, 1_700_000_000)
    assert len(octets) == RECORD == 80
    assert octets[:16].hex(" ", 8) == "0000000000000007 0000000000000009"
    assert octets[16:32] == ANN
    assert octets[32:52].hex(" ", 4) == "00000002 00000000 00000003 00000000 00000001"
    assert octets[52:68] == b"m" * 16
    assert int.from_bytes(octets[68:72]) == 5
    assert int.from_bytes(octets[72:76]) == 1_700_000_000
    assert int.from_bytes(octets[76:]) == crc32(octets[:76])
    record = unpack(b"x" + octets, 1)
    assert record is not None
    assert record.state == Count(ANN, 2, 3, 1, b"m" * 16, 5)
    assert record.covers(7, 9)
    assert not record.covers(7, 10)


@given(st.integers(0, RECORD * 8 - 1))
def test_one_wrong_bit_is_noticed(bit: int) -> None:
    octets = bytearray(pack(Count(ANN, 2, 3), 7, 9, 5))
    octets[bit // 8] ^= 1 << bit % 8
    assert unpack(bytes(octets)) is None
    assert unpack(bytes(octets[:-1])) is None


def test_the_publisher_that_was_silent_for_longest_is_forgotten() -> None:
    counts = Counts(2)
    for second, publisher in enumerate([ANN, BEN, ANN]):
        counts.note([pack(Count(publisher, 1, second), 1, 1, second)])
    counts.note([pack(Count(b"c" * 16, 1, 1), 1, 1, 3)])
    assert counts.get(BEN) is None
    assert counts.get(ANN) == Count(ANN, 1, 2)
    assert counts.forgotten == 1
    counts.forget_before(3)
    assert counts.get(ANN) is None
    assert len(counts) == 1
    assert counts.forgotten == 2
    assert [state.publisher for state in counts.states()] == [b"c" * 16]


def test_100_000_publishers_need_at_most_32_mb() -> None:
    tracemalloc.start()
    try:
        counts = Counts(100_000)
        for number in range(100_000):
            counts.note([pack(Count(number.to_bytes(16), 1, number, number, os.urandom(16)), number, number, 7)])
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 32_000_000
    assert sys.getsizeof(counts.snapshot(1)) < 100_001 * RECORD + 100


def test_a_snapshot_begins_each_segment(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        while len(journal.segments) < 3:
            append(journal, ANN, BEN)
        for segment in journal.segments:
            assert has_snapshot(segment.path)
        places = list(read_places(journal.segments[-1].path))
        assert places[0].record is not None
        assert places[0].record.count == 2
        expected = list(journal.counts.states())
    with Store(tmp_path, policy=POLICY) as store:
        assert list(store.open("a").counts.states()) == expected


def test_a_segment_ends_when_it_has_many_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.journal.segment.COUNTS_MOST", 20 * RECORD)
    with Store(tmp_path, policy=Policy(sync="never")) as store:
        journal = store.open("a")
        for _ in range(50):
            append(journal, ANN)
        assert len(journal.segments) == 3


def test_epochs_alone_begin_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that syncs replaces them by a snapshot. Records that come meanwhile stay."""
    monkeypatch.setattr("zambezi.zeps.journal.segment.COUNTS_MOST", 20 * RECORD)
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, ANN, BEN)
        for epoch in range(2, 100):
            journal.append_counts([Count(ANN, epoch, 1)], 1.0)
            journal.sync()
        assert Path(journal.segments[0].path + COUNTS).stat().st_size < 30 * RECORD
        write = Segment.write_fresh_counts

        def slow(segment: Segment, snapshot: bytes) -> Path:
            append(journal, BEN)
            return write(segment, snapshot)

        for epoch in range(100, 121):
            journal.append_counts([Count(ANN, epoch, 1)], 1.0)
        monkeypatch.setattr(Segment, "write_fresh_counts", slow)
        journal.sync()
        assert len(journal.segments) == 1
        assert all(isinstance(one, Checked) for one in verify(journal))
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert journal.problems == []
        assert journal.counts.get(ANN) == Count(ANN, 120, 1)
        assert journal.counts.get(BEN) == Count(BEN, 1, 2)


PUBLISHERS = st.lists(st.lists(st.sampled_from([ANN, BEN]), min_size=1, max_size=4), min_size=1, max_size=12)


@given(PUBLISHERS, st.data())
def test_counts_and_messages_agree_after_a_kill_at_any_byte(batches: list[list[bytes]], data: st.DataObject) -> None:
    """A killed process has written the counts, the log and the index up to some byte, in this order."""
    with directory() as path:
        store = Store(path, policy=POLICY)
        journal = store.open("a")
        sizes = []
        for publishers in batches:
            append(journal, *publishers)
            segment = journal.segments[-1]
            sizes.append((segment.first, sizes_of(segment.path)))
        kill(store)
        first, after = sizes[-1]
        before = sizes[-2][1] if len(sizes) > 1 and sizes[-2][0] == first else [RECORD, 0, 0]
        written = [new - old for old, new in zip(before, after, strict=True)]
        left = data.draw(st.integers(0, sum(written)))
        stem = Path(path) / "a" / f"{first:020d}"
        for suffix, old, more in zip((COUNTS, ".log", ".idx"), before, written, strict=True):
            os.truncate(f"{stem}{suffix}", old + min(more, left))
            left -= min(more, left)
        with Store(path, policy=POLICY) as store:
            journal = store.open("a")
            assert journal.problems == []
            check_counts(journal)
            assert all(isinstance(one, Checked) for one in verify(journal))


@given(PUBLISHERS, st.integers(0, 11), st.data())
def test_counts_and_messages_agree_after_a_crash_of_the_system(
    batches: list[list[bytes]], synced: int, data: st.DataObject
) -> None:
    """The disk has everything up to the last sync, and of each file any part after it."""
    with directory() as path:
        store = Store(path, policy=Policy(sync="always"))
        journal = store.open("a")
        stem = journal.segments[0].path
        safe, kept = [RECORD, 0, 0], 0
        for number, publishers in enumerate(batches):
            append(journal, *publishers)
            if number == synced:
                kept = journal.sync()
                safe = sizes_of(stem)
        kill(store)
        for suffix, least in zip((COUNTS, ".log", ".idx"), safe, strict=True):
            size = Path(stem + suffix).stat().st_size
            os.truncate(stem + suffix, data.draw(st.integers(least, size)))
        (Path(path) / "a" / MARK).write_text("another boot\n")
        with Store(path) as store:
            journal = store.open("a")
            assert journal.last >= kept
            check_counts(journal)
            assert all(isinstance(one, Checked) for one in verify(journal))


@given(st.integers(0, 1 << 20), st.booleans())
def test_damage_of_any_byte_is_found_and_harms_nothing_else(place: int, cut: bool) -> None:
    with directory() as path:
        with Store(path, policy=POLICY) as store:
            for _ in range(12):
                append(store.open("a"), ANN, BEN, ANN)
            expected = consistent(store.open("a"))
        files = sorted(Path(path).glob(f"a/*{COUNTS}"))
        file = files[place % len(files)]
        octets = bytearray(file.read_bytes())
        if cut:
            del octets[place % len(octets) :]
        else:
            octets[place % len(octets)] ^= 1
        file.write_bytes(octets)
        with Store(path, write=False) as store:
            results = list(verify(store.open("a", create=False)))
            assert any(isinstance(one, Damage | Unfinished) for one in results)
        with Store(path, policy=POLICY) as store:
            journal = store.open("a")
            assert consistent(journal) == expected
            for publisher in (ANN, BEN):
                known = journal.counts.get(publisher)
                assert known is None or known.count <= 24


def test_a_missing_file_is_found_and_made_again(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        while len(store.open("a").segments) < 2:
            append(store.open("a"), ANN)
        before = store.open("a").counts.get(ANN)
    newest = max(tmp_path.glob(f"a/*{COUNTS}"))
    newest.unlink()
    with Store(tmp_path, write=False) as store:
        assert "does not begin with a head" in str([str(one) for one in verify(store.open("a"))])
    with Store(tmp_path, policy=POLICY) as store:
        found = store.open("a").counts.get(ANN)
        assert before is not None
        assert found is not None
        assert found.count <= before.count
    assert newest.exists()


def test_what_an_operator_cuts_off_stays_counted(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        for _ in range(10):
            append(journal, ANN, BEN, ANN)
        journal.truncate(7)
        assert journal.counts.get(ANN) == Count(ANN, 1, 20)
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert journal.last == 7
        assert journal.counts.get(ANN) == Count(ANN, 1, 20)
        assert journal.counts.get(BEN) == Count(BEN, 1, 10)
        assert all(isinstance(one, Checked) for one in verify(journal))
        append(journal, ANN)
        assert all(isinstance(one, Checked) for one in verify(journal))
    assert bytes(16) == NO_MARK


@pytest.mark.parametrize("done", range(12))
def test_a_cut_that_was_killed_keeps_the_messages_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """The process dies when so many system calls have changed the files. The cut is inside a batch."""
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    for _ in range(10):
        append(journal, ANN, BEN, ANN)
    before = consistent(journal)
    calls = iter(range(1000))

    def killed(call: Callable[..., int]) -> Callable[..., int]:
        def change(*arguments: object) -> int:
            if next(calls) >= done:
                raise KeyboardInterrupt
            return call(*arguments)

        return change

    with monkeypatch.context() as patch:
        for name in ("ftruncate", "pwrite"):
            patch.setattr(os, name, killed(getattr(os, name)))
        with suppress(KeyboardInterrupt):
            journal.truncate(8)
    kill(store)
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert journal.last >= 8
        assert consistent(journal) == {
            sequence: octets for sequence, octets in before.items() if sequence <= journal.last
        }
        assert all(isinstance(one, Checked) for one in verify(journal))


@given(st.integers(0, 100))
def test_a_cut_inside_a_block_of_several_batches(after: int) -> None:
    with directory() as path:
        policy = Policy(sync="always", batch=500)
        with Store(path, policy=policy) as store:
            journal = store.open("a")
            for _ in range(2):
                first = journal.last + 1
                journal.append(block(first, [b"x" * 50] * 50), 1.0, [Count(ANN, 1, first + 49)])
            journal.sync()
            journal.truncate(after)
            assert all(isinstance(one, Checked) for one in verify(journal))
        (Path(path) / "a" / MARK).write_text("another boot\n")
        with Store(path, policy=policy) as store:
            journal = store.open("a")
            assert journal.last == after
            assert journal.counts.get(ANN) == Count(ANN, 1, 100)


def test_counts_that_are_written_during_a_sync_are_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, ANN)
        sync = os.fdatasync

        def late(descriptor: int) -> None:
            sync(descriptor)
            monkeypatch.setattr(os, "fdatasync", sync)
            journal.append_counts([Count(BEN, 1, 0)], 1.0)

        monkeypatch.setattr(os, "fdatasync", late)
        journal.sync()
        assert journal.synced < journal.last
        journal.sync()
        assert journal.synced == journal.last


def test_counts_survive_a_failure_while_they_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zambezi.zeps.journal.segment.COUNTS_MOST", 20 * RECORD)
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("zambezi.zeps.journal.segment.write_small", fail)
        for epoch in range(1, 30):
            journal.append_counts([Count(ANN, epoch, 0)], 1.0)
            journal.sync()
    assert "could not be replaced by a snapshot" in caplog.text
    kill(store)
    with Store(tmp_path, policy=POLICY) as store:
        assert store.open("a").counts.get(ANN) == Count(ANN, 29, 0)


def test_a_cut_tells_the_mark_what_the_disk_has(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for _ in range(10):
            append(store.open("a"), ANN)
        store.open("a").sync()
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, ANN)
        assert (tmp_path / "a" / MARK).read_text().split()[1] == "10"
        journal.truncate(5)
        assert (tmp_path / "a" / MARK).read_text().split()[1] == "5"


def test_lost_counts_are_found_behind_messages_of_plain_clients(tmp_path: Path) -> None:
    file = filled(tmp_path)
    with Store(tmp_path) as store:
        journal = store.open("a")
        journal.append(block(31, [b"plain"]), 1.0)
    halve(file)
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert any("was missing or damaged" in problem for problem in journal.problems)
        assert all(isinstance(one, Checked) for one in verify(journal))


def filled(path: Path) -> Path:
    """Return the file of counts of a stream with 30 messages that the disk has."""
    with Store(path, policy=Policy(sync="always")) as store:
        journal = store.open("a")
        for _ in range(10):
            append(journal, ANN, BEN, ANN)
            journal.sync()
    return Path(path) / "a" / f"{1:020d}{COUNTS}"


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def halve(file: Path) -> None:
    octets = file.read_bytes()
    file.write_bytes(octets[: len(octets) // RECORD // 2 * RECORD])


def flip_head(file: Path) -> None:
    file.write_bytes(b"\xff" + file.read_bytes()[1:])


def flip_last(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")


DAMAGES = [remove, empty, halve, flip_head, flip_last]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("crash", [False, True])
def test_a_damaged_file_costs_no_message_and_is_told_once(
    damage: Callable[[Path], None], crash: bool, tmp_path: Path
) -> None:
    damage(filled(tmp_path))
    if crash:
        (tmp_path / "a" / MARK).write_text("another-boot 30\n")
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert journal.last == 30
        assert any("was missing or damaged" in problem for problem in journal.problems)
        assert all(isinstance(one, Checked) for one in verify(journal))
        append(journal, ANN)
    (tmp_path / "a" / MARK).write_text("another-boot 31\n")
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert (journal.last, journal.problems) == (31, [])


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_counts_of_a_closed_segment_are_repaired(damage: Callable[[Path], None], tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        while len(journal.segments) < 3:
            append(journal, ANN, BEN, ANN)
        before = list(journal.counts.states())
    damage(tmp_path / "a" / f"{1:020d}{COUNTS}")
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert len([one for one in verify(journal) if isinstance(one, Damage)]) <= 3
        if any(isinstance(one, Damage) for one in verify(journal)):  # an old segment need not have the file
            assert any("created again" in told for told in restore(journal, None))
        assert all(isinstance(one, Checked) for one in verify(journal))
        assert list(journal.counts.states()) == before
