"""Reading messages from a journal for other uses than delivery: with their CRC checked, and with their times.

`advance` is called with the bytes of the log that were passed, so that a command can show its progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, pairwise
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.layout import DELIVER_LEAST, LONG, SHORT

Advance: TypeAlias = Callable[[int], None]

_PIECE: Final = 1 << 20


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
        for sequence, key, (begin, end) in zip(count(entry.first), made.keys, pairwise(made.starts), strict=False):
            if after < sequence <= last and key.startswith(prefix):
                yield JournalMessage(sequence, entry.time, key, octets[begin:end])


def batches(journal: Journal, after: int, last: int, advance: Advance = _ignore) -> Iterator[tuple[IndexEntry, bytes]]:
    """Yield the batches that overlap a range of sequences; raise `JournalError` at a damaged one."""
    reader = journal.reader(after)
    entries = _entries(journal, after)
    entry = next(entries, None)
    while entry is not None and entry.first <= last:
        reader.seek(entry.first - 1)
        span = reader.peek(max(_PIECE, entry.length))
        if span is None:
            raise JournalError(f"stream {journal.name!a} was truncated while it was read: start again")
        octets = span.read().octets
        while entry is not None and entry.first <= min(last, span.last):
            batch = octets[entry.offset - span.offset : entry.end - span.offset]
            if crc32(batch) != entry.crc:
                raise JournalError(
                    f"stream {journal.name!a}: the batch of {entry.first} to {entry.last} is damaged; --since "
                    f"{entry.last} skips it, and `zambezi journal verify` says more"
                )
            yield entry, batch
            entry = next(entries, None)
        advance(span.length)


def _entries(journal: Journal, after: int) -> Iterator[IndexEntry]:
    while entries := journal.entries(after, 1000):
        yield from entries
        after = entries[-1].last
