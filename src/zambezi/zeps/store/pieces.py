"""Pieces of a stream in the store, for a disk that is a cache of it: some megabytes at a time, and every CRC checked.

A piece of a segment is a part of its log whose place does not depend on who asks: readers that want different messages
of it get the same piece. Chunks are small: a piece has several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.journal.entry import SIZE, IndexEntry, count_before, unpack
from zambezi.zeps.layout import SEQUENCE
from zambezi.zeps.store.chunk import check_batches, unpack_messages
from zambezi.zeps.store.commands import MISSING, Get, Procedure, ask_all, compute, view
from zambezi.zeps.store.reader import LogReader, OpenedPart, Part

_OFFSET_AT: Final = 8  # of the offset, in an entry
_MOST_ENTRIES: Final = 1 << 16  # of a piece
_MOST_CHUNKS: Final = 64  # of a piece


class LoadedPiece(NamedTuple):
    """Consecutive batches: their entries, with offsets from the beginning of the bytes, and the bytes."""

    entries: Sequence[IndexEntry]
    octets: memoryview

    @property
    def first(self) -> int:
        return self.entries[0].first

    @property
    def last(self) -> int:
        return self.entries[-1].last


def read_piece(reader: LogReader, sequence: int, size: int) -> Procedure[LoadedPiece | None]:
    """Return a piece that has a sequence, of about `size` bytes; None at the end of the log as the reader knows it."""
    return reader.retry(sequence - 1, partial(_read_piece, reader, size))


def _read_piece(reader: LogReader, size: int, sequence: int) -> Procedure[LoadedPiece | None]:
    part = yield from reader.find_part(sequence)
    if part is None:
        return None
    if not part.is_segment:
        return (yield from _read_chunks(reader, part, size))
    opened = yield from reader.open(sequence)
    if opened is None:
        return None
    start, stop = _range_of(opened, sequence, size)
    entries = _entries_of(opened, start, stop)
    begin = entries[0].offset
    octets = yield from view(part.key, begin, entries[-1].end - begin)
    if octets is None:
        return None
    entries = [entry._replace(offset=entry.offset - begin) for entry in entries]
    return (yield from compute(partial(_checked, entries, octets, part.key)))


def _range_of(opened: OpenedPart, sequence: int, size: int) -> tuple[int, int]:
    """Return the numbers of the entries of a piece: those that begin in the same `size` bytes of the log."""
    index = opened.index
    count = len(index) // SIZE

    def field(number: int, at: int) -> int:
        return int(SEQUENCE.unpack_from(index, number * SIZE + at)[0])

    wanted = count_before(count, lambda number: field(number, 0) <= sequence) - 1
    begin = field(max(0, wanted), _OFFSET_AT) // size * size
    start = count_before(count, lambda number: field(number, _OFFSET_AT) < begin)
    stop = count_before(count, lambda number: field(number, _OFFSET_AT) < begin + size)
    if stop - start > _MOST_ENTRIES:
        start += (wanted - start) // _MOST_ENTRIES * _MOST_ENTRIES
        stop = min(stop, start + _MOST_ENTRIES)
    return start, max(start + 1, stop)


def _entries_of(opened: OpenedPart, start: int, stop: int) -> list[IndexEntry]:
    entries: list[IndexEntry] = []
    for number in range(start, stop):
        entry = unpack(opened.index, number * SIZE)
        if entry is None or (entries and (entry.first, entry.offset) != (entries[-1].last + 1, entries[-1].end)):
            raise StoreDamaged(f"{opened.part.key} has an index that is damaged at entry {number}")
        entries.append(entry)
    if not entries:
        raise StoreDamaged(f"{opened.part.key} has no entries")
    return entries


def _checked(entries: Sequence[IndexEntry], octets: bytes | memoryview, key: str) -> LoadedPiece:
    """Return a piece whose batches have their CRCs."""
    check_batches(octets, entries, key)
    return LoadedPiece([entry._replace(publishers=0, removed=0) for entry in entries], memoryview(octets))


def _read_chunks(reader: LogReader, first: Part, size: int) -> Procedure[LoadedPiece | None]:
    """Read whole chunks, from one on."""
    parts = [first]
    total = first.octets
    while (following := (yield from reader.find_part(parts[-1].last + 1))) is not None and not following.is_segment:
        total += following.octets
        if total > size or len(parts) == _MOST_CHUNKS:
            break
        parts.append(following)
    answers = yield from ask_all([Get(part.key, as_view=True) for part in parts])
    if MISSING in answers:
        return None
    return (yield from compute(partial(_join_chunks, parts, answers)))


def _join_chunks(parts: Sequence[Part], answers: Sequence[bytes | memoryview]) -> LoadedPiece:
    entries: list[IndexEntry] = []
    logs: list[memoryview] = []
    offset = 0
    for part, octets in zip(parts, answers, strict=True):
        footer, found = unpack_messages(octets, part.key)
        if (footer.first, footer.last) != (part.first, part.last):
            raise StoreDamaged(f"{part.key} is another chunk than the one that was listed")
        entries += [entry._replace(offset=entry.offset + offset, publishers=0, removed=0) for entry in found]
        logs.append(memoryview(octets)[: footer.log])
        offset += footer.log
    return LoadedPiece(entries, logs[0] if len(logs) == 1 else memoryview(b"".join(logs)))
