"""The bytes of chunks, fences and segments. All of them have one format:

    log        DELIVER messages with their frame headers, as in the log of a journal
    index      an entry of 64 bytes for each batch, as in the index of a journal; offsets count from the log's beginning
    records    the counts of publishers, 80 bytes each, in the order of the batches
    snapshot   the last record of each publisher; segments have one, and chunks that can become segments as they are
    positions  records as in the file of positions of a journal: the changes, or with a snapshot all that count
    footer     136 bytes: see `Footer`

A fence is a footer and nothing else, and every other object is longer: so a LIST, which tells sizes, tells fences.

Each byte is in one CRC, so that writing needs one pass over the messages: an entry has the CRC of its batch, and the
footer that of the parts after the log. The footer has a CRC of its own, too, because it is often read alone; so have
entries and records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.journal.counts import RECORD, Count
from zambezi.zeps.journal.counts import pack as pack_count
from zambezi.zeps.journal.counts import unpack as unpack_count
from zambezi.zeps.journal.entry import HIGHEST, SIZE, IndexEntry, pack_entries, unpack
from zambezi.zeps.journal.positions import walk
from zambezi.zeps.store.names import SegmentName

FORMAT: Final = 1
MAGIC: Final = b"ZCHK"
NOBODY: Final = bytes(16)  # as the owner: the stream is released
UNCHANGED: Final = bytes(16)  # as the incarnation: that of the objects before
_FOOTER: Final = Struct(">4sBBHQ16s16s10QI")
_CHECK: Final = Struct(">I")
FOOTER: Final = _FOOTER.size + _CHECK.size


class Kind(IntEnum):
    """The kinds of objects."""

    DATA = 1
    FENCE = 2  # a broker takes the stream
    RELEASE = 3  # the owner gives the stream up: everything it confirmed is below
    DELETION = 4  # the stream is deleted: nothing above counts
    SEGMENT = 5


@dataclass(frozen=True, slots=True)
class Footer:
    """The end of each object."""

    kind: Kind
    epoch: int  # the number of the owner's fence
    owner: bytes  # the id of the broker that wrote the object, 16 bytes; of a segment, the owner of its last chunk
    incarnation: bytes  # of the stream, 16 bytes; zeros in a fence that does not change it
    number: int  # of the chunk; of a segment, that of its last chunk
    first: int = 0  # the sequence of the first message; of an object without messages, the next one, or 0 in a fence
    count: int = 0  # of messages
    first_time: int = 0  # microseconds since 1970
    last_time: int = 0  # of an object without messages, that of the message before
    log: int = 0  # the lengths of the parts, in bytes
    index: int = 0
    records: int = 0
    snapshot: int = 0
    positions: int = 0
    crc: int = 0  # CRC-32 of all parts after the log; the entries have the CRCs of the log

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def size(self) -> int:
        """The bytes of the whole object."""
        return self.log + self.index + self.ending

    @property
    def ending(self) -> int:
        """The bytes after the index: records, snapshot, positions and footer."""
        return self.records + self.snapshot + self.positions + FOOTER

    @property
    def is_fence(self) -> bool:
        """Whether the object is a footer only: a fence, a release or a deletion."""
        return self.size == FOOTER

    @property
    def segment_name(self) -> SegmentName:
        """The name of the segment that has this footer."""
        return SegmentName(self.number, self.first, self.last, self.first_time, self.last_time, self.log)

    def pack(self) -> bytes:
        """Return the bytes of the footer."""
        body = _FOOTER.pack(
            MAGIC,
            FORMAT,
            self.kind,
            0,
            self.epoch,
            self.owner,
            self.incarnation,
            self.number,
            self.first,
            self.count,
            self.first_time,
            self.last_time,
            self.log,
            self.index,
            self.records,
            self.snapshot,
            self.positions,
            self.crc,
        )
        return body + _CHECK.pack(crc32(body))


class Piece(NamedTuple):
    """Messages that were published in one go: their bytes, entries with offsets in these bytes, and records."""

    octets: bytes
    entries: Sequence[IndexEntry]
    records: bytes  # of publishers
    positions: bytes = b""  # records of positions

    @property
    def size(self) -> int:
        """The bytes that the piece adds to a chunk."""
        return len(self.octets) + SIZE * len(self.entries) + len(self.records) + len(self.positions)


def piece_of(block: Block, time: int, batch: int, counts: Sequence[Count] = ()) -> Piece:
    """Return a block as a piece; `time` is in microseconds since 1970, and `batch` bounds the bytes of an entry."""
    index = pack_entries(block, 0, time, batch, len(counts))
    entries = [entry for at in range(0, len(index), SIZE) if (entry := unpack(index, at)) is not None]
    seconds = time // 1_000_000
    records = b"".join([pack_count(count, block.first, block.last, seconds) for count in counts])
    return Piece(block.octets, entries, records)


def piece_of_counts(counts: Sequence[Count], last: int, time: int) -> Piece:
    """Return the state of publishers without messages as a piece; `last` is the last sequence of the stream."""
    seconds = time // 1_000_000
    return Piece(b"", (), b"".join([pack_count(count, last + 1, last, seconds) for count in counts]))


def piece_of_positions(records: bytes) -> Piece:
    """Return records of positions as a piece."""
    return Piece(b"", (), b"", records)


class Ending(NamedTuple):
    """The last parts of an object, before the footer: a snapshot of the publishers, and records of positions."""

    publishers: bytes = b""
    positions: bytes = b""


class Chunk(NamedTuple):
    """An object that was read and checked as a whole."""

    footer: Footer
    octets: bytes  # of the log
    entries: Sequence[IndexEntry]
    records: bytes
    ending: Ending

    @property
    def piece(self) -> Piece:
        """The content without the footer, the snapshot and the positions."""
        return Piece(self.octets, self.entries, self.records)


@dataclass(frozen=True, slots=True)
class Author:
    """The facts that all objects of one owner share."""

    owner: bytes
    epoch: int
    incarnation: bytes


def pack_fence(kind: Kind, author: Author, number: int) -> bytes:
    """Return the bytes of a fence, a release or a deletion."""
    return Footer(kind, author.epoch, author.owner, author.incarnation, number).pack()


def pack_chunk(
    author: Author, number: int, pieces: Iterable[Piece], ending: Ending, following: int, last_time: int
) -> tuple[bytes, ...]:
    """Return the bytes of a chunk, in parts: the last one is the footer.

    `following` is the sequence after the last one below, and `last_time` its time. The caller gives the positions of
    the pieces in `ending`: for a chunk that can become a segment they are more.
    """
    return _pack(Kind.DATA, author, number, pieces, ending, following, last_time)


def pack_segment(
    author: Author, number: int, pieces: Iterable[Piece], ending: Ending, following: int, last_time: int
) -> bytes:
    """Return the bytes of a segment whose last chunk has this number."""
    return b"".join(_pack(Kind.SEGMENT, author, number, pieces, ending, following, last_time))


def _pack(
    kind: Kind,
    author: Author,
    number: int,
    pieces: Iterable[Piece],
    ending: Ending,
    following: int,
    last_time: int,
) -> tuple[bytes, ...]:
    logs: list[bytes] = []
    entries: list[IndexEntry] = []
    records: list[bytes] = []
    offset = 0
    for piece in pieces:
        logs.append(piece.octets)
        entries += (
            [entry._replace(offset=entry.offset + offset) for entry in piece.entries] if offset else piece.entries
        )
        records.append(piece.records)
        offset += len(piece.octets)
    index = b"".join([entry.pack() for entry in entries])
    counted = b"".join(records)
    crc = crc32(ending.positions, crc32(ending.publishers, crc32(counted, crc32(index))))
    footer = Footer(
        kind,
        author.epoch,
        author.owner,
        author.incarnation,
        number,
        first=entries[0].first if entries else following,
        count=entries[-1].last - entries[0].first + 1 if entries else 0,
        first_time=entries[0].time if entries else last_time,
        last_time=entries[-1].time if entries else last_time,
        log=offset,
        index=len(index),
        records=len(counted),
        snapshot=len(ending.publishers),
        positions=len(ending.positions),
        crc=crc,
    )
    return (*logs, index, counted, *ending, footer.pack())


def unpack_footer(octets: bytes | memoryview, key: str) -> Footer:
    """Return the footer at the end of some bytes of an object; raise `StoreDamaged` if it is not valid."""
    if len(octets) < FOOTER:
        raise StoreDamaged(f"{key} has {len(octets)} bytes, and a footer has {FOOTER}")
    body, check = octets[-FOOTER : -_CHECK.size], octets[-_CHECK.size :]
    if body[:4] != MAGIC or _CHECK.unpack(check)[0] != crc32(body):
        raise StoreDamaged(f"{key} does not end with a valid footer")
    _, version, kind, _, epoch, owner, incarnation, *numbers = _FOOTER.unpack(body)
    if version != FORMAT:
        raise StoreDamaged(f"{key} has format {version}, and this release reads {FORMAT}: use a newer release")
    if kind not in Kind.__members__.values():
        raise StoreDamaged(f"{key} is of a kind, {kind}, that this release does not know: use a newer release")
    footer = Footer(Kind(kind), epoch, owner, incarnation, *numbers)
    if max(epoch, footer.size, footer.first + footer.count, *numbers) > HIGHEST:
        raise StoreDamaged(f"{key} has a footer with impossible numbers")
    if footer.kind != Kind.SEGMENT and footer.is_fence == (footer.kind == Kind.DATA):
        raise StoreDamaged(f"{key} is a {footer.kind.name.lower()} with {footer.size} bytes")
    return footer


def unpack_object(octets: bytes, key: str) -> Chunk:
    """Return the content of an object; raise `StoreDamaged` if any part of it is not valid.

    The parts are checked by their CRC. Entries must follow each other, and cover the whole log.
    """
    footer, entries = unpack_messages(octets, key)
    index_at = footer.log
    records_at = index_at + footer.index
    snapshot_at = records_at + footer.records
    positions_at = snapshot_at + footer.snapshot
    for at in range(records_at, positions_at, RECORD):
        if unpack_count(octets, at) is None:
            raise StoreDamaged(f"{key} has a damaged record of a publisher at byte {at}")
    ending = Ending(octets[snapshot_at:positions_at], octets[positions_at:-FOOTER])
    check_positions(ending.positions, key)
    return Chunk(footer, octets[:index_at], entries, octets[records_at:snapshot_at], ending)


def unpack_messages(octets: bytes | memoryview, key: str) -> tuple[Footer, list[IndexEntry]]:
    """Return the footer and the entries of an object, whose messages begin at byte 0; raise as `unpack_object`."""
    footer = unpack_footer(octets, key)
    if len(octets) != footer.size:
        raise StoreDamaged(f"{key} has {len(octets)} bytes, and its footer says {footer.size}")
    view = memoryview(octets)
    if crc32(view[footer.log : -FOOTER]) != footer.crc:
        raise StoreDamaged(f"{key} does not match its CRC")
    entries = read_entries(bytes(view[footer.log : footer.log + footer.index]), footer, key)
    check_batches(view, entries, key)
    return footer, entries


def check_positions(records: bytes, key: str) -> None:
    """Raise `StoreDamaged` if some bytes are not records of positions."""
    for record in walk(records):
        if record.state is None:
            raise StoreDamaged(f"{key} has a damaged record of a position at byte {record.offset} of its positions")


def check_batches(log: bytes | memoryview, entries: Iterable[IndexEntry], key: str, start: int = 0) -> None:
    """Raise `StoreDamaged` if a batch does not match its CRC. `log` begins at the offset `start`."""
    view = memoryview(log)
    for entry in entries:
        if crc32(view[entry.offset - start : entry.end - start]) != entry.crc:
            raise StoreDamaged(f"{key}: the batch of {entry.first} to {entry.last} does not match its CRC")


def read_entries(index: bytes, footer: Footer, key: str) -> list[IndexEntry]:
    """Return the entries of an index; raise `StoreDamaged` if they do not cover the log without gaps."""
    if len(index) != footer.index or footer.index % SIZE or (footer.records + footer.snapshot) % RECORD:
        raise StoreDamaged(f"{key} has an index or records that end in the middle")
    entries = []
    first, offset, time = footer.first, 0, 0
    for at in range(0, len(index), SIZE):
        entry = unpack(index, at)
        if entry is None or (entry.first, entry.offset) != (first, offset) or entry.time < time or entry.gap:
            raise StoreDamaged(f"{key} has an index that is damaged at entry {at // SIZE}")
        entries.append(entry)
        first, offset, time = entry.last + 1, entry.end, entry.time
    if offset != footer.log or (footer.kind in (Kind.DATA, Kind.SEGMENT) and first != footer.last + 1):
        raise StoreDamaged(f"{key} has an index that does not cover its messages")
    return entries
