"""A block: many DELIVER messages with their frame headers, as one `bytes`. The journal stores it as it goes out.

This module handles many messages at once: it validates PUBLISH messages and makes a block of them, and it finds the
messages and keys in a block. If all messages of a batch have the same size, as sensor readings and market ticks often
have, a message costs a fraction of a microsecond: the batch is a table of bytes with a message in each row, and whole
columns of it are checked and written at once.

    PUBLISH  AA A5 06               key-length key  body-length body
    DELIVER  AA A5 07  sequence (8) key-length key  body-length body

Property tests check that all of this agrees with the grammar in `zambezi.zeps.messages`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from typing import Final, NamedTuple
from zlib import crc32

from zambezi.zeps.layout import (
    BODY_LENGTH,
    DELIVER,
    DELIVER_KEY,
    DELIVER_LEAST,
    GROWTH,
    LONG,
    LONG_FLAG,
    PUBLISH,
    PUBLISH_KEY,
    PUBLISH_LEAST,
    SEQUENCE,
    SEQUENCE_AT,
    SHORT,
    frame_header,
)
from zambezi.zeps.rows import Rows, find_rows, pick_rows
from zambezi.zmtp.runs import Run, cut_rows

_FEW: Final = 4  # messages that are checked one by one: a PUBLISH and a PING, of a publisher that flushes each message
_TABLE: Final = 16  # a table with fewer rows is not worth the check
_MANY: Final = 4  # if one of so many rows is selected, it is faster to cut all of them,
_SHORT_ROW: Final = 512  # unless rows have more bytes than this

_OCTETS: Final = [bytes((value,)) for value in range(256)]
_CYCLE: Final = bytes(range(256))


class Place(NamedTuple):
    """The position of one message in a block, its sequence and its key."""

    start: int
    stop: int
    sequence: int
    key: bytes


class Block:
    """Messages as bytes, from sequence `first` to `last`. It is immutable, and shared by all subscribers.

    A block that is appended has every sequence from `first` to `last`. A filtered one, or one from a part of a journal
    that was compacted, has some of them.
    """

    __slots__ = ("_bodies", "_crcs", "_parsed", "_rows", "_stride", "count", "credit", "first", "last", "octets")

    def __init__(self, first: int, last: int, count: int, octets: bytes, credit: int, stride: int = 0) -> None:
        self.first = first
        self.last = last
        self.count = count
        self.octets = octets
        self.credit = credit  # the cost of delivering it: its bytes without the frame headers (ZEP-03)
        self._stride = stride  # the distance between two messages, if it is known to be the same for all
        self._parsed: tuple[Sequence[int], list[bytes]] | None = None
        self._rows: tuple[Rows | None] | None = None
        self._bodies: list[bytes] | None = None
        self._crcs: dict[tuple[int, int], int] | None = None

    def crc(self, start: int, stop: int) -> int:
        """Return the CRC-32 of some of the bytes. It is computed once, for the object store and for the journal."""
        if self._crcs is None:
            self._crcs = {}
        found = self._crcs.get((start, stop))
        if found is None:
            found = self._crcs[start, stop] = crc32(memoryview(self.octets)[start:stop])
        return found

    @property
    def starts(self) -> Sequence[int]:
        """The offset of each message, and last of all the end of the block. For messages of one size it is a range."""
        stride = self._stride
        if not stride and (rows := self.rows) is not None:
            stride = rows.stride
        return range(0, len(self.octets) + 1, stride) if stride else self._starts_and_keys()[0]

    @property
    def rows(self) -> Rows | None:
        """The messages as rows of a table, if there are many of one size and their keys have one length."""
        if self._rows is None:
            self._rows = (find_rows(self.octets, self.count),)
        return self._rows[0]

    @property
    def sequences(self) -> Sequence[int]:
        """The sequence of each message. Without gaps, it is a range."""
        return self.sequences_at(self.starts)

    def sequences_at(self, starts: Sequence[int]) -> Sequence[int]:
        """Return the sequence of each message; `starts` is the property of that name."""
        if self.last - self.first + 1 == self.count:
            return range(self.first, self.last + 1)
        octets = self.octets
        unpack = SEQUENCE.unpack_from
        return array(
            "Q",
            [unpack(octets, at + SEQUENCE_AT + (LONG if octets[at] else SHORT))[0] for at in starts[: self.count]],
        )

    @property
    def keys(self) -> list[bytes]:
        """The routing key of each message."""
        return self._starts_and_keys()[1]

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers: for links that encrypt each message, or pass it in memory."""
        if self._bodies is None:
            starts = self.starts
            octets = self.octets
            self._bodies = [
                octets[start + (LONG if octets[start] else SHORT) : stop] for start, stop in pairwise(starts)
            ]
        return self._bodies

    def select(self, indices: Sequence[int]) -> Block:
        """Return a block of some of the messages."""
        starts = self.starts
        octets = self.octets
        if isinstance(starts, range):  # all messages have one size
            stride = starts.step
            if len(indices) * _MANY < self.count or stride > _SHORT_ROW:
                rows = [octets[place : place + stride] for place in [index * stride for index in indices]]
            else:
                rows = list(map(cut_rows(octets, 0, stride, stride, self.count).__getitem__, indices))
            picked = b"".join(rows)
            heads = len(indices) * (LONG if octets[0] == LONG_FLAG else SHORT)
            return Block(self.first, self.last, len(indices), picked, len(picked) - heads, stride)
        chosen = [octets[starts[index] : starts[index + 1]] for index in indices]
        picked = b"".join(chosen)
        heads = SHORT * len(chosen) + (LONG - SHORT) * sum([piece[0] == LONG_FLAG for piece in chosen])
        return Block(self.first, self.last, len(chosen), picked, len(picked) - heads)

    def pick(self, mask: bytes) -> Block:
        """Return a block of the messages whose byte in a mask is 1. For few of many messages, `select` is faster."""
        starts = self.starts
        count = mask.count(1)
        if not isinstance(starts, range):
            return self.select(list(compress(range(len(mask)), mask)))
        picked = pick_rows(self.octets, starts.step, mask)
        heads = count * (LONG if self.octets[0] == LONG_FLAG else SHORT)
        return Block(self.first, self.last, count, picked, len(picked) - heads, starts.step)

    def head(self, count: int) -> Block:
        """Return a block of the first messages, which ends before the next one: not of all."""
        return self._part(0, count, self.sequences[count] - 1)

    def part(self, start: int, stop: int) -> Block:
        """Return a block of the messages from one index up to another one."""
        return self._part(start, stop, self.last)

    def _part(self, start: int, stop: int, last: int) -> Block:
        starts, octets = self.starts, self.octets
        count = stop - start
        if isinstance(starts, range):  # all messages have one size
            stride = starts.step
            heads = count * (LONG if octets[0] == LONG_FLAG else SHORT)
        else:
            stride = 0
            heads = SHORT * count + (LONG - SHORT) * sum([octets[at] == LONG_FLAG for at in starts[start:stop]])
        picked = octets[starts[start] : starts[stop]]
        return Block(self.first, last, count, picked, len(picked) - heads, stride)

    def _starts_and_keys(self) -> tuple[Sequence[int], list[bytes]]:
        if self._parsed is None:
            octets = self.octets
            if self.count == 1:
                key = (LONG if octets[0] else SHORT) + DELIVER_KEY
                self._parsed = (0, len(octets)), [octets[key : key + octets[key - 1]]]
            elif (rows := self.rows) is not None:
                self._parsed = range(0, len(octets) + 1, rows.stride), rows.keys()
            else:
                self._parsed = starts_and_keys(octets)
        return self._parsed

    def __repr__(self) -> str:
        return f"<Block of {self.first} to {self.last}, {len(self.octets)} bytes>"


