"""zambezi.spark.lake.disk: files and directories that survive a power failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zambezi.spark.lake import disk
from zambezi.spark.lake.disk import DiskError, make, sync


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
