"""Changes of a journal's segments by other threads than the one that appends.

Compaction replaces segments. An operator trims streams. A journal that is a cache of a stream in an object store gets
segments that were read from there, and loses segments that are stored, to make room. Between the segments of a cache
there are gaps. A segment from the store has a revision of its own: no file ever has the name of another one that a
reader may know.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from zambezi.zeps.errors import JournalError, JournalFull, OutOfRange
from zambezi.zeps.journal import identity as identities
from zambezi.zeps.journal.backing import Backing
from zambezi.zeps.journal.counts import Counts
from zambezi.zeps.journal.file_cache import FileCache
from zambezi.zeps.journal.files import EXHAUSTED
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reading import JournalReading, why
from zambezi.zeps.journal.reserve import NO_ROOM, with_reserve
from zambezi.zeps.journal.segment import LOG, Segment, uses
from zambezi.zeps.journal.trim import copy_end

_log: Final = logging.getLogger("zambezi.zeps")
_FULL: Final = EXHAUSTED | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ChangingJournal(JournalReading):
    """The part of a journal that changes the list of its segments."""

    __slots__ = (
        "_is_abandoned",
        "_revision",
        "_trimming",
        "_unsynced",
    )

    counts: Counts  # how many messages of each publisher the stream has

    def __init__(self, directory: Path, policy: Policy, file_cache: FileCache, *, write: bool) -> None:
        super().__init__(directory, policy, file_cache, write=write)
        self._unsynced: dict[int, Segment] = {}
        self._trimming = threading.Lock()  # held during a trim: retention and `truncate` change the same segments
        self._is_abandoned = False  # whether the stream is being deleted
        self._revision = 0  # of the last segment that was read from the store

    @property
    def is_trimming(self) -> bool:
        """Whether `trim` is at work."""
        return self._trimming.locked()

    def _rotate(self) -> Segment:
        """Begin a new segment after the active one."""
        raise NotImplementedError

    def replace_segments(self, old: list[Segment], new: Segment, give_names: Callable[[], None]) -> bool:
        """Replace neighbouring segments by one with the same messages, or fewer; return False if they have changed.

        `give_names` renames the files of the new segment; the disk must have them already. Blocks, but not readers and
        `append`.
        """
        with self._lock:
            place = self.segments.index(old[0]) if old[0] in self.segments else -1
            is_there = place >= 0 and self.segments[place : place + len(old)] == old
            if not is_there or self._active is None or self.is_trimming or self._active in old:
                return False
            give_names()
            self.segments = [*self.segments[:place], new, *self.segments[place + len(old) :]]
            self._recount()
            self.generation += 1
            for segment in old:
                self._unsynced.pop(segment.first, None)
        identities.sync_directory(self.directory)
        for segment in old:
            segment.remove()
            self._file_cache.drop(segment)
        return True

    def give_name(self, segment: Segment, fresh: Path, suffix: str) -> None:
        """Give a file of a segment its name, if the stream still has the segment."""
        with self._lock:
            if segment in self.segments and self._active is not None:
                fresh.rename(segment.path + suffix)

    def _write_error(self, error: OSError) -> JournalError:
        """Return the error for a failed write."""
        if error.errno in _FULL:
            return JournalFull(
                f"stream {self.name!a}: no room in {self._path}: {why(error)}; it goes on when there is room again"
            )
        return JournalError(f"stream {self.name!a}: cannot write to {self._path}: {why(error)}")

    # Trimming

    def _remove_oldest(self, rest: list[Segment] | None = None) -> bool:
        """Remove the oldest segment, and put its rest into its place, if it is trimmed. Return False during a trim."""
        instead = rest or []
        with self._lock:
            if self.is_trimming and rest is None:
                return False
            oldest = self.segments[0]
            self.segments = [*instead, *self.segments[1:]]
            self.generation += bool(instead)  # readers must leave the segment although they want messages of it
            self._recount()
        try:
            oldest.remove()
        except OSError:
            with self._lock:
                self.segments = [oldest, *self.segments[len(instead) :]]
                self._recount()
            raise
        with self._lock:
            self._unsynced.pop(oldest.first, None)
        self._file_cache.drop(oldest)
        return True

    def trim(self, first: int, check: Callable[[], object] = lambda: None) -> None:
        """Remove all messages before a sequence, by an operator's command. Blocks, but no other use of the journal.

        Whole segments go first, which needs no room on the disk. The rest of the last one is copied. If the disk has no
        room for it, `JournalFull` says so, and from which message on the stream could begin without a copy.

        It ends early if `check`, which is called now and then, raises an error.
        """

        def go_on() -> None:
            check()
            if self._is_abandoned:
                raise JournalError(f"stream {self.name!a} was deleted while it was trimmed")

        with self._trimming:
            self._check_trim(first)
            try:
                while self.segments[0] is not self._active and self.segments[0].last < first:
                    go_on()
                    self._remove_oldest([])
                self._leave_active(first)
                while self.segments[0].first < first:
                    go_on()
                    self._remove_oldest(self._rest_of(self.segments[0], first, go_on))
            except OSError as error:
                raise self._write_error(error) from error

    def _check_trim(self, first: int) -> None:
        with self._lock:
            if self.failed or self._active is None:
                raise self._unwritable_error()
            if not 1 <= first <= self.last + 1:
                raise OutOfRange(
                    f"stream {self.name!a} has sequences {self.first} to {self.last}: it cannot begin at {first}",
                    self.first,
                )

    def _leave_active(self, first: int) -> None:
        """Begin a new segment, if the active one has messages to remove: a segment that is being written stays."""
        with self._lock:
            if self._active is None:
                raise self._unwritable_error()
            if self._active.first < first:
                with_reserve(self.directory.parent, self._rotate)

    def _rest_of(self, segment: Segment, first: int, check: Callable[[], object]) -> list[Segment]:
        """Return what takes the place of a segment without its messages before a sequence."""
        if segment.last < first:
            return []
        try:
            copy = partial(copy_end, segment, first, self.counts.limit, check)
            return [with_reserve(self.directory.parent, copy)]
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise JournalFull(
                f"stream {self.name!a}: no room in {self._path}: {why(error)}. The stream begins with {self.first} "
                f"now. To begin with {first}, the messages up to {segment.last} must be copied; to begin with "
                f"{segment.last + 1} needs no room"
            ) from error

    # A cache

    def become_cache(self, backing: Backing) -> None:
        """Use a store that has all messages of this journal. Blocks.

        The journal then ends where the store ends: messages after its own last one are a gap.
        """
        with self._lock:
            if self._active is None:
                raise self._unwritable_error()
            identities.write_cached(self.directory, sync=not self.is_cache)
            self.is_cache, self.backing = True, backing
            self._revision = max(segment.revision for segment in self.segments)
            if backing.last > self.last:
                self._begin_after(backing.last)
            self._recount()

    def _begin_after(self, last: int) -> None:
        """Let the next message have the sequence after `last`: only the store has the messages before it."""
        before = self.segments[-1]
        self.last = last
        self._rotate()
        if not before.entries:
            self._take_out(before)
            self._remove_files(before)

    def next_revision(self) -> int:
        """Return a revision that no segment of this journal ever had."""
        with self._lock:
            self._revision += 1
            return self._revision

    def insert(self, segment: Segment) -> bool:
        """Add a segment that was read from the store; return False if the disk has some of its messages already."""
        with self._lock:
            gap = self.gap_at(segment.first)
            if self._active is None or gap is None or segment.first < gap[0] or segment.last > gap[1]:
                return False
            segments = [*self.segments, segment]
            segments.sort(key=lambda one: one.first)
            self.segments = segments
            return True

    def evict(self, segment: Segment) -> bool:
        """Remove a segment from the disk, if the store has it. Blocks, but not readers and `append`."""
        with self._lock:
            backing = self.backing
            if (
                backing is None
                or self._active is None
                or self.is_trimming
                or segment is self._active
                or segment not in self.segments
                or not backing.first - 1 <= segment.last <= backing.last
            ):
                return False
            self._take_out(segment)
        self._remove_files(segment)
        return True

    def close_active(self) -> Segment | None:
        """Begin a new segment, and return the one before, which can be evicted now.

        Return None if it has no messages, or some that the store does not have.
        """
        with self._lock:
            active, backing = self._active, self.backing
            if active is None or backing is None or self.failed or not active.entries or active.last > backing.last:
                return None
            try:
                self._rotate()
            except OSError as error:
                raise JournalError(f"stream {self.name!a}: a new segment cannot begin: {why(error)}") from error
            active.used = next(uses)
            return active

    def follow_backing(self) -> int:
        """Remove the segments whose messages are removed from the stream in the store; return how many messages."""
        with self._lock:
            if self.backing is None or self._active is None or self.is_trimming:
                return 0
            first = self.backing.first
            if first == self.first and (self.segments[0].last >= first or len(self.segments) == 1):
                return 0
            old = [segment for segment in self.segments[:-1] if segment.last < first]
            for segment in old:
                self._take_out(segment)
            before = self.first
            self._recount()
        for segment in old:
            self._remove_files(segment)
        return max(0, self.first - before)

    def drop_trimmed(self) -> None:
        """Remove the segments that have messages before the stream in the store begins, and perhaps others. Blocks.

        The others can be read from the store.
        """
        active, backing = self._active, self.backing
        if backing is None or active is None:
            return
        if active.first < backing.first:
            self.close_active()
        self.follow_backing()
        for segment in self.segments[:-1]:
            if segment.first < backing.first:
                self.evict(segment)

    def _take_out(self, segment: Segment) -> None:
        self.segments = [one for one in self.segments if one is not segment]
        self._unsynced.pop(segment.first, None)

    def _remove_files(self, segment: Segment) -> None:
        """Remove the files of a segment. A file that stays is found by the next start."""
        try:
            segment.remove()
        except OSError as error:
            _log.warning("%s%s cannot be removed: %s", segment.path, LOG, why(error))
        self._file_cache.drop(segment)

    @property
    def local_octets(self) -> int:
        """The bytes of all files on this disk, approximately."""
        return sum([segment.disk_octets for segment in self.segments])
