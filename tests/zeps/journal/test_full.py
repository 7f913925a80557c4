"""A full disk: an append that does not fit leaves nothing behind, and the next one works when there is room."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import append, block, consistent, directory
from zambezi.zeps.errors import JournalError, JournalFull
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.counts import RECORD
from zambezi.zeps.journal.identity import MARK

POLICY = Policy(segment=400, batch=100)


class Disk:
    """A disk with room for so many bytes, which then raises `error`. It takes a part of a write, as a real one does."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room: float = float("inf")
        self.error = errno.ENOSPC
        self._write = os.pwrite
        patch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, descriptor: int, octets: bytes, offset: int) -> int:
        # Bytes that exist already take no room.
        there = max(0, min(len(octets), os.fstat(descriptor).st_size - offset))
        size = min(len(octets), int(min(self.room, 1 << 40)) + there)
        if not size:
            raise OSError(self.error, os.strerror(self.error))
        self.room -= size - there
        return self._write(descriptor, bytes(octets[:size]), offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path, policy=POLICY) as store:
        yield store


@pytest.fixture
def journal(store: Store) -> Journal:
    return store.open("a")


def sizes(journal: Journal) -> dict[str, int]:
    return {
        path.name: size
        for path in journal.directory.iterdir()
        if path.suffix in (".log", ".idx") and (size := path.stat().st_size)
    }


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_at_all(error: int, journal: Journal, disk: Disk) -> None:
    expected = append(journal, b"a")
    before = sizes(journal)
    disk.room = 0
    disk.error = error
    for _ in range(3):
        with pytest.raises(JournalFull, match=f"no room in .*: {os.strerror(error)}; it goes on when there is room"):
            append(journal, b"b")
    assert sizes(journal) == before
    assert (journal.last, journal.failed) == (1, "")
    disk.room = float("inf")
    expected += append(journal, b"b")
    assert list(consistent(journal).values()) == expected


@pytest.mark.parametrize("room", range(0, 500, 7))
def test_room_for_a_part(room: int, journal: Journal, disk: Disk) -> None:
    """One batch, several, or one that begins a new segment; the log does not fit, or the index."""
    expected = append(journal, b"a" * 200)
    for bodies in ([b"b" * 30], [b"b" * 50] * 6, [b"b" * 300]):
        before = sizes(journal)
        disk.room = room
        last = journal.last
        try:
            expected += append(journal, *bodies)
        except JournalFull:
            assert (journal.last, journal.failed) == (last, "")
            assert sizes(journal) == before
        disk.room = float("inf")
        assert list(consistent(journal).values()) == expected
    expected += append(journal, b"c" * 10)
    assert list(consistent(journal).values()) == expected


def test_entries_that_others_may_have_seen_are_not_taken_back(journal: Journal, disk: Disk) -> None:
    """No entry is readable before there is room for all of them."""
    made = block(1, [b"b" * 50] * 6)
    index = journal.directory / "00000000000000000001.idx"
    seen: list[bytes] = []
    truncate = os.ftruncate

    def ftruncate(descriptor: int, size: int) -> None:
        seen.append(index.read_bytes())
        truncate(descriptor, size)

    disk.room = len(made.octets) + 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(JournalFull):
            journal.append(made, 1.0)
    assert seen[0] == bytes(100)


