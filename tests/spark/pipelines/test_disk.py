"""zambezi.spark.pipelines.disk: one run at a time writes to a directory, and written files are synced."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from zambezi.spark.pipelines import disk
from zambezi.spark.pipelines.disk import DiskError, InUse, Lock, make, sync

HOLDS = """
import sys
from pathlib import Path
from zambezi.spark.pipelines.disk import Lock
lock = Lock(Path(sys.argv[1]), ".own")
lock.take()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(InUse) as caught:
                Lock(tmp_path, ".own").take()
            other.kill()
            other.wait(60)
            lock = Lock(tmp_path, ".own")
            lock.take()  # what it left does not hinder
            lock.release()
        finally:
            other.kill()
    told = str(caught.value)
    assert f"{tmp_path} is being written to by process {other.pid} on {socket.gethostname()}, since 20" in told
    assert "UTC: wait until that run ends, stop it, or choose another directory (--out)" in told


def test_a_lock_holds_within_a_process_too(tmp_path: Path) -> None:
    first, second = Lock(tmp_path, ".own"), Lock(tmp_path, ".own")
    first.take()
    for one in (first, second):
        with pytest.raises(InUse, match=f"process {os.getpid()} on .*, which is this one: wait"):
            one.take()
    second.release()  # it holds nothing
    with pytest.raises(InUse):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_child_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path, ".own")
    lock.take()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as child:
        try:
            lock.release()
            lock.take()
            lock.release()
        finally:
            child.kill()


def test_a_disk_without_locks_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unable(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unable)
    lock = Lock(tmp_path, ".own")
    lock.take()
    lock.release()
    assert "cannot be locked" in caplog.text
    assert "make sure that only one run at a time writes there" in caplog.text


def test_new_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync", synced.append)
    make(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert set(synced) == {tmp_path / "a" / "b", tmp_path / "a", tmp_path}
    synced.clear()
    make(tmp_path / "a" / "b" / "c")
    assert synced == []


def test_a_failed_fsync_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = errno.EIO

    def fsync(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DiskError, match="fsync failed, so its content may not be on disk: Input/output error"):
        sync(tmp_path)
    code = errno.EINVAL  # a disk that does not know how
    sync(tmp_path)
