"""zambezi.zeps.journal.files: regular files only, small ones by size, and private to one user."""

import contextlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, held
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.files import SMALL, NotRegular, make_private, open_file, read_small, write_small
from zambezi.zeps.journal.identity import MARK, STREAM
from zambezi.zeps.journal.verify import verify

FIRST = "00000000000000000001"


def _link(path: Path) -> None:
    path.symlink_to("/dev/zero")


STRANGE: dict[str, Callable[[Path], object]] = {"fifo": os.mkfifo, "directory": Path.mkdir, "link": _link}


def modes(path: Path) -> set[tuple[bool, int]]:
    """Whether it is a directory, and its permissions, of everything below a path."""
    found = [path, *path.rglob("*")]
    return {(one.is_dir(), stat.S_IMODE(one.lstat().st_mode)) for one in found}


def open_paths() -> set[str]:
    """Return the paths of the files that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    return found


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT])
def test_only_regular_files_are_opened(kind: str, flags: int, tmp_path: Path) -> None:
    STRANGE[kind](tmp_path / "it")
    with pytest.raises(NotRegular, match="it is not a regular file; move it away"):
        open_file(tmp_path / "it", flags)
    # Only this file: other threads and the garbage collector open and close theirs at any time.
    assert str((tmp_path / "it").resolve()) not in open_paths()


def test_a_small_file_is_not_read_if_it_is_large(tmp_path: Path) -> None:
    path = tmp_path / "it"
    write_small(path, b"x" * SMALL, sync=True)
    assert read_small(path) == b"x" * SMALL
    os.truncate(path, 1 << 40)  # it takes no room on the disk
    with pytest.raises(ValueError, match="it has more than 65536 bytes"):
        read_small(path)


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", [STREAM, MARK, f"{FIRST}.log", f"{FIRST}.idx"])
def test_a_stream_with_a_strange_file_is_an_error(kind: str, name: str, tmp_path: Path) -> None:
    """For the broker and for the commands: none waits for the other end of a FIFO."""
    with Store(tmp_path) as store:
        append(store.open("a"), b"one")
        append(store.open("b"), b"one")
    path = tmp_path / "a" / name
    path.unlink(missing_ok=True)
    STRANGE[kind](path)
    with Store(tmp_path) as store:
        names = store.names()
        with pytest.raises(JournalError, match="not a regular file; move it away") as raised:
            store.open("a")
        assert name in str(raised.value)
        assert len(held(store.open("b"))) == 1
    with Store(tmp_path, write=False) as store:
        assert store.names() == names
        if name.endswith((".log", ".idx")):
            journal = store.open("a")
            assert "not a regular file" in journal.problems[0]
            assert not held(journal)
            assert not list(verify(journal))


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_lock_is_an_error(kind: str, tmp_path: Path) -> None:
    STRANGE[kind](tmp_path / ".lock")
    with pytest.raises(JournalError, match="lock cannot be used: it is not a regular file"):
        Store(tmp_path)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_the_files_are_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with Store(tmp_path / "data") as store:
            journal = store.open("a")
            append(journal, b"one")
            journal.sync()
            assert modes(tmp_path / "data") == {(True, 0o700), (False, 0o600)}
    finally:
        os.umask(before)


def test_an_open_data_directory_is_made_private_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zambezi.zeps")
    data = tmp_path / "data"
    with Store(data) as store:
        append(store.open("a"), b"one")
    assert not caplog.records
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (data / "link").symlink_to("/etc")
    with Store(data):
        pass
    assert "other users could read 7 files and directories" in caplog.text
    (data / "link").unlink()
    assert modes(data) == {(True, 0o700), (False, 0o600)}
    caplog.clear()
    with Store(data):
        pass
    assert not caplog.records
    assert make_private(data) == 0
