"""zambezi.zeps.journal.identity: `stream.json`, and the mark `unsynced`."""

import os
from pathlib import Path
from uuid import UUID

import pytest

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.identity import (
    FAILED,
    MARK,
    STREAM,
    DamagedIdentity,
    Identity,
    Mark,
    advance_mark,
    boot_id,
    mark_failed,
    read_identity,
    read_mark,
    remove_mark,
    replace_file,
    write_identity,
    write_mark,
)

WHO = Identity("prices \u20ac", UUID(int=7))


def test_an_identity_comes_back(tmp_path: Path) -> None:
    write_identity(tmp_path, WHO)
    assert read_identity(tmp_path) == WHO
    assert [path.name for path in tmp_path.iterdir()] == [STREAM]


def test_a_renewed_identity_has_the_name_and_another_incarnation() -> None:
    again = WHO.renewed()
    assert again.name == WHO.name
    assert again.incarnation != WHO.incarnation


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 3}', b'{"format": 3, "name": 3, "incarnation": "x"}']
)
def test_a_damaged_identity(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DamagedIdentity, match="is missing"):
        read_identity(tmp_path)
    (tmp_path / STREAM).write_bytes(content)
    with pytest.raises(DamagedIdentity, match="is damaged"):
        read_identity(tmp_path)


def test_an_unknown_format_is_not_damage(tmp_path: Path) -> None:
    (tmp_path / STREAM).write_text('{"format": 4}')
    with pytest.raises(JournalError, match="unknown format 4") as caught:
        read_identity(tmp_path)
    assert not isinstance(caught.value, DamagedIdentity)


def test_a_file_that_cannot_be_replaced_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_the_mark(tmp_path: Path) -> None:
    assert read_mark(tmp_path) is None
    write_mark(tmp_path, 7)
    assert read_mark(tmp_path) == Mark(boot_id(), 7)
    advance_mark(tmp_path, 9)
    assert read_mark(tmp_path) == Mark(boot_id(), 9)
    mark_failed(tmp_path, 8)
    assert read_mark(tmp_path) == Mark(FAILED, 8)
    remove_mark(tmp_path)
    remove_mark(tmp_path)
    assert read_mark(tmp_path) is None


def test_a_process_that_is_killed_while_it_writes_the_mark_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", kill)  # the file was created, and has no content
        with pytest.raises(Killed):
            write_mark(tmp_path, 5)
    assert read_mark(tmp_path) is None


def test_a_mark_that_the_disk_does_not_have_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_mark(tmp_path, 0)
    assert not (tmp_path / MARK).exists()
