"""The entries of an index: one for each batch that was appended to the log, in the layout of `zambezi.zeps.layout`.

An entry whose own CRC is wrong is not an entry: the write was interrupted, or is still going on. An entry with values
that no broker writes is none either, whatever its CRC: other modules need not expect such values.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import add
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.layout import ENTRY, ENTRY_FIELDS, LONG, SHORT, frame_header

SIZE: Final = ENTRY.size
LONGEST: Final = 0xFFFFFFFF  # bytes of a batch, and so of a message
LARGEST_BATCH: Final = 16 * 1024 * 1024  # bytes of a batch with several messages: it is read and parsed as a whole
HIGHEST: Final = (1 << 63) - 1  # the highest sequence, offset and time

_BODY: Final = Struct(ENTRY.format[:-1])  # without the check
_CHECK: Final = Struct(">I")
_WORDS: Final = SIZE // 4  # an entry as words of 4 bytes, and where each field begins
_WORD: Final = dict(zip(ENTRY_FIELDS, (at // 4 for at in accumulate(ENTRY_FIELDS.values(), initial=0)), strict=False))
_TIME, _COUNT, _LENGTH, _CREDIT = (_WORD[name] for name in ("time", "count", "length", "credit"))
_GAP, _REMOVED = _WORD["gap"], _WORD["removed"]


class IndexEntry(NamedTuple):
    """One batch: its place in the log, and its content. It covers all sequences from `first` to `last`.

    Compaction removes messages: then fewer messages than sequences are there, and the messages tell which.
    """

    first: int
    offset: int
    time: int
    count: int  # type: ignore[assignment]  # of messages; it hides `tuple.count`, which has no use here
    length: int
    credit: int
    crc: int
    publishers: int = 0  # that have a record for the batch in the file of counts
    gap: int = 0  # sequences whose messages were removed
    removed: int = 0  # the sum of the gaps of all entries before this one in its segment

    @property
    def last(self) -> int:
        return self.first + self.count + self.gap - 1

    @property
    def end(self) -> int:
        """The offset in the log where the batch ends."""
        return self.offset + self.length

    @property
    def is_possible(self) -> bool:
        """Whether a broker can have written the entry: its values fit together, and no number is too high."""
        return (
            0 < self.first <= self.last <= HIGHEST
            and self.end <= HIGHEST
            and self.time <= HIGHEST
            and self.removed <= HIGHEST
            and self.count <= self.credit <= self.length
            and (self.count == 1 or self.length <= (LARGEST_BATCH if self.count else 0))
        )

    def pack(self) -> bytes:
        """Return the 64 bytes of the entry."""
        return pack(*self)


def pack(
    first: int,
    offset: int,
    time: int,
    count: int,
    length: int,
    credit: int,
    crc: int,
    publishers: int = 0,
    gap: int = 0,
    removed: int = 0,
) -> bytes:
    """Return the bytes of an entry."""
    body = _BODY.pack(first, offset, time, count, length, credit, crc, publishers, gap, removed)
    return body + _CHECK.pack(crc32(body))


def unpack(octets: bytes, position: int = 0) -> IndexEntry | None:
    """Return the entry at a position, or None if the bytes there are not a possible entry with a valid check."""
    body = octets[position : position + _BODY.size]
    if len(octets) < position + SIZE or _CHECK.unpack_from(octets, position + _BODY.size)[0] != crc32(body):
        return None
    entry = IndexEntry(*_BODY.unpack(body))
    return entry if entry.is_possible else None


def pack_entries(block: Block, offset: int, time: int, batch: int, publishers: int, removed: int = 0) -> bytes:
    """Return the bytes of the entries of a block: one, if it has at most `batch` bytes."""
    length = len(block.octets)
    if length <= batch and length <= LONGEST:
        # The same as `pack`, without the cost of a call.
        crc = block.crc(0, length)
        body = _BODY.pack(block.first, offset, time, block.count, length, block.credit, crc, publishers, 0, removed)
        return body + _CHECK.pack(crc32(body))
    entries = [
        entry._replace(removed=removed) for entry in split_block(block, offset, time, min(batch, LONGEST), publishers)
    ]
    if any(entry.length > LONGEST for entry in entries):
        raise JournalError("a message of 4 GiB or more cannot be appended")
    return b"".join([entry.pack() for entry in entries])


def split_block(block: Block, offset: int, time: int, batch: int, publishers: int = 0) -> Iterator[IndexEntry]:
    """Yield the entries of a block that becomes several batches of `batch` bytes at most, or of one larger message."""
    cuts = Cuts.of(block)
    starts = cuts.starts
    number = 0
    while number < block.count:
        after = cuts.stop_for_size(number, batch)
        start, stop = starts[number], starts[after]
        credit, crc = cuts.spent[after] - cuts.spent[number], block.crc(start, stop)
        first = block.first + number
        yield IndexEntry(first, offset + start, time, after - number, stop - start, credit, crc, publishers)
        number = after


class Cuts:
    """The places where a batch can be cut: the start of each message, and the credit of all messages before it."""

    __slots__ = ("sequences", "spent", "starts")

    def __init__(self, starts: Sequence[int], spent: Sequence[int], sequences: Sequence[int]) -> None:
        self.starts = starts
        self.spent = spent
        self.sequences = sequences

    @classmethod
    def of(cls, block: Block) -> Cuts:
        """Return the cuts of a block."""
        octets = block.octets
        count = block.count
        # Messages of one size have the same frame header, which says where the next one begins.
        size, odd = divmod(len(octets), count)
        head = frame_header(size - (LONG if octets[0] else SHORT))
        if not odd and all(octets[column::size].count(octet) == count for column, octet in enumerate(head)):
            equal, bare = range(0, size * count + 1, size), size - len(head)
            return cls(equal, range(0, bare * count + 1, bare), block.sequences_at(equal))
        starts = block.starts
        sequences = block.sequences_at(starts)
        heads = [LONG if octets[start] else SHORT for start in starts[:-1]]
        spent = accumulate([stop - start - head for start, stop, head in zip(starts, starts[1:], heads, strict=False)])
        return cls(array("Q", starts), array("Q", [0, *spent]), sequences)

    def index_of(self, sequence: int) -> int:
        """Return the number of the first message that is not before a sequence."""
        return bisect_left(self.sequences, sequence)

    def stop_for_size(self, number: int, octets: int) -> int:
        """Return the message to stop before, so that those from `number` on fit into `octets`; at least one goes."""
        return max(number + 1, bisect_right(self.starts, self.starts[number] + octets) - 1)

    def stop_for_credit(self, number: int, credit: int) -> int:
        """Return the message to stop before, if `credit` pays for those from `number` on; the last may overdraw it."""
        return max(number + 1, min(len(self.starts) - 1, bisect_left(self.spent, self.spent[number] + credit)))


class IndexWindow:
    """Consecutive entries of an index, as columns: the start of each, and last of all the end of the last one.

    `firsts` are sequences, and `numbers` count messages: the differences between two entries are the same in both, if
    no message was removed.
    """

    __slots__ = ("_times", "firsts", "is_chain", "numbers", "spent", "starts")

    def __init__(self, octets: bytes) -> None:
        words = array("I", octets)
        if sys.byteorder == "little":
            words.byteswap()
        first = words[0] << 32 | words[1]
        offset = words[2] << 32 | words[3]
        # Arrays and not lists: every reader has a window, and there can be many readers.
        last = words[-_WORDS:]
        counts = words[_COUNT::_WORDS]
        if last[_REMOVED : _REMOVED + 2] == words[_REMOVED : _REMOVED + 2] and not (last[_GAP] or last[_GAP + 1]):
            self.firsts = self.numbers = array("Q", accumulate(counts, initial=first))
        else:
            gaps = [high << 32 | low for high, low in zip(words[_GAP::_WORDS], words[_GAP + 1 :: _WORDS], strict=True)]
            self.firsts = array("Q", accumulate(map(add, counts, gaps), initial=first))
            self.numbers = array("Q", accumulate(counts, initial=0))
        self.starts = array("Q", accumulate(words[_LENGTH::_WORDS], initial=offset))
        self.spent = array("Q", accumulate(words[_CREDIT::_WORDS], initial=0))
        self._times = (words[_TIME::_WORDS], words[_TIME + 1 :: _WORDS])
        # Whether the last entry begins where the sums of all entries before it end.
        self.is_chain = (last[0] << 32 | last[1], last[2] << 32 | last[3]) == (self.firsts[-2], self.starts[-2])

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def entry(self, number: int) -> IndexEntry:
        """Return an entry, without its CRC."""
        first, start, spent = self.firsts[number], self.starts[number], self.spent[number]
        count, length = self.numbers[number + 1] - self.numbers[number], self.starts[number + 1] - start
        gap = self.firsts[number + 1] - first - count
        return IndexEntry(first, start, self.time(number), count, length, self.spent[number + 1] - spent, 0, 0, gap)

    def time(self, number: int) -> int:
        """Return the time of an entry, in microseconds since 1970."""
        high, low = self._times
        return high[number] << 32 | low[number]

    def pairs(self, start: int, stop: int) -> bytes:
        """Return the first sequence and the time of some entries, each as 8 bytes."""
        # Big-endian words of 4 bytes, which are moved as whole columns.
        words = array("I", bytes(16 * (stop - start)))
        firsts = array("I", self.firsts[start:stop].tobytes())
        is_little = sys.byteorder == "little"
        words[0::4], words[1::4] = firsts[is_little::2], firsts[not is_little :: 2]
        words[2::4], words[3::4] = self._times[0][start:stop], self._times[1][start:stop]
        if is_little:
            words.byteswap()
        return words.tobytes()


def count_before(count: int, is_before: Callable[[int], bool]) -> int:
    """Return how many of `count` items are before the one that is sought. The items are in order."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_before(middle):
            low = middle + 1
        else:
            high = middle
    return low
