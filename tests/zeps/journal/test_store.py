"""zambezi.zeps.journal.store: the lock of the data directory, its streams, and readers in other processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.zeps.journal.streams import append, block, consistent, held
from zambezi.zeps.errors import JournalError, JournalFull
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.identity import STREAM, read_identity
from zambezi.zeps.journal.segment import Files


def test_a_second_store_is_refused_and_the_error_names_the_process(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(JournalError, match=f"is in use by process {os.getpid()}: stop it, or use ano"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_the_lock_is_that_of_the_process(tmp_path: Path) -> None:
    """A killed process leaves no lock behind."""
    script = (
        "import sys; from zambezi.zeps.journal import Store; store = Store(sys.argv[1]); print('ready', flush=True); "
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        with pytest.raises(JournalError, match=f"is in use by process {child.pid}"):
            Store(tmp_path)
        child.kill()
        child.wait()
    Store(tmp_path).close()


def test_a_data_directory_is_made(tmp_path: Path) -> None:
    with Store(tmp_path / "not" / "there") as store:
        assert store.names() == []


def test_streams_by_name(tmp_path: Path) -> None:
    names = ["b", "a.b/c", "../escape", "$index", "\udcff\udcfe", "long" * 60, "A"]
    with Store(tmp_path / "data") as store:
        for name in names:
            append(store.open(name), name.encode(errors="surrogateescape"))
        assert store.names() == sorted(names)
        assert store.open("b") is store.open("b")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with Store(tmp_path / "data") as store:
        assert store.names() == sorted(names)
        for name in names:
            journal = store.open(name)
            assert (journal.name, journal.last) == (name, 1)


def test_directories_that_are_not_streams_are_reported_and_left_alone(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.open("a")
        (tmp_path / "notes").mkdir()
        (tmp_path / "file").touch()
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / STREAM).write_bytes((tmp_path / "a" / STREAM).read_bytes())
        assert store.names() == ["a"]
        assert len(store.problems) == 2
        with pytest.raises(JournalError, match=r"stream.json is missing: restore it, or move its directory away"):
            store.open("notes")
        with pytest.raises(JournalError, match="should be stream 'b', but says that it is 'a'"):
            store.open("b")


def test_a_stream_that_is_not_to_be_made(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(JournalError, match="there is no stream 'a'"):
            store.open("a", create=False)
        store.open("a")
        store.open("a", create=False)


def test_a_stream_has_a_policy_of_its_own(tmp_path: Path) -> None:
    always = Policy(sync="always")
    with Store(tmp_path, policy=Policy(sync="never")) as store:
        assert store.open("a").policy.sync == "never"
        assert store.open("b", always).policy is always
        assert store.open("a", always).policy is always


def test_a_deleted_stream_is_gone_and_another_one_when_made_again(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, b"x")
        store.delete("a")
        assert store.names() == []
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]
        with pytest.raises(JournalError, match="closed"):
            append(journal, b"y")
        again = store.open("a")
        assert again.last == 0
        assert again.incarnation != journal.incarnation
        with pytest.raises(JournalError, match="there is no stream 'b'"):
            store.delete("b")


def test_leftovers_of_an_interrupted_creation_or_deletion_are_removed(tmp_path: Path) -> None:
    for name in (".new-1", ".deleted-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / ".mine").mkdir()
    with Store(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".mine", ".reserve"]


def test_a_stream_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:

        def fail(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(JournalError, match="No space left on device"):
                store.open("a")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]
        assert store.open("a").last == 0


def test_a_stream_that_cannot_be_filled_leaves_no_open_file(tmp_path: Path) -> None:
    """The disk would not get the room of a removed file back."""

    def fill(journal: Journal) -> None:
        append(journal, b"x")
        raise JournalFull("no room")

    with Store(tmp_path) as store:
        with pytest.raises(JournalError, match=r"stream 'copy' was not created: .* has no room for it"):
            store.make("copy", fill=fill)
        links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
        assert [link for link in links if link.startswith(str(tmp_path))] == [str(tmp_path / ".lock")]
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]


def test_a_deletion_waits_for_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a sync may not change the files of a new stream that has the same name."""
    syncing, go_on = threading.Event(), threading.Event()
    sync = Files.sync

    def slow_sync(files: Files, *arguments: Any) -> None:
        syncing.set()
        assert go_on.wait(60)
        sync(files, *arguments)

    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, b"x")
        monkeypatch.setattr(Files, "sync", slow_sync)
        syncer, deleter = threading.Thread(target=journal.sync), threading.Thread(target=store.delete, args=["a"])
        syncer.start()
        assert syncing.wait(60)
        deleter.start()
        deleter.join(0.05)
        assert deleter.is_alive()
        go_on.set()
        syncer.join(60)
        deleter.join(60)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]


