"""The last message of a key, without a replay.

The search begins at the end of the stream. A closed segment of a compacted stream has a table of its keys, which says
where to look. Other segments are read backwards, about a gigabyte per second: the search in a stream without tables
takes as long as it takes to read everything after the message, and the whole stream if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from zambezi.zeps.block import Block
from zambezi.zeps.errors import OutOfRange, Rewritten
from zambezi.zeps.journal.backing import Backing
from zambezi.zeps.journal.entry import IndexEntry, unpack
from zambezi.zeps.journal.extract import JournalMessage, batches_in, read_batch, read_pieces
from zambezi.zeps.journal.keytable import batches_of
from zambezi.zeps.journal.reading import JournalReading
from zambezi.zeps.journal.segment import Files, Segment

_CHECKED: Final[set[str]] = set()  # tables whose CRC is right
_MOST: Final = 10_000  # of these
_AT_ONCE: Final = 16  # pieces of about a megabyte that a step of a search reads


def last_message(journal: JournalReading, key: bytes) -> JournalMessage | None:
    """Return the last message with a key, or None. Blocks."""
    search = LastSearch(journal, key)
    while not search.step():
        pass
    return search.found


class LastSearch:
    """A search for the last message with a key, a part of the stream at a time: so several searches can take turns.

    Between two steps it holds no open file.
    """

    def __init__(self, journal: JournalReading, key: bytes) -> None:
        self.found: JournalMessage | None = None
        self._journal = journal
        self._key = key
        self._last = journal.last  # the messages after it were searched

    def step(self) -> bool:
        """Search some pieces of the stream; return whether the search has ended. Blocks."""
        try:
            parts = _search(self._journal, self._key, self._last)
            for _ in range(_AT_ONCE):
                part = next(parts, None)
                if part is None:
                    return True
                self.found, first = part
                if self.found is not None and self.found.sequence < self._journal.first:
                    self.found = None  # the segment also has messages that were removed from the stream
                    return True
                if self.found is not None:
                    return True
                self._last = first - 1
        except Rewritten:
            pass  # segments were replaced meanwhile: the next step reads the new ones
        return False


Part: TypeAlias = tuple[JournalMessage | None, int]  # what was found in a piece, and the first sequence of the piece


def _search(journal: JournalReading, key: bytes, last: int) -> Iterator[Part]:
    """Search the messages up to a sequence, from the end."""
    if len(_CHECKED) > _MOST:
        _CHECKED.clear()
    for segment in reversed(journal.segments):
        if not segment.entries or segment.first > last:
            continue
        if journal.backing is not None:
            yield from _search_gap(journal.backing, segment.last, last, key)
        try:
            files = journal.files(segment)
        except OutOfRange:
            return  # retention has removed it
        numbers = batches_of(segment.path, key, _CHECKED) if segment is not journal.segments[-1] else None
        if numbers is not None:
            yield _look_at(segment, files, numbers, key), segment.first
        else:
            yield from _search_pieces(read_pieces(segment, files, last=last, backwards=True), key)
        last = segment.first - 1
    if journal.backing is not None:
        yield from _search_gap(journal.backing, journal.first - 1, last, key)


def _search_gap(backing: Backing, after: int, last: int, key: bytes) -> Iterator[Part]:
    """Search in messages that only the store has. They do not become part of the cache: each is read once."""
    if last > after:
        yield from _search_pieces(backing.backwards(after, last), key)


def _look_at(segment: Segment, files: Files, numbers: list[int], key: bytes) -> JournalMessage | None:
    for number in reversed(numbers):
        entry = unpack(files.read_entries(number, 1))
        if entry is None:
            raise segment.damage_error(number)
        found = _last_in(entry, read_batch(segment, files, entry), key)
        if found is not None:
            return found
    return None


def _search_pieces(pieces: Iterable[tuple[Sequence[IndexEntry], bytes]], key: bytes) -> Iterator[Part]:
    for entries, octets in pieces:
        if entries:
            yield _last_in_piece(entries, octets, key), entries[0].first


def _last_in_piece(entries: Sequence[IndexEntry], octets: bytes, key: bytes) -> JournalMessage | None:
    sought = bytes((len(key),)) + key
    if sought in octets:
        for entry, batch in reversed(list(batches_in(entries, octets))):
            found = _last_in(entry, batch, key) if sought in batch else None
            if found is not None:
                return found
    return None


def _last_in(entry: IndexEntry, octets: bytes, key: bytes) -> JournalMessage | None:
    block = Block(entry.first, entry.last, entry.count, octets, entry.credit)
    keys, starts = block.keys, block.starts
    for index in range(len(keys) - 1, -1, -1):
        if keys[index] == key:
            return JournalMessage(block.sequences[index], entry.time, key, octets[starts[index] : starts[index + 1]])
    return None
