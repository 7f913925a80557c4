"""The journal of one stream: the bytes that are appended are the bytes that are replayed. (ZEP-09)

A journal is a directory with `stream.json` and with segments. A segment is a log of messages as they go out, an index
with an entry for each batch, and the counts of publishers. `append` makes one write to the counts (if a publisher
counts its messages), one to the log and then one to the index, on the thread of the event loop. A reader, in this
process or another one, sees the messages that are indexed. `sync` writes them to the disk, on a thread that can wait.

Facts that shape this module:

- The operating system keeps the writes of a process that is killed. So a confirmation that is sent after the
  writes survives every crash but that of the machine.
- A write that fails in the middle (no room) leaves a part of it in the file. The journal cuts it off at once, so that
  the next attempt finds the files as they were; if that fails too, the stream stops.
- After a failed fsync the kernel may mark the pages as clean although the disk does not have them, and the next fsync
  would succeed. So the first failure is final: the stream stops, and the mark that stays behind tells the next start
  to trust the disk only.
- `append` and `sync` run at the same time. A lock protects the fields that both use; it is held for moments, and never
  while a thread waits for the disk.
- An idle stream has no mark. The mark must be on the disk before the stream accepts a message: otherwise a crash of
  the system could leave a journal that seems whole but lacks messages that subscribers have seen. So waking an idle
  stream needs a sync. `append` does it if its thread may block (`may_block`); otherwise it raises `Asleep` until
  another thread has called `wake`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from zambezi.zeps.about import about
from zambezi.zeps.block import Block
from zambezi.zeps.errors import Asleep, JournalError, OutOfRange
from zambezi.zeps.journal import identity as identities
from zambezi.zeps.journal.ahead import Ahead, Appended, Extent
from zambezi.zeps.journal.changing import ChangingJournal
from zambezi.zeps.journal.counts import RECORD, Count, Counts
from zambezi.zeps.journal.counts import pack as pack_count
from zambezi.zeps.journal.entry import SIZE, pack_entries
from zambezi.zeps.journal.file_cache import FileCache
from zambezi.zeps.journal.files import EXHAUSTED
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.positions import Positions
from zambezi.zeps.journal.reading import why
from zambezi.zeps.journal.recovery import recover
from zambezi.zeps.journal.reserve import with_reserve
from zambezi.zeps.journal.segment import LOG, Each, PartialWrite, Segment

_log: Final = logging.getLogger("zambezi.zeps")

_QUIET: Final = 2  # consecutive syncs without new messages, after which the file `ahead` is removed
_IDLE: Final = 10  # consecutive syncs without new messages, after which the mark is removed
_MICRO: Final = 1_000_000


class Journal(ChangingJournal):
    """The journal of a stream, opened by `Store.open`. One thread calls `append`; others call `sync` and `wake`."""

    __slots__ = (
        "_ahead",
        "_compacted",
        "_count_writes",
        "_counted_from",
        "_idle",
        "_is_counted",
        "_is_marked",
        "_marked",
        "_names_unsynced",
        "_syncing",
        "_wants_counts",
        "counts",
        "may_block",
        "positions",
        "settings",
        "synced",
    )

    synced: int  # the last sequence that the disk is known to have
    positions: Positions  # how far named readers have come; a journal that is only read has none
    settings: dict[str, object]  # of this stream alone, given by a client
    may_block: bool  # whether `append` may wait for the disk to wake an idle stream; if not, it raises `Asleep`

    def __init__(self, directory: Path, policy: Policy, file_cache: FileCache, *, write: bool) -> None:
        super().__init__(directory, policy, file_cache, write=write)
        self.may_block = True
        self.settings = {}
        self._syncing = threading.Lock()  # held during a sync, so that `close` waits for it
        self._ahead = Ahead(directory)  # used by the thread that has `_syncing`
        self._is_marked = False
        self._marked = 0  # the sequence in the mark
        self._names_unsynced = False
        self._count_writes = 0  # how often counts were written without messages
        self._idle = 0
        self._is_counted = identities.is_counted(directory)
        self._compacted = identities.read_compacted(directory)  # the last sequence that was compacted
        self._counted_from = 0  # no segment before this sequence has a file of counts
        self._wants_counts = False  # whether `wake` must say first that publishers count their messages
        self.counts = Counts(policy.publishers)
        if write:
            self._recover()
        else:
            self._set_identity(identities.read_identity(directory))
            self._scan()
        self.synced = self.last

    # Appending

    def append(self, block: Block, now: float, counts: Sequence[Count] = ()) -> None:
        """Append messages: every reader sees all of them when this returns, or none if it raises. (ZEP-09)

        `now` is the time in seconds since 1970; `counts` are the counts of the publishers that have messages in the
        block. `JournalFull` means that there is no room: try again later.
        """
        try:
            self._append(block, now, counts)
        except Asleep:
            if not self.may_block:
                raise
            self.wake()
            self._append(block, now, counts)

    def append_counts(self, counts: Sequence[Count], now: float) -> None:
        """Append the counts of publishers without messages. It raises what `append` raises."""
        try:
            self._append_counts(counts, now)
        except Asleep:
            if not self.may_block:
                raise
            self.wake()
            self._append_counts(counts, now)

    def _writable_segment(self, with_counts: bool) -> Segment:
        if self.failed or self._active is None:
            raise self._unwritable_error()
        self._wants_counts |= with_counts
        if not self._is_awake:
            raise Asleep(f"stream {self.name!a} is idle: call wake() first")
        return self._active

    @property
    def _is_awake(self) -> bool:
        return self._is_marked and (self._is_counted or not self._wants_counts)

    def _append(self, block: Block, now: float, counts: Sequence[Count]) -> None:
        with self._lock:
            segment = self._active
            wants_counts = counts or self._wants_counts
            if segment is None or self.failed or not self._is_marked or (wants_counts and not self._is_counted):
                segment = self._writable_segment(bool(counts))  # all checks
            first = block.first
            octets = block.octets
            length = len(octets)
            if first != self.last + 1 or block.last - first + 1 != block.count or not length:
                raise JournalError(
                    f"stream {self.name!a}: {block!r} cannot follow sequence {self.last}: sequences are consecutive"
                )
            try:
                time = max(int(now * _MICRO), self.last_time)
                if segment.entries and (
                    segment.size + length > self.policy.segment_bytes
                    or time - segment.first_time > self.policy.segment_microseconds
                    or (segment.count_bytes > segment.snapshot_bytes and segment.has_many_counts)
                ):
                    segment = self._rotate()
                files = self._file_cache.files(segment, os.O_RDWR)
                index = pack_entries(block, segment.size, time, self.policy.batch, len(counts), segment.removed)
                records = [pack_count(count, first, block.last, int(now)) for count in counts] if counts else []
                appended = octets, index, b"".join(records)
                segment.write(files, *appended)
            except PartialWrite as error:
                self._stop(str(error))
                raise self._unwritable_error() from error
            except OSError as error:
                raise self._write_error(error) from error
            segment.note_append(block.last, length, time, len(index) // SIZE, len(records) * RECORD)
            if records:
                self.counts.note(records)
            if self._ahead.kept is not None:
                self._ahead.keep(appended)
            if first == self.first:
                self.first_time = time
            self.last_time = time
            self.octets += length
            self._idle = 0
            self.last = block.last

    def _append_counts(self, counts: Sequence[Count], now: float) -> None:
        with self._lock:
            segment = self._writable_segment(True)
            records = [pack_count(count, self.last + 1, self.last, int(now)) for count in counts]
            try:
                files = self._file_cache.files(segment, os.O_RDWR)
                appended = b"", b"", b"".join(records)
                segment.write(files, *appended)
            except PartialWrite as error:
                self._stop(str(error))
                raise self._unwritable_error() from error
            except OSError as error:
                raise self._write_error(error) from error
            segment.count_bytes += len(records) * RECORD
            segment.epoch_bytes += len(records) * RECORD
            self.counts.note(records)
            self._ahead.keep(appended)
            self._idle = 0
            # The disk does not have all that belongs to the last message, whatever a sync is doing now.
            self.synced = min(self.synced, self.last - 1)
            self._count_writes += 1

    def note_counts(self, counts: Sequence[Count], now: float) -> None:
        """Know the counts of publishers of a cache. They are not written: the store has them."""
        with self._lock:
            self.counts.note([pack_count(count, self.last + 1, self.last, int(now)) for count in counts])

    def _rotate(self) -> Segment:
        """Begin a new segment after the active one."""
        segment = Segment(self._path, self.last + 1)
        self._file_cache.create(segment, self.counts.snapshot(segment.first))
        self._active = segment
        self._unsynced[segment.first] = segment
        self._names_unsynced = True
        self.segments = [*self.segments, segment]
        return segment

    # The disk

    @property
    def is_dirty(self) -> bool:
        """Whether `sync` still has work: messages or positions to sync, or a mark to remove when the stream is idle."""
        if self.failed or not self._write:
            return False
        return self._is_marked or self.positions.written > self.positions.synced

    def sync(self, each: Each = map) -> int:
        """Sync all messages appended so far to the disk, and return the last sequence of them. Blocks.

        `each` is that of `Files.sync`. A failed sync stops the stream: a later success would prove nothing.
        """
        with self._syncing:
            last = self._sync(each)
            active = self._active
            if active is not None and active.has_many_epochs:
                self._replace_epochs()
            if self.positions.written > self.positions.synced:
                self._sync_positions()
            return last

    def _sync_positions(self) -> None:
        try:
            self.positions.sync()
        except OSError as error:
            raise self._unsynced_error(error, "the positions of readers") from error

    def _replace_epochs(self) -> None:
        """Replace the counts of the active segment by a snapshot, if programs that only resume have filled the file.

        The file is written without the lock. The entries go first: an entry without counts is right in any case.
        """
        with self._lock:
            segment = self._active
            if segment is None or self.failed or not segment.has_many_epochs or self._ahead.is_needed:
                return
            entries, begin = segment.entries, segment.count_bytes
            snapshot = self.counts.snapshot(self.last + 1)
        try:
            self._ahead.remove()
            files = self._files_of(segment)
            segment.uncount(files, segment.first, entries)
            os.fdatasync(files.index)
            fresh = segment.write_fresh_counts(snapshot)
            with self._lock:
                if segment is self._active:
                    segment.take_fresh_counts(files, fresh, len(snapshot), begin)
            identities.sync_directory(self.directory)
        except (OSError, JournalError) as error:
            _log.warning(
                "the counts of stream %a could not be replaced by a snapshot: %s",
                self.name,
                error,
                extra=about(self.name, error),
            )

    def _sync(self, each: Each) -> int:
        with self._lock:
            if self.failed or self._active is None:
                raise self._unwritable_error()
            last = self.last
            active = self._active
            extent = Extent.of(active)
            appended = self._ahead.take()
            segments = list(self._unsynced.values())
            names = self._names_unsynced
            self._names_unsynced = False
            writes = self._count_writes
        try:
            if last == self.synced and not names:
                if self._idle >= _QUIET or active.has_many_epochs:
                    self._leave_ahead(each)
            elif not (segments == [active] and not names and self._write_ahead(extent, appended)):
                self._sync_files(segments, names, each)
                self._ahead.note_sync(extent)
        except OSError as error:
            with self._lock:
                self._names_unsynced |= names
            raise self._unsynced_error(error, f"the messages after sequence {self.synced}") from error
        self._advance_mark(active, last)
        with self._lock:
            for segment in segments:
                if segment is not active:
                    self._unsynced.pop(segment.first, None)
            is_quiet = last == self.synced == self.last
            self.synced = last if writes == self._count_writes else last - 1
            self._idle = self._idle + 1 if is_quiet else 0
            is_over = self._is_marked and self._idle >= _IDLE and not self._ahead.is_needed
            if is_over:
                self._is_marked = False  # before the mark is removed: the next append must wait for a new mark
        if is_over:
            self._remove_mark()
        return last

    def _sync_files(self, segments: list[Segment], names: bool, each: Each) -> None:
        for segment in segments:
            try:
                files = self._files_of(segment)
            except FileNotFoundError:
                if segment in self.segments:
                    raise
                continue  # retention removed it
            is_new = self._is_counted and segment.first > self._marked  # its counts were never synced
            files.sync(is_new or segment.count_bytes > RECORD, each)
        if names:
            self._file_cache.with_descriptors(partial(identities.sync_directory, self.directory))

    def _advance_mark(self, active: Segment, last: int) -> None:
        """Note in the mark that the active segment was synced, if it was the first time."""
        is_first = self._marked < active.first <= last and (self._is_counted or len(self.segments) > 1)
        if is_first and self._is_marked and not self.is_cache:
            with suppress(OSError):  # the mark then says less than is true
                identities.advance_mark(self.directory, last)
                self._marked = last

    def _write_ahead(self, extent: Extent, appended: list[Appended] | None) -> bool:
        """Sync the end of a segment by the file `ahead`; return False if its own files must be synced."""
        segment = extent.segment
        if self.policy.sync != "always" or self.is_cache or segment.has_many_epochs:
            return False
        return self._ahead.write(self._files_of(segment), extent, appended)

    def _leave_ahead(self, each: Each = map) -> None:
        """Sync the files of segments whose end is only in the file `ahead`, and remove it."""
        if self._ahead.is_needed:
            self._sync_files(list(self._unsynced.values()), False, each)
        self._ahead.remove()

    def _unsynced_error(self, error: OSError, what: str) -> JournalError:
        """Return the error for a failed sync. It also stops the stream, unless only descriptors were missing."""
        if error.errno not in EXHAUSTED:
            with self._lock:
                self._stop(f"the disk does not have {what}: {why(error)}")
        return JournalError(f"stream {self.name!a} could not be synced to the disk: {why(error)}")

    def wake(self) -> None:
        """Let an idle stream accept messages again; do nothing if it is not idle. Blocks, but not the readers.

        The mark says that the disk may not have everything. It must survive the crash that it tells about, so it is
        synced to the disk before the first append.
        """
        with self._syncing:
            if self._is_awake:
                return
            if self.failed or self._active is None:
                raise self._unwritable_error()
            try:
                is_new = self._wants_counts and not self._is_counted
                if is_new:
                    self._file_cache.with_descriptors(
                        partial(identities.write_counted, self.directory, sync=not self.is_cache)
                    )
                    self._is_counted = True
                self._file_cache.with_descriptors(
                    partial(identities.write_mark, self.directory, self.synced, sync=not self.is_cache)
                )
                files = self._file_cache.files(self._active, os.O_RDWR)  # here, so that the append need not wait
                if is_new and not self.is_cache:
                    os.fdatasync(files.counts)  # before the first count: recovery must find the head of the file
            except OSError as error:
                raise self._write_error(error) from error
            with self._lock:
                self._idle = 0
                self._marked = max(0, self.synced)
                self._unsynced[self.segments[-1].first] = self.segments[-1]
                self._is_marked = True

    def _remove_mark(self) -> None:
        with suppress(OSError):  # a mark that stays does no harm
            identities.remove_mark(self.directory)
            if not self.is_cache:
                identities.sync_directory(self.directory)

    def _stop(self, reason: str) -> None:
        self.failed = reason
        with suppress(OSError):
            identities.mark_failed(self.directory, self._marked)

    # Retention

    def retain(self, now: float) -> int:
        """Remove old segments as the policy says, and return the number of messages removed.

        The messages that stay have `keep_bytes` at least. The active segment is never removed. A reader that is in a
        removed segment can go on: the files disappear when the last reader has closed them.
        """
        policy = self.policy
        self.counts.limit = policy.publishers
        self.counts.forget_before(now - policy.keep_publishers)
        if self.backing is not None:
            return self.follow_backing()
        dropped = 0
        for oldest in () if policy.compact else self._old_segments(now):
            # An active segment without messages does not know the time of the last one: then the one before it stays.
            if self._active is None or len(self.segments) <= (1 if self.segments[-1].entries else 2):
                break
            try:
                if not self._remove_oldest():
                    break
            except OSError as error:
                problem = f"{oldest.path}{LOG} is too old, and cannot be removed: {why(error)}"
                self.problems += [] if problem in self.problems else [problem]
                break
            dropped += oldest.messages
        if not self.is_trimming:
            self._drop_old_counts()
        return dropped

    def _old_segments(self, now: float) -> list[Segment]:
        """Return the oldest segments: those that retention removes, as the policy says."""
        policy = self.policy
        if policy.keep_bytes is None and policy.keep_seconds is None:
            return []
        horizon = None if policy.keep_seconds is None else int((now - policy.keep_seconds) * _MICRO)
        segments = self.segments
        newer = self.octets
        for number, segment in enumerate(segments[:-1]):
            newer -= segment.size
            is_too_much = policy.keep_bytes is not None and newer >= policy.keep_bytes
            is_too_old = horizon is not None and segment.last_time < horizon
            if not is_too_much and not is_too_old:
                return segments[:number]
        return segments[:-1]

    def to_compact(self, now: float) -> list[Segment]:
        """Return the old segments, if they must be compacted: if at least half of their bytes never were."""
        has_limit = self.policy.keep_bytes is not None or self.policy.keep_seconds is not None
        segments = self._old_segments(now) if has_limit else self.segments[:-1]
        new = [segment.size for segment in segments if segment.last > self._compacted]
        is_due = bool(new) and 2 * sum(new) >= sum([segment.size for segment in segments])
        return segments if is_due and self._active is not None and not self.failed else []

    def note_compacted(self, last: int) -> None:
        """Note that the messages up to a sequence were compacted, so that the next start knows it. Blocks."""
        self._compacted = last
        with suppress(OSError):  # otherwise they are compacted again
            identities.write_compacted(self.directory, last)

    def _drop_old_counts(self) -> None:
        """Remove the counts of old segments: the files of the last two have all counts, if the disk has them."""
        if len(self.segments) < 3 or self.segments[-2].first <= self._counted_from:
            return
        *old, newer, _ = self.segments
        if newer.first not in self._unsynced:
            for segment in old:
                if segment.first >= self._counted_from:
                    segment.drop_counts()
            self._counted_from = newer.first

    def truncate(self, last: int) -> None:
        """Remove all messages after a sequence, by an operator's command. The stream gets a new incarnation.

        If compaction has removed the message with that sequence, the stream ends with the one before.
        """
        if not self._trimming.acquire(blocking=False):
            raise JournalError(f"stream {self.name!a} is being trimmed: truncate it when that is done")
        try:
            with self._syncing:
                self._truncate(last)
        finally:
            self._trimming.release()

    def _truncate(self, last: int) -> None:
        if self.removed and self.first <= last < self.last:
            last = self.last_at(last)  # the last message of a stream is never one that was removed
        with self._lock:
            if self.failed or self._active is None:
                raise self._unwritable_error()
            if not self.first - 1 <= last <= self.last:
                raise OutOfRange(
                    f"stream {self.name!a} has sequences {self.first} to {self.last}: it cannot be cut after {last}",
                    self.first,
                )
            if last == self.last:
                return
            # Before and after: a process that reads in between must not take the stream for the old or the new one.
            try:
                self._change_incarnation()
            except OSError as error:
                raise JournalError(f"stream {self.name!a} was not cut: {self._path}: {why(error)}") from error
            try:
                self._leave_ahead()
                self._cut_after(last)
                self._compacted = 0
                identities.remove_compacted(self.directory)
                self.positions.cut_after(last)
                self.positions.save()
                if self._is_marked:
                    identities.write_mark(self.directory, self.synced)  # the one before says too much
                    self._marked = max(0, self.synced)
                self._change_incarnation()
            except (OSError, JournalError) as error:
                self._stop(f"it could not be cut after sequence {last}: {error}")
                raise self._unwritable_error() from error

    def _cut_after(self, last: int) -> None:
        kept = [segment for segment in self.segments if segment.first <= last] or self.segments[:1]
        for segment in reversed(self.segments[len(kept) :]):
            segment.remove()
            self._unsynced.pop(segment.first, None)
        self._drop_segments()
        self.segments = kept
        self._active = kept[-1]
        files = self._files_of(kept[-1])
        kept[-1].drop_table()
        kept[-1].cut_counts(files, self.counts, last)
        kept[-1].cut_after(files, last)
        files.sync()
        self._unsynced[kept[-1].first] = kept[-1]
        self._recount()
        self.synced = min(self.synced, last)

    def close(self) -> None:
        """Sync everything to the disk, and close the files."""
        if not self._is_open:
            return
        try:
            if self._active is not None and not self.failed:
                self.sync()
                try:
                    self._leave_ahead()
                except OSError as error:
                    raise self._unsynced_error(error, "the last messages") from error
                if self._is_marked:
                    self._is_marked = False
                    self._remove_mark()
        finally:
            self._is_open = False
            self._active = None
            if not self._is_abandoned:
                with self._syncing:
                    self._ahead.close()
            if self._write:
                self.positions.close()
            for segment in self.segments:
                self._file_cache.drop(segment)

    def abandon(self) -> None:
        """Close the files without a sync: the stream is deleted. Ends a trim, and waits for a sync that runs."""
        self._is_abandoned = True
        with self._trimming, self._syncing:
            with self._lock:  # from now on compaction gives no file a name
                self._active = None
            self._ahead.close()
            self.close()

    # State

    def _recover(self) -> None:
        """Repair the files, and continue after the last message. (ZEP-17)"""
        read = partial(recover, self.directory, self.policy.batch, self.counts)
        recovered = with_reserve(self.directory.parent, partial(self._file_cache.with_descriptors, read))
        self._set_identity(recovered.identity)
        self.problems = recovered.problems
        self.segments = recovered.segments
        self._active = recovered.segments[-1]
        self._recount()
        self.positions = Positions(self.directory, self.last, self._file_cache.with_descriptors)
        self.problems = [*self.problems, *self.positions.problems]

    def _change_incarnation(self) -> None:
        identity = self._identity.renewed()
        identities.write_identity(self.directory, identity)
        self._set_identity(identity)

    def __repr__(self) -> str:
        return f"<Journal {self.name!a}, {self.first} to {self.last}>"
