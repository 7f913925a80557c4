"""zambezi.zeps.store.chunk: the bytes of objects. No bytes made by hand are taken for messages."""

from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.store.shelf import piece
from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.positions import READER, Position
from zambezi.zeps.store.chunk import (
    FOOTER,
    Author,
    Ending,
    Kind,
    pack_chunk,
    pack_fence,
    pack_segment,
    piece_of_counts,
    piece_of_positions,
    unpack_footer,
    unpack_object,
)

AUTHOR = Author(b"o" * 16, 7, b"I" * 16)
COUNT = Count(b"p" * 16, 1, 2)
RECORD = Position(READER, "reader", 5).pack()


def sample() -> bytes:
    pieces = [piece(5, b"a", b"b", counts=[COUNT]), piece(7, b"c")]
    return b"".join(pack_chunk(AUTHOR, 8, pieces, Ending(b"", RECORD), 5, 0))


def test_a_chunk_has_the_messages_and_counts_of_its_pieces() -> None:
    chunk = unpack_object(sample(), "chunk")
    assert (chunk.footer.first, chunk.footer.last, chunk.footer.number, chunk.footer.epoch) == (5, 7, 8, 7)
    assert [entry.first for entry in chunk.entries] == [5, 7]
    assert chunk.octets == piece(5, b"a", b"b").octets + piece(7, b"c").octets
    assert len(chunk.records) == 80
    assert chunk.ending == Ending(b"", RECORD)
    assert chunk.footer.kind is Kind.DATA


def test_counts_without_messages_are_a_chunk_too() -> None:
    chunk = unpack_object(b"".join(pack_chunk(AUTHOR, 9, [piece_of_counts([COUNT], 7, 5)], Ending(), 8, 3)), "chunk")
    assert (chunk.footer.first, chunk.footer.last, chunk.footer.count, chunk.footer.last_time) == (8, 7, 0, 3)


def test_a_chunk_can_have_a_snapshot_of_the_publishers() -> None:
    snapshot = piece_of_counts([COUNT], 7, 5).records
    chunk = unpack_object(b"".join(pack_chunk(AUTHOR, 8, [piece(5, b"a")], Ending(snapshot), 5, 0)), "chunk")
    assert (chunk.ending, chunk.records) == (Ending(snapshot), b"")


def test_a_fence_is_a_footer_only() -> None:
    for kind in (Kind.FENCE, Kind.RELEASE, Kind.DELETION):
        octets = pack_fence(kind, AUTHOR, 9)
        assert len(octets) == FOOTER
        assert unpack_object(octets, "fence").footer.kind is kind


def test_a_segment_has_its_name_in_its_footer() -> None:
    octets = pack_segment(AUTHOR, 12, [piece(5, b"a")], Ending(), 5, 0)
    name = unpack_footer(octets, "segment").segment_name
    assert (name.first, name.last, name.last_chunk) == (5, 5, 12)
    empty = unpack_object(pack_segment(AUTHOR, 12, [], Ending(), 6, 3), "segment")
    assert (empty.footer.first, empty.footer.last) == (6, 5)


@given(st.integers(0, len(sample()) - 1), st.integers(1, 255))
def test_every_changed_byte_is_found(place: int, change: int) -> None:
    octets = bytearray(sample())
    octets[place] ^= change
    with pytest.raises(StoreDamaged, match="chunk"):
        unpack_object(bytes(octets), "chunk")


@given(st.integers(0, len(sample()) - 1))
def test_every_cut_is_found(length: int) -> None:
    with pytest.raises(StoreDamaged):
        unpack_object(sample()[:length], "chunk")


def test_an_index_that_does_not_fit_is_found() -> None:
    body = sample()[:-FOOTER]
    footer = unpack_footer(sample(), "chunk")
    assert footer.crc == crc32(body[footer.log :])
    wrong = [
        replace(footer, first=6),
        replace(footer, count=2),
        replace(footer, log=footer.log - 1, index=footer.index + 1),
    ]
    for changed in wrong:
        with pytest.raises(StoreDamaged):
            unpack_object(body + changed.pack(), "chunk")


def test_a_footer_of_a_newer_release_or_with_impossible_numbers_is_refused() -> None:
    footer = unpack_footer(sample(), "chunk")
    with pytest.raises(StoreDamaged, match="impossible"):
        unpack_footer(replace(footer, log=1 << 63).pack(), "chunk")
    with pytest.raises(StoreDamaged, match="fence with"):
        unpack_footer(replace(footer, kind=Kind.FENCE).pack(), "chunk")
    with pytest.raises(StoreDamaged, match="kind, 9"):
        unpack_footer(replace(footer, kind=9).pack(), "chunk")  # type: ignore[arg-type]


def test_positions_that_are_no_records_are_found() -> None:
    body = sample()[:-FOOTER]
    wrong = body[: -len(RECORD)] + b"x" * len(RECORD)
    footer = unpack_footer(sample(), "chunk")
    footer = replace(footer, crc=crc32(wrong[footer.log :]))
    with pytest.raises(StoreDamaged, match="record of a position"):
        unpack_object(wrong + footer.pack(), "chunk")


def test_a_segment_has_its_own_positions_and_not_those_of_its_pieces() -> None:
    octets = pack_segment(AUTHOR, 12, [piece_of_positions(RECORD)], Ending(b"", RECORD + RECORD), 5, 0)
    assert unpack_object(octets, "segment").ending.positions == RECORD + RECORD