def end_of_publishes(frames: Sequence[bytes], start: int = 0) -> int:
    """Return the index of the first frame from `start` on that is not a valid PUBLISH; `len(frames)` if all are."""
    count = len(frames)
    if count - start <= _FEW:
        while start < count and is_valid_publish(frames[start]):
            start += 1
        return start
    if not start and _are_publishes(frames):
        return count
    # Larger and larger parts are checked at once, and the part that is not valid is halved. So the work grows with the
    # number of PUBLISH messages before the other message, however many of the others a client sends between them.
    size = 1
    while start < count and _are_publishes(frames[start : start + size]):
        start += size
        size *= 2
    while start < count and size > 1:
        size //= 2
        if _are_publishes(frames[start : start + size]):
            start += size
    return min(start, count)


def is_publish_run(run: Run) -> bool:
    """Return whether all frames of a run are valid PUBLISH messages, with keys of one length."""
    size = run.size
    if size < PUBLISH_LEAST:
        return False
    head = run.first(0, PUBLISH_KEY)
    after = PUBLISH_KEY + head[3]
    if head[:3] != PUBLISH or after + 4 > size:
        return False
    return run.has(0, head) and run.has(after, BODY_LENGTH.pack(size - after - 4))


def is_valid_publish(frame: bytes) -> bool:
    """Return whether a frame is a valid PUBLISH."""
    if len(frame) < PUBLISH_LEAST or frame[:3] != PUBLISH:
        return False
    after = PUBLISH_KEY + frame[3]
    return frame[after : after + 4] == _LENGTHS[len(frame) - after - 4]


