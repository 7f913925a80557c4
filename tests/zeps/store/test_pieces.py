"""zambezi.zeps.store.pieces: pieces of segments and of chunks, whatever is merged meanwhile."""

from __future__ import annotations

import pytest

from tests.zeps.store.shelf import PLACE, Shelf
from zambezi.zeps.errors import OutOfRange, StoreDamaged
from zambezi.zeps.store.pieces import LoadedPiece, read_piece
from zambezi.zeps.store.reader import LogReader, Part
from zambezi.zeps.store.stream_log import LogSettings

SETTINGS = LogSettings(commit=0.0, segment=4000, chunks=1000)


def opened(shelf: Shelf) -> LogReader:
    reader = LogReader(PLACE)
    shelf.run(reader.refresh())
    return reader


def read(shelf: Shelf, reader: LogReader, sequence: int, size: int) -> LoadedPiece:
    piece = shelf.run(read_piece(reader, sequence, size))
    assert piece is not None
    assert piece.first <= sequence <= piece.last
    assert sum(entry.length for entry in piece.entries) == len(piece.octets)
    return piece


def test_readers_of_different_messages_get_the_same_piece() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SETTINGS)
    for number in range(60):
        shelf.publish(log, bytes([number]) * 100)
    reader = opened(shelf)
    segment = reader.segments[0]
    places = [read(shelf, reader, sequence, 1000) for sequence in range(segment.first, segment.last + 1)]
    spans = sorted({(piece.first, piece.last) for piece in places})
    assert len(spans) == pytest.approx(segment.octets / 1000, abs=1)
    assert [last + 1 for _, last in spans[:-1]] == [first for first, _ in spans[1:]]


def test_a_piece_has_several_chunks() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SETTINGS)
    for number in range(10):
        shelf.publish(log, bytes([number]) * 100)
    reader = opened(shelf)
    piece = read(shelf, reader, 3, 500)
    assert (piece.first, piece.last) == (3, 6)
    assert (read(shelf, reader, 10, 500).last, shelf.run(read_piece(reader, 11, 500))) == (10, None)


def test_chunks_that_are_merged_meanwhile_are_read_from_the_segment() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SETTINGS)
    for number in range(8):
        shelf.publish(log, bytes([number]) * 100)
    reader = opened(shelf)
    before = read(shelf, reader, 5, 100)
    chunk = shelf.run(reader.find_part(5))
    assert chunk is not None
    for number in range(60):
        shelf.publish(log, bytes([number]) * 100)
    assert chunk.key not in shelf.store.objects
    after = read(shelf, reader, 5, 100)
    assert bytes(before.octets) in bytes(after.octets)


def read_all(shelf: Shelf, part: Part) -> None:
    for sequence in range(part.first, part.last + 1):
        shelf.run(read_piece(opened(shelf), sequence, 1000))


def test_damage_in_any_part_is_found() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SETTINGS)
    for number in range(60):
        shelf.publish(log, bytes([number]) * 100)
    reader = opened(shelf)
    for part in (reader.segments[0], shelf.run(reader.find_part(60))):
        assert part is not None
        content, time = shelf.store.objects[part.key]
        for at in (0, part.octets - 1, part.octets + 5):
            shelf.store.objects[part.key] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], time
            with pytest.raises(StoreDamaged):
                read_all(shelf, part)
        shelf.store.objects[part.key] = content, time


def test_messages_that_retention_has_removed_are_out_of_range() -> None:
    shelf = Shelf()
    log = shelf.log(settings=SETTINGS)
    for number in range(200):
        shelf.publish(log, bytes([number]) * 100)
    reader = opened(shelf)
    log.sweep(100, None)
    shelf.settle(log)
    with pytest.raises(OutOfRange, match="not kept any more"):
        shelf.run(read_piece(reader, 1, 1000))
