"""The requests of a task for the objects of a store, and how the bytes that it gets become messages.

A request costs a store and a client as much as a megabyte does. So small objects are read as a whole, with their index,
and large ones some megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from zambezi.spark.backend import READ_SIZE
from zambezi.spark.columns import BatchTimes, Octets
from zambezi.spark.entries import ENTRY, are_consecutive
from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.store.chunk import FOOTER
from zambezi.zeps.store.commands import Procedure
from zambezi.zeps.store.reader import LogReader, OpenedPart, Part, open_whole

Entries: TypeAlias = npt.NDArray[np.void]
Run: TypeAlias = Callable[[Procedure[Any]], Any]  # runs a procedure to its end
GET_SIZE: Final = 8 << 20  # bytes of one request, approximately
WHOLE_SIZE: Final = 2 * GET_SIZE  # bytes of the largest object that is read as a whole


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bytes of an object: the whole object, or those of some entries of its index."""

    part: Part
    start: int
    length: int
    entries: Entries | None = None

    @property
    def is_certain(self) -> bool:
        """Whether these bytes are surely those of the object that was listed.

        A fence can replace a chunk that was merged. It is shorter than the whole chunk.
        """
        return self.entries is None or self.part.is_segment or self.start + self.length > FOOTER

    def cut(self, octets: bytes | memoryview, after: int, last: int) -> Iterator[tuple[Entries, Octets]]:
        """Yield entries and their bytes, about `READ_SIZE` at a time. Raise `StoreDamaged` if bytes are missing."""
        entries = self.entries
        if entries is None:
            entries = entries_between(open_whole(self.part, octets), after, last)
        elif len(octets) != self.length:
            raise StoreDamaged(f"{self.part.key} ends before byte {self.start + self.length}")
        view = np.frombuffer(octets, np.uint8)
        for some in pieces_of(entries, READ_SIZE):
            begin, end = span_of(some)
            yield some, view[begin - self.start : end - self.start]


def wanted_objects(run: Run, reader: LogReader, after: int, last: int) -> Iterator[Wanted]:
    """Yield what to read for the sequences in (after, last], in order. It ends where an object is gone."""
    while after < last:
        part: Part | None = run(reader.find_part(after + 1))
        if part is None:
            return
        if is_read_as_a_whole(part, after, last):
            yield Wanted(part, 0, part.size)
        else:
            opened: OpenedPart | None = run(reader.open(after + 1))
            if opened is None:
                return
            for some in pieces_of(entries_between(opened, after, last), GET_SIZE):
                begin, end = span_of(some)
                yield Wanted(part, begin, end - begin, some)
        after = part.last


def is_read_as_a_whole(part: Part, after: int, last: int) -> bool:
    """Return whether to read a whole object for the sequences in (after, last] that it has."""
    if part.size > WHOLE_SIZE:
        return False
    share = min(last, part.last) - max(after, part.first - 1)
    return part.size <= READ_SIZE or 2 * share > part.last - part.first


def entries_between(opened: OpenedPart, after: int, last: int) -> Entries:
    """Return the entries of an object for the sequences in (after, last]: at least one."""
    entries = np.frombuffer(opened.index, ENTRY)
    if not len(entries) or not are_consecutive(entries):
        raise StoreDamaged(f"{opened.part.key} has a damaged index")
    start = max(0, int(np.searchsorted(entries["first"], after + 1, "right")) - 1)
    return entries[start : max(start + 1, int(np.searchsorted(entries["first"], last, "right")))]


def pieces_of(entries: Entries, size: int) -> Iterator[Entries]:
    """Cut entries into pieces whose messages have about `size` bytes."""
    starts = entries["offset"].astype(np.int64)
    ends = starts + entries["length"].astype(np.int64)
    start = 0
    while start < len(entries):
        stop = max(start + 1, int(np.searchsorted(ends, starts[start] + size, "right")))
        yield entries[start:stop]
        start = stop


def span_of(entries: Entries) -> tuple[int, int]:
    """Return where the messages of consecutive entries begin and end in their object."""
    return int(entries[0]["offset"]), int(entries[-1]["offset"]) + int(entries[-1]["length"])


def last_of(entries: Entries) -> int:
    """Return the last sequence of entries."""
    return int(entries[-1]["first"]) + int(entries[-1]["count"]) - 1


def times_of(entries: Entries) -> BatchTimes:
    """Return the times of the batches."""
    return BatchTimes(entries["first"].astype(np.int64), entries["time"].astype(np.int64))


def check_sums(key: str, octets: Octets, entries: Entries) -> None:
    """Check the CRC of each batch; raise `StoreDamaged` if one does not match."""
    view = octets.data
    begin, _ = span_of(entries)
    for entry in entries:
        start = int(entry["offset"]) - begin
        if crc32(view[start : start + int(entry["length"])]) != entry["crc"]:
            raise StoreDamaged(f"{key}: the batch of sequence {int(entry['first'])} does not match its CRC")
