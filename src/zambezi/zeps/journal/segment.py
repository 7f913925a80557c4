"""A segment: a log, `<first sequence>.log`, its index, `<first sequence>.idx`, and its counts, `<first sequence>.cnt`.

A segment that was written again has a revision: `<first sequence>-<revision>.log`. Its files are complete before the
log gets its name, and the segments that it replaces are removed afterwards. So if two segments overlap, because a crash
came in between, the one with the higher revision counts (`without_replaced`).

The log is nothing but DELIVER messages with their frame headers. A message exists once it is indexed: readers use only
the first `size` bytes of the log and the first `entries` entries of the index. The files can be longer during a write,
or after a crash. `zambezi.zeps.journal.counts` describes the third file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.counts import COUNTS, Counts, Recount, has_snapshot
from zambezi.zeps.journal.entry import HIGHEST, SIZE, Cuts, IndexEntry, IndexWindow, count_before, unpack
from zambezi.zeps.journal.files import fresh_path, open_file, write_small
from zambezi.zeps.journal.identity import sync_directory
from zambezi.zeps.journal.keytable import KEYS
from zambezi.zeps.layout import LONG, SHORT, frame_header

LOG: Final = ".log"
INDEX: Final = ".idx"
_NUMBER: Final = struct.Struct(">Q")
_FIRST: Final = 0  # the offset of the first sequence in an entry
_OFFSET: Final = 8  # that of the offset in the log
_TIME: Final = 16  # and that of the time
_TAIL: Final = 64  # entries that are read at once, from the end
_TAILS: Final = 64  # how many times
_CHUNK: Final = 4096  # entries that are read at once, of all
COUNTS_MOST: Final = 16 << 20  # bytes of counts after the snapshot, if the snapshot is not longer
uses: Final = count()  # a clock that counts how often segments of caches are used

Each: TypeAlias = Callable[[Callable[[int], None], Iterable[int]], Iterable[None]]  # `map`, or one with threads

_opening: Final = threading.Lock()  # so that two threads do not open the same file of counts


class Name(NamedTuple):
    """The name of a segment: its first sequence, and how often it was written again."""

    first: int
    revision: int = 0

    def __str__(self) -> str:
        """Return the beginning of the names of its files. They sort as text in the order of the sequences."""
        return f"{self.first:020d}-{self.revision}" if self.revision else f"{self.first:020d}"


def name_of(file: str, suffix: str = LOG) -> Name | None:
    """Return the name of the segment whose log (or index) has this file name; None for any other file name."""
    stem, dot, rest = file.partition(".")
    first, _, revision = stem.partition("-")
    if dot + rest != suffix or len(first) != 20 or len(revision) > 18 or not (first + revision).isdigit():
        return None
    name = Name(int(first), int(revision or 0))
    return name if str(name) == stem and 0 < name.first <= HIGHEST else None


def found_names(directory: Path, suffix: str = LOG) -> list[Name]:
    """Return the names of the segments whose logs (or indexes) are in the directory of a stream, in order."""
    try:
        return sorted([name for path in directory.iterdir() if (name := name_of(path.name, suffix)) is not None])
    except FileNotFoundError:
        raise JournalError(f"{directory} is gone: the stream was deleted") from None
    except OSError as error:
        raise JournalError(f"{directory} cannot be read: {error.strerror or error}") from error


def write_all(descriptor: int, octets: bytes | memoryview, offset: int) -> None:
    """Write all bytes, even if the system takes them in pieces. After a short write the next one raises the error."""
    view = memoryview(octets)
    while view:
        written = os.pwrite(descriptor, view, offset)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]
        offset += written


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file piece by piece, and sync it to the disk."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        offset = 0
        for octets in pieces:
            write_all(descriptor, octets, offset)
            offset += len(octets)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def without_replaced(segments: Iterable[Segment]) -> tuple[list[Segment], list[Segment]]:
    """Return the segments that count, and those that others have replaced. Their extents must be known."""
    kept: list[Segment] = []
    replaced: list[Segment] = []
    for segment in sorted(segments, key=lambda one: (one.first, one.revision)):
        while kept and (kept[-1].last >= segment.first or kept[-1].first == segment.first):
            if segment.revision <= kept[-1].revision:
                replaced.append(segment)
                break
            replaced.append(kept.pop())
        else:
            kept.append(segment)
    return kept, replaced


class PartialWrite(Exception):
    """A write failed, and the part that it wrote could not be cut off."""


class Files:
    """The open files of a segment. They are closed when the last reference to this object is gone.

    The file of counts is opened by its first use: most segments are only read, and few streams have publishers that
    count.
    """

    __slots__ = ("__weakref__", "_counts", "_path", "index", "log")

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self.log = self.index = self._counts = -1
        self._path = path
        self.log = open_file(path + LOG, flags)
        self.index = open_file(path + INDEX, flags)

    def __del__(self, close=os.close) -> None:  # type: ignore[no-untyped-def]
        for descriptor in (self.log, self.index, self._counts):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    close(descriptor)

    @property
    def counts(self) -> int:
        """The descriptor of the file of counts, for writing."""
        if self._counts < 0:
            with _opening:
                if self._counts < 0:
                    self._counts = open_file(self._path + COUNTS, os.O_RDWR | os.O_CREAT)
        return self._counts

    def reopen_counts(self) -> None:
        """Close the file of counts, which was replaced; the next use opens the new one."""
        if self._counts >= 0:
            os.close(self._counts)
            self._counts = -1

    def sync(self, with_counts: bool = True, each: Each = map) -> None:
        """Write the files to the disk. `each` calls a function for each of them, one after the other or at once.

        File systems commit files together that are synced at once. If the system goes down meanwhile, the index can
        refer to missing messages or counts; the kernel, too, writes the files in any order. Recovery expects that.
        """
        counts = [self.counts] if with_counts else []
        for _ in each(os.fdatasync, [*counts, self.log, self.index]):
            pass

    def read_log(self, offset: int, length: int) -> bytes:
        """Return bytes of the log: fewer than `length` if the log ends before. No more memory is used than it has."""
        length = min(length, os.fstat(self.log).st_size - offset)
        octets = os.pread(self.log, length, offset) if length > 0 else b""
        while 0 < len(octets) < length and (more := os.pread(self.log, length - len(octets), offset + len(octets))):
            octets += more
        return octets

    def has_message(self, offset: int, length: int) -> bool:
        """Return whether the header of a large message is in the log: a check before its memory is allocated."""
        header = frame_header(length - (LONG if length > SHORT + 255 else SHORT))
        return os.pread(self.log, len(header), offset) == header

    def read_entries(self, number: int, limit: int) -> bytes:
        """Return the bytes of up to `limit` entries, from `number` on."""
        octets = os.pread(self.index, limit * SIZE, number * SIZE)
        return octets[: len(octets) // SIZE * SIZE]

    def read_field(self, number: int, offset: int) -> bytes:
        """Return a field of eight bytes of the entry `number`; fewer if the index ends before."""
        return os.pread(self.index, _NUMBER.size, number * SIZE + offset)


class Segment:
    """The facts about a segment that need no open files. Their size does not depend on the number of batches."""

    __slots__ = (
        "count_bytes",
        "entries",
        "epoch_bytes",
        "first",
        "first_time",
        "has_table",
        "is_ahead",
        "last",
        "last_time",
        "path",
        "removed",
        "revision",
        "size",
        "snapshot_bytes",
        "used",
    )

    def __init__(self, directory: str, first: int, revision: int = 0) -> None:
        self.first = first
        self.revision = revision
        self.path = f"{directory}/{Name(first, revision)}"  # without the suffix
        self.count_bytes = 0  # of the file of counts
        self.snapshot_bytes = 0  # of these, the beginning
        self.epoch_bytes = 0  # of these, records without messages
        self.has_table = False  # whether it is known to have a table of keys
        self.is_ahead = False  # whether it was read from an object store before a reader wanted it
        self.used = next(uses)  # when a reader of a cache last came to it; the lowest number is removed first
        self.reset()

    def create(self, snapshot: bytes | None = None) -> Files:
        """Create its files: the counts begin with a snapshot, the others are empty."""
        if snapshot is None:
            snapshot = Counts(0).snapshot(self.first)
        try:
            files = Files(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.ftruncate(files.counts, 0)
            write_all(files.counts, snapshot, 0)
            self.snapshot_bytes = self.count_bytes = len(snapshot)
        except OSError:
            for suffix in (LOG, INDEX, COUNTS):
                with contextlib.suppress(OSError):
                    Path(self.path + suffix).unlink()
            raise
        return files

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.last - self.first + 1 - self.removed

    @property
    def disk_octets(self) -> int:
        """The bytes of its files."""
        return self.size + self.entries * SIZE + self.count_bytes

    @property
    def has_many_counts(self) -> bool:
        """Whether the counts are so long that a new segment must begin: recovery reads all of them."""
        room = max(COUNTS_MOST, self.snapshot_bytes)
        records = self.count_bytes - self.snapshot_bytes
        return records - self.epoch_bytes > room or records > 4 * room

    @property
    def has_many_epochs(self) -> bool:
        """Whether most of the counts are records without messages, and they must be replaced by a snapshot."""
        return self.epoch_bytes > max(COUNTS_MOST, self.snapshot_bytes)

    def write_fresh_counts(self, snapshot: bytes) -> Path:
        """Write a file that is to replace the counts, sync it to the disk, and return its path."""
        fresh = fresh_path(self.path + COUNTS)
        write_small(fresh, snapshot, sync=True)
        return fresh

    def take_fresh_counts(self, files: Files, fresh: Path, snapshot: int, begin: int) -> None:
        """Replace the counts by a fresh file; records after the byte `begin` of the old one are added to it."""
        added = os.pread(files.counts, self.count_bytes - begin, begin)
        if added:
            descriptor = open_file(fresh, os.O_WRONLY)
            try:
                write_all(descriptor, added, snapshot)
            finally:
                os.close(descriptor)
        fresh.rename(self.path + COUNTS)
        files.reopen_counts()
        self.snapshot_bytes, self.count_bytes, self.epoch_bytes = snapshot, snapshot + len(added), 0

    def replace_counts(self, files: Files, snapshot: bytes) -> None:
        """Replace the counts by a snapshot, and let no entry have counts. Blocks.

        The entries go first: an entry without counts is right in any case.
        """
        self.uncount(files, self.first, self.entries)
        os.fdatasync(files.index)
        self.take_fresh_counts(files, self.write_fresh_counts(snapshot), len(snapshot), self.count_bytes)
        sync_directory(Path(self.path).parent)

    def drop_table(self) -> None:
        """Remove the table of keys: the segment is changed."""
        with contextlib.suppress(FileNotFoundError):
            Path(self.path + KEYS).unlink()
        self.has_table = False

    def drop_counts(self) -> None:
        """Remove the file of counts: later segments have all of them."""
        with contextlib.suppress(OSError):  # a file that stays does no harm
            Path(self.path + COUNTS).unlink()

    def remove(self) -> None:
        """Remove its files. The log goes first: recovery knows the others without a log as a removal in progress."""
        Path(self.path + LOG).unlink()
        for suffix in (INDEX, COUNTS, KEYS):
            with contextlib.suppress(FileNotFoundError):
                Path(self.path + suffix).unlink()

    def write(self, files: Files, octets: bytes, index: bytes, counts: bytes = b"") -> None:
        """Append to the counts, the log and then the index: everything or nothing. The caller calls `note_append`."""
        place = self.entries * SIZE
        try:
            if counts and os.pwrite(files.counts, counts, self.count_bytes) != len(counts):
                write_all(files.counts, counts, self.count_bytes)
            if os.pwrite(files.log, octets, self.size) != len(octets):
                write_all(files.log, octets, self.size)
            if len(index) > SIZE:
                # Reserve the room first: entries that readers have seen must not be removed if the rest does not fit.
                write_all(files.index, bytes(len(index)), place)
            if os.pwrite(files.index, index, place) != len(index):
                write_all(files.index, index, place)
        except BaseException:
            try:
                os.ftruncate(files.index, place)
                os.ftruncate(files.log, self.size)
                if counts:
                    os.ftruncate(files.counts, self.count_bytes)
            except OSError as error:
                raise PartialWrite(
                    f"the part that a failed write left could not be cut off: {error.strerror}"
                ) from error
            raise

    def reset(self) -> None:
        """Forget the content: the segment counts as empty."""
        self.last = self.first - 1
        self.entries = 0
        self.size = 0
        self.removed = 0  # sequences whose messages were removed
        self.first_time = 0
        self.last_time = 0

    def note_append(self, last: int, length: int, time: int, entries: int = 1, counts: int = 0) -> None:
        """Count `entries` that were appended, with `length` bytes of messages up to `last`, and bytes of `counts`."""
        self.count_bytes += counts
        if not self.entries:
            self.first_time = time
        self.last = last
        self.size += length
        self.last_time = time
        self.entries += entries

    def read_extent(self, files: Files) -> None:
        """Set all fields from the files: how far the segment goes."""
        self.reset()
        log = os.fstat(files.log).st_size
        stop = os.fstat(files.index).st_size // SIZE
        found = self._last_entry(files, stop, log)
        if found is None and stop > _TAIL * _TAILS:
            # A longer tail than a crash leaves behind, such as a hole in the file: look for its beginning.
            stop = count_before(
                stop, lambda number: self._good_entry(files.read_entries(number, 1), number, log) is not None
            )
            found = self._last_entry(files, stop, log)
        head = unpack(files.read_entries(0, 1))
        if found is None or head is None or head.first != self.first or head.offset:
            return  # it is empty, or the index is of another segment
        number, entry = found
        self.note_append(entry.last, entry.end, entry.time, number + 1)
        self.removed = entry.removed + entry.gap
        self.first_time = head.time

    def _last_entry(self, files: Files, stop: int, log: int) -> tuple[int, IndexEntry] | None:
        """Return the last good entry before the entry `stop`, with its number; look at some thousand entries only."""
        for _ in range(_TAILS):
            start = max(0, stop - _TAIL)
            octets = files.read_entries(start, stop - start)
            for number in range(len(octets) // SIZE - 1, -1, -1):
                entry = self._good_entry(octets[number * SIZE :], start + number, log)
                if entry is not None:
                    return start + number, entry
            stop = start
        return None

    def _good_entry(self, octets: bytes, number: int, log: int) -> IndexEntry | None:
        """Return an entry if its batch is in the log, and so many entries can be before it; else None."""
        entry = unpack(octets)
        if entry is None or entry.end > log or entry.last < self.first + number:
            return None
        return entry

    def load_window(self, files: Files, number: int, limit: int) -> IndexWindow:
        """Return up to `limit` entries from `number` on. At least one must exist."""
        octets = files.read_entries(number, min(limit, self.entries - number)) if number >= 0 else b""
        return self.check_window(octets, number)

    def check_window(self, octets: bytes, number: int) -> IndexWindow:
        """Return consecutive entries from `number` on as columns; raise `JournalError` if they are damaged."""
        # If the last entry is good and follows from the sums of all others, all of them are taken for good.
        if octets and unpack(octets, len(octets) - SIZE) is not None:
            with contextlib.suppress(OverflowError):
                window = IndexWindow(octets)
                if window.is_chain:
                    return window
        raise self.damage_error(max(0, number))

    def damage_error(self, number: int) -> JournalError:
        """Return the error for an index that is damaged near an entry."""
        return JournalError(
            f"{self.path}{INDEX} is damaged near entry {number}: `zambezi journal verify` says more; if you remove "
            "the file, the broker creates it again from the log when it starts"
        )

    def describe_gap(self, following: int) -> str:
        """Return what is wrong with a segment that does not end just before the sequence `following`."""
        if self.last + 1 == following:
            return f"{self.path}{LOG} has bytes after sequence {self.last} that are not messages"
        return f"{self.path}{LOG} is damaged: sequences {self.last + 1} to {following - 1} are missing"

    def is_whole(self, files: Files, following: int) -> bool:
        """Return whether the segment ends just before the sequence `following`, and its files have no bytes more."""
        return (self.last + 1, self.size, self.entries * SIZE) == (
            following,
            os.fstat(files.log).st_size,
            os.fstat(files.index).st_size,
        )

    def cut_after(self, files: Files, last: int) -> None:
        """Remove all messages after a sequence. The index is cut first: a message without an entry does not exist."""
        number = self.locate(files, last + 1) if last < self.last else self.entries
        entry = unpack(files.read_entries(number, 1)) if 0 <= number < self.entries else None
        if number < self.entries and (entry is None or not entry.first <= last + 1 <= entry.last):
            raise self.damage_error(max(0, number))
        if entry is None:
            os.ftruncate(files.index, number * SIZE)
        else:
            cuts = self.read_cuts(files, entry)
            kept = cuts.index_of(last + 1)
            length = cuts.starts[kept]
            is_covered = last >= entry.first
            # A batch that is cut has an entry at every moment: a process that is killed must not lose its beginning.
            os.ftruncate(files.index, (number + is_covered) * SIZE)
            if is_covered:
                crc = crc32(files.read_log(entry.offset, length))
                part = entry._replace(count=kept, length=length, credit=cuts.spent[kept], crc=crc, publishers=0)
                part = part._replace(gap=last - entry.first + 1 - kept)
                os.pwrite(files.index, part.pack(), number * SIZE)
            os.ftruncate(files.log, entry.offset + length)
        self.read_extent(files)

    def cut_counts(self, files: Files, counts: Counts, last: int) -> None:
        """Keep the counts of all publishers, whatever of their messages `cut_after` will remove.

        It comes before `cut_after`: recovery removes a batch that is cut, if the counts are of the whole batch.
        """
        found = Recount(Counts(counts.limit))
        found.read(self.path, last)
        if not found.snapshot or not has_snapshot(self.path):  # it was an old segment
            counts.move_to(last)
            self.replace_counts(files, counts.snapshot(last + 1))
            return
        if last < self.last:
            self.uncount(files, last + 1 if found.torn is None else found.torn, self.entries)
        moved = counts.move_to(last)
        os.ftruncate(files.counts, found.size)
        write_all(files.counts, moved, found.size)
        self.count_bytes, self.snapshot_bytes = found.size + len(moved), found.snapshot

    def uncount(self, files: Files, first: int, stop: int) -> None:
        """Let the entries from a sequence on, before the entry `stop`, say that they have no counts."""
        number = max(0, self.locate(files, first)) if stop else 0
        while number < stop:
            octets = files.read_entries(number, min(_CHUNK, stop - number))
            entries = [unpack(octets, position) for position in range(0, len(octets), SIZE)]
            changed = [entry._replace(publishers=0).pack() for entry in entries if entry is not None]
            if len(changed) < len(entries) or not entries:
                raise self.damage_error(number)
            write_all(files.index, b"".join(changed), number * SIZE)
            number += len(entries)

    def read_all_entries(self, files: Files) -> Iterator[IndexEntry]:
        """Yield all entries that are valid."""
        for number in range(0, self.entries, _CHUNK):
            octets = files.read_entries(number, min(_CHUNK, self.entries - number))
            for position in range(0, len(octets), SIZE):
                if (entry := unpack(octets, position)) is not None:
                    yield entry

    def read_cuts(self, files: Files, entry: IndexEntry) -> Cuts:
        """Return the places where the batch of an entry can be cut; raise `JournalError` if the batch is damaged."""
        if entry.count == 1 and not entry.gap:
            return Cuts((0, entry.length), (0, entry.credit), (entry.first,))
        if not entry.count:
            return Cuts((0,), (0,), ())
        if entry.is_possible and (entry.count > 1 or files.has_message(entry.offset, entry.length)):
            block = Block(
                entry.first, entry.last, entry.count, files.read_log(entry.offset, entry.length), entry.credit
            )
            with contextlib.suppress(ValueError, IndexError, OverflowError, struct.error):
                cuts = Cuts.of(block)
                if (
                    len(cuts.starts) == entry.count + 1
                    and (cuts.starts[-1], cuts.spent[-1])
                    == (
                        entry.length,
                        entry.credit,
                    )
                    and (not entry.gap or _are_in_order(cuts.sequences, entry))
                ):
                    return cuts
        raise JournalError(
            f"{self.path}{LOG} is damaged between {entry.offset} and {entry.end}: `zambezi journal verify` says more"
        )

    def locate(self, files: Files, sequence: int) -> int:
        """Return the number of the entry whose batch contains a sequence."""

        return count_before(self.entries, lambda number: self._field(files, number, _FIRST) <= sequence) - 1

    def locate_time(self, files: Files, time: int) -> int:
        """Return the number of the first entry at or after a time."""

        return count_before(self.entries, lambda number: self._field(files, number, _TIME) < time)

    def locate_offset(self, files: Files, offset: int, start: int = 0) -> int:
        """Return the number of the first entry, from `start` on, whose batch begins at or after a byte of the log."""
        return start + count_before(
            self.entries - start, lambda number: self._field(files, start + number, _OFFSET) < offset
        )

    def read_entry(self, files: Files, number: int) -> IndexEntry:
        """Return an entry."""
        entry = unpack(files.read_entries(number, 1))
        if entry is None:
            raise self.damage_error(number)
        return entry

    def _field(self, files: Files, number: int, offset: int) -> int:
        """Return a field of eight bytes of an entry."""
        octets = files.read_field(number, offset)
        if len(octets) < _NUMBER.size:
            raise self.damage_error(number)  # the file was truncated
        return int(_NUMBER.unpack(octets)[0])

    def __repr__(self) -> str:
        return f"<Segment of {self.first} to {self.last}, {self.size} bytes>"


def _are_in_order(sequences: Sequence[int], entry: IndexEntry) -> bool:
    """Return whether sequences are in the range of an entry, each greater than the one before."""
    numbers = [entry.first - 1, *sequences, entry.last + 1]
    return all(before < after for before, after in pairwise(numbers))
