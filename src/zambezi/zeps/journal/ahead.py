"""The file `ahead`: small appends reach the disk by one write to one file, before the files of their segment do.

A publisher that flushes each message waits for the disk each time. A segment has up to three files, and all of them
grow, so a sync of them also makes the file system commit their sizes. Instead, `Ahead` writes the bytes that were
appended since the last sync into one file, which has its full size from the beginning, and syncs only this file. The
files of the segment are synced when `ahead` is full, when many bytes were appended at once, when the stream is quiet,
and at the end. A stream gets the file when it has had some small syncs in a row.

The journal keeps the appended bytes in memory until then (`keep`), so the thread that syncs reads no file. Each system
call would give the interpreter to the event loop, and wait to get it back.

A record says to which places of which segment its bytes belong. If the system went down, recovery writes them there
(`replay`). These rules make that safe:

- Records follow one another without a gap, from the beginning of the file on. A *run* of them begins where the last
  sync of the segment's files ended. So the disk has everything before a run, and the run has everything after it.
- A run has a random number, which is in each of its records. A new run begins at the beginning of the file again; the
  records of the old run behind it have another number, and do not count. Neither does a record with a wrong CRC.
- To replay a run whose bytes the files have already changes nothing. So a run need not be removed when its bytes are
  synced; but the file must be removed from the disk before anything else than an append changes these bytes.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakSet
from zlib import crc32

from zambezi.zeps.journal.counts import COUNTS, RECORD
from zambezi.zeps.journal.entry import HIGHEST, SIZE
from zambezi.zeps.journal.files import open_file
from zambezi.zeps.journal.identity import sync_directory
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Name, Segment, write_all

AHEAD: Final = "ahead"
ROOM: Final = 1 << 20  # bytes of the file
MOST: Final = 1 << 16  # bytes of a record
OFTEN: Final = 8  # small syncs in a row, after which a stream gets the file
FILES: Final = 64  # streams of a process that have such a file at the same time, so that the disk has room for them
SELDOM: Final = 1000  # small syncs until the next attempt, if the file could not be created
# A magic number, the number of the run, the segment's name, the places and lengths of the bytes (log, index, counts).
_HEAD: Final = struct.Struct(">4s8sQQQQQIII")
_MAGIC: Final = b"ZAHD"
_CRC: Final = struct.Struct(">I")  # of everything before it


class Extent(NamedTuple):
    """How far the files of a segment go, in bytes."""

    segment: Segment
    log_end: int
    index_end: int
    counts_end: int

    @classmethod
    def of(cls, segment: Segment) -> Extent:
        return cls(segment, segment.size, segment.entries * SIZE, segment.count_bytes)


Appended: TypeAlias = tuple[bytes, bytes, bytes]  # to the log, the index and the counts

_made: Final[WeakSet[Ahead]] = WeakSet()


class Ahead:
    """The file `ahead` of a stream that is open for writing. One thread at a time uses it."""

    __slots__ = ("__weakref__", "_descriptor", "_directory", "_octets", "_place", "_run", "_small", "_synced", "kept")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None  # of the file, as long as the stream has it
        self._small = 0  # syncs in a row that could have used the file
        self._run = b""
        self._place = 0  # where the next record goes
        self._synced: Extent | None = None  # what the disk has, by the segment's files or by records
        self.kept: list[Appended] | None = None  # since the last `take`; None: they are not kept
        self._octets = 0  # of these

    @property
    def is_needed(self) -> bool:
        """Whether the disk has some bytes only in this file."""
        return self._place > 0

    def keep(self, appended: Appended) -> None:
        """Keep bytes that were appended for the next record, unless they are too many. The journal has its lock."""
        if self.kept is not None:
            self._octets += sum(map(len, appended))
            if self._octets <= MOST:
                self.kept.append(appended)
            else:
                self.kept = None

    def take(self) -> list[Appended] | None:
        """Return the bytes that were kept, and keep those that follow if a record may need them.

        The journal has its lock: the bytes end at the extent that it will pass to `write`.
        """
        taken, self.kept = self.kept, [] if self._small >= OFTEN - 1 else None
        self._octets = 0
        return taken

    def write(self, files: Files, extent: Extent, appended: list[Appended] | None) -> bool:
        """Sync the bytes that were appended since the last sync, up to an extent. Blocks.

        Return False if it does nothing, because the caller must sync the files of the segment.
        """
        before = self._synced
        if before is None or before.segment is not extent.segment:
            return False
        lengths = (
            extent.log_end - before.log_end,
            extent.index_end - before.index_end,
            extent.counts_end - before.counts_end,
        )
        size = _HEAD.size + sum(lengths) + _CRC.size
        if min(lengths) < 0 or size > MOST:
            self._small = 0
            return False
        self._small += 1
        if self._small <= OFTEN or self._place + size > ROOM or not appended:
            return False
        if self._descriptor is None and not self._make():
            return False
        head = _HEAD.pack(_MAGIC, self._run, extent.segment.first, extent.segment.revision, *before[1:], *lengths)
        log, index, counts = map(b"".join, zip(*appended, strict=True))
        if len(counts) < lengths[2]:  # the head of the file: see `note_sync`
            counts = os.pread(files.counts, lengths[2] - len(counts), before.counts_end) + counts
        record = b"".join((head, log, index, counts))
        if (len(log), len(index), len(counts)) != lengths or not self._write_record(record + _CRC.pack(crc32(record))):
            return False
        self._place += size
        self._synced = extent
        return True

    def _write_record(self, record: bytes) -> bool:
        """Write a record, and sync it; return False if it cannot be written. A failed sync raises `OSError`."""
        descriptor = self._descriptor
        if descriptor is None or not os.fstat(descriptor).st_nlink:  # nobody would find a record in a removed file
            return False
        try:
            if os.pwrite(descriptor, record, self._place) < len(record):
                return False
        except OSError:
            return False
        os.fdatasync(descriptor)
        return True

    def note_sync(self, extent: Extent) -> None:
        """Begin a new run: the disk has the files of the segment up to an extent.

        A file of counts that has only its head was not synced: the run will have the head, too.
        """
        self._synced = extent if extent.counts_end > RECORD else extent._replace(counts_end=0)
        self._run = os.urandom(8)
        self._place = 0

    def remove(self) -> None:
        """Remove the file from the disk. The disk must have the files of the segment. Blocks."""
        self._synced, self._place, self._small = None, 0, 0
        if self._descriptor is not None:
            remove_ahead(self._directory)
            sync_directory(self._directory)
            self.close()

    def close(self) -> None:
        """Close the file, but leave it on the disk."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _made.discard(self)

    def _make(self) -> bool:
        """Create the file with its full size: later writes change no metadata that the disk must have.

        Return False if that fails, for example because there is no room: the stream works without the file.
        """
        path = self._directory / AHEAD
        if len(_made) >= FILES:
            self._small = -SELDOM
            return False
        try:
            self._descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            write_all(self._descriptor, bytes(ROOM), 0)
            os.fsync(self._descriptor)
            sync_directory(self._directory)
        except OSError:
            self._small = -SELDOM
            self.close()
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return False
        _made.add(self)
        return True


