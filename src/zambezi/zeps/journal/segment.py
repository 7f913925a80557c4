"""A segment: a log, `<first sequence>.log`, and its index, `<first sequence>.idx`.

The log is nothing but DELIVER messages with their frame headers. What is not indexed is not there: of the log only
`size` octets, of the index only `entries` are looked at, though the files may be longer while something is written,
or after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.entry import SIZE, Cuts, Window, search, unpack

LOG: Final = ".log"
INDEX: Final = ".idx"
OPEN: Final = 64  # segments that are kept open for their readers, of all streams of a store
_NUMBER: Final = Struct(">Q")
_TIME: Final = 16  # where the time stands in an entry
_TAIL: Final = 64  # entries looked at in one go, from the end


def stem_of(first: int) -> str:
    """What the names of a segment's files begin with: in the order of the sequences also as text."""
    return f"{first:020d}"


def first_of(name: str, suffix: str = LOG) -> int | None:
    """The first sequence of the segment whose log (or index) has this name, if it is the name of one."""
    stem, dot, rest = name.partition(".")
    if dot + rest != suffix or len(stem) != 20 or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem) or None


def listing(directory: Path, suffix: str = LOG) -> list[int]:
    """The first sequences of the logs (or indexes) in the directory of a stream."""
    try:
        return sorted([first for path in directory.iterdir() if (first := first_of(path.name, suffix)) is not None])
    except FileNotFoundError:
        raise JournalError(f"{directory} is gone: the stream was deleted") from None


def _write_all(descriptor: int, octets: bytes, offset: int) -> None:
    """Write all of it, though the system takes it in pieces. After a short write the next one says what is wrong."""
    view = memoryview(octets)
    while view:
        written = os.pwrite(descriptor, view, offset)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]
        offset += written


class NotCutBack(Exception):
    """A write failed, and what it left behind is still there."""


