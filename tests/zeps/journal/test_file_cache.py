"""zambezi.zeps.journal.file_cache: the files that are open, up to a limit, and without descriptors."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.effort import cases
from tests.zeps.journal.streams import append, directory, held
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.file_cache import LEAST, MOST, FileCache, open_segments
from zambezi.zeps.journal.segment import Segment


def test_the_cache_keeps_the_files_that_were_used_last(tmp_path: Path) -> None:
    segments = [Segment(str(tmp_path), first) for first in (1, 2, 3)]
    for segment in segments:
        segment.create()
    cache = FileCache(2)
    first = cache.files(segments[0])
    second = cache.files(segments[1])
    assert cache.files(segments[0]) is first
    cache.files(segments[2])
    assert cache.files(segments[0]) is first
    assert cache.files(segments[1]) is not second
    os.fstat(second.log)  # it is open as long as the caller has it
    kept = cache.files(segments[1])
    cache.drop(segments[1])
    assert cache.files(segments[1]) is not kept
    descriptor = first.log
    cache.clear()
    del first
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_limit_is_a_share_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((64, LEAST), (1024, 85), (1 << 20, MOST), (resource.RLIM_INFINITY, MOST)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert open_segments() == FileCache().limit == most


def _exhausted(times: int, action: Callable[..., int]) -> Callable[..., int]:
    """Return an `os.open` that fails some times, as in a process without descriptors."""
    left = [times]

    def refuse(*arguments: object) -> int:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return action(*arguments)

    return refuse


def test_without_descriptors_the_oldest_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [Segment(str(tmp_path), first) for first in range(1, 6)]
    cache = FileCache(10)
    kept = [cache.create(segment, b"").log for segment in segments]
    monkeypatch.setattr(os, "open", _exhausted(3, os.open))
    cache.create(Segment(str(tmp_path), 9), b"")
    assert len(cache) == 3  # the last two, and the new one
    for descriptor in kept[3:]:
        os.fstat(descriptor)


def test_a_process_without_any_descriptor_holds_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on when there are descriptors again."""
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, b"one")
        store._file_cache.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", _exhausted(100, os.open))
            with pytest.raises(JournalFull, match="Too many open files; it goes on when there is room again"):
                append(journal, b"two")
        append(journal, b"two")
        assert journal.sync() == 2
        assert len(held(journal)) == 2


MANY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
os.fsync = os.fdatasync = lambda descriptor: None
from tests.zeps.journal.streams import append, directory, held
from zambezi.zeps.journal import Store

def used():
    return len(os.listdir("/proc/self/fd"))

begin = used()
for turn in (1, 2):
    with Store(sys.argv[1]) as store:
        names = store.names() if turn == 2 else [f"s{number}" for number in range(int(sys.argv[2]))]
        journals = [store.open(name) for name in names]
        for number, journal in enumerate(journals):
            append(journal, journal.name.encode())
            assert number % 100 or used() - begin <= 2 * 32 + 4, used()
        for journal in journals:
            name = journal.name.encode()
            assert [message[-len(name):] for message in held(journal).values()] == [name] * turn
            journal.sync()
    assert used() == begin
print(len(names))
"""


COUNT = cases(2000)


def test_thousands_of_streams_need_few_descriptors() -> None:
    """All of them are written, read, synced, closed and opened again, in a process with 256 descriptors."""
    with directory() as path:
        command = [sys.executable, "-c", MANY, path, str(COUNT)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr[-1000:]) == (f"{COUNT}\n", "")
