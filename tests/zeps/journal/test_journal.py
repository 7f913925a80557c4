"""zambezi.zeps.journal.journal: appended messages are there, in order and unchanged."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, block, consistent, held, kill
from zambezi.zeps.block import Block
from zambezi.zeps.errors import Asleep, JournalError, OutOfRange
from zambezi.zeps.journal import Journal, Policy, Store, identity
from zambezi.zeps.journal.identity import FAILED, MARK, boot_id
from zambezi.zeps.journal.verify import Checked, verify

SMALL = Policy(segment=400, batch=100)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data", policy=SMALL) as store:
        yield store


@pytest.fixture
def journal(store: Store) -> Journal:
    return store.open("prices")


def files(journal: Journal, suffix: str) -> list[str]:
    return sorted(path.name for path in journal.directory.iterdir() if path.name.endswith(suffix))


# Appending


def test_a_new_stream_is_empty(journal: Journal) -> None:
    assert (journal.first, journal.last, journal.octets, journal.synced) == (1, 0, 0, 0)
    assert (journal.first_time, journal.last_time, journal.failed, journal.problems) == (0, 0, "", [])
    assert consistent(journal) == {}
    assert journal.before(0) == 0


@pytest.mark.spec("ZEP-09")
def test_appended_messages_are_in_a_sequential_file_byte_by_byte(journal: Journal) -> None:
    one = block(1, [b"a", b"bb"])
    two = block(3, [b"c" * 30])
    journal.append(one, 1.0)
    journal.append(two, 2.5)
    assert (journal.directory / "00000000000000000001.log").read_bytes() == one.octets + two.octets
    assert [(entry.first, entry.last, entry.time) for entry in journal.entries()] == [
        (1, 2, 1_000_000),
        (3, 3, 2_500_000),
    ]
    assert b"".join(consistent(journal).values()) == one.octets + two.octets


def test_sequences_are_consecutive(journal: Journal) -> None:
    append(journal, b"a")
    for wrong in (block(1, [b"a"]), block(3, [b"a"]), Block(2, 4, 2, block(2, [b"a", b"b"]).octets, 40)):
        with pytest.raises(JournalError, match="cannot follow sequence 1"):
            journal.append(wrong, 1.0)
    assert journal.last == 1
    append(journal, b"b")
    assert list(consistent(journal)) == [1, 2]


def test_time_never_goes_back(journal: Journal) -> None:
    for now in (5.0, 3.0, 6.0):
        append(journal, b"a", now=now)
    assert [entry.time for entry in journal.entries()] == [5_000_000, 5_000_000, 6_000_000]


def test_time_does_not_go_back_in_a_new_segment_or_after_a_restart(store: Store, journal: Journal) -> None:
    append(journal, b"a" * 390, now=9.0)
    append(journal, b"b" * 390, now=1.0)
    journal.close()
    journal = store.open("prices")
    append(journal, b"c", now=2.0)
    assert [entry.time for entry in journal.entries()] == [9_000_000] * 3


def test_a_large_block_becomes_several_batches(journal: Journal) -> None:
    expected = append(journal, *[bytes([number]) * 20 for number in range(15)])
    entries = journal.entries()
    assert len(entries) > 3
    assert all(entry.length <= SMALL.batch for entry in entries)
    assert list(consistent(journal).values()) == expected


def test_a_message_larger_than_a_batch_is_one(journal: Journal) -> None:
    append(journal, b"a", b"b" * 5000, b"c")
    assert [entry.count for entry in journal.entries()] == [1, 1, 1]
    assert len(consistent(journal)) == 3


def test_segments_are_named_by_their_first_sequence(journal: Journal) -> None:
    for _ in range(5):
        append(journal, b"x" * 100, b"y" * 40)
    assert files(journal, ".log") == [f"{first:020d}.log" for first in (1, 5, 9)]
    assert files(journal, ".idx") == [f"{first:020d}.idx" for first in (1, 5, 9)]
    assert len(consistent(journal)) == 10


@pytest.mark.spec("ZEP-12")
def test_streams_are_isolated(store: Store) -> None:
    one, other = store.open("one"), store.open("other")
    first, second = append(one, b"a", b"b"), append(other, b"c")
    assert (one.last, other.last) == (2, 1)
    assert consistent(one) == {1: first[0], 2: first[1]}
    assert consistent(other) == {1: second[0]}
    assert one.incarnation != other.incarnation


@pytest.mark.spec("ZEP-17")
@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_a_restart_keeps_every_stream_sequence_and_message(ended: str, tmp_path: Path) -> None:
    store = Store(tmp_path, policy=SMALL)
    expected = {}
    incarnations = {}
    for name in ("one", "other", "$third", "long" * 60):
        journal = store.open(name)
        for number in range(7):
            append(journal, b"%d" % number * 40, name.encode(), now=number)
        expected[name] = consistent(journal)
        incarnations[name] = journal.incarnation
    if ended == "closed":
        store.close()
    else:
        kill(store)
    with Store(tmp_path) as again:
        assert again.names() == sorted(expected)
        for name, messages in expected.items():
            journal = again.open(name)
            assert consistent(journal) == messages
            assert journal.incarnation == incarnations[name]
            assert (journal.problems, journal.synced) == ([], 14)
            append(journal, b"more")
            assert journal.last == 15


# Finding messages


def test_before_a_time(journal: Journal) -> None:
    for now in (10, 10, 20, 30, 30):
        append(journal, b"x" * 100, b"y" * 100, now=now)
    expected = {0: 0, 10: 0, 10.000001: 4, 20: 4, 21: 6, 30: 6, 30.000001: 10, 1e9: 10}
    assert {now: journal.before(int(now * 1_000_000)) for now in expected} == expected


def test_entries_after_a_sequence(journal: Journal) -> None:
    for _ in range(6):
        append(journal, b"x" * 100, b"y" * 20)
    every = journal.entries()
    for after in range(journal.last + 2):
        reaching = [entry for entry in every if entry.last > after]
        assert journal.entries(after) == reaching
        assert journal.entries(after, 2) == reaching[:2]
    assert journal.entries(0, 0) == []


# The disk


def test_which_sequences_are_synced(journal: Journal) -> None:
    append(journal, b"a", b"b")
    assert (journal.synced, journal.is_dirty) == (0, True)
    assert journal.sync() == journal.synced == 2
    append(journal, b"c")
    assert journal.synced == 2
    assert journal.sync() == 3


def test_a_sync_covers_the_messages_from_before_it_began(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    append(journal, b"a")
    synced: list[int] = []

    def slow(descriptor: int) -> None:
        if not synced:
            append(journal, b"b" * 500)  # during the sync, into a new segment
            append(journal, b"c")
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fdatasync", slow)
    assert journal.sync() == journal.synced == 1
    first = [(journal.directory / f"{1:020d}{suffix}").stat().st_ino for suffix in (".log", ".idx")]
    assert synced == first
    synced.append(0)
    del synced[:2]
    assert journal.sync() == 3
    every = {path.stat().st_ino for path in journal.directory.iterdir() if path.suffix in (".log", ".idx")}
    assert set(synced) - {0} == every


def test_a_new_segment_syncs_its_directory(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    append(journal, b"a" * 390)
    journal.sync()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    append(journal, b"b" * 200)
    journal.sync()
    append(journal, b"c")
    journal.sync()
    mark = (journal.directory / MARK).stat().st_ino
    directory = journal.directory.stat().st_ino
    assert synced == [directory, mark, directory]  # its name, and then a mark that tells of it


def test_append_and_sync_at_the_same_time(store: Store) -> None:
    journal = store.open("busy", Policy(segment=20_000))
    done = threading.Event()
    problems: list[BaseException] = []

    def keep_syncing() -> None:
        try:
            while not done.is_set():
                before = journal.last
                assert journal.sync() >= before
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    expected = [message for _ in range(2000) for message in append(journal, b"x" * 50, b"y")]
    done.set()
    thread.join()
    assert problems == []
    assert journal.sync() == journal.last == 4000
    assert list(consistent(journal).values()) == expected


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_failed_sync_is_the_last_word(
    call: str, store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(journal, b"a" * 390)
    journal.sync()
    append(journal, b"b" * 390)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(JournalError, match="Input/output error"):
        journal.sync()
    monkeypatch.undo()
    assert "Input/output error" in journal.failed
    assert journal.synced == 1
    for attempt in (journal.sync, lambda: append(journal, b"c"), lambda: journal.truncate(1)):
        with pytest.raises(JournalError, match="is stopped: the disk does not have the messages after sequence 1"):
            attempt()
    assert list(held(journal)) == [1, 2]
    journal.close()
    assert (journal.directory / MARK).read_text().split() == [FAILED, "0"]
    # The page cache proves nothing after that, so the next start gives it a new incarnation.
    again = store.open("prices")
    assert again.incarnation != journal.incarnation
    assert (again.failed, again.last, again.synced) == ("", 2, 2)
    append(again, b"c")


def test_no_descriptors_is_no_failure_of_the_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    append(journal, b"a" * 390)
    append(journal, b"b")

    def fail(path: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(identity, "sync_directory", fail)
    with pytest.raises(JournalError, match="Too many open files"):
        journal.sync()
    assert (journal.failed, journal.synced) == ("", 0)
    monkeypatch.undo()
    assert journal.sync() == 2


def test_the_mark_stands_until_the_disk_has_all_and_the_stream_is_quiet(journal: Journal) -> None:
    mark = journal.directory / MARK
    assert not mark.exists()
    append(journal, b"a")
    assert mark.read_text().split()[0] == boot_id()
    journal.sync()
    assert mark.exists()
    for _ in range(10):
        assert mark.exists()
        journal.sync()
    assert not mark.exists()
    assert not journal.is_dirty
    append(journal, b"b")
    assert mark.exists()
    journal.close()
    assert not mark.exists()


def test_the_mark_is_on_disk_before_the_first_message_is_written(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append("fsync"))
    write = os.pwrite

    def pwrite(descriptor: int, octets: bytes, offset: int) -> int:
        events.append("write")
        return write(descriptor, octets, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    append(journal, b"a")
    append(journal, b"b")
    assert events == ["fsync", "fsync", "write", "write", "write", "write"]  # the mark, and its name


def test_where_a_thread_may_not_wait_an_idle_stream_is_asleep(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.may_block = False
    with pytest.raises(Asleep):
        append(journal, b"a")
    assert not (journal.directory / MARK).exists()
    locked: list[bool] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        locked.append(journal._lock.locked())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    journal.wake()
    journal.wake()
    assert locked == [False, False]  # the mark and its name, once, and readers do not wait meanwhile
    append(journal, b"a")
    while journal.is_dirty:
        journal.sync()
    with pytest.raises(Asleep):
        append(journal, b"b")
    assert journal.last == 1


def test_a_mark_that_the_disk_refused_is_not_taken_for_one(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(JournalError, match="Input/output error"):
            append(journal, b"a")
    assert not (journal.directory / MARK).exists()  # the next attempt creates the name again
    assert journal.last == 0
    append(journal, b"a")
    assert (journal.directory / MARK).exists()


# Retention


def test_retention_by_size(journal: Journal) -> None:
    for number in range(6):
        append(journal, b"x" * 350, now=number)
    size = journal.octets // 6
    journal.policy = Policy(segment=400, keep_bytes=3 * size)
    assert journal.retain(100.0) == 3
    assert (journal.first, journal.last, journal.octets, journal.first_time) == (4, 6, 3 * size, 3_000_000)
    assert list(consistent(journal)) == [4, 5, 6]
    assert len(files(journal, ".log")) == len(files(journal, ".idx")) == 3
    assert journal.retain(100.0) == 0


def test_retention_keeps_at_least_what_was_asked_for_and_little_more(store: Store) -> None:
    policy = Policy(sync="never", keep_bytes=1 << 20)
    journal = store.open("kept", policy)
    for number in range(4000):
        append(journal, b"x" * 1000, now=number)
        if number % 50 == 0:
            journal.retain(number)
            assert min(journal.last * 1018, 1 << 20) <= journal.octets <= (1 << 20) * 9 / 8 + 51 * 1030
    assert len(journal.segments) == 9
    assert max(segment.size for segment in journal.segments) <= (1 << 20) // 8


def test_a_slow_stream_begins_segments_by_time(store: Store) -> None:
    """Otherwise the messages of a stream that never fills a segment would stay for ever."""
    journal = store.open("slow", Policy(sync="never", keep_seconds=800.0))
    for number in range(40):
        append(journal, b"x", now=100.0 * number)
        journal.retain(100.0 * number)
    assert journal.first_time == (3900 - 800 - 100) * 1_000_000
    assert len(journal.segments) <= 9


def test_only_the_last_two_segments_have_counts(store: Store, journal: Journal) -> None:
    for number in range(6):
        append(journal, b"x" * 350, now=number)
    journal.retain(6.0)
    assert len(files(journal, ".cnt")) == 6  # the disk may not have the last ones
    journal.sync()
    journal.retain(6.0)
    assert files(journal, ".cnt") == [f"{5:020d}.cnt", f"{6:020d}.cnt"]
    append(journal, b"x" * 350, now=7)
    journal.sync()
    journal.retain(7.0)
    assert files(journal, ".cnt") == [f"{6:020d}.cnt", f"{7:020d}.cnt"]
    journal.truncate(2)
    journal.close()
    journal = store.open("prices")
    assert (journal.last, journal.problems) == (2, [])
    assert files(journal, ".cnt") == [f"{2:020d}.cnt"]
    assert all(isinstance(one, Checked) for one in verify(journal))


def test_retention_by_age(journal: Journal) -> None:
    for number in range(6):
        append(journal, b"x" * 350, now=number)
    journal.policy = Policy(segment=400, keep_seconds=10.0)
    assert journal.retain(12.0) == 2
    assert journal.first == 3


def test_retention_leaves_the_active_segment(store: Store, journal: Journal) -> None:
    for number in range(3):
        append(journal, b"x" * 350, now=number)
    journal.policy = Policy(segment=400, keep_bytes=0, keep_seconds=0.0)
    assert journal.retain(1e9) == 2
    assert list(consistent(journal)) == [3]
    assert journal.retain(1e9) == 0
    journal.close()
    assert list(consistent(store.open("prices"))) == [3]


def test_a_segment_that_cannot_be_removed_stays(
    store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        append(journal, b"x" * 350, now=number)
    journal.policy = Policy(segment=400, keep_bytes=0)

    def fail(path: Path, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        for _ in range(3):
            assert journal.retain(1.0) == 0
    assert list(consistent(journal)) == [1, 2, 3]
    assert len(journal.problems) == 1
    assert "is too old, and cannot be removed: Operation not permitted" in journal.problems[0]
    assert journal.retain(1.0) == 2


def test_by_default_nothing_is_removed(journal: Journal) -> None:
    for number in range(3):
        append(journal, b"x" * 350, now=number)
    assert journal.retain(1e9) == 0


def test_a_sync_after_retention(journal: Journal) -> None:
    for number in range(3):
        append(journal, b"x" * 350, now=number)
    journal.policy = Policy(segment=400, keep_bytes=0)
    journal.retain(1.0)
    assert journal.sync() == 3


@pytest.mark.parametrize("last", range(9))
def test_cut_by_hand(last: int, store: Store, journal: Journal) -> None:
    expected: list[bytes] = []
    for number in range(4):
        expected += append(journal, b"x" * 100, b"y" * 90, now=number)
    before = journal.incarnation
    reader = journal.reader(0)
    assert reader.peek(1 << 20) is not None
    journal.truncate(last)
    assert (journal.incarnation != before) == (last < 8)
    for _ in range(2):
        assert list(consistent(journal).values()) == expected[:last]
        assert journal.last == last
        journal.close()
        journal = store.open("prices")
    new = append(journal, b"new", now=100)
    assert list(consistent(journal).values()) == expected[:last] + new


def test_after_a_cut_the_rest_is_still_to_be_synced(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        append(journal, b"x" * 350)
    journal.truncate(3)
    synced = set()
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    assert journal.sync() == 3
    assert synced == {path.stat().st_ino for path in journal.directory.iterdir() if path.suffix in (".log", ".idx")}


def test_a_cut_that_fails_stops_the_stream(store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        append(journal, b"x" * 100)

    def fail(descriptor: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(JournalError, match="is stopped: it could not be cut after sequence 2"):
            journal.truncate(2)
    with pytest.raises(JournalError, match="is stopped"):
        append(journal, b"y")
    journal.close()
    # The last segments were removed first; the rest is a valid stream with a new incarnation.
    again = store.open("prices")
    assert list(consistent(again)) == [1, 2, 3]
    assert again.incarnation != journal.incarnation


def test_a_cut_that_cannot_begin_changes_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator may want to cut a stream because the disk is full."""
    for _ in range(4):
        append(journal, b"x" * 100)
    before = journal.incarnation

    def fail(path: Path, content: bytes, *, sync: bool) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("zambezi.zeps.journal.identity.write_small", fail)
        with pytest.raises(JournalError, match=r"was not cut: .*: No space left on device"):
            journal.truncate(2)
    assert (journal.failed, journal.incarnation) == ("", before)
    append(journal, b"y")
    assert list(consistent(journal)) == [1, 2, 3, 4, 5]


