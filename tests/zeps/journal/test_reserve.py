"""zambezi.zeps.journal.reserve: on a full disk an operator can still trim a stream, and change its settings."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zeps.journal.streams import append, consistent
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.reserve import RESERVE, keep_reserve, with_reserve

POLICY = Policy(sync="never", segment=400, batch=150)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk:
    """A disk on which nothing fits while the reserve exists, and `room` bytes of new files when it was given up."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, room: int = 0) -> None:
        self.room = room
        self._reserve = directory / RESERVE
        for name in ("segment.write_all", "identity.write_small", "trim.write_pieces"):
            module, function = name.split(".")
            target = getattr(import_module(f"zambezi.zeps.journal.{module}"), function)
            patch.setattr(f"zambezi.zeps.journal.{name}", self._limited(target))

    def _limited(self, function: Callable[..., object]) -> Callable[..., object]:
        def write(place: object, content: Any, *others: object, **options: object) -> object:
            is_whole = isinstance(content, bytes)
            octets = content if is_whole else b"".join(content)
            if self._reserve.exists() or len(octets) > self.room:
                raise full()
            self.room -= len(octets)
            return function(place, octets if is_whole else [octets], *others, **options)

        return write


def filled(store: Store) -> Journal:
    journal = store.open("a")
    for number in range(12):
        append(journal, *[b"x" * 50] * 3, now=1.0 + number)
    assert len(journal.segments) > 4
    return journal


def test_a_data_directory_has_a_reserve(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        blocks = (tmp_path / RESERVE).stat().st_blocks
        assert blocks * 512 >= 1024 * 1024
        (tmp_path / RESERVE).unlink()
        assert store.keep_reserve()
        assert store.names() == []
    assert (tmp_path / RESERVE).stat().st_blocks == blocks  # for the next start


def test_a_disk_with_little_room_gets_no_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(f_blocks=1 << 20, f_frsize=4096, f_bavail=511)
    monkeypatch.setattr(os, "statvfs", lambda _: state)
    assert not keep_reserve(tmp_path)
    state.f_bavail = 512
    assert keep_reserve(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RESERVE]


def test_a_file_system_that_cannot_reserve_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise full()

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert not keep_reserve(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_a_full_disk_uses_the_reserve_and_only_once(tmp_path: Path) -> None:
    errors = [PermissionError(errno.EACCES, "no"), full(), None, full()]

    def write() -> str:
        if (error := errors.pop(0)) is not None:
            raise error
        return "written"

    assert keep_reserve(tmp_path)
    with pytest.raises(PermissionError):
        with_reserve(tmp_path, write)
    assert (tmp_path / RESERVE).exists()
    assert with_reserve(tmp_path, write) == "written"
    assert not (tmp_path / RESERVE).exists()
    with pytest.raises(OSError, match="No space left"):
        with_reserve(tmp_path, write)


def test_a_trim_between_segments_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = filled(store)
        first = journal.segments[3].first
        expected = {sequence: octets for sequence, octets in consistent(journal).items() if sequence >= first}
        with monkeypatch.context() as patch:
            FullDisk(tmp_path, patch)
            journal.trim(first)
        assert consistent(journal) == expected
        assert (tmp_path / RESERVE).exists()


def test_retention_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = filled(store)
        with monkeypatch.context() as patch:
            FullDisk(tmp_path, patch)
            journal.policy = Policy(sync="never", segment=400, keep_bytes=0)
            assert journal.retain(100.0)
        assert len(journal.segments) == 1
        assert (tmp_path / RESERVE).exists()


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_trim_of_a_full_disk_uses_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """The active segment has messages to remove: the first bytes of a new one, and the rest, are in the reserve."""
    with Store(tmp_path, policy=POLICY) as store:
        journal = filled(store)
        first = journal.last + 1 - left
        expected = {sequence: octets for sequence, octets in consistent(journal).items() if sequence >= first}
        with monkeypatch.context() as patch:
            FullDisk(tmp_path, patch, room=1000)
            journal.trim(first)
        assert consistent(journal) == expected
        assert not (tmp_path / RESERVE).exists()
        append(journal, b"new")
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert (journal.first, journal.last, journal.problems) == (first, 37, [])


def test_a_trim_without_room_for_the_rest_says_what_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = filled(store)
        whole, following = journal.segments[2].first, journal.segments[3].first
        before = consistent(journal)
        with monkeypatch.context() as patch:
            FullDisk(tmp_path, patch, room=10)
            with pytest.raises(JournalFull, match=f"begins with {whole} now.*to begin with {following} needs no room"):
                journal.trim(whole + 1)
            assert journal.first == whole
            assert consistent(journal) == {key: value for key, value in before.items() if key >= whole}
            journal.trim(following)
        assert consistent(journal) == {key: value for key, value in before.items() if key >= following}


def test_the_settings_of_a_stream_can_be_changed_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = filled(store)
        with monkeypatch.context() as patch:
            FullDisk(tmp_path, patch, room=1000)
            store.edit("a", {"keep_bytes": 65536})
        assert journal.policy.keep_bytes == 65536


def test_a_full_disk_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        expected = consistent(filled(store))

    def refuse(*_: object) -> int:
        raise full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with Store(tmp_path, policy=POLICY) as store:
            assert consistent(store.open("a")) == expected