def remove_ahead(directory: Path) -> None:
    """Remove the file `ahead` of a stream. The caller syncs the directory if the disk must know."""
    (directory / AHEAD).unlink(missing_ok=True)


def replay(directory: Path) -> None:
    """Write the bytes of the records to their places, after the system went down. Blocks.

    A record whose segment is gone, or that would leave a gap in a file, ends it: the file is damaged, or old.
    """
    for head, octets in _read_records(directory / AHEAD):
        first, revision, *numbers = head
        if not 0 < first <= HIGHEST:
            return
        path = f"{directory}/{Name(first, revision)}"
        if not Path(path + LOG).exists():
            return
        start = 0
        for suffix, place, length in zip((LOG, INDEX, COUNTS), numbers[:3], numbers[3:], strict=True):
            if not _write_again(path + suffix, octets[start : start + length], place):
                return
            start += length


def _write_again(path: str, octets: bytes, place: int) -> bool:
    """Write bytes to a place of a file, and sync it; return False if the file ends before."""
    if not octets:
        return True
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(descriptor).st_size < place:
            return False
        write_all(descriptor, octets, place)
        os.fsync(descriptor)
        return True
    finally:
        os.close(descriptor)


def _read_records(path: Path) -> list[tuple[tuple[int, ...], bytes]]:
    """Return the records of the first run of a file: the numbers of each head, and its bytes."""
    octets = b""
    with suppress(FileNotFoundError):
        descriptor = open_file(path)
        try:
            octets = os.pread(descriptor, ROOM, 0)
        finally:
            os.close(descriptor)
    found: list[tuple[tuple[int, ...], bytes]] = []
    place, current = 0, None
    while len(octets) - place > _HEAD.size:
        magic, run, *numbers = _HEAD.unpack_from(octets, place)
        begin = place + _HEAD.size
        end = begin + sum(numbers[-3:])
        is_whole = magic == _MAGIC and end + _CRC.size <= len(octets) and end - place <= MOST
        if not is_whole or run != (current or run) or _CRC.pack(crc32(octets[place:end])) != octets[end : end + 4]:
            break
        current = run
        found.append((tuple(numbers), octets[begin:end]))
        place = end + _CRC.size
    return found
