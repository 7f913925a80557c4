"""The counts of a stream: how many messages of each publisher it has, so that no message is in it twice.

A publisher that resumes after a broken connection, or after its own death, asks the broker how many of its messages the
stream has, and goes on after that number. So a count must be as durable as the messages that it counts. A segment has a
third file for that, `<first sequence>.cnt`, which is nothing but records of one size:

    the head           its `count` is the number of records in the snapshot; its publisher is all zeros
    the snapshot       the last record of each publisher when the segment was created
    further records    for each batch, one record for each publisher with messages in it

The journal writes the records of a batch *before* the batch itself, and `publishers` in its index entry says how many
there are. So recovery can tell every case: a batch that is not whole is cut off if it has records, because nobody knows
which messages of which publisher its beginning contains; and a record whose batch is missing does not count. As a
segment begins with a snapshot, recovery reads the file of the last segment only.

A record without a batch has `first` = `last` + 1. It tells a new epoch of a publisher.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from zambezi.zeps.journal.files import open_file
from zambezi.zeps.messages import MARK, PUBLISHER

COUNTS: Final = ".cnt"
NO_MARK: Final = bytes(MARK)
NO_PUBLISHER: Final = bytes(PUBLISHER)

_BODY: Final = Struct(f">QQ{PUBLISHER}sIQQ{MARK}sII")
_CHECK: Final = Struct(">I")
RECORD: Final = _BODY.size + _CHECK.size
_CHUNK: Final = 256  # records that are read at once
_PROTECTED: Final = 1000  # connected publishers that are passed over in the search for a silent one
_HOLE: Final = 4096  # records in a row that are not valid, after which a file ends
_ID: Final = slice(16, 16 + PUBLISHER)  # the place of the publisher in a record
_SECONDS: Final = Struct(">I")
_SECONDS_AT: Final = _BODY.size - _SECONDS.size


class Count(NamedTuple):
    """The state of one publisher of a stream."""

    publisher: bytes
    epoch: int
    count: int  # type: ignore[assignment]  # of messages; it hides `tuple.count`, which has no use here
    marked: int = 0  # the count at the publisher's last mark
    mark: bytes = NO_MARK
    refused: int = 0  # of the messages, how many the broker has refused: they count, and are not in the stream


class Record(NamedTuple):
    """A count as a file has it: with the batch to which it belongs, and the time in seconds since 1970."""

    first: int
    last: int
    publisher: bytes
    epoch: int
    count: int  # type: ignore[assignment]
    marked: int
    mark: bytes
    refused: int
    seconds: int

    @property
    def state(self) -> Count:
        """The count without its place."""
        return Count(self.publisher, self.epoch, self.count, self.marked, self.mark, self.refused)

    def covers(self, first: int, last: int) -> bool:
        """Return whether a range of sequences is in the batch of the record."""
        return self.first <= first and last <= self.last


def pack(count: Count, first: int, last: int, seconds: int) -> bytes:
    """Return the bytes of a record."""
    body = _BODY.pack(first, last, *count, seconds & 0xFFFFFFFF)
    return body + _CHECK.pack(crc32(body))


def unpack(octets: bytes, position: int = 0) -> Record | None:
    """Return the record at a position, or None if the bytes there do not have their CRC."""
    body = octets[position : position + _BODY.size]
    if len(octets) < position + RECORD or _CHECK.unpack_from(octets, position + _BODY.size)[0] != crc32(body):
        return None
    return Record(*_BODY.unpack(body))


class Counts:
    """The last record of each publisher, as bytes, in the order in which they were written."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.protected: Container[bytes] = ()  # publishers that are connected
        self.forgotten = 0  # publishers that were removed: for the limit, or because they were silent for long
        self._records: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._records)

    def copy(self) -> Counts:
        """Return a copy that can change by itself."""
        made = Counts(self.limit)
        made._records = dict(self._records)
        made.protected = self.protected
        return made

    def get(self, publisher: bytes) -> Count | None:
        """Return the state of a publisher, or None if it is not known."""
        found = self._records.get(publisher)
        return None if found is None else Record(*_BODY.unpack_from(found)).state

    def states(self) -> Iterator[Count]:
        """Yield the states of all publishers."""
        return (Record(*_BODY.unpack_from(record)).state for record in self._records.values())

    def note(self, records: Iterable[bytes]) -> None:
        """Note records that were written; each replaces the one that its publisher had before."""
        known = self._records
        for record in records:
            publisher = record[_ID]
            known.pop(publisher, None)  # so that it moves to the end
            known[publisher] = record
        over = len(known) - self.limit
        if over > 0:
            self.forget(over)

    def forget(self, count: int) -> None:
        """Forget the publishers that were silent for longest, connected ones last."""
        known = self._records
        silent = [publisher for publisher in islice(known, count + _PROTECTED) if publisher not in self.protected]
        self._forget(silent[:count] or list(islice(known, count)))

    def forget_before(self, seconds: float) -> None:
        """Forget the publishers that have been silent since a time."""
        silent = []
        for publisher, record in self._records.items():
            if _SECONDS.unpack_from(record, _SECONDS_AT)[0] >= seconds:
                break
            silent.append(publisher)
        self._forget(silent)

    def _forget(self, publishers: Collection[bytes]) -> None:
        for publisher in publishers:
            del self._records[publisher]
        self.forgotten += len(publishers)

    def snapshot(self, first: int) -> bytes:
        """Return the head, and a record of each publisher, for a file whose further records begin at a sequence."""
        head = pack(Count(NO_PUBLISHER, 0, len(self._records)), first, first - 1, 0)
        return b"".join([head, *self._records.values()])

    def move_to(self, last: int) -> bytes:
        """Let all counts belong to the messages up to a sequence; return the records that change.

        An operator has removed the messages after it. They stay counted: their publishers must not send them again.
        """
        moved = []
        for octets in self._records.values():
            record = Record(*_BODY.unpack_from(octets))
            if record.last > last:
                moved.append(pack(record.state, last + 1, last, record.seconds))
        self.note(moved)
        return b"".join(moved)


