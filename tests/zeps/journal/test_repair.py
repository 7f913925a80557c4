"""zambezi.zeps.journal.repair: each case of its table, by itself. `test_recovery` has them all together, at random."""

import os
from pathlib import Path
from zlib import crc32

import pytest

from tests.zeps.journal.streams import block
from tests.zeps.journal.test_segment import written
from zambezi.zeps.journal.entry import SIZE, unpack
from zambezi.zeps.journal.repair import Diagnosis, apply_repair, examine_segment
from zambezi.zeps.journal.segment import Files, Segment

BATCHES = [[b"a", b"b"], [b"c"], [b"d", b"e", b"f"]]
ENTRY = len(block(1, [b"a"]).octets)  # bytes of a message in the log


@pytest.fixture
def segment(tmp_path: Path) -> tuple[Segment, Files]:
    return written(tmp_path, BATCHES)


def examine(segment: tuple[Segment, Files], *, thorough: bool = False) -> Diagnosis:
    """Examine a segment, and see that this changes nothing."""
    found, files = segment
    before = [os.pread(descriptor, 1 << 20, 0) for descriptor in (files.log, files.index)]
    diagnosis = examine_segment(found, files, 1 << 20, thorough=thorough)
    assert [os.pread(descriptor, 1 << 20, 0) for descriptor in (files.log, files.index)] == before
    return diagnosis


def repaired(segment: tuple[Segment, Files], diagnosis: Diagnosis) -> list[tuple[int, int]]:
    """Repair a segment; return the first and last sequences of its entries. A second repair has nothing to do."""
    found, files = segment
    assert apply_repair(files, diagnosis, cut_log=True)
    found.read_extent(files)
    assert found.is_whole(files, diagnosis.last_kept + 1)
    assert not apply_repair(files, examine(segment, thorough=True), cut_log=True)
    entries = [unpack(files.read_entries(number, 1)) for number in range(found.entries)]
    assert all(
        entry is not None and crc32(os.pread(files.log, entry.length, entry.offset)) == entry.crc for entry in entries
    )
    return [(entry.first, entry.last) for entry in entries if entry is not None]


@pytest.mark.parametrize("thorough", [False, True])
def test_a_good_segment_needs_no_repair(segment: tuple[Segment, Files], thorough: bool) -> None:
    diagnosis = examine(segment, thorough=thorough)
    assert (diagnosis.good, diagnosis.last_kept, diagnosis.new, diagnosis.is_lossy) == (3, 6, [], False)
    assert not apply_repair(segment[1], diagnosis, cut_log=True)


def test_an_index_that_ends_inside_an_entry(segment: tuple[Segment, Files]) -> None:
    os.ftruncate(segment[1].index, 2 * SIZE + 7)
    diagnosis = examine(segment)
    assert not diagnosis.is_lossy
    assert repaired(segment, diagnosis) == [(1, 2), (3, 3), (4, 6)]


def test_a_log_that_continues_after_the_last_entry(segment: tuple[Segment, Files]) -> None:
    found, files = segment
    os.pwrite(files.log, block(7, [b"g", b"h"]).octets[:-1], found.size)
    diagnosis = examine(segment)
    assert not diagnosis.is_lossy
    assert repaired(segment, diagnosis) == [(1, 2), (3, 3), (4, 6), (7, 7)]


def test_a_log_that_ends_inside_a_batch(segment: tuple[Segment, Files]) -> None:
    os.ftruncate(segment[1].log, segment[0].size - ENTRY - 1)
    diagnosis = examine(segment)
    assert diagnosis.is_lossy
    assert (diagnosis.last_kept, diagnosis.last_promised) == (4, 6)
    assert diagnosis.new[0].time == 3, "the time of the entry that it replaces"
    assert repaired(segment, diagnosis) == [(1, 2), (3, 3), (4, 4)]


def test_a_batch_that_does_not_have_its_crc(segment: tuple[Segment, Files]) -> None:
    os.pwrite(segment[1].log, b"X", 3 * ENTRY - 1)
    assert examine(segment).last_kept == 6, "the last entry is good, and a killed process cannot damage others"
    diagnosis = examine(segment, thorough=True)
    assert diagnosis.corrupt is not None
    assert diagnosis.corrupt.first == 3
    assert diagnosis.is_lossy
    assert repaired(segment, diagnosis) == [(1, 2)]


@pytest.mark.parametrize("content", [b"", b"something else" * 100])
def test_an_index_that_is_missing_or_is_not_one(segment: tuple[Segment, Files], content: bytes) -> None:
    os.ftruncate(segment[1].index, 0)
    os.pwrite(segment[1].index, content, 0)
    diagnosis = examine(segment)
    assert not diagnosis.is_lossy
    assert repaired(segment, diagnosis) == [(1, 6)]


def test_the_log_of_an_old_segment_is_not_cut(segment: tuple[Segment, Files]) -> None:
    found, files = segment
    os.pwrite(files.log, b"no message", found.size)
    diagnosis = examine_segment(found, files, 1 << 20, thorough=True, check_log=False)
    assert not apply_repair(files, diagnosis, cut_log=False)
    assert os.fstat(files.log).st_size == found.size + 10