class Files:
    """The two open files of a segment. They are closed when nobody refers to them any more."""

    __slots__ = ("__weakref__", "index", "log")

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self.log = self.index = -1
        self.log = os.open(path + LOG, flags, 0o644)
        self.index = os.open(path + INDEX, flags, 0o644)

    def __del__(self, close=os.close) -> None:  # type: ignore[no-untyped-def]
        for descriptor in (self.log, self.index):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    close(descriptor)

    def sync(self) -> None:
        """Have both on disk. The log first: the index must not speak of what is not there."""
        os.fdatasync(self.log)
        os.fdatasync(self.index)

    def read(self, number: int, limit: int) -> bytes:
        """The octets of entries, from `number` on."""
        octets = os.pread(self.index, limit * SIZE, number * SIZE)
        return octets[: len(octets) // SIZE * SIZE]


class Segment:
    """What is known of a segment without opening it. It has the same size however many batches are in it."""

    __slots__ = ("entries", "first", "first_time", "last", "last_time", "path", "size")

    def __init__(self, directory: str, first: int) -> None:
        self.first = first
        self.path = f"{directory}/{stem_of(first)}"  # without the suffix
        self.clear()

    def create(self) -> Files:
        """Make its files, empty."""
        try:
            return Files(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        except OSError:
            with contextlib.suppress(OSError):
                Path(self.path + LOG).unlink()
            raise

    def remove(self) -> None:
        """Remove its files. The log first: an index without a log is known to be on its way out."""
        Path(self.path + LOG).unlink()
        with contextlib.suppress(FileNotFoundError):
            Path(self.path + INDEX).unlink()

    def write(self, files: Files, octets: bytes, index: bytes) -> None:
        """Append to the log, then to the index: all of it, or nothing. What it comes to is for `add`."""
        place = self.entries * SIZE
        try:
            if os.pwrite(files.log, octets, self.size) != len(octets):
                _write_all(files.log, octets, self.size)
            if len(index) > SIZE:
                # Room first: entries that others have seen must not be taken back because there is none for the rest.
                _write_all(files.index, bytes(len(index)), place)
            if os.pwrite(files.index, index, place) != len(index):
                _write_all(files.index, index, place)
        except BaseException:
            try:
                os.ftruncate(files.index, place)
                os.ftruncate(files.log, self.size)
            except OSError as error:
                raise NotCutBack(f"what a failed write left behind could not be cut off: {error.strerror}") from error
            raise

    def clear(self) -> None:
        """Nothing is known of it but its name."""
        self.last = self.first - 1
        self.entries = 0
        self.size = 0
        self.first_time = 0
        self.last_time = 0

    def add(self, last: int, length: int, time: int, entries: int = 1) -> None:
        """So many entries were appended, for so many octets up to a sequence."""
        if not self.entries:
            self.first_time = time
        self.last = last
        self.size += length
        self.last_time = time
        self.entries += entries

    def look(self, files: Files) -> None:
        """Learn from the files how far the segment goes."""
        self.clear()
        log = os.fstat(files.log).st_size
        stop = os.fstat(files.index).st_size // SIZE
        while stop > 0:
            start = max(0, stop - _TAIL)
            octets = files.read(start, stop - start)
            for number in range(len(octets) // SIZE - 1, -1, -1):
                entry = unpack(octets, number * SIZE)
                if entry is not None and entry.end <= log and entry.last >= self.first:
                    head = unpack(files.read(0, 1))
                    if head is None or head.first != self.first or head.offset:
                        return  # an index of something else
                    self.add(entry.last, entry.end, entry.time, start + number + 1)
                    self.first_time = head.time
                    return
            stop = start

    def window(self, files: Files, number: int, limit: int) -> Window:
        """Up to `limit` entries from `number` on. There must be one."""
        octets = files.read(number, min(limit, self.entries - number))
        if octets:
            window = Window(octets)
            if window.is_chain:
                return window
        raise self.damaged(number)

    def damaged(self, number: int) -> JournalError:
        """The error for an index that is not what was written."""
        return JournalError(
            f"{self.path}{INDEX} is damaged near entry {number}: `zambezi journal verify` says more; if the file is "
            "removed, it is made anew when the broker starts"
        )

    def hole(self, following: int) -> str:
        """What is wrong with a segment that does not lead up to the sequence that follows it."""
        if self.last + 1 == following:
            return f"{self.path}{LOG} has octets after sequence {self.last} that are no messages"
        return f"{self.path}{LOG} is damaged: sequences {self.last + 1} to {following - 1} are missing"

    def is_whole(self, files: Files, following: int) -> bool:
        """Whether the segment, as looked at, leads up to the sequence that follows it, and nothing is left over."""
        return (self.last + 1, self.size, self.entries * SIZE) == (
            following,
            os.fstat(files.log).st_size,
            os.fstat(files.index).st_size,
        )

    def cut(self, files: Files, last: int) -> None:
        """Remove what follows a sequence. The index first: what is not indexed is not there."""
        number = self.locate(files, last + 1) if last < self.last else self.entries
        entry = unpack(files.read(number, 1)) if number < self.entries else None
        if number < self.entries and entry is None:
            raise self.damaged(number)
        os.ftruncate(files.index, number * SIZE)
        if entry is not None:
            kept = last - entry.first + 1
            octets = os.pread(files.log, entry.length, entry.offset)
            cuts = Cuts.of(Block(entry.first, entry.last, entry.count, octets, entry.credit))
            length = cuts.starts[kept]
            os.ftruncate(files.log, entry.offset + length)
            if kept:
                part = entry._replace(count=kept, length=length, credit=cuts.spent[kept], crc=crc32(octets[:length]))
                os.pwrite(files.index, part.pack(), number * SIZE)
        self.look(files)

    def locate(self, files: Files, sequence: int) -> int:
        """The number of the entry of the batch that a sequence is in."""

        def is_before(number: int) -> bool:
            return bool(_NUMBER.unpack(os.pread(files.index, 8, number * SIZE))[0] <= sequence)

        return search(self.entries, is_before) - 1

    def locate_time(self, files: Files, time: int) -> int:
        """The number of the first entry at or after a time."""

        def is_before(number: int) -> bool:
            return bool(_NUMBER.unpack(os.pread(files.index, 8, number * SIZE + _TIME))[0] < time)

        return search(self.entries, is_before)

    def __repr__(self) -> str:
        return f"<Segment of {self.first} to {self.last}, {self.size} octets>"


class Shelf:
    """The segments that are open for reading, those used last: a bounded number, whatever is read."""

    def __init__(self, limit: int = OPEN) -> None:
        self._limit = limit
        self._open: OrderedDict[str, Files] = OrderedDict()
        self._lock = threading.Lock()

    def files(self, segment: Segment) -> Files:
        """The files of a segment. They stay open as long as the caller keeps them."""
        with self._lock:
            files = self._open.get(segment.path)
            if files is not None:
                self._open.move_to_end(segment.path)
                return files
            files = self._open[segment.path] = Files(segment.path)
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
            return files

    def put(self, segment: Segment, files: Files) -> None:
        """Files that are open already, of a segment that is not written to any more."""
        with self._lock:
            self._open[segment.path] = files
            if len(self._open) > self._limit:
                self._open.popitem(last=False)

    def drop(self, segment: Segment) -> None:
        """The segment is gone, or is another one now."""
        with self._lock:
            self._open.pop(segment.path, None)

    def clear(self) -> None:
        with self._lock:
            self._open.clear()
