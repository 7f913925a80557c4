"""A journal, as readers see it: its segments, the batches in them, and the messages that another process has added."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from zambezi.zeps.errors import Absent, JournalError, OutOfRange, Rewritten
from zambezi.zeps.journal import identity as identities
from zambezi.zeps.journal.backing import Backing
from zambezi.zeps.journal.entry import HIGHEST, SIZE, Cuts, IndexEntry, IndexWindow, unpack
from zambezi.zeps.journal.file_cache import FileCache
from zambezi.zeps.journal.identity import Identity
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reader import Reader
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Name, Segment, found_names, uses, without_replaced

_CUTS: Final = 32  # batches whose cuts are cached
_READ_TIMES: Final = 1000  # parts whose times are remembered
_READ_INDEXES: Final = 2  # objects in the store whose indexes are remembered
_BEFORES: Final = 1000  # times whose sequence in the store is remembered

T = TypeVar("T")


class JournalReading:
    """The part of a journal that reads. `Journal` adds the part that writes."""

    # A broker can have ten thousand idle streams: a dictionary for this many attributes takes a kilobyte more.
    __slots__ = (
        "_active",
        "_befores",
        "_cuts",
        "_file_cache",
        "_identity",
        "_is_open",
        "_lock",
        "_path",
        "_read_indexes",
        "_read_times",
        "_write",
        "backing",
        "copied",
        "directory",
        "failed",
        "first",
        "first_time",
        "gaps",
        "generation",
        "incarnation",
        "is_cache",
        "last",
        "last_time",
        "name",
        "octets",
        "policy",
        "problems",
        "removed",
        "segments",
    )

    name: str
    incarnation: UUID
    policy: Policy
    first: int  # the oldest sequence; last + 1 if the stream has no messages
    last: int  # the newest sequence; 0 if the stream never had a message
    octets: int  # the bytes of all logs
    removed: int  # sequences from `first` to `last` whose messages were removed by compaction
    first_time: int  # of the oldest batch, in microseconds since 1970; 0 if the stream has no messages
    last_time: int
    failed: str  # why the stream is stopped; empty if it is not
    problems: list[str]  # damage that was found when the journal was opened
    generation: int  # changes whenever existing messages may have been replaced

    def __init__(self, directory: Path, policy: Policy, file_cache: FileCache, *, write: bool) -> None:
        self.directory = directory
        self.policy = policy
        self.failed = ""
        self.problems = []
        self.generation = 0
        self.segments: list[Segment] = []  # replaced, never modified: readers may be iterating over it
        self._path = str(directory)
        self._file_cache = file_cache
        self._write = write
        self._is_open = True
        self._lock = threading.Lock()
        self._cuts: OrderedDict[tuple[str, int], Cuts] = OrderedDict()
        self.copied: int | None = None  # the last sequence that an object store has a copy of; None if it has none
        self.is_cache = identities.is_cached(directory)  # whether an object store has all messages, and more of them
        self.backing: Backing | None = None  # that store; None in a process that only reads the files
        # Of objects in the store. These are short, and empty in most streams: an empty deque has 760 bytes.
        self._read_times: list[tuple[int, int, list[tuple[int, int]]]] = []
        self._read_indexes: list[Sequence[IndexEntry]] = []
        self._befores: OrderedDict[int, int] = OrderedDict()  # what `before` has found in the store
        self._active: Segment | None = None  # the segment to write to; None if the journal is read-only
        self.gaps: list[str] = []  # messages that damage has removed: readers go on after them

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.last - self.first + 1 - self.removed

    @property
    def is_open(self) -> bool:
        return self._is_open

    def reader(self, after: int) -> Reader:
        """Return a reader that starts right after a sequence."""
        return Reader(self, after)

    def files(self, segment: Segment) -> Files:
        """Return the open files of a segment."""
        try:
            return self._files_of(segment)
        except FileNotFoundError:
            if not self._write:
                self.refresh()
            if segment.last < self.first:  # retention or a trim has removed it
                raise OutOfRange(
                    f"stream {self.name!a}: sequence {segment.first} is not kept any more, the oldest is {self.first}",
                    self.first,
                ) from None
            if segment not in self.segments:
                raise Rewritten(f"{segment.path}{LOG} was written again while it was read: read again") from None
            raise JournalError(
                f"{segment.path}{LOG} or {INDEX} is missing: a broker creates a missing index again when it starts"
            ) from None
        except OSError as error:
            raise JournalError(f"{segment.path}{LOG} cannot be opened: {why(error)}") from error

    def _files_of(self, segment: Segment) -> Files:
        if not self._is_open:
            raise self._unwritable_error()
        return self._file_cache.files(segment, os.O_RDWR if segment is self._active else os.O_RDONLY)

    def cuts(self, segment: Segment, number: int, window: IndexWindow, place: int) -> Cuts:
        """Return the cuts of entry `number` of a segment; the entry is at `place` in the window."""
        key = (segment.path, number)
        with self._lock:
            known = self._cuts.get(key)
            if known is not None:
                self._cuts.move_to_end(key)
                return known
        cuts = segment.read_cuts(self.files(segment), window.entry(place))
        with self._lock:
            self._cuts[key] = cuts
            if len(self._cuts) > _CUTS:
                self._cuts.popitem(last=False)
        return cuts

    def before(self, time: int) -> int:
        """Return the last sequence before the first message at or after `time`, in microseconds since 1970."""
        return retry_rewritten(partial(self._before, time))

    def _before(self, time: int) -> int:
        known = self._befores.get(time)
        if known is not None:
            return max(known, self.first - 1)
        following = self.first
        for segment in self.segments:
            if not segment.entries:
                continue
            if self.is_cache and segment.first > following and segment.first_time >= time:
                raise self._absent_before(time)
            following = segment.last + 1
            if segment.last_time < time:
                continue
            files = self.files(segment)
            number = segment.locate_time(files, time)
            entry = unpack(files.read_entries(number, 1))
            if entry is None:
                raise segment.damage_error(number)
            return max(self.first, entry.first) - 1
        if self.is_cache and following <= self.last and self.last_time >= time:
            raise self._absent_before(time)
        return self.last

    # A cache

    def absent(self, sequence: int) -> JournalError:
        """Return the error for a message that is not on this disk, and is in the store."""
        backing = self.backing
        if backing is None:
            return self.unreachable_error()
        return Absent(
            f"stream {self.name!a}: sequence {sequence} is in the object store, and not on this disk",
            (self, backing.piece_of(sequence)),
            partial(backing.load, self, sequence),
        )

    def _absent_before(self, time: int) -> JournalError:
        backing = self.backing
        if backing is None:
            return self.unreachable_error()

        def find() -> None:
            found = backing.find_before(time)
            with self._lock:
                self._befores[time] = found
                if len(self._befores) > _BEFORES:
                    self._befores.popitem(last=False)

        return Absent(f"stream {self.name!a}: the store must be asked for a time", (self, "before", time), find)

    def unreachable_error(self) -> JournalError:
        """Return the error for a cache whose store is not known here."""
        return JournalError(
            f"{self._path} is a cache of a stream in an object store, and has not all messages: read the stream from "
            "its broker, or from the store; a broker needs [zeps.store]"
        )

    def remember_times(self, first: int, last: int, times: list[tuple[int, int]]) -> None:
        """Remember the times of messages of a cache that were read and wait in memory: they may be evicted."""
        self._read_times.append((first, last, times))
        del self._read_times[:-_READ_TIMES]

    def remembered_time(self, sequence: int) -> int:
        """Return the time of a message that was read a while ago; 0 if that is too long ago."""
        for first, last, times in reversed(self._read_times):
            if first <= sequence <= last:
                return times[bisect_right(times, (sequence, HIGHEST)) - 1][1]
        return 0

    def note_use(self, sequence: int, segment: Segment) -> None:
        """Note that a reader of a cache goes to a sequence, in this segment; raise `Absent` if it is in none."""
        if not segment.first <= sequence <= segment.last:
            raise self.absent(sequence)
        segment.used = next(uses)
        backing = self.backing
        if segment.is_ahead and backing is not None:
            segment.is_ahead = False
            backing.read_ahead(self, segment.last + 1)

    def end_of_run(self, sequence: int) -> int:
        """Return the last sequence of the segment that has a sequence; the one before it if the disk has it not."""
        segments = self.segments
        place = bisect_right(segments, sequence, key=_first) - 1
        return max(sequence - 1, segments[place].last) if place >= 0 else sequence - 1

    def gap_at(self, sequence: int) -> tuple[int, int] | None:
        """Return the first and the last sequence of the gap that has a sequence; None if the disk has the sequence."""
        segments = self.segments
        place = bisect_right(segments, sequence, key=_first)
        low = max(self.first, segments[place - 1].last + 1) if place else self.first
        if sequence < low or place == len(segments):
            return None
        return low, segments[place].first - 1

    def time_after(self, sequence: int) -> int:
        """Return the time of the first message after a sequence, in microseconds since 1970; 0 if there is none."""
        if self.is_cache and sequence < self.first <= self.last:
            return self.first_time
        entries = self.entries(sequence, 1)
        return entries[0].time if entries else 0

    def last_at(self, sequence: int) -> int:
        """Return the last sequence with a message up to this one; `first` - 1 if there is none."""
        return retry_rewritten(partial(self._last_at, sequence))

    def _last_at(self, sequence: int) -> int:
        for segment in reversed(self.segments):
            if segment.first > sequence or not segment.entries:
                continue
            files = self.files(segment)
            for number in range(segment.locate(files, min(sequence, segment.last)), -1, -1):
                entry = segment.read_entry(files, number)
                if not entry.gap:
                    return min(entry.last, sequence)
                cuts = segment.read_cuts(files, entry)
                if kept := cuts.index_of(sequence + 1):
                    return cuts.sequences[kept - 1]
        return self.first - 1

    def entries(self, after: int = 0, limit: int = 1000) -> list[IndexEntry]:
        """Return the index entries with messages after a sequence, `limit` of them at most."""
        return retry_rewritten(partial(self._entries, after, limit))

    def _entries(self, after: int, limit: int) -> list[IndexEntry]:
        found: list[IndexEntry] = []
        while len(found) < limit and (page := self.index_page(after, limit - len(found))):
            for position in range(0, len(page), SIZE):
                entry = unpack(page, position)
                if entry is None:
                    raise JournalError(f"the index of stream {self.name!a} is damaged after sequence {after}")
                found.append(entry)
            after = found[-1].last
        return found

    def index_page(self, after: int, limit: int) -> bytes:
        """Return the bytes of index entries with messages after a sequence: at most `limit` entries, of one segment.

        Entries between the first and the last are not checked one by one.
        """
        wanted = max(self.first, after + 1)
        for segment in self.segments:
            if segment.entries and segment.last > after:
                if self.is_cache and segment.first > wanted:
                    return self._stored_page(wanted, limit)
                files = self.files(segment)
                number = max(0, segment.locate(files, after + 1))
                octets = files.read_entries(number, min(limit, segment.entries - number))
                segment.check_window(octets, number)
                return octets
        return self._stored_page(wanted, limit) if self.is_cache and wanted <= self.last else b""

    def _stored_page(self, sequence: int, limit: int) -> bytes:
        """Return index entries of messages that only the store has; raise `Absent` if its index was not read yet."""
        with self._lock:
            read = self._read_indexes
        for entries in read:
            if entries[0].first <= sequence <= entries[-1].last:
                number = bisect_right(entries, sequence, key=attrgetter("first")) - 1
                return b"".join([entry.pack() for entry in entries[number : number + limit]])
        backing = self.backing
        if backing is None:
            raise self.unreachable_error()

        def load() -> None:
            entries = backing.entries(sequence)
            with self._lock:
                self._read_indexes = [*self._read_indexes, entries][-_READ_INDEXES:]

        raise Absent(
            f"stream {self.name!a}: the index of sequence {sequence} is in the object store, and not on this disk",
            (self, "index", sequence),
            load,
        )

    def refresh(self) -> None:
        """Update a read-only journal from its files, which another process may have changed."""
        if self._write:
            return
        while True:
            identity = identities.read_identity(self.directory)
            if identity.incarnation != self.incarnation:
                self._drop_segments()
                self._set_identity(identity)
            self._scan()
            # If the identity is still the same, all that was read belongs to one incarnation.
            if identities.read_identity(self.directory) == identity:
                return

    def _scan(self) -> None:
        """Read the segments from the directory of a journal that another process may be writing."""
        known = {Name(segment.first, segment.revision): segment for segment in self.segments}
        names = found_names(self.directory)
        segments = []
        self.problems = []
        is_rewritten = any(name.revision for name in names)
        for name, following in zip(names, [*[name.first for name in names[1:]], None], strict=False):
            segment = known.get(name) or Segment(self._path, *name)
            if segment.last + 1 != following:
                try:
                    segment.read_extent(self._file_cache.files(segment))
                except FileNotFoundError:
                    # Retention removed it, or its index is missing. The last segment may not have its index yet.
                    if following is not None and Path(segment.path + LOG).exists():
                        self.problems.append(
                            f"{segment.path}{INDEX} is missing: a broker creates it again when it starts"
                        )
                    continue
                except OSError as error:
                    self.problems.append(f"{error.filename or segment.path} cannot be read: {why(error)}")
                    continue
                if following is not None and segment.last + 1 != following and not (is_rewritten or self.is_cache):
                    self.problems.append(segment.describe_gap(following))
            segments.append(segment)
        if is_rewritten:
            segments, _ = without_replaced(segments)
            gaps = [(one, other) for one, other in pairwise(segments) if one.last + 1 != other.first]
            gaps = [] if self.is_cache else gaps
            self.problems += [one.describe_gap(other.first) for one, other in gaps]
        before = self.segments
        kept = set(map(id, segments))
        for segment in before:
            if id(segment) not in kept:
                self._file_cache.drop(segment)
                if names and segment.last >= names[0].first:
                    self.generation += 1  # it was replaced: readers must look for their segments again
        self.segments = segments
        if before and segments and segments[-1].last < before[-1].last:
            self._drop_segments()
            self.segments = segments
        self._recount()

    def _drop_segments(self) -> None:
        for segment in self.segments:
            self._file_cache.drop(segment)
        self.segments = []
        self._cuts.clear()
        self.generation += 1

    def _set_identity(self, identity: Identity) -> None:
        self.name = identity.name
        self.incarnation = identity.incarnation
        self._identity = identity

    def _recount(self) -> None:
        """Set the totals of the journal from its segments."""
        segments = self.segments
        filled = [segment for segment in segments if segment.entries]
        self.octets = sum([segment.size for segment in segments])
        self.removed = sum([segment.removed for segment in segments])
        self.first_time = filled[0].first_time if filled else 0
        self.last_time = filled[-1].last_time if filled else 0
        self.last = segments[-1].last if segments else 0
        self.first = segments[0].first if segments else 1
        broken = [] if self.is_cache else [pair for pair in pairwise(segments) if pair[0].last + 1 != pair[1].first]
        self.gaps = [segment.describe_gap(following.first) for segment, following in broken]
        if self.backing is not None:
            self._add_backing(self.backing)

    def _add_backing(self, backing: Backing) -> None:
        """Let the totals be those of the stream, of which the disk has a part."""
        if backing.first > backing.last:
            return
        unstored = sum([segment.size for segment in self.segments if segment.first > backing.last])
        self.octets = backing.octets + unstored
        if self.segments[0].first != backing.first or not self.segments[0].entries:
            self.first, self.first_time = backing.first, backing.first_time
        self.last_time = max(self.last_time, backing.last_time)

    def _unwritable_error(self) -> JournalError:
        if self.failed:
            return JournalError(
                f"stream {self.name!a} is stopped: {self.failed}; check the disk and restart: the messages that the "
                "disk has are kept"
            )
        if not self._write:
            return JournalError(f"stream {self.name!a} was opened for reading only")
        return JournalError(f"the journal of stream {self.name!a} is closed")


def _first(segment: Segment) -> int:
    return segment.first


def retry_loading(action: Callable[[], T]) -> T:
    """Return the result of an action that reads segments, on a thread that can wait for the object store."""
    while True:
        try:
            return retry_rewritten(action)
        except Absent as absent:
            absent.load()


def retry_rewritten(action: Callable[[], T]) -> T:
    """Return the result of an action that reads segments; do it again if they were replaced meanwhile."""
    while True:
        try:
            return action()
        except Rewritten:
            continue


def why(error: OSError) -> str:
    """Return the reason of an error of the system."""
    return error.strerror or str(error)
