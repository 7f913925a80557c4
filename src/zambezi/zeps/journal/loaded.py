"""Segments of a cache: messages that were read from an object store, as files like those of other segments.

They are not synced to the disk. After a crash of the system they do not count (see `recovery`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal.counts import COUNTS
from zambezi.zeps.journal.entry import Cuts, IndexEntry
from zambezi.zeps.journal.files import fresh_path, open_file
from zambezi.zeps.journal.identity import Identity, remove_mark, sync_directory, write_identity
from zambezi.zeps.journal.keytable import KEYS
from zambezi.zeps.journal.segment import INDEX, LOG, Segment, found_names, write_all

Octets = TypeVar("Octets", bytes, memoryview)


def clip(entries: Sequence[IndexEntry], octets: Octets, low: int, high: int) -> tuple[list[IndexEntry], Octets | bytes]:
    """Return the batches with messages from `low` to `high` only. The offsets count from the beginning of the bytes."""
    kept = [entry for entry in entries if entry.last >= low and entry.first <= high]
    if not kept:
        return [], b""
    begin, end = kept[0].offset, kept[-1].end
    part = octets[begin:end] if begin or end < len(octets) else octets
    kept = [entry._replace(offset=entry.offset - begin) for entry in kept] if begin else kept
    if kept[0].first < low or kept[-1].last > high:
        return _cut_ends(kept, memoryview(part), low, high)
    return kept, part


def _cut_ends(entries: list[IndexEntry], octets: memoryview, low: int, high: int) -> tuple[list[IndexEntry], bytes]:
    """Cut the first and the last batch."""
    pieces: list[bytes | memoryview] = []
    kept = []
    offset = 0
    for entry in entries:
        batch: bytes | memoryview = octets[entry.offset : entry.end]
        part = entry
        if entry.first < low or entry.last > high:
            part, batch = _cut(entry, bytes(batch), max(low, entry.first), min(high, entry.last))
        kept.append(part._replace(offset=offset))
        pieces.append(batch)
        offset += len(batch)
    return kept, b"".join(pieces)


def _cut(entry: IndexEntry, batch: bytes, first: int, last: int) -> tuple[IndexEntry, bytes]:
    """Return the part of a batch from one sequence to another one."""
    cuts = Cuts.of(Block(entry.first, entry.last, entry.count, batch, entry.credit))
    start, stop = cuts.index_of(first), cuts.index_of(last + 1)
    part = batch[cuts.starts[start] : cuts.starts[stop]]
    count = stop - start
    cut = entry._replace(
        first=first,
        count=count,
        gap=last - first + 1 - count,
        length=len(part),
        credit=cuts.spent[stop] - cuts.spent[start],
        crc=crc32(part),
    )
    return cut, part


def reset_cache(directory: Path, identity: Identity, first: int) -> None:
    """Remove all messages of a cache that is no copy of its stream; the next message will be `first`. Blocks.

    The positions of readers stay. The caller has closed the journal.
    """
    for suffix in (LOG, INDEX, COUNTS, KEYS):
        for name in found_names(directory, suffix):
            (directory / f"{name}{suffix}").unlink(missing_ok=True)
    Segment(str(directory), first).create()
    write_identity(directory, identity)
    remove_mark(directory)
    sync_directory(directory)


def write_segment(directory: str, entries: Sequence[IndexEntry], octets: bytes | memoryview, revision: int) -> Segment:
    """Write messages as a segment, and return it; raise `JournalFull` if there is no room. Blocks."""
    segment = Segment(directory, entries[0].first, revision)
    index = b"".join([entry.pack() for entry in entries])
    try:
        for suffix, content in ((INDEX, index), (LOG, octets)):
            _write(fresh_path(segment.path + suffix), content)
        for suffix in (INDEX, LOG):
            fresh_path(segment.path + suffix).rename(segment.path + suffix)
    except OSError as error:
        for suffix in (INDEX, LOG):
            with contextlib.suppress(OSError):
                fresh_path(segment.path + suffix).unlink(missing_ok=True)
        raise JournalFull(f"{segment.path}{LOG} cannot be written: {error.strerror or error}") from error
    segment.note_append(entries[-1].last, len(octets), entries[-1].time, len(entries))
    segment.first_time = entries[0].time
    segment.removed = sum([entry.gap for entry in entries])
    return segment


def _write(path: Path, content: bytes | memoryview) -> None:
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(descriptor, content, 0)
    finally:
        os.close(descriptor)