def test_the_identity_on_disk(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a b")
        identity = read_identity(tmp_path / "a%20b")
        assert (identity.name, identity.incarnation) == ("a b", journal.incarnation)
        assert isinstance(journal.incarnation, UUID)


def test_a_closed_store_opens_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    store.close()
    store.close()
    assert not journal.is_open
    with pytest.raises(JournalError, match="is closed"):
        store.open("a")
    with pytest.raises(JournalError, match="not open for writing"):
        store.delete("a")


# For reading only


def test_a_reader_needs_no_lock_and_changes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        expected = append(store.open("a"), b"x", b"y")
        reading = Store(tmp_path, write=False)
        assert reading.names() == ["a"]
        journal = reading.open("a")
        assert list(consistent(journal).values()) == expected
        assert journal.incarnation == store.open("a").incarnation
        for attempt in (lambda: append(journal, b"z"), journal.sync, lambda: journal.truncate(1)):
            with pytest.raises(JournalError, match="for reading only"):
                attempt()
        with pytest.raises(JournalError, match="there is no stream 'b'"):
            reading.open("b")
        with pytest.raises(JournalError, match="not open for writing"):
            reading.delete("a")
        assert journal.retain(1e12) == 0
        reading.close()
    with pytest.raises(JournalError, match="no such directory"):
        Store(tmp_path / "nothing", write=False)


def test_a_reader_sees_new_messages_after_refresh(tmp_path: Path) -> None:
    policy = Policy(segment=300)
    with Store(tmp_path, policy=policy) as store, Store(tmp_path, write=False) as reading:
        journal = store.open("a")
        copy = reading.open("a")
        reader = copy.reader(0)
        assert reader.peek(1000) is None
        seen = []
        for number in range(12):
            append(journal, b"%d" % number * 30, b"x", now=number)
            copy.refresh()
            assert (copy.first, copy.last, copy.octets) == (journal.first, journal.last, journal.octets)
            assert (copy.first_time, copy.last_time) == (journal.first_time, journal.last_time)
            while (span := reader.peek(1000)) is not None:
                seen.append(span.read().octets)
                reader.skip(span)
        assert b"".join(seen) == b"".join(held(journal).values())
        journal.policy = Policy(segment=300, keep_bytes=600)
        assert journal.retain(1.0) > 0
        copy.refresh()
        assert copy.first == journal.first > 1
        assert held(copy) == held(journal)


def test_a_reader_that_is_too_late_gets_an_error(tmp_path: Path) -> None:
    policy = Policy(segment=100)
    with Store(tmp_path, policy=policy) as store:
        journal = store.open("a")
        for _ in range(5):
            append(journal, b"x" * 90)
        with Store(tmp_path, write=False) as reading:
            copy = reading.open("a")
            copy._file_cache.clear()
            journal.policy = Policy(segment=100, keep_bytes=200)
            journal.retain(1.0)
            with pytest.raises(JournalError, match="sequence 1 is not kept any more, the oldest is 4"):
                copy.reader(0).peek(1000)


def test_a_reader_notices_another_incarnation(tmp_path: Path) -> None:
    with Store(tmp_path, policy=Policy(segment=200)) as store, Store(tmp_path, write=False) as reading:
        journal = store.open("a")
        for _ in range(6):
            append(journal, b"x" * 50)
        copy = reading.open("a")
        reader = copy.reader(2)
        assert reader.peek(1) is not None
        journal.truncate(2)
        for _ in range(6):
            append(journal, b"y" * 51)
        before = copy.incarnation
        copy.refresh()
        assert copy.incarnation == journal.incarnation != before
        assert held(copy) == held(journal)
        span = reader.peek(1)
        assert span is not None
        assert b"y" * 51 in span.read().octets
        store.delete("a")
        with pytest.raises(JournalError):
            copy.refresh()


def test_a_reader_sees_one_incarnation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store, Store(tmp_path, write=False) as reading:
        journal = store.open("a")
        append(journal, b"a")
        append(journal, b"b")
        copy = reading.open("a")
        scan = Journal._scan

        def interrupted(self: Journal) -> None:
            scan(self)
            if journal.last == 2:
                journal.truncate(1)

        monkeypatch.setattr(Journal, "_scan", interrupted)
        copy.refresh()
        assert (copy.incarnation, copy.last) == (journal.incarnation, 1)


def test_a_reader_sees_no_entry_that_is_being_written(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, b"x")
        append(journal, b"y")
        index = journal.directory / "00000000000000000001.idx"
        octets = index.read_bytes()
        with Store(tmp_path, write=False) as reading:
            copy = reading.open("a")
            for torn in (octets[:127], octets[:122] + bytes(6), octets[:64] + bytes(64), octets[:64] + bytes(640)):
                index.write_bytes(torn)
                copy.refresh()
                assert list(held(copy)) == [1]
            index.write_bytes(octets)
            copy.refresh()
            assert list(held(copy)) == [1, 2]


def test_a_reader_reports_damage_that_only_a_writer_repairs(tmp_path: Path) -> None:
    with Store(tmp_path, policy=Policy(segment=100)) as store:
        for _ in range(3):
            append(store.open("a"), b"x" * 90)
    os.truncate(tmp_path / "a" / "00000000000000000001.idx", 20)
    with Store(tmp_path, write=False) as reading:
        journal = reading.open("a")
        assert list(held(journal)) == [2, 3]
        assert "sequences 1 to 1 are missing" in journal.problems[0]


def test_another_process_follows_and_sees_whole_batches_only(tmp_path: Path) -> None:
    count = 12_000
    with Store(tmp_path, policy=Policy(segment=100_000)) as store:
        journal = store.open("a")
        command = [sys.executable, str(Path(__file__).with_name("follower.py")), str(tmp_path), str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            try:
                assert follower.stdout is not None
                assert follower.stdout.readline() == "ready\n"
                while journal.last < count:
                    numbers = range(journal.last + 1, journal.last + 4)
                    append(journal, *[bytes([number % 251]) * (20 + number % 300) for number in numbers])
                assert int(follower.stdout.readline()) >= len(journal.segments)
                assert follower.wait(60) == 0
            finally:
                follower.kill()


def test_a_name_that_the_disk_does_not_have_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next attempt would find the stream, and never sync its name."""
    fsync = os.fsync
    with Store(tmp_path) as store:

        def fail(descriptor: int) -> None:
            if os.fstat(descriptor).st_ino == tmp_path.stat().st_ino:
                raise OSError(5, "Input/output error")
            fsync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(JournalError, match=r"stream 'a' cannot be created: .*Input/output error"):
                store.open("a")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]
        store.make("a")
        store.make("a")
        assert store.open("a").last == 0


def test_a_stop_syncs_the_streams_in_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync waits until four are under way."""
    together = threading.Barrier(4, timeout=60)
    store = Store(tmp_path)
    for number in range(8):
        append(store.open(f"s{number}"), b"x")
    with monkeypatch.context() as patch:
        patch.setattr(Files, "sync", lambda *_: together.wait())
        store.close()
    assert not together.broken
    assert not list(tmp_path.glob("*/unsynced"))


def test_a_cache_is_made_and_written_without_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    with Store(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", synced.append)
            patch.setattr(os, "fdatasync", synced.append)
            store.make_cache("a", {}, 7, UUID(int=1))
            journal = store.open("a")
            journal.note_counts([Count(b"p" * 16, 1, 3)], 1.0)
            journal.append(block(7, [b"x"]), 1.0, [Count(b"q" * 16, 1, 1)])
        assert not synced
        assert (journal.is_cache, journal.incarnation, journal.first, journal.last) == (True, UUID(int=1), 7, 7)
        assert journal.counts.get(b"p" * 16) == Count(b"p" * 16, 1, 3)


def test_a_cache_that_a_crash_of_the_system_left_without_its_files_is_made_again(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.make_cache("a", {}, 7, UUID(int=1))
        directory = next(path for path in tmp_path.iterdir() if path.is_dir())
        (directory / STREAM).write_bytes(b"")  # the disk has the names, and not the content
        store.make_cache("a", {}, 9, UUID(int=2))
        assert (store.open("a").incarnation, store.open("a").first) == (UUID(int=2), 9)


def test_a_stream_with_messages_is_never_replaced_by_a_cache(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        append(store.open("a"), b"x")
    directory = next(path for path in tmp_path.iterdir() if path.is_dir())
    (directory / STREAM).write_bytes(b"")
    with Store(tmp_path) as store:
        store.make_cache("a", {}, 9, UUID(int=2))
        assert store.open("a").last == 1
