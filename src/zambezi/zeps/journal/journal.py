"""The journal of one stream: what is appended is what is replayed, octet by octet. (ZEP-09)

A directory with `stream.json`, and with segments: a log of messages as they go out, and an index with an entry for
each batch. `append` is one write to the log and then one to the index, on the thread of the event loop: a reader, in
this process or another one, sees what is indexed. `sync` has it on disk, on a thread that may wait.

Facts that shape this module:

- The system keeps what a process wrote before it was killed, so a barrier that is answered after the two writes holds
  for every death but that of the machine.
- A write that fails in the middle (no room) leaves a part behind. It is cut off at once, so that the next attempt
  finds the journal as it was; if even that fails the stream stops.
- After a failed fsync the pages may count as clean though the disk does not have them, and the next fsync would
  succeed. So the first failure is the last word: the stream stops, and the mark that stays behind tells the next
  start to believe the disk alone.
- `append` and `sync` run at the same time. What both look at is behind a lock that is held for moments, never while
  waiting for the disk (but for the mark, which is written when a stream awakes from idleness).
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import UUID
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import JournalError, JournalFull, OutOfRange
from zambezi.zeps.journal import identity as identities
from zambezi.zeps.journal.entry import LONGEST, SIZE, Cuts, IndexEntry, Window, pack, split, unpack
from zambezi.zeps.journal.identity import Identity
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reader import Reader, Span
from zambezi.zeps.journal.recovery import apply, examine
from zambezi.zeps.journal.segment import INDEX, LOG, Files, Segment, Shelf, first_of, stem_of

_CUTS: Final = 32  # batches of which it is remembered where they can be cut
_IDLE: Final = 3  # syncs in a row that find nothing new, after which the mark is taken away
_MICRO: Final = 1_000_000
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Journal:
    """The journal of a stream. `Store.open` makes it; `append` is for one thread, `sync` for one other."""

    name: str
    incarnation: UUID
    policy: Policy
    first: int  # the oldest sequence; last + 1 if there are none
    last: int  # the newest one; 0 if there never was any
    octets: int  # of all logs
    first_time: int  # of the oldest batch, in microseconds since 1970; 0 if there is none
    last_time: int
    synced: int  # the last sequence that is known to be on disk
    failed: str  # why the stream is stopped; empty if it is not
    problems: list[str]  # damage that was found when it was opened
    generation: int  # changes whenever something that was there may have changed

    def __init__(self, directory: Path, policy: Policy, shelf: Shelf, *, write: bool) -> None:
        self.directory = directory
        self.policy = policy
        self.failed = ""
        self.problems = []
        self.generation = 0
        self.segments: list[Segment] = []  # replaced, never changed: readers may be in the middle of it
        self._path = str(directory)
        self._shelf = shelf
        self._write = write
        self._is_open = True
        self._lock = threading.Lock()
        self._cuts: OrderedDict[tuple[int, int], Cuts] = OrderedDict()
        self._files: Files | None = None  # of the active segment, the last one
        self._unsynced: dict[int, Segment] = {}
        self._is_marked = False
        self._names_unsynced = False
        self._idle = 0
        self._adopt(identities.read_identity(directory))
        if write:
            self._recover()
        else:
            self._scan()
        self.synced = self.last

    # Appending

    def append(self, block: Block, now: float) -> None:
        """Add messages. They are there, for every reader, when this returns; or nothing is. (ZEP-09)

        `now` is the time in seconds since 1970. JournalFull says that there is no room: try again later.
        """
        with self._lock:
            if self.failed or self._files is None:
                raise self._refusal()
            first = block.first
            octets = block.octets
            length = len(octets)
            if first != self.last + 1 or block.last - first + 1 != block.count or not length:
                raise JournalError(
                    f"stream {self.name!a}: {block!r} cannot follow sequence {self.last}: sequences are consecutive"
                )
            segment = self.segments[-1]
            try:
                if not self._is_marked:
                    self._mark()
                if segment.size + length > self.policy.segment and segment.entries:
                    segment = self._rotate()
                time = max(int(now * _MICRO), self.last_time)
                if length <= self.policy.batch and length <= LONGEST:
                    entry = IndexEntry(first, segment.size, time, block.count, length, block.credit, crc32(octets))
                    self._write_both(segment, octets, pack(*entry))
                    segment.add(entry)
                else:
                    entries = self._split(block, segment.size, time)
                    self._write_both(segment, octets, b"".join([entry.pack() for entry in entries]))
                    segment.add(entries[0])
                    segment.add(entries[-1], len(entries) - 1)
            except OSError as error:
                raise self._full(error) from error
            if not self.first_time:
                self.first_time = time
            self.last_time = time
            self.octets += length
            self._idle = 0
            self.last = block.last

    def _split(self, block: Block, offset: int, time: int) -> list[IndexEntry]:
        entries = list(split(block, offset, time, min(self.policy.batch, LONGEST)))
        if any(entry.length > LONGEST for entry in entries):
            raise JournalError(f"stream {self.name!a}: a message of 4 GiB or more cannot be journalled")
        return entries

    def _write_both(self, segment: Segment, octets: bytes, index: bytes) -> None:
        files = self._files
        assert files is not None
        place = segment.entries * SIZE
        try:
            if os.pwrite(files.log, octets, segment.size) != len(octets):
                self._write_rest(files.log, octets, segment.size)
            if len(index) > SIZE:
                # Room first: entries that were seen by others must not be taken back when there is none for the rest.
                self._write_rest(files.index, bytes(len(index)), place)
            if os.pwrite(files.index, index, place) != len(index):
                self._write_rest(files.index, index, place)
        except BaseException:
            self._cut_back(files, segment, place)
            raise

    def _write_rest(self, descriptor: int, octets: bytes, offset: int) -> None:
        """Write all of it, though the system takes it in pieces; what follows a short write says why it was one."""
        view = memoryview(octets)
        while view:
            written = os.pwrite(descriptor, view, offset)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view = view[written:]
            offset += written

    def _cut_back(self, files: Files, segment: Segment, place: int) -> None:
        try:
            os.ftruncate(files.index, place)
            os.ftruncate(files.log, segment.size)
        except OSError as error:
            self._fail(f"what a failed write left behind could not be cut off: {error.strerror or error}")

    def _full(self, error: OSError) -> JournalError:
        reason = error.strerror or str(error)
        if self.failed:
            return self._refusal()
        if error.errno in _FULL:
            return JournalFull(
                f"stream {self.name!a}: no room in {self._path}: {reason}; it goes on when there is some"
            )
        return JournalError(f"stream {self.name!a}: cannot write to {self._path}: {reason}")

    def _refusal(self) -> JournalError:
        if self.failed:
            return JournalError(
                f"stream {self.name!a} is stopped: {self.failed}; see to the disk, and start again: what the disk has "
                "will be kept"
            )
        if not self._write:
            return JournalError(f"stream {self.name!a} was opened for reading only")
        return JournalError(f"the journal of stream {self.name!a} is closed")

    def _rotate(self) -> Segment:
        """Begin a new segment after the active one, which stays open for its readers."""
        assert self._files is not None
        before = self.segments[-1]
        segment = Segment(self._path, self.last + 1)
        files = _create(segment)
        self._shelf.put(before, self._files)
        self._files = files
        self._unsynced[segment.first] = segment
        self._names_unsynced = True
        self.segments = [*self.segments, segment]
        return segment

    # The disk

    @property
    def is_dirty(self) -> bool:
        """Whether `sync` has something to do still: messages, or the mark to take away when all is quiet."""
        return self._is_marked and not self.failed

    def sync(self) -> int:
        """Have on disk what is appended by now, and say up to which sequence that is. Blocks. Never two at once.

        A failure stops the stream: a later success would prove nothing.
        """
        with self._lock:
            if self.failed or self._files is None:
                raise self._refusal()
            last = self.last
            segments = list(self._unsynced.values())
            active = self.segments[-1]
            names = self._names_unsynced
            self._names_unsynced = False
        try:
            if last != self.synced or names:
                for segment in segments:
                    self.files(segment).sync()
                if names:
                    identities.sync_directory(self.directory)
        except OSError as error:
            with self._lock:
                self._fail(f"the disk does not have all after sequence {self.synced}: {error.strerror or error}")
            raise self._refusal() from error
        with self._lock:
            for segment in segments:
                if segment is not active:
                    self._unsynced.pop(segment.first, None)
            is_quiet = last == self.synced == self.last
            self.synced = last
            self._idle = self._idle + 1 if is_quiet else 0
            if self._is_marked and self._idle >= _IDLE:
                self._unmark()
        return last

    def _mark(self) -> None:
        """The disk will not have everything. On disk itself before anything is: it must survive what it tells of."""
        identities.write_mark(self.directory, identities.boot_id())
        self._is_marked = True
        self._unsynced[self.segments[-1].first] = self.segments[-1]

    def _unmark(self) -> None:
        with suppress(OSError):  # a mark too many is no harm
            identities.remove_mark(self.directory)
        self._is_marked = False

    def _fail(self, reason: str) -> None:
        self.failed = reason
        with suppress(OSError):
            identities.write_mark(self.directory, identities.FAILED)

    # Reading

    def reader(self, after: int) -> Reader:
        """A reader right after a sequence."""
        return Reader(self, after)

    def files(self, segment: Segment) -> Files:
        """The open files of a segment."""
        files = self._files
        if files is not None and segment is self.segments[-1]:
            return files
        if not self._is_open:
            raise self._refusal()
        try:
            return self._shelf.files(segment)
        except FileNotFoundError:
            if not self._write:
                self.refresh()
            if segment.first < self.first:
                raise OutOfRange(
                    f"stream {self.name!a}: sequence {segment.first} is not kept any more, the oldest is {self.first}",
                    self.first,
                ) from None
            raise JournalError(
                f"{segment.path}{LOG} or {INDEX} is missing: a missing index is made anew when a broker starts"
            ) from None
        except OSError as error:
            raise JournalError(f"{segment.path}{LOG} cannot be opened: {error.strerror or error}") from error

    def cuts(self, segment: Segment, number: int, window: Window, place: int) -> Cuts:
        """Where entry `number` of a segment can be cut; the entry is at `place` in the window."""
        key = (segment.first, number)
        with self._lock:
            known = self._cuts.get(key)
            if known is not None:
                self._cuts.move_to_end(key)
                return known
        files = self.files(segment)
        first, after = window.firsts[place], window.firsts[place + 1]
        start, end = window.starts[place], window.starts[place + 1]
        block = Span(files, start, end - start, first, after - 1, 0, 0).read()
        try:
            cuts = Cuts.of(block)
            is_whole = len(cuts.starts) - 1 == block.count and cuts.spent[-1] == (
                window.spent[place + 1] - window.spent[place]
            )
        except (ValueError, IndexError, OverflowError):
            is_whole = False
        if not is_whole:
            raise JournalError(
                f"{segment.path}{LOG} is damaged between {start} and {end}: `zambezi journal verify` says more"
            )
        with self._lock:
            self._cuts[key] = cuts
            if len(self._cuts) > _CUTS:
                self._cuts.popitem(last=False)
        return cuts

    def before(self, time: int) -> int:
        """The last sequence before the first message at or after `time`, in microseconds since 1970."""
        for segment in self.segments:
            if not segment.entries or segment.last_time < time:
                continue
            files = self.files(segment)
            number = segment.locate_time(files, time)
            entry = unpack(files.read(number, 1))
            if entry is None:
                raise segment.damaged(number)
            return entry.first - 1
        return self.last

    def entries(self, after: int = 0, limit: int = 1000) -> list[IndexEntry]:
        """The index entries that reach beyond a sequence, `limit` of them at most."""
        found: list[IndexEntry] = []
        for segment in self.segments:
            if segment.last <= after:
                continue
            files = self.files(segment)
            number = max(0, segment.locate(files, after + 1))
            octets = files.read(number, min(limit - len(found), segment.entries - number))
            for position in range(0, len(octets), SIZE):
                entry = unpack(octets, position)
                if entry is None:
                    raise segment.damaged(number + position // SIZE)
                found.append(entry)
            if len(found) >= limit:
                break
        return found

    def refresh(self) -> None:
        """Learn what another process has done to the stream since the last look."""
        if self._write:
            return
        while True:
            identity = identities.read_identity(self.directory)
            if identity.incarnation != self.incarnation:
                self._forget()
                self._adopt(identity)
            self._scan()
            # What was seen in between belongs to one incarnation, or it was two.
            if identities.read_identity(self.directory) == identity:
                return

    def _scan(self) -> None:
        """Look at the directory of a journal that another process may be writing."""
        known = {segment.first: segment for segment in self.segments}
        firsts = self._listing()
        if not firsts:
            self._forget()
        segments = []
        self.problems = []
        for first, following in zip(firsts, [*firsts[1:], None], strict=True):
            segment = known.get(first) or Segment(self._path, first)
            if segment.last + 1 != following:
                try:
                    segment.look(self._shelf.files(segment))
                except FileNotFoundError:
                    continue  # retention took it away, or its index is not there yet
                if following is not None and segment.last + 1 != following:
                    self.problems.append(_hole(segment, following))
            segments.append(segment)
        before = self.segments
        self.segments = segments
        if before and segments and segments[-1].last < before[-1].last:
            self._forget()
            self.segments = segments
        self._sum()

    def _forget(self) -> None:
        for segment in self.segments:
            self._shelf.drop(segment)
        self.segments = []
        self._cuts.clear()
        self.generation += 1

    # What is kept

    def retain(self, now: float) -> int:
        """Drop old segments as the policy says, whole ones, and never the active one. How many messages went.

        Who reads them at this moment can go on: the files are gone when nobody has them open.
        """
        policy = self.policy
        horizon = None if policy.keep_seconds is None else int((now - policy.keep_seconds) * _MICRO)
        dropped = 0
        while self._files is not None and len(self.segments) > 1:
            oldest = self.segments[0]
            is_too_much = policy.keep_octets is not None and self.octets > policy.keep_octets
            is_too_old = horizon is not None and oldest.last_time < horizon
            if not is_too_much and not is_too_old:
                break
            with self._lock:
                self.segments = self.segments[1:]
                self._unsynced.pop(oldest.first, None)
                self._sum()
            dropped += oldest.last - oldest.first + 1
            self._shelf.drop(oldest)
            try:
                _remove(oldest)
            except OSError as error:
                self.problems.append(f"{oldest.path}{LOG} should go, and cannot: {error.strerror or error}")
                break
        return dropped

    def truncate(self, last: int) -> None:
        """Cut off what follows a sequence, by hand. The stream is another one then: it gets a new incarnation."""
        with self._lock:
            if self.failed or self._files is None:
                raise self._refusal()
            if not self.first - 1 <= last <= self.last:
                raise OutOfRange(
                    f"stream {self.name!a} has sequences {self.first} to {self.last}: it cannot be cut after {last}",
                    self.first,
                )
            if last == self.last:
                return
            # Before and after: whoever looks in between must not take it for what it was, nor for what it will be.
            self._renew()
            kept = [segment for segment in self.segments if segment.first <= last] or self.segments[:1]
            for segment in reversed(self.segments[len(kept) :]):
                _remove(segment)
            self._forget()
            self._files = files = Files(kept[-1].path, os.O_RDWR)
            kept[-1].cut(files, last)
            files.sync()
            self.segments = kept
            self._unsynced = {kept[-1].first: kept[-1]}
            self._sum()
            self.synced = min(self.synced, last)
            self._renew()

    def close(self) -> None:
        """Have everything on disk, and close the files."""
        if not self._is_open:
            return
        try:
            if self._files is not None and not self.failed:
                self.sync()
                if self._is_marked:
                    self._unmark()
        finally:
            self._is_open = False
            self._files = None
            for segment in self.segments:
                self._shelf.drop(segment)

    def abandon(self) -> None:
        """Close the files as they are: the stream is deleted."""
        self._files = None
        self.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    # Opening

    def _listing(self, suffix: str = LOG) -> list[int]:
        """The first sequences of the segments in the directory."""
        try:
            names = [path.name for path in self.directory.iterdir()]
        except FileNotFoundError:
            raise JournalError(f"{self._path} is gone: the stream was deleted") from None
        return sorted([first for name in names if (first := first_of(name, suffix)) is not None])

    def _recover(self) -> None:
        """Open the journal for writing, and make whole what a crash has left behind. (ZEP-17)"""
        mark = identities.read_mark(self.directory)
        # A process that was killed has lost nothing, but a system that went down has: and then only the disk counts.
        is_doubtful = mark is not None and mark != identities.boot_id()
        segments = [Segment(self._path, first) for first in self._listing()]
        is_lossy = is_doubtful or not segments
        if not segments:
            segments = [Segment(self._path, 1)]
            _create(segments[0])
        self._remove_strays(segments)
        promised = segments[-1].first - 1
        self._drop_empty(segments)
        time = 0
        for segment, following in pairwise(segments):
            self._check_old(segment, following, time, sync=mark is not None)
            time = max(time, segment.last_time)
        active = segments[-1]
        files = Files(active.path, os.O_RDWR | os.O_CREAT)
        if is_doubtful:
            for descriptor in (files.log, files.index):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        found = examine(active, files, self.policy.batch, thorough=is_doubtful, earliest=time)
        is_lossy = is_lossy or found.is_lossy or found.kept < promised
        if is_lossy:
            self._renew()
        if found.spoilt is not None:
            self.problems.append(
                f"{active.path}{LOG}: the batch of {found.spoilt.first} to {found.spoilt.last} was not what was "
                "written: it was cut off with all that followed"
            )
        if apply(files, found, cut_log=True) or mark is not None:
            files.sync()
            identities.sync_directory(self.directory)
        active.look(files)
        self.segments = segments
        self._files = files
        self._sum()
        if is_lossy:
            self._renew()
        identities.remove_mark(self.directory)

    def _remove_strays(self, segments: list[Segment]) -> None:
        """Remove indexes without a log: a removal was interrupted."""
        firsts = [segment.first for segment in segments]
        for first in self._listing(INDEX):
            if not firsts[0] <= first <= firsts[-1]:
                (self.directory / (stem_of(first) + INDEX)).unlink()

    def _drop_empty(self, segments: list[Segment]) -> None:
        """Remove segments without messages from the end, if the one before is not whole: it is the one to repair."""
        while len(segments) > 1 and not Path(segments[-1].path + LOG).stat().st_size:
            segment, following = segments[-2:]
            files = Files(segment.path, os.O_RDWR | os.O_CREAT)
            segment.look(files)
            if segment.is_whole(files, following.first):
                break
            _remove(segments.pop())

    def _check_old(self, segment: Segment, following: Segment, time: int, *, sync: bool) -> None:
        """See that an old segment leads up to the one that follows; its index is made anew if that helps."""
        files = Files(segment.path, os.O_RDWR | os.O_CREAT)
        segment.look(files)
        if not segment.is_whole(files, following.first):
            after = Files(following.path, os.O_RDWR | os.O_CREAT)
            head = unpack(after.read(0, 1))
            latest = head.time if head is not None else None
            batch = self.policy.batch
            found = examine(segment, files, batch, thorough=True, check_log=False, earliest=time, latest=latest)
            apply(files, found, cut_log=False)
            segment.look(files)
            if not segment.is_whole(files, following.first):
                self.problems.append(_hole(segment, following.first))
            sync = True
        if sync:
            files.sync()

    def _adopt(self, identity: Identity) -> None:
        self.name = identity.name
        self.incarnation = identity.incarnation
        self._identity = identity

    def _renew(self) -> None:
        identity = self._identity.renewed()
        identities.write_identity(self.directory, identity)
        self._adopt(identity)

    def _sum(self) -> None:
        segments = self.segments
        filled = [segment for segment in segments if segment.entries]
        self.octets = sum([segment.size for segment in segments])
        self.first_time = filled[0].first_time if filled else 0
        self.last_time = filled[-1].last_time if filled else 0
        self.last = segments[-1].last if segments else 0
        self.first = segments[0].first if segments else 1

    def __repr__(self) -> str:
        return f"<Journal {self.name!a}, {self.first} to {self.last}>"


def _create(segment: Segment) -> Files:
    """The files of a new segment."""
    try:
        return Files(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    except OSError:
        with suppress(OSError):
            Path(segment.path + LOG).unlink()
        raise


def _remove(segment: Segment) -> None:
    """The log first: an index without a log is known to be on its way out."""
    Path(segment.path + LOG).unlink()
    with suppress(FileNotFoundError):
        Path(segment.path + INDEX).unlink()


def _hole(segment: Segment, following: int) -> str:
    if segment.last + 1 == following:
        return f"{segment.path}{LOG} has octets after sequence {segment.last} that are no messages"
    return f"{segment.path}{LOG} is damaged: sequences {segment.last + 1} to {following - 1} are missing"
