"""zambezi.zeps.journal.segment: the files of a segment."""

import os
from pathlib import Path

import pytest

from tests.zeps.journal.streams import block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import SIZE, split_block
from zambezi.zeps.journal.segment import (
    INDEX,
    LOG,
    Files,
    Name,
    PartialWrite,
    Segment,
    found_names,
    name_of,
    without_replaced,
)


def written(directory: Path, batches: list[list[bytes]], first: int = 1) -> tuple[Segment, Files]:
    """A segment with batches that were written one after another, at the times 1, 2, 3..."""
    segment = Segment(str(directory), first)
    files = segment.create()
    for number, bodies in enumerate(batches, 1):
        made = block(segment.last + 1, bodies)
        entries = list(split_block(made, segment.size, number, 1 << 20))
        segment.write(files, made.octets, b"".join(entry.pack() for entry in entries))
        segment.note_append(made.last, len(made.octets), number, len(entries))
    return segment, files


def facts(segment: Segment) -> tuple[int, ...]:
    return segment.last, segment.entries, segment.size, segment.first_time, segment.last_time


BATCHES = [[b"a", b"b"], [b"c"], [b"d", b"e", b"f"]]


def test_names_of_files() -> None:
    assert str(Name(41)) == "00000000000000000041"
    for name in (Name(41), Name(41, 3)):
        assert name_of(f"{name}{LOG}") == name_of(f"{name}{INDEX}", INDEX) == name
    plain = str(Name(41))
    others = ("41.log", plain, plain + INDEX, f"{Name(0)}{LOG}", "x" * 20 + LOG, plain + ".log.new", plain + "-.log")
    for other in (*others, plain + "-0.log", plain + "-01.log", plain + "-x.log", plain + "-" + "1" * 19 + LOG):
        assert name_of(other) is None
    assert sorted([f"{Name(9)}", f"{Name(10)}", f"{Name(1 << 62)}"]) == [f"{Name(one)}" for one in (9, 10, 1 << 62)]


def test_the_segments_of_a_directory(tmp_path: Path) -> None:
    for first in (30, 4):
        Segment(str(tmp_path), first).create()
    (tmp_path / "stream.json").touch()
    assert found_names(tmp_path) == found_names(tmp_path, INDEX) == [Name(4), Name(30)]
    with pytest.raises(JournalError, match="the stream was deleted"):
        found_names(tmp_path / "gone")


def test_a_segment_is_read_as_it_was_written(tmp_path: Path) -> None:
    segment, files = written(tmp_path, BATCHES, first=7)
    again = Segment(str(tmp_path), 7)
    again.read_extent(files)
    assert facts(again) == facts(segment)
    assert facts(again)[:2] == (12, 3)
    assert again.is_whole(files, 13)
    assert not again.is_whole(files, 14)
    assert "sequences 13 to 13 are missing" in again.describe_gap(14)


@pytest.mark.parametrize("tail", [b"\0" * 10, bytes(SIZE), b"x" * SIZE])
def test_an_unfinished_entry_does_not_count(tail: bytes, tmp_path: Path) -> None:
    segment, files = written(tmp_path, BATCHES)
    os.pwrite(files.index, tail, segment.entries * SIZE)
    again = Segment(str(tmp_path), 1)
    again.read_extent(files)
    assert facts(again) == facts(segment)


def test_an_index_of_another_segment_does_not_count(tmp_path: Path) -> None:
    _, files = written(tmp_path, BATCHES, first=3)
    other = Segment(str(tmp_path), 1)
    other.read_extent(files)
    assert facts(other) == (0, 0, 0, 0, 0)


def test_a_sequence_or_a_time_is_located(tmp_path: Path) -> None:
    segment, files = written(tmp_path, BATCHES)
    assert [segment.locate(files, sequence) for sequence in range(1, 7)] == [0, 0, 1, 2, 2, 2]
    assert [segment.locate_time(files, time) for time in range(5)] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("last", range(7))
def test_a_segment_is_cut_after_a_sequence(last: int, tmp_path: Path) -> None:
    segment, files = written(tmp_path, BATCHES)
    log = Path(segment.path + LOG).read_bytes()
    segment.cut_after(files, last)
    assert segment.last == last
    assert segment.is_whole(files, last + 1)
    kept = Path(segment.path + LOG).read_bytes()
    assert log.startswith(kept)
    assert kept == block(1, [body for batch in BATCHES for body in batch][:last]).octets if last else kept == b""


def test_a_failed_write_that_cannot_be_cut_off_says_so(tmp_path: Path) -> None:
    """`test_full` has the failed writes that can be cut off."""
    segment, files = written(tmp_path, BATCHES)
    made = block(segment.last + 1, [b"new"])
    (entry,) = split_block(made, segment.size, 9, 1 << 20)
    with pytest.raises(PartialWrite, match="could not be cut off"):
        segment.write(Files(segment.path), made.octets, entry.pack())  # these files are open for reading only
    assert segment.is_whole(files, segment.last + 1)


def _made(first: int, last: int, revision: int = 0) -> Segment:
    segment = Segment("x", first, revision)
    segment.last = last
    return segment


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([(1, 9), (10, 19), (20, 19)], [(1, 0), (10, 0), (20, 0)]),
        ([(1, 9), (1, 19, 1), (10, 19), (20, 19)], [(1, 1), (20, 0)]),  # two became one
        ([(1, 9), (5, 9, 1), (10, 19)], [(5, 1), (10, 0)]),  # a trim
        ([(1, 9, 1), (1, 30, 2), (10, 19, 1), (20, 30), (31, 40)], [(1, 2), (31, 0)]),
        ([(1, 0), (1, 9, 1)], [(1, 1)]),
    ],
)
def test_of_segments_that_overlap_the_one_with_the_higher_revision_counts(
    given: list[tuple[int, ...]], kept: list[tuple[int, int]]
) -> None:
    found, replaced = without_replaced([_made(*one) for one in given])
    assert [(one.first, one.revision) for one in found] == kept
    assert len(found) + len(replaced) == len(given)