class Place(NamedTuple):
    """A place in a file of counts: its offset, the record there or None if it is damaged, and the bytes."""

    offset: int
    record: Record | None
    octets: bytes


def read_places(path: str) -> Iterator[Place]:
    """Yield the places of a segment's file, in order, up to the last valid record; `path` has no suffix.

    A missing file has none. Damaged places are yielded only if a valid record follows them.
    """
    try:
        descriptor = open_file(path + COUNTS)
    except FileNotFoundError:
        return
    try:
        yield from _read_places(descriptor)
    finally:
        os.close(descriptor)


def _read_places(descriptor: int) -> Iterator[Place]:
    offset = 0
    damaged: list[Place] = []  # a hole in the file can have billions
    while len(damaged) < _HOLE and (octets := os.pread(descriptor, _CHUNK * RECORD, offset)):
        for position in range(0, len(octets), RECORD):
            record = unpack(octets, position)
            place = Place(offset + position, record, octets[position : position + RECORD])
            if record is None:
                damaged.append(place)
                continue
            yield from damaged
            damaged.clear()
            yield place
        offset += len(octets)


class Recount:
    """The counts that the files of a stream tell, up to a sequence. Files are read in order, a segment at a time."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.snapshot = 0  # bytes of the head and the snapshot in the last file
        self.size = 0  # bytes of the last file that count
        self.block = (0, 0)  # the first and last sequence of the last batch with records
        self.publishers = 0  # how many records it has
        self.epochs = 0  # bytes of records without messages in the last file
        self.damaged = 0  # records that do not have their CRC
        self.torn: int | None = None  # the first sequence of a batch with records that is not whole

    def read(self, path: str, last: int) -> None:
        """Read a file: its records of batches up to the sequence `last` count."""
        self.snapshot = self.size = self.epochs = 0
        for offset, record, octets in read_places(path):
            if record is None:
                self.damaged += 1
            elif record.last > last:
                self.torn = record.first if record.first <= last else None
                return
            elif record.publisher == NO_PUBLISHER:
                self.snapshot = (1 + record.count) * RECORD
            else:
                self.counts.note([octets])
                self._note_batch(record)
            self.size = offset + RECORD

    def _note_batch(self, record: Record) -> None:
        batch = (record.first, record.last)
        if batch == self.block:
            self.publishers += 1
        elif record.first <= record.last:
            self.block, self.publishers = batch, 1
        else:
            self.epochs += RECORD


def has_snapshot(path: str) -> bool:
    """Return whether a segment's file has its head, and all records of its snapshot."""
    places = read_places(path)
    head = next(places, None)
    if head is None or head.record is None or head.record.publisher != NO_PUBLISHER:
        return False
    before = head.record.last  # the last sequence when the segment was created
    found = [place.record for place in islice(places, head.record.count)]
    return len(found) == head.record.count and all(record is not None and record.last <= before for record in found)