def test_no_room_for_a_new_segment(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = append(journal, b"a" * 390)
    before = sizes(journal)
    opened = os.open
    for suffix in (".log", ".idx", ".cnt"):

        def refuse(path: str, flags: int, mode: int = 0o777, suffix: str = suffix) -> int:
            if str(path).endswith(suffix):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return opened(path, flags, mode)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(JournalFull):
                append(journal, b"b")
        assert sizes(journal) == before
    expected += append(journal, b"b")
    assert list(consistent(journal).values()) == expected


def test_an_active_segment_without_messages_leaves_the_last_time(store: Store, journal: Journal, disk: Disk) -> None:
    append(journal, b"a" * 390, now=5.0)
    append(journal, b"b" * 390, now=9.0)
    disk.room = RECORD  # for the head of the counts
    with pytest.raises(JournalFull):
        append(journal, b"c", now=10.0)
    disk.room = float("inf")
    assert journal.segments[-1].entries == 0
    journal.policy = Policy(segment=400, keep_bytes=0)
    assert journal.retain(100.0) == 1
    journal.close()
    journal = store.open("a")
    append(journal, b"c", now=1.0)
    assert journal.last_time == 9_000_000


def test_no_room_for_the_mark(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(JournalFull):
            append(journal, b"a")
    assert sizes(journal) == {}
    append(journal, b"a")
    assert (journal.directory / MARK).exists()


def test_a_partial_write_that_cannot_be_cut_off_stops_the_stream(store: Store, journal: Journal, disk: Disk) -> None:
    expected = append(journal, b"a")
    disk.room = 10

    def fail(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(JournalError, match="is stopped: the part that a failed write left could not be cut off"):
            append(journal, b"b")
    disk.room = float("inf")
    with pytest.raises(JournalError, match="is stopped"):
        append(journal, b"b")
    assert journal.failed
    journal.close()
    assert list(consistent(store.open("a")).values()) == expected


def test_other_errors_are_not_taken_for_want_of_room(journal: Journal, disk: Disk) -> None:
    append(journal, b"a")
    disk.room, disk.error = 0, errno.EIO
    with pytest.raises(JournalError, match=r"cannot write to .*: Input/output error") as raised:
        append(journal, b"b")
    assert not isinstance(raised.value, JournalFull)
    assert journal.failed == ""


def test_a_system_that_takes_a_write_in_pieces(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, octets, offset: write(fd, bytes(octets[:7]), offset))
    expected = append(journal, b"a" * 30, b"b" * 30)
    expected += append(journal, *[b"c" * 50] * 4)
    monkeypatch.undo()
    assert list(consistent(journal).values()) == expected


@given(st.lists(st.tuples(st.lists(st.integers(0, 120), min_size=1, max_size=5), st.none() | st.integers(0, 600))))
def test_all_messages_that_fit_are_there(attempts: list[tuple[list[int], int | None]]) -> None:
    with directory() as path, pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        with Store(path, policy=POLICY) as store:
            journal = store.open("a")
            expected = []
            for of, room in attempts:
                disk.room = float("inf") if room is None else room
                try:
                    expected += append(journal, *[b"x" * size for size in of])
                except JournalFull:
                    assert room is not None
                assert journal.last == len(expected)
            disk.room = float("inf")
            assert list(consistent(journal).values()) == expected
        with Store(path) as store:
            assert list(consistent(store.open("a")).values()) == expected


LIMITED = """
import resource, sys
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.block import deliver
from zambezi.zeps.messages import Publish

resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
with Store(sys.argv[1]) as store:
    journal = store.open("a")
    try:
        while True:
            journal.append(deliver([Publish("k", b"x" * 333).encode()[0]] * 2, journal.last + 1), 1.0)
    except JournalFull as error:
        print(error)
    last = journal.last
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append(deliver([Publish("k", b"y").encode()[0]], journal.last + 1), 1.0)
    print(last)
"""


def test_a_real_limit(tmp_path: Path) -> None:
    """The kernel's limit on the size of a file, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    told, last = done.stdout.splitlines()
    assert "no room in" in told
    assert "File too large" in told
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert journal.problems == []
        assert len(consistent(journal)) == int(last) + 1 > 20


def test_a_full_file_system(tmp_path: Path) -> None:
    """A file system in memory with 256 KiB, if the test may mount one."""
    command = [
        "unshare", "--mount", "--map-root-user", "sh", "-c",
        f'mount -t tmpfs -o size=256k none "$1" && exec "{sys.executable}" -c "$2" "$1"',
        "sh", str(tmp_path), FILLING,
    ]  # fmt: skip
    try:
        probe = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", str(tmp_path)]
        subprocess.run(probe, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "full, and on again\n"


FILLING = """
import os
import sys
from pathlib import Path
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.block import deliver
from zambezi.zeps.messages import Publish

ballast = Path(sys.argv[1], "ballast")
ballast.write_bytes(bytes(100_000))
with Store(sys.argv[1], policy=Policy(segment=40_000)) as store:
    journal = store.open("a")

    def fill():
        try:
            while True:
                journal.append(deliver([Publish("k", b"x" * 500).encode()[0]] * 3, journal.last + 1), 1.0)
        except JournalFull as error:
            assert "No space left" in str(error), error
        return journal.last

    def check():
        check_from(0)

    def check_from(position):
        reader = journal.reader(position)
        while (span := reader.peek(65536)) is not None:
            made = span.read()
            assert len(made.starts) == span.count + 1
            reader.skip(span)
        assert reader.position == journal.last

    before = fill()
    assert before > 100
    check()
    assert fill() == before
    ballast.unlink()
    after = fill()
    assert after > before + 50
    check()

    # An operator makes room: nothing is free, and the only segment to trim is the one that is being written.
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    assert os.statvfs(sys.argv[1]).f_bavail == 0
    journal.trim(after + 1)
    assert journal.first == after + 1 and len(journal.segments) == 1, journal.segments
    assert fill() > after + 50
    after = journal.last
    check_from(journal.first - 1)
with Store(sys.argv[1]) as store:
    journal = store.open("a")
    assert journal.last == after and journal.problems == [], journal.problems
    check_from(journal.first - 1)
print("full, and on again")
"""
