"""Trimming: the removal of all messages before a sequence, to the message.

Retention removes whole segments. An operator who trims a stream means a certain message, which is usually inside a
segment. So the end of that segment is copied to a new one, which begins with the message; then the old one is removed.
The new files get their names when the disk has all of them, the log last. If a crash leaves both segments behind, the
new one has the higher revision, and recovery removes the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from zambezi.zeps.journal.counts import COUNTS, NO_PUBLISHER, Counts, Recount, read_places
from zambezi.zeps.journal.entry import SIZE, IndexEntry, unpack
from zambezi.zeps.journal.files import fresh_path
from zambezi.zeps.journal.identity import sync_directory
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment, write_pieces

_PIECE: Final = 1 << 20
_CHUNK: Final = 1024  # entries that are read at once


def copy_end(segment: Segment, first: int, limit: int, check: Callable[[], object]) -> Segment:
    """Return a new segment with the messages of a closed one from a sequence on. `limit` is that of its counts.

    The copy calls `check` now and then, and ends with the error that `check` raises.
    """
    files = Files(segment.path)
    number = segment.locate(files, first)
    entry = unpack(files.read_entries(number, 1))
    if entry is None:
        raise segment.damage_error(number)
    cuts = segment.read_cuts(files, entry)
    begin = entry.offset + cuts.starts[cuts.index_of(first)]
    new = Segment(str(Path(segment.path).parent), first, segment.revision + 1)
    pieces = {INDEX: _index_from(segment, files, number, first), LOG: _log_from(segment, files, begin)}
    if Path(segment.path + COUNTS).exists():  # old segments have none
        pieces = {COUNTS: _counts_from(segment, first, limit), **pieces}
    try:
        for suffix, content in pieces.items():
            write_pieces(fresh_path(new.path + suffix), _checked(content, check))
    except BaseException:
        for suffix in pieces:
            fresh_path(new.path + suffix).unlink(missing_ok=True)
        raise
    for suffix in pieces:
        fresh_path(new.path + suffix).rename(new.path + suffix)
    sync_directory(Path(new.path).parent)
    new.read_extent(Files(new.path))
    return new


def _checked(pieces: Iterator[bytes], check: Callable[[], object]) -> Iterator[bytes]:
    for octets in pieces:
        check()
        yield octets


def _counts_from(segment: Segment, first: int, limit: int) -> Iterator[bytes]:
    before = Recount(Counts(limit))
    before.read(segment.path, first - 1)
    if not before.snapshot:
        # The counts are of a later part of a segment that was compacted: they stay as they are.
        yield from (place.octets for place in read_places(segment.path))
        return
    yield before.counts.snapshot(first)
    for place in read_places(segment.path):
        if place.record is not None and place.record.last >= first and place.record.publisher != NO_PUBLISHER:
            yield place.octets


def _index_from(segment: Segment, files: Files, number: int, first: int) -> Iterator[bytes]:
    offset = removed = 0
    while number < segment.entries and (octets := files.read_entries(number, min(_CHUNK, segment.entries - number))):
        moved = []
        for position in range(0, len(octets), SIZE):
            entry = unpack(octets, position)
            if entry is None:
                raise segment.damage_error(number + position // SIZE)
            if entry.first < first:
                entry = _end_of(segment, files, entry, first)
            moved.append(entry._replace(offset=offset, removed=removed).pack())
            offset += entry.length
            removed += entry.gap
        yield b"".join(moved)
        number += len(octets) // SIZE


def _end_of(segment: Segment, files: Files, entry: IndexEntry, first: int) -> IndexEntry:
    """Return the entry of a batch without its messages before a sequence."""
    cuts = segment.read_cuts(files, entry)
    skipped = cuts.index_of(first)
    start = cuts.starts[skipped]
    return entry._replace(
        first=first,
        count=entry.count - skipped,
        gap=entry.last - first + 1 - (entry.count - skipped),
        length=entry.length - start,
        credit=entry.credit - cuts.spent[skipped],
        crc=crc32(files.read_log(entry.offset + start, entry.length - start)),
        publishers=0,
    )


def _log_from(segment: Segment, files: Files, begin: int) -> Iterator[bytes]:
    while begin < segment.size:
        octets = files.read_log(begin, min(_PIECE, segment.size - begin))
        if not octets:
            raise segment.damage_error(segment.entries - 1)
        yield octets
        begin += len(octets)
