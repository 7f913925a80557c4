"""The repair of damaged batches in a journal, from an object store that has a copy of the stream.

The index of a journal has the CRC of every batch. So bytes of the store prove that they are the right ones. The journal
must be opened to read only: a broker that opens it to write cuts off a damaged end, and then the journal is another
incarnation than that of the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from zambezi.zeps.errors import OutOfRange, StoreDamaged, StoreError
from zambezi.zeps.journal import Journal
from zambezi.zeps.journal.entry import IndexEntry, unpack
from zambezi.zeps.journal.loaded import clip
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment, write_all
from zambezi.zeps.journal.verify import crc_of
from zambezi.zeps.store.backing import PIECE
from zambezi.zeps.store.catalog import StoredStream
from zambezi.zeps.store.copying import incarnation_of
from zambezi.zeps.store.pieces import read_piece
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.shell import ObjectStore


def mend_journal(store: ObjectStore, stream: StoredStream, journal: Journal) -> Iterator[str]:
    """Repair the damaged batches, and yield what was done and what could not be done. Blocks."""
    reader = LogReader(stream.place)
    store.run(reader.refresh())
    stored = incarnation_of(stream, reader.incarnation)
    if stored != journal.incarnation:
        raise StoreError(
            f"the store has incarnation {stored} of stream {journal.name!a}, and {journal.directory} is "
            f"{journal.incarnation}: their sequences may stand for other messages"
        )
    for segment in journal.segments:
        yield from _mend_segment(store, reader, segment, is_last=segment is journal.segments[-1])


def _mend_segment(store: ObjectStore, reader: LogReader, segment: Segment, *, is_last: bool) -> Iterator[str]:
    files = Files(segment.path, os.O_RDWR)
    name = Path(segment.path).name
    is_changed = False
    for number in range(segment.entries):
        entry = unpack(files.read_entries(number, 1))
        if entry is None and is_last:
            break  # a crash can leave an unfinished end, which the next broker cuts off
        if entry is None:
            yield f"{name}{INDEX}: entry {number} is damaged, and is not repaired: use `zambezi journal repair` first"
            break
        if crc_of(files, entry) == entry.crc:
            continue
        batch = f"{name}{LOG}: the batch of {entry.first} to {entry.last}"
        try:
            write_all(files.log, _read_batch(store, reader, entry), entry.offset)
        except (StoreDamaged, OutOfRange) as problem:
            end = "; the next broker cuts off the end if it cannot repair it" if is_last else ""
            yield f"{batch} is not repaired: {problem}{end}"
        else:
            is_changed = True
            yield f"{batch} is restored"
    if is_changed:
        files.sync(with_counts=False)


def _read_batch(store: ObjectStore, reader: LogReader, entry: IndexEntry) -> bytes:
    """Return the bytes of a batch that the store has: perhaps in several batches."""
    found: list[bytes] = []
    sequence = entry.first
    while sequence <= entry.last:
        piece = store.run(read_piece(reader, sequence, PIECE))
        if piece is None:
            raise StoreDamaged(f"the store has no sequence {sequence}")
        entries, octets = clip(piece.entries, piece.octets, sequence, entry.last)
        if not entries:
            raise StoreDamaged(f"the store has no sequence {sequence}")
        found.append(bytes(octets))
        sequence = entries[-1].last + 1
    whole = b"".join(found)
    if len(whole) != entry.length or crc32(whole) != entry.crc:
        raise StoreDamaged("the store has other bytes")
    return whole