def test_a_reader_does_not_continue_in_a_part_that_was_cut(journal: Journal) -> None:
    for body in (b"a", b"b", b"c"):
        append(journal, body)
    reader = journal.reader(0)
    span = reader.peek(1)
    assert span is not None
    reader.skip(span)
    journal.truncate(1)
    assert reader.peek(1000) is None
    message = [*append(journal, b"other"), *append(journal, b"ones")]
    span = reader.peek(1000)
    assert span is not None
    assert span.read().octets == b"".join(message)


def test_where_a_batch_could_be_cut_is_forgotten_with_it(journal: Journal) -> None:
    append(journal, b"a" * 10, b"b" * 20, b"c" * 30)
    assert list(held(journal, octets=1)) == [1, 2, 3]
    journal.truncate(0)
    expected = append(journal, b"d" * 15, b"e" * 15, b"f" * 30)
    assert list(held(journal, octets=1).values()) == expected


@pytest.mark.parametrize("last", [-1, 0, 1, 6])
def test_no_cut_outside(last: int, journal: Journal) -> None:
    for number in range(5):
        append(journal, b"x" * 350, now=number)
    journal.policy = Policy(segment=400, keep_bytes=1000)
    assert journal.retain(1.0) == 2
    before = journal.incarnation
    with pytest.raises(OutOfRange, match="has sequences 3 to 5") as raised:
        journal.truncate(last)
    assert raised.value.oldest == 3
    assert journal.incarnation == before


def test_a_closed_journal_says_so(journal: Journal) -> None:
    append(journal, b"a")
    reader = journal.reader(0)
    journal.close()
    journal.close()
    for attempt in (lambda: append(journal, b"b"), journal.sync, lambda: reader.peek(1)):
        with pytest.raises(JournalError, match="is closed"):
            attempt()


def test_the_log_is_written_before_the_index(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = os.pwrite

    def pwrite(descriptor: int, octets: bytes, offset: int) -> int:
        written.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
        return write(descriptor, octets, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    append(journal, b"a")
    append(journal, b"b" * 390)
    assert written == [".log", ".idx", ".cnt", ".log", ".idx"]  # the counts are those of the new segment


def test_a_reader_during_a_cut_sees_another_incarnation(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        append(journal, b"x" * 100, b"y" * 100)
    seen = {journal.incarnation}
    truncate = os.ftruncate

    def ftruncate(descriptor: int, size: int) -> None:
        seen.add(identity.read_identity(journal.directory).incarnation)
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", ftruncate)
    journal.truncate(1)
    assert len(seen) == 2
    assert journal.incarnation not in seen
