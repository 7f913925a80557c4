"""Reading messages from a journal for other uses than delivery: with their CRC checked, and with their times.

`advance` is called with the bytes of the log that were passed, so that a command can show its progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import HIGHEST, LARGEST_BATCH, SIZE, IndexEntry, unpack
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.reading import retry_loading
from zambezi.zeps.journal.segment import LOG, Files, Segment
from zambezi.zeps.layout import DELIVER_LEAST, LONG, SHORT

Advance: TypeAlias = Callable[[int], None]

_PIECE: Final = 1 << 20  # bytes that are read at once
_ENTRIES: Final = 1024  # entries that are read at once


def _ignore(octets: int) -> None:
    """Do nothing: the caller shows no progress."""


class JournalMessage(NamedTuple):
    """A message of a journal, with the time of its batch."""

    sequence: int
    time: int
    key: bytes
    octets: bytes  # as in the log, with the frame header

    @property
    def body(self) -> bytes:
        """The body of the message."""
        # It follows the frame header, signature, sequence, length of the key, key, and length of the body.
        return self.octets[(LONG if self.octets[0] else SHORT) + DELIVER_LEAST + len(self.key) :]


def messages(
    journal: Journal, after: int, last: int, prefix: bytes = b"", advance: Advance = _ignore
) -> Iterator[JournalMessage]:
    """Yield the messages after the sequence `after`, up to `last`, whose keys begin with `prefix`."""
    for entry, octets in batches(journal, after, last, advance):
        made = Block(entry.first, entry.last, entry.count, octets, entry.credit)
        for sequence, key, (begin, end) in zip(made.sequences, made.keys, pairwise(made.starts), strict=False):
            if after < sequence <= last and key.startswith(prefix):
                yield JournalMessage(sequence, entry.time, key, octets[begin:end])


def batches(journal: Journal, after: int, last: int, advance: Advance = _ignore) -> Iterator[tuple[IndexEntry, bytes]]:
    """Yield the batches with messages that overlap a range of sequences; raise `JournalError` at a damaged one.

    The files of a segment stay open while it is read: it does not matter if it is written again meanwhile. Messages
    that only the store has are loaded first.
    """
    while after < last:
        found = retry_loading(partial(_next_segment, journal, after))
        if found is None:
            return
        segment, files = found
        for entries, octets in read_pieces(segment, files, after, last):
            yield from batches_in(entries, octets)
            advance(len(octets))
        after = max(after, segment.last)


def _next_segment(journal: Journal, after: int) -> tuple[Segment, Files] | None:
    wanted = max(journal.first, after + 1)
    for segment in journal.segments:
        if segment.last > after:
            if journal.is_cache and segment.first > wanted:
                raise journal.absent(wanted)
            return segment, journal.files(segment)
    return None


def batches_in(entries: Sequence[IndexEntry], octets: bytes) -> Iterator[tuple[IndexEntry, bytes]]:
    """Yield the batches of a piece that have messages."""
    offset = entries[0].offset
    for entry in entries:
        if entry.count:
            yield entry, octets[entry.offset - offset : entry.end - offset]


def read_pieces(
    segment: Segment,
    files: Files,
    after: int = 0,
    last: int = HIGHEST,
    *,
    backwards: bool = False,
    octets: int = _PIECE,
    most: int = _ENTRIES,
) -> Iterator[tuple[list[IndexEntry], bytes]]:
    """Yield pieces of about so many bytes: their entries, `most` at most, and their bytes.

    Raise `JournalError` at a damaged batch.
    """
    number = max(0, segment.locate(files, after + 1))
    stop = segment.locate(files, last) + 1 if backwards and last < segment.last else segment.entries
    chunks = range(number, stop, _ENTRIES)
    for start in reversed(chunks) if backwards else chunks:
        entries = _read_entries(segment, files, start, last)
        pieces = list(_pieces(entries, octets, most))
        for piece in reversed(pieces) if backwards else pieces:
            yield piece, _read(segment, files, piece)
        if not backwards and (not entries or entries[-1].last >= last):
            return


def _read_entries(segment: Segment, files: Files, start: int, last: int) -> list[IndexEntry]:
    """Return some entries from `start` on, but none that begins after `last`."""
    octets = files.read_entries(start, min(_ENTRIES, segment.entries - start))
    entries = [unpack(octets, position) for position in range(0, len(octets), SIZE)]
    found = [entry for entry in entries if entry is not None]
    if len(found) < len(entries) or not entries:
        raise segment.damage_error(start)
    return [entry for entry in found if entry.first <= last]


def _pieces(entries: list[IndexEntry], octets: int, most: int) -> Iterator[list[IndexEntry]]:
    piece: list[IndexEntry] = []
    for entry in entries:
        if piece and (entry.end - piece[0].offset > octets or len(piece) == most):
            yield piece
            piece = []
        piece.append(entry)
    if piece:
        yield piece


def read_batch(segment: Segment, files: Files, entry: IndexEntry) -> bytes:
    """Return the bytes of a batch; raise `JournalError` if it is damaged."""
    return _read(segment, files, [entry])


def _read(segment: Segment, files: Files, entries: list[IndexEntry]) -> bytes:
    """Return the bytes of consecutive batches."""
    first = entries[0]
    if first.length > LARGEST_BATCH and not files.has_message(first.offset, first.length):
        raise _damage(segment, first)
    octets = files.read_log(first.offset, entries[-1].end - first.offset)
    view = memoryview(octets)
    for entry in entries:
        if crc32(view[entry.offset - first.offset : entry.end - first.offset]) != entry.crc:
            raise _damage(segment, entry)
    return octets


def _damage(segment: Segment, entry: IndexEntry) -> JournalError:
    return JournalError(
        f"{segment.path}{LOG}: the batch of {entry.first} to {entry.last} is damaged; --since "
        f"{entry.last} skips it, and `zambezi journal verify` says more"
    )
