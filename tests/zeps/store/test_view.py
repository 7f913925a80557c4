"""zambezi.zeps.store.view: what two LISTs tell about a log."""

import pytest

from tests.zeps.store.shelf import PLACE, Shelf
from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.store.chunk import FOOTER
from zambezi.zeps.store.commands import Procedure, Put, StoredObject
from zambezi.zeps.store.names import SegmentName
from zambezi.zeps.store.view import View, look, look_and_read


def view(chunks: list[int], *segments: tuple[int, int, int], fences: tuple[int, ...] = (), octets: int = 10) -> View:
    """Return a view; a segment is its last chunk, its first and its last sequence, and has some bytes of messages."""
    found = [StoredObject(PLACE.chunk(number), FOOTER if number in fences else 500, 0.0) for number in chunks]
    names = [SegmentName(chunk, first, last, 1, 1, octets) for chunk, first, last in segments]
    return View.of(found, [StoredObject(PLACE.segment(name), 600, 0.0) for name in names])


def readable(found: View) -> list[tuple[int, int]]:
    return [(segment.name.first, segment.name.last) for segment in found.readable]


def test_an_empty_log_begins_with_chunk_1() -> None:
    assert view([]).following == 1
    assert view([]).is_whole
    assert view([]).readable == []


def test_the_tail_begins_after_the_last_segment() -> None:
    found = view([3, 4, 5], (3, 1, 9))
    assert [chunk.number for chunk in found.tail] == [4, 5]
    assert found.following == 6
    assert view([], (3, 1, 9)).following == 4


@pytest.mark.parametrize(
    ("chunks", "segments"),
    [
        ([1, 2, 4], []),  # a number below is missing
        ([1, 2, 3, 4], []),  # a chunk above exists
        ([3], [(3, 1, 9)]),  # a segment reaches it
        ([3], [(5, 1, 9)]),
        ([], []),
    ],
)
def test_a_fence_is_void(chunks: list[int], segments: list[tuple[int, int, int]]) -> None:
    assert view(chunks, *segments).is_void(4 if 2 in chunks and 3 not in chunks else 3)


def test_a_fence_at_the_end_of_a_whole_log_is_valid() -> None:
    assert not view([1, 2, 3]).is_void(3)
    assert not view([6], (5, 1, 9)).is_void(6)


def named_chunk(number: int, first: int, last: int) -> StoredObject:
    return StoredObject(PLACE.listed(SegmentName(number, first, last, 1, 1, 10, is_chunk=True)), 0, 0.0)


def test_a_segment_that_is_a_chunk_counts_with_its_chunk_only() -> None:
    chunks = [StoredObject(PLACE.chunk(2), 500, 0.0), StoredObject(PLACE.chunk(3), FOOTER, 0.0)]
    found = View.of(chunks, [named_chunk(2, 1, 9), named_chunk(3, 10, 19), named_chunk(4, 20, 29)])
    assert [(one.name.last_chunk, one.size) for one in found.segments] == [(2, 500)]
    assert [one.name.last_chunk for one in found.void] == [3, 4]  # a void fence, and no chunk
    assert found.leftovers == found.void
    assert found.merged_chunks == []  # the chunk has the bytes of the segment
    assert found.reached == 2


def test_a_segment_whose_chunk_is_put_between_the_lists_is_found() -> None:
    steps = look(PLACE)
    next(steps)
    steps.send([])  # the chunks
    steps.send([named_chunk(2, 1, 9)])  # the segments: the chunk was put meanwhile
    steps.send([StoredObject(PLACE.chunk(2), 500, 0.0)])
    with pytest.raises(StopIteration) as end:
        steps.send([named_chunk(2, 1, 9)])
    assert end.value.value.reached == 2


def test_a_segment_whose_chunk_is_gone_is_listed_twice_only() -> None:
    shelf = Shelf()
    shelf.execute(Put(named_chunk(2, 1, 9).key, b""))
    assert shelf.view().segments == []
    assert len(shelf.requests) == 1 + 4


def test_segments_that_overlap_are_read_without_what_others_cover() -> None:
    found = view([], (3, 1, 10), (4, 5, 14), (6, 11, 20), (7, 18, 30))
    assert readable(found) == [(1, 10), (11, 20), (18, 30)]
    assert readable(view([], (3, 1, 10), (4, 2, 8), (6, 9, 20), (7, 3, 30))) == [(1, 10), (3, 30)]
    assert readable(view([], (3, 5, 10), (3, 1, 10))) == [(1, 10)]


def test_segments_before_a_gap_are_leftovers() -> None:
    found = view([], (3, 1, 10), (6, 12, 20), (7, 21, 30))
    assert readable(found) == [(12, 20), (21, 30)]
    assert [segment.name.first for segment in found.leftovers] == [1]


def test_merged_chunks_are_leftovers_and_fences_are_not() -> None:
    found = view([1, 2, 3, 4], (3, 1, 9), fences=(2,))
    assert [chunk.number for chunk in found.merged_chunks] == [1, 3]


def test_keys_that_no_broker_writes_are_strange() -> None:
    found = View.of([StoredObject(PLACE.chunks + "/readme", 1, 0.0)], [StoredObject(PLACE.segments + "/x", 1, 0.0)])
    assert len(found.strange) == 2
    assert found.following == 1


def test_objects_that_do_not_fit_the_same_listing_again_and_again_are_damaged() -> None:
    shelf = Shelf()
    looks = []

    def read(found: View) -> Procedure[str | None]:
        looks.append(found)
        yield from ()
        return None

    with pytest.raises(StoreDamaged, match="cannot be read"):
        shelf.run(look_and_read(PLACE, read))
    assert len(looks) == 3
