"""zambezi.zeps.journal.verify: every changed byte is found."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import append, block, directory
from zambezi.zeps.journal import IndexEntry, Policy, Store
from zambezi.zeps.journal.entry import SIZE
from zambezi.zeps.journal.verify import Checked, Damage, Unfinished, verify

POLICY = Policy(segment=300, batch=120)


def written(path: str | Path) -> list[Path]:
    """Write a stream of several segments, and return its files."""
    with Store(path, policy=POLICY) as store:
        journal = store.open("a")
        for number in range(9):
            append(journal, b"%d" % number * 30, b"x" * 40, now=number + 1)
        return sorted(journal.directory.glob("0*"))


def found(path: str | Path) -> list[Checked | Damage | Unfinished]:
    with Store(path, write=False) as store:
        return list(verify(store.open("a")))


def wrong(path: str | Path) -> list[str]:
    return [str(one) for one in found(path) if isinstance(one, Damage)]


def test_all_is_well(tmp_path: Path) -> None:
    written(tmp_path)
    results = found(tmp_path)
    assert all(isinstance(one, Checked) for one in results)
    assert [one.entry.first for one in results if isinstance(one, Checked)] == list(range(1, 18, 2))


def test_an_empty_stream_is_well(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.open("a")
    assert found(tmp_path) == []


@given(st.integers(0, 1 << 30), st.integers(0, 7))
def test_one_wrong_bit_anywhere_is_found(place: int, bit: int) -> None:
    with directory() as path:
        files = written(path)
        sizes = [file.stat().st_size for file in files]
        place %= sum(sizes)
        file = files[0]
        for file, size in zip(files, sizes, strict=True):  # noqa: B007, the one that it ends with counts
            if place < size:
                break
            place -= size
        octets = bytearray(file.read_bytes())
        octets[place] ^= 1 << bit
        file.write_bytes(octets)
        results = found(path)
        assert [one for one in results if not isinstance(one, Checked)]
        # In the last segment it can look like an unfinished write of a broker; everywhere else it is damage.
        if file not in files[-3:]:
            assert wrong(path)


@given(st.integers(0, 1 << 30))
def test_a_cut_anywhere_is_found(place: int) -> None:
    with directory() as path:
        files = written(path)
        file = files[place % len(files)]
        os.truncate(file, place % file.stat().st_size)
        assert [one for one in found(path) if not isinstance(one, Checked)]
        if file not in files[-3:]:
            assert wrong(path)


def test_where_the_damage_is(tmp_path: Path) -> None:
    first = written(tmp_path)[2]
    octets = bytearray(first.read_bytes())
    octets[100] ^= 1
    first.write_bytes(octets)
    assert wrong(tmp_path) == [f"{first}, byte 0: the batch of 1 to 2 does not have its CRC"]


def test_a_missing_segment(tmp_path: Path) -> None:
    files = written(tmp_path)
    for file in files[3:6]:
        file.unlink()
    assert [problem for problem in wrong(tmp_path) if "sequences 5 to 8 are missing before it" in problem]


def test_a_missing_index(tmp_path: Path) -> None:
    files = written(tmp_path)
    files[4].unlink()
    assert wrong(tmp_path)


def test_a_last_log_that_was_cut(tmp_path: Path) -> None:
    log = written(tmp_path)[-1]
    os.truncate(log, 10)
    assert [problem for problem in wrong(tmp_path) if "the log ends at byte 10" in problem]


def test_bytes_that_are_being_written_are_no_damage(tmp_path: Path) -> None:
    index, log = written(tmp_path)[-2:]
    for path in (index, log):
        with path.open("ab") as file:
            file.write(b"on its way")
    assert wrong(tmp_path) == []
    notes = [str(one) for one in found(tmp_path) if isinstance(one, Unfinished)]
    assert len(notes) == 2
    assert all("10 bytes at the end are not finished" in note for note in notes)


def test_messages_appended_meanwhile_are_no_damage(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store, Store(tmp_path, write=False) as reading:
        journal = store.open("a")
        append(journal, b"a")
        copy = reading.open("a")
        append(journal, b"b")
        assert [type(one) for one in verify(copy)] == [Checked]


def test_segments_removed_meanwhile_are_no_damage(tmp_path: Path) -> None:
    written(tmp_path)
    with Store(tmp_path, policy=Policy(keep_bytes=0)) as store, Store(tmp_path, write=False) as reading:
        copy = reading.open("a")
        copy._file_cache.clear()
        store.open("a").retain(1.0)
        assert {type(one) for one in verify(copy)} == {Checked}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"first": 7}, "the entry is for sequence 7, not 2"),
        ({"offset": 7}, "the entry is for byte 7 of the log, not 22"),
        ({"time": 5}, "the time goes back from 1000000 to 5"),
    ],
)
def test_entries_that_do_not_follow(change: dict[str, int], problem: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        append(journal, b"a")
        append(journal, b"b")
        append(journal, b"c")
        path = journal.directory / "00000000000000000001.idx"
        octets = bytearray(path.read_bytes())
        entry = journal.entries()[1]._replace(**change)
        octets[SIZE : 2 * SIZE] = entry.pack()
        path.write_bytes(octets)
    assert f"{path}, byte {SIZE}: {problem}" in wrong(tmp_path)


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (block(1, [b"a"]).octets + block(3, [b"b"]).octets, "has sequence 3 instead of 2"),
        (block(1, [b"a"]).octets + b"nothing", "has no valid message after sequence 1"),
        (block(1, [b"a"]).octets, "has no valid message after sequence 1"),
    ],
)
def test_a_batch_that_was_written_wrong(octets: bytes, problem: str, tmp_path: Path) -> None:
    """The CRC is right, but the program that wrote the batch was wrong."""
    from zlib import crc32

    with Store(tmp_path) as store:
        path = store.open("a").directory / "00000000000000000001"
    path.with_suffix(".log").write_bytes(octets)
    path.with_suffix(".idx").write_bytes(IndexEntry(1, 0, 1, 2, len(octets), 20, crc32(octets)).pack())
    assert wrong(tmp_path) == [f"{path}.log, byte 0: the batch of 1 to 2 {problem}"]