def _are_publishes(frames: Sequence[bytes]) -> bool:
    if min(map(len, frames)) < PUBLISH_LEAST:
        return False
    if len(frames) >= _TABLE and _is_publish_table(frames, len(frames[0])):
        return True
    lengths = _LENGTHS
    return [frame[:3] for frame in frames].count(PUBLISH) == len(frames) and all(
        # A list, because it is faster than a generator.
        [frame[(after := PUBLISH_KEY + frame[3]) : after + 4] == lengths[len(frame) - after - 4] for frame in frames]  # noqa: C419
    )


def _is_publish_table(frames: Sequence[bytes], size: int) -> bool:
    """Return whether all frames are PUBLISH messages of one size, with keys of one length."""
    if set(map(len, frames)) != {size}:
        return False
    after = PUBLISH_KEY + frames[0][3]
    if after + 4 > size:
        return False
    head = PUBLISH + frames[0][3:4]
    columns = [*enumerate(head), *enumerate(BODY_LENGTH.pack(size - after - 4), after)]
    octets = b"".join(frames)
    count = len(frames)
    return all(octets[column::size].count(value) == count for column, value in columns)


def deliver(frames: Sequence[bytes], first: int, alike: bool = False) -> Block:
    """Return a block of DELIVER messages for PUBLISH messages that were found valid. (ZEP-05)

    `alike` says that all of them are known to have one size.
    """
    size = len(frames[0])
    count = len(frames)
    if count == 1:
        return Block(first, first, 1, _HEADS[size] + SEQUENCE.pack(first) + frames[0][3:], size + GROWTH)
    alike = count >= _TABLE and (alike or set(map(len, frames)) == {size})
    credit = (count * size if alike else sum(map(len, frames))) + GROWTH * count
    octets = _deliver_table(frames, first, size) if alike else _deliver_each(frames, first)
    return Block(first, first + count - 1, count, octets, credit, len(octets) // count if alike else 0)


def _deliver_each(frames: Sequence[bytes], first: int) -> bytes:
    sequences: list[bytes] = []
    sequence = first
    while len(sequences) < len(frames):
        # Sequences that differ in the last byte only share the seven bytes before it.
        low = sequence & 0xFF
        high = SEQUENCE.pack(sequence)[:7]
        sequences += [high + octet for octet in _OCTETS[low : low + len(frames) - len(sequences)]]
        sequence += 256 - low
    columns: list[bytes] = [b""] * (3 * len(frames))
    columns[0::3] = map(_HEADS.__getitem__, map(len, frames))
    columns[1::3] = sequences
    columns[2::3] = [frame[3:] for frame in frames]
    return b"".join(columns)


class _Heads(dict[int, bytes]):
    """The bytes before the sequence, by the size of the PUBLISH: a frame header and the signature."""

    def __missing__(self, size: int) -> bytes:
        made = frame_header(size + GROWTH) + DELIVER
        if len(self) < _KEPT:
            self[size] = made
        return made


class _Lengths(dict[int, bytes]):
    """The length of a body as four bytes. For a negative length it is five bytes, which never equal a slice of four."""

    def __missing__(self, size: int) -> bytes:
        if size < 0:
            return bytes(5)
        made = BODY_LENGTH.pack(size)
        if len(self) < _KEPT:
            self[size] = made
        return made


_KEPT: Final = 65_536
_HEADS: Final = _Heads()
_LENGTHS: Final = _Lengths()


def _deliver_table(frames: Sequence[bytes], first: int, size: int) -> bytes:
    """Return the DELIVER messages for PUBLISH messages of one size: the sequences are columns of a table.

    The frames are joined with the bytes that stand before each of them: a frame header, the signature and the first
    five bytes of the sequence. The last three bytes of it then replace the three bytes of PUBLISH's signature.
    """
    pieces = []
    sequence = first
    position = 0
    head = frame_header(size + GROWTH) + DELIVER
    while position < len(frames):
        part = frames[position : position + 0x1000000 - (sequence & 0xFFFFFF)]
        count = len(part)
        between = head + SEQUENCE.pack(sequence)[:5]
        table = bytearray(between).join([b"", *part])
        stride = len(between) + size
        for place, column in enumerate(low_columns(sequence, count), len(between)):
            table[place::stride] = column
        pieces.append(bytes(table))
        position += count
        sequence += count
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def low_columns(sequence: int, count: int) -> tuple[bytes, bytes, bytes]:
    """Return the last three bytes of consecutive sequences, as columns. The bytes before them must not change."""
    low = sequence & 0xFF
    turns = (low + count) // 256 + 1
    high = [value & 0xFFFF for value in range(sequence >> 8, (sequence >> 8) + turns)]
    return (
        b"".join([_OCTETS[value >> 8] * 256 for value in high])[low : low + count],
        b"".join([_OCTETS[value & 0xFF] * 256 for value in high])[low : low + count],
        (_CYCLE * turns)[low : low + count],
    )


def starts_and_keys(octets: bytes) -> tuple[Sequence[int], list[bytes]]:
    """Return the offsets of a block's messages, with the end of the last one, and the keys.

    The bytes must be a valid block: bytes that may be damaged are parsed by `message_at`.
    """
    end = len(octets)
    found = []
    keys = []
    position = 0
    unpack = SEQUENCE.unpack_from
    while position < end:
        found.append(position)
        if octets[position]:
            key = position + LONG + DELIVER_KEY
            position += LONG + unpack(octets, position + 1)[0]
        else:
            key = position + SHORT + DELIVER_KEY
            position += SHORT + octets[position + 1]
        keys.append(octets[key : key + octets[key - 1]])
    found.append(end)
    return found, keys


def walk_messages(octets: bytes | memoryview, start: int = 0, stop: int | None = None) -> Iterator[Place]:
    """Yield the consecutive valid messages from `start` on, and stop at the first that is damaged or incomplete."""
    end = len(octets) if stop is None else stop
    while (place := message_at(octets, start, end)) is not None:
        yield place
        start = place.stop


def message_at(octets: bytes | memoryview, position: int, end: int) -> Place | None:
    """Return the message at `position`, or None if there is no complete and valid message before `end`."""
    if end - position < SHORT + DELIVER_LEAST:
        return None
    flags = octets[position]
    if flags == 0:
        body = position + SHORT
        after = body + octets[position + 1]
    elif flags == LONG_FLAG:
        body = position + LONG
        after = body + int(SEQUENCE.unpack_from(octets, position + 1)[0])
    else:
        return None
    if after > end or after - body < DELIVER_LEAST or octets[body : body + 3] != DELIVER:
        return None
    key = body + DELIVER_KEY
    rest = key + octets[key - 1]
    if rest + 4 > after or octets[rest : rest + 4] != BODY_LENGTH.pack(after - rest - 4):
        return None
    return Place(position, after, SEQUENCE.unpack_from(octets, body + SEQUENCE_AT)[0], bytes(octets[key:rest]))
