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
  waiting for the disk.
- A stream that was idle has no mark, and must have one on disk before it takes a message: or a crash of the system
  could leave a journal that seems whole, and lacks what subscribers have seen. So to wake it takes a moment of the
  disk. `append` does that by itself where its thread may wait, and else it is `Asleep` until somebody calls `wake`.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID
from zlib import crc32

from zambezi.zeps.block import Block
from zambezi.zeps.errors import Asleep, JournalError, JournalFull, OutOfRange
from zambezi.zeps.journal import identity as identities
from zambezi.zeps.journal.entry import LONGEST, SIZE, Cuts, IndexEntry, Window, pack, split, unpack
from zambezi.zeps.journal.identity import Identity
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reader import Reader, Span
from zambezi.zeps.journal.recovery import recover
from zambezi.zeps.journal.segment import INDEX, LOG, Files, NotCutBack, Segment, Shelf, listing

_CUTS: Final = 32  # batches of which it is remembered where they can be cut
_IDLE: Final = 10  # syncs in a row that find nothing new, after which the mark is taken away
_MICRO: Final = 1_000_000
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FULL: Final = _EXHAUSTED | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Journal:
    """The journal of a stream. `Store.open` makes it; `append` is for one thread, `sync` and `wake` for others."""

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
    waits: bool  # whether `append` wakes an idle stream, and waits for the disk meanwhile; if not, it is `Asleep`

    def __init__(self, directory: Path, policy: Policy, shelf: Shelf, *, write: bool) -> None:
        self.directory = directory
        self.policy = policy
        self.failed = ""
        self.problems = []
        self.generation = 0
        self.waits = True
        self.segments: list[Segment] = []  # replaced, never changed: readers may be in the middle of it
        self._path = str(directory)
        self._shelf = shelf
        self._write = write
        self._is_open = True
        self._lock = threading.Lock()
        self._syncing = threading.Lock()  # so that closing waits for a sync that is under way
        self._cuts: OrderedDict[tuple[int, int], Cuts] = OrderedDict()
        self._active: tuple[Segment, Files] | None = None  # the segment that is written to, if we may
        self._unsynced: dict[int, Segment] = {}
        self._is_marked = False
        self._names_unsynced = False
        self._idle = 0
        if write:
            self._restart()
        else:
            self._adopt(identities.read_identity(directory))
            self._scan()
        self.synced = self.last

    # Appending

    def append(self, block: Block, now: float) -> None:
        """Add messages. They are there, for every reader, when this returns; or nothing is. (ZEP-09)

        `now` is the time in seconds since 1970. JournalFull says that there is no room: try again later.
        """
        try:
            self._append(block, now)
        except Asleep:
            if not self.waits:
                raise
            self.wake()
            self._append(block, now)

    def _append(self, block: Block, now: float) -> None:
        with self._lock:
            if self.failed or self._active is None:
                raise self._refusal()
            if not self._is_marked:
                raise Asleep(f"stream {self.name!a} was idle: wake it first")
            segment, files = self._active
            first = block.first
            octets = block.octets
            length = len(octets)
            if first != self.last + 1 or block.last - first + 1 != block.count or not length:
                raise JournalError(
                    f"stream {self.name!a}: {block!r} cannot follow sequence {self.last}: sequences are consecutive"
                )
            try:
                if segment.size + length > self.policy.segment and segment.entries:
                    segment, files = self._rotate(files)
                time = max(int(now * _MICRO), self.last_time)
                if length <= self.policy.batch and length <= LONGEST:
                    index = pack(first, segment.size, time, block.count, length, block.credit, crc32(octets))
                else:
                    index = self._split(block, segment.size, time)
                segment.write(files, octets, index)
            except NotCutBack as error:
                self._fail(str(error))
                raise self._refusal() from error
            except OSError as error:
                raise self._full(error) from error
            segment.add(block.last, length, time, len(index) // SIZE)
            if first == self.first:
                self.first_time = time
            self.last_time = time
            self.octets += length
            self._idle = 0
            self.last = block.last

    def _split(self, block: Block, offset: int, time: int) -> bytes:
        entries = list(split(block, offset, time, min(self.policy.batch, LONGEST)))
        if any(entry.length > LONGEST for entry in entries):
            raise JournalError(f"stream {self.name!a}: a message of 4 GiB or more cannot be journalled")
        return b"".join([entry.pack() for entry in entries])

    def _full(self, error: OSError) -> JournalError:
        if error.errno in _FULL:
            return JournalFull(
                f"stream {self.name!a}: no room in {self._path}: {_why(error)}; it goes on when there is some"
            )
        return JournalError(f"stream {self.name!a}: cannot write to {self._path}: {_why(error)}")

    def _refusal(self) -> JournalError:
        if self.failed:
            return JournalError(
                f"stream {self.name!a} is stopped: {self.failed}; see to the disk, and start again: what the disk has "
                "will be kept"
            )
        if not self._write:
            return JournalError(f"stream {self.name!a} was opened for reading only")
        return JournalError(f"the journal of stream {self.name!a} is closed")

    def _rotate(self, files: Files) -> tuple[Segment, Files]:
        """Begin a new segment after the active one, which stays open for its readers."""
        before = self.segments[-1]
        segment = Segment(self._path, self.last + 1)
        active = (segment, segment.create())
        self._shelf.put(before, files)
        self._active = active
        self._unsynced[segment.first] = segment
        self._names_unsynced = True
        self.segments = [*self.segments, segment]
        return active

    # The disk

    @property
    def is_dirty(self) -> bool:
        """Whether `sync` has something to do still: messages, or the mark to take away when all is quiet."""
        return self._is_marked and not self.failed

    def sync(self) -> int:
        """Have on disk what is appended by now, and say up to which sequence that is. Blocks.

        A failure stops the stream: a later success would prove nothing.
        """
        with self._syncing:
            return self._sync()

    def _sync(self) -> int:
        with self._lock:
            if self.failed or self._active is None:
                raise self._refusal()
            last = self.last
            active = self._active[0]
            segments = list(self._unsynced.values())
            names = self._names_unsynced
            self._names_unsynced = False
        try:
            if last != self.synced or names:
                self._sync_files(segments, names)
        except OSError as error:
            with self._lock:
                self._names_unsynced |= names
                if error.errno not in _EXHAUSTED:
                    self._fail(f"the disk does not have what follows sequence {self.synced}: {_why(error)}")
            raise JournalError(f"stream {self.name!a} could not be written to disk: {_why(error)}") from error
        with self._lock:
            for segment in segments:
                if segment is not active:
                    self._unsynced.pop(segment.first, None)
            is_quiet = last == self.synced == self.last
            self.synced = last
            self._idle = self._idle + 1 if is_quiet else 0
            is_over = self._is_marked and self._idle >= _IDLE
            if is_over:
                self._is_marked = False  # first: nothing is appended any more without a new mark, and that comes after
        if is_over:
            self._unmark()
        return last

    def _sync_files(self, segments: list[Segment], names: bool) -> None:
        for segment in segments:
            try:
                files = self._open(segment)
            except FileNotFoundError:
                continue  # retention took it away
            files.sync()
        if names:
            identities.sync_directory(self.directory)

    def wake(self) -> None:
        """Let an idle stream take messages again. Blocks, without holding up who reads; nothing if it is awake.

        The mark says that the disk will not have everything. It must survive what it tells of: so it is on disk first.
        """
        with self._syncing:
            if self._is_marked:
                return
            if self.failed or self._active is None:
                raise self._refusal()
            try:
                identities.write_mark(self.directory)
            except OSError as error:
                raise self._full(error) from error
            with self._lock:
                self._idle = 0
                self._unsynced[self.segments[-1].first] = self.segments[-1]
                self._is_marked = True

    def _unmark(self) -> None:
        with suppress(OSError):  # a mark too many does no harm
            identities.remove_mark(self.directory)
            identities.sync_directory(self.directory)

    def _fail(self, reason: str) -> None:
        self.failed = reason
        with suppress(OSError):
            identities.spoil_mark(self.directory)

    # Reading

    def reader(self, after: int) -> Reader:
        """A reader right after a sequence."""
        return Reader(self, after)

    def files(self, segment: Segment) -> Files:
        """The open files of a segment."""
        try:
            return self._open(segment)
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
            raise JournalError(f"{segment.path}{LOG} cannot be opened: {_why(error)}") from error

    def _open(self, segment: Segment) -> Files:
        active = self._active
        if active is not None and active[0] is segment:
            return active[1]
        if not self._is_open:
            raise self._refusal()
        return self._shelf.files(segment)

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
        except (ValueError, IndexError, OverflowError, struct.error):
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
        firsts = listing(self.directory)
        segments = []
        self.problems = []
        for first, following in zip(firsts, [*firsts[1:], None], strict=True):
            segment = known.get(first) or Segment(self._path, first)
            if segment.last + 1 != following:
                try:
                    segment.look(self._shelf.files(segment))
                except FileNotFoundError:
                    # Retention took it away, or its index is not there: not yet, if it is the last one.
                    if following is not None and Path(segment.path + LOG).exists():
                        self.problems.append(f"{segment.path}{INDEX} is missing: it is made anew when a broker starts")
                    continue
                if following is not None and segment.last + 1 != following:
                    self.problems.append(segment.hole(following))
            segments.append(segment)
        before = self.segments
        for segment in before:
            if not firsts or segment.first < firsts[0]:
                self._shelf.drop(segment)
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
        # An active segment without messages does not tell the last time: then the one before stays too.
        while self._active is not None and len(self.segments) > (1 if self.segments[-1].entries else 2):
            oldest = self.segments[0]
            is_too_much = policy.keep_octets is not None and self.octets > policy.keep_octets
            is_too_old = horizon is not None and oldest.last_time < horizon
            if not is_too_much and not is_too_old:
                break
            with self._lock:
                self.segments = self.segments[1:]
                self._sum()
            try:
                oldest.remove()
            except OSError as error:
                with self._lock:
                    self.segments = [oldest, *self.segments]
                    self._sum()
                problem = f"{oldest.path}{LOG} should go, and cannot: {_why(error)}"
                self.problems += [] if problem in self.problems else [problem]
                break
            with self._lock:
                self._unsynced.pop(oldest.first, None)
            self._shelf.drop(oldest)
            dropped += oldest.last - oldest.first + 1
        return dropped

    def truncate(self, last: int) -> None:
        """Cut off what follows a sequence, by hand. The stream is another one then: it gets a new incarnation."""
        with self._lock:
            if self.failed or self._active is None:
                raise self._refusal()
            if not self.first - 1 <= last <= self.last:
                raise OutOfRange(
                    f"stream {self.name!a} has sequences {self.first} to {self.last}: it cannot be cut after {last}",
                    self.first,
                )
            if last == self.last:
                return
            try:
                # Before and after: who looks in between must not take it for what it was, nor for what it will be.
                self._renew()
                self._cut(last)
                self._renew()
            except (OSError, JournalError) as error:
                self._fail(f"it could not be cut after sequence {last}: {error}")
                raise self._refusal() from error

    def _cut(self, last: int) -> None:
        kept = [segment for segment in self.segments if segment.first <= last] or self.segments[:1]
        for segment in reversed(self.segments[len(kept) :]):
            segment.remove()
            self._unsynced.pop(segment.first, None)
        self._forget()
        self.segments = kept
        files = Files(kept[-1].path, os.O_RDWR)
        self._active = (kept[-1], files)
        kept[-1].cut(files, last)
        files.sync()
        self._unsynced[kept[-1].first] = kept[-1]
        self._sum()
        self.synced = min(self.synced, last)

    def close(self) -> None:
        """Have everything on disk, and close the files."""
        if not self._is_open:
            return
        try:
            if self._active is not None and not self.failed:
                self.sync()
                if self._is_marked:
                    self._is_marked = False
                    self._unmark()
        finally:
            self._is_open = False
            self._active = None
            for segment in self.segments:
                self._shelf.drop(segment)

    def abandon(self) -> None:
        """Close the files as they are: the stream is deleted."""
        self._active = None
        self.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    # What it is

    def _restart(self) -> None:
        """Go on where the stream ended, whatever ended it. (ZEP-17)"""
        state = recover(self.directory, self.policy.batch)
        self._adopt(state.identity)
        self.problems = state.problems
        self.segments = state.segments
        self._active = (state.segments[-1], state.files)
        self._sum()

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


def _why(error: OSError) -> str:
    return error.strerror or str(error)
