"""zambezi.zeps.journal.restore: damaged segments get the bytes of a copy that have their CRC."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, consistent
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.restore import restore, restore_missing
from zambezi.zeps.journal.verify import Checked, verify

POLICY = Policy(segment=450)  # three batches
LATE = 4e9  # entries that a repair creates get the time of the entry before: no file is younger


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


DAMAGES: dict[str, Callable[[Path], object]] = {"flip": _flip, "cut": _cut, "grow": _grow}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a stream of several segments, and a copy of it beside."""
    with Store(tmp_path / "data", policy=POLICY) as store:
        for number in range(10, 28):
            append(store.open("a"), *[b"%d" % number * 10] * 3, now=LATE)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    return tmp_path / "data"


def content(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (path / "a").iterdir()}


def damages(path: Path) -> list[str]:
    with Store(path, write=False) as store:
        return [str(found) for found in verify(store.open("a")) if not isinstance(found, Checked)]


def mend(data: Path, *, copy: bool = True) -> list[str]:
    """Restore the stream, and return what was said."""
    done: list[str] = []
    with Store(data.parent / "copy", write=False) as other:
        if copy:
            with Store(data, policy=POLICY) as store:
                done += restore_missing(store.open("a"), other.open("a"))
        with Store(data, policy=POLICY) as store:
            done += restore(store.open("a"), other.open("a") if copy else None)
    return done


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".log", ".idx"])
def test_a_copy_restores_every_byte(damage: str, suffix: str, data: Path) -> None:
    before = content(data)
    for path in sorted((data / "a").glob(f"*{suffix}"))[1:3]:
        DAMAGES[damage](path)
    assert damages(data)
    mend(data)
    assert damages(data) == []
    if (damage, suffix) != ("cut", ".idx"):  # such an index is created again as soon as the stream is opened
        assert content(data) == before
    assert mend(data) == []


def test_a_missing_segment_is_copied(data: Path) -> None:
    before = content(data)
    for path in sorted((data / "a").glob("*.*"))[3:6]:
        path.unlink()
    assert damages(data)
    assert "copied, it was missing" in mend(data)[0]
    assert damages(data) == []
    assert content(data) == before


def test_a_damaged_copy_is_not_used(data: Path) -> None:
    name = sorted((data / "a").glob("*.log"))[1].name
    for directory in (data, data.parent / "copy"):
        _flip(directory / "a" / name)
    (told,) = mend(data)
    assert "is not repaired: no copy has its bytes" in told
    assert len(damages(data)) == 1


def test_without_a_copy_an_index_is_created_from_the_log(data: Path) -> None:
    _flip(sorted((data / "a").glob("*.idx"))[1])
    (told,) = mend(data, copy=False)
    assert "created again from the log" in told
    assert damages(data) == []
    with Store(data, policy=POLICY) as store:
        assert len(consistent(store.open("a"))) == 54


def test_a_copy_of_another_stream_is_refused(data: Path) -> None:
    shutil.rmtree(data.parent / "copy")
    with Store(data.parent / "copy", policy=POLICY) as store:
        append(store.open("a"), b"other")
    with pytest.raises(JournalError, match="their sequences may stand for other messages; use another copy"):
        mend(data)
