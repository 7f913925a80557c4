"""The last message of a key, without a replay.

The search begins at the end of the stream. A closed segment of a compacted stream has a table of its keys, which says
where to look. Other segments are read backwards, about a gigabyte per second: the search in a stream without tables
takes as long as it takes to read everything after the message, and the whole stream if there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from zambezi.zeps.block import Block
from zambezi.zeps.errors import OutOfRange
from zambezi.zeps.journal.backing import Backing
from zambezi.zeps.journal.entry import IndexEntry, unpack
from zambezi.zeps.journal.extract import JournalMessage, batches_in, read_batch, read_pieces
from zambezi.zeps.journal.keytable import batches_of
from zambezi.zeps.journal.reading import JournalReading, retry_rewritten
from zambezi.zeps.journal.segment import Files, Segment

_CHECKED: Final[set[str]] = set()  # tables whose CRC is right
_MOST: Final = 10_000  # of these


def last_message(
    journal: JournalReading, key: bytes, is_cancelled: Callable[[], bool] = lambda: False
) -> JournalMessage | None:
    """Return the last message with a key, or None. Blocks. A search that is cancelled returns None."""
    return retry_rewritten(partial(_search, journal, key, is_cancelled))


def _search(journal: JournalReading, key: bytes, is_cancelled: Callable[[], bool]) -> JournalMessage | None:
    if len(_CHECKED) > _MOST:
        _CHECKED.clear()
    above = journal.last + 1  # the messages from here on are searched
    for segment in reversed(journal.segments):
        if not segment.entries:
            continue
        if journal.backing is not None:
            found = _search_gap(journal.backing, segment.last, above - 1, key, is_cancelled)
            if found is not None or is_cancelled():
                return found
        above = segment.first
        try:
            files = journal.files(segment)
        except OutOfRange:
            return None  # retention has removed it
        numbers = batches_of(segment.path, key, _CHECKED) if segment is not journal.segments[-1] else None
        if numbers is not None:
            found = _look_at(segment, files, numbers, key)
        else:
            found = _read_backwards(segment, files, key, is_cancelled)
        if found is not None or is_cancelled():
            return found
    if journal.backing is not None:
        return _search_gap(journal.backing, journal.first - 1, above - 1, key, is_cancelled)
    return None


def _search_gap(
    backing: Backing, after: int, last: int, key: bytes, is_cancelled: Callable[[], bool]
) -> JournalMessage | None:
    """Search in messages that only the store has. They do not become part of the cache: each is read once."""
    pieces = backing.backwards(after, last) if last > after else ()
    return _search_pieces(pieces, key, is_cancelled)


def _look_at(segment: Segment, files: Files, numbers: list[int], key: bytes) -> JournalMessage | None:
    for number in reversed(numbers):
        entry = unpack(files.read_entries(number, 1))
        if entry is None:
            raise segment.damage_error(number)
        found = _last_in(entry, read_batch(segment, files, entry), key)
        if found is not None:
            return found
    return None


def _read_backwards(
    segment: Segment, files: Files, key: bytes, is_cancelled: Callable[[], bool]
) -> JournalMessage | None:
    return _search_pieces(read_pieces(segment, files, backwards=True), key, is_cancelled)


def _search_pieces(
    pieces: Iterable[tuple[Sequence[IndexEntry], bytes]], key: bytes, is_cancelled: Callable[[], bool]
) -> JournalMessage | None:
    sought = bytes((len(key),)) + key
    for entries, octets in pieces:
        if is_cancelled():
            return None
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
