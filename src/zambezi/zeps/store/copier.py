"""Copies of streams that are on the disk only: an object store gets their messages behind the scenes.

A stream with another `sync` than `store` is confirmed and delivered as if there were no store. After its messages are
on the disk, a thread copies them: some megabytes in a put, or what there is after some seconds. So the copy lags
behind, and nothing else waits for it. The copies of one server have a prefix of their own, with the same objects as
streams of the store: `zambezi store` and Spark read them.

A server with an empty disk makes its streams again from their copies. If messages may be missing at the end, which is
so unless the server before was closed, the stream gets a new incarnation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import uuid4

from zambezi.wire.text import printable
from zambezi.zeps.about import about
from zambezi.zeps.errors import JournalError, StoreError, StoreSilent, ZepsError
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.journal.counts import Count, Counts, Recount
from zambezi.zeps.journal.extract import batches
from zambezi.zeps.journal.loaded import clip
from zambezi.zeps.journal.positions import KINDS
from zambezi.zeps.store.catalog import StoredStream, check_format, list_streams, make_stream
from zambezi.zeps.store.chunk import UNCHANGED, Piece, piece_of_counts, piece_of_positions
from zambezi.zeps.store.copying import changed_positions, end_of, incarnation_of, restore_stream, settle, take_log
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, State, StreamLog

_log: Final = logging.getLogger("zambezi.zeps")
PERIOD: Final = 10.0  # seconds between two copies of a stream that gets few messages
SWEEP: Final = 60.0  # seconds between two applications of the retention to a copy
PATIENCE: Final = 5.0  # seconds that a copy waits for a store that fails
_SETTINGS: Final = LogSettings(commit=0.0)
_MICRO: Final = 1_000_000


@dataclass(slots=True)
class CopyCounters:
    """Counters of a copier."""

    messages: int = 0
    octets: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Copy:
    """The copy of one stream, which this process owns."""

    log: StreamLog
    journal: Journal
    copied_at: float
    swept_at: float
    positions: int = -1  # how many writes of positions there were when they were copied


class Copier:
    """Copies the messages of some journals. One thread at a time calls its methods; they block."""

    def __init__(self, store: ObjectStore, journals: Callable[[], Iterable[Journal]]) -> None:
        self.counters = CopyCounters()
        self.problems: dict[str, str] = {}  # why a stream is not copied, by its name
        self._store = store
        self._journals = journals
        self._id = uuid4().bytes
        self._copies: dict[str, _Copy] = {}
        self._is_stopped = False

    @property
    def lag(self) -> int:
        """The messages that are not copied yet, of the stream that has most of them."""
        journals = [journal for journal in self._journals() if not journal.removed]
        return max((journal.last - (journal.copied or journal.first - 1) for journal in journals), default=0)

    def stop(self) -> None:
        """End the current step soon. Any thread may call this."""
        self._is_stopped = True

    def step(self, now: float) -> None:
        """Copy the messages of all streams that have many new ones, or whose last copy is long ago.

        `now` is the time in seconds since 1970.
        """
        self._copy_all(now, PERIOD)

    def finish(self, now: float) -> None:
        """Copy everything, and give the copies up: they are complete. The store can fail for some seconds only."""
        self._is_stopped = False
        for journal in self._journals():
            with suppress(JournalError):
                journal.sync()
        self._copy_all(now, 0.0)
        for name, copy in self._copies.items():
            if name not in self.problems and copy.log.last == copy.journal.last:
                copy.log.release()
                try:
                    settle(self._store, copy.log, PATIENCE)
                except StoreError as error:
                    _log.warning("the copies of streams could not be finished: %s", error)
                    return

    def _copy_all(self, now: float, period: float) -> None:
        journals = {journal.name: journal for journal in self._journals()}
        for name in self._copies.keys() - journals.keys():
            self._try(name, partial(self._delete, name))
        for name, journal in journals.items():
            if self._is_stopped:
                return
            if self._is_due(journal, now, period) and not self._try(name, partial(self._copy, journal, now)):
                return  # the store does not answer: the other streams would only wait, too

    def _is_due(self, journal: Journal, now: float, period: float) -> bool:
        copy = self._copies.get(journal.name)
        if copy is None or copy.journal is not journal:
            return True
        waiting = journal.octets - copy.log.extents.octets
        is_new = _safe(journal) > copy.log.last or journal.incarnation.bytes != copy.log.incarnation
        is_new = is_new or journal.positions.written != copy.positions
        return is_new and (waiting >= _SETTINGS.chunk or now >= copy.copied_at + period)

    def _try(self, name: str, action: Callable[[], object]) -> bool:
        """Do something with a copy; return False if the store does not answer."""
        try:
            action()
        except StoreError as error:
            self.counters.failures += 1
            self._copies.pop(name, None)  # its log may be in any state: the next attempt takes it again
            if self.problems.get(name) != str(error):
                _log.warning(
                    "stream %s is not copied to the object store: %s", printable(name), error, extra=about(name, error)
                )
            self.problems[name] = str(error)
            return not isinstance(error, StoreSilent)
        except (ZepsError, OSError) as error:
            self.problems[name] = str(error)
        else:
            self.problems.pop(name, None)
        return True

    def _copy(self, journal: Journal, now: float) -> None:
        if journal.removed or journal.policy.compact:
            return  # a store has all messages of a stream
        copy = self._copies.get(journal.name)
        if copy is None or copy.journal is not journal or not _fits(copy.log, journal):
            copy = self._copies[journal.name] = self._begin(journal, now)
        copy.copied_at = now
        log, before = copy.log, copy.log.last
        last = _safe(journal)
        copied = max(before, journal.first - 1)
        for entry, octets in batches(journal, copied, last):
            self._check_open()
            entries, part = clip([entry._replace(offset=0)], octets, copied + 1, last)
            if entry.gap:
                raise JournalError("it is compacted: a store has all messages of a stream, or none")
            if entries:
                log.append(Piece(part, [one._replace(publishers=0, removed=0) for one in entries], b""))
                copied = entries[-1].last
            if log.pending_bytes >= log.settings.chunk:
                self._settle(copy)
        counts = _changed_counts(journal, log, copied)
        if counts:
            log.append(piece_of_counts(counts, copied, int(now * _MICRO)))
        copy.positions = journal.positions.written
        positions = _changed_positions(journal, log, copied)
        if positions:
            log.append(piece_of_positions(positions))
        self._settle(copy)
        if now >= copy.swept_at + SWEEP:
            copy.swept_at = now
            policy = journal.policy
            horizon = None if policy.keep_seconds is None else int((now - policy.keep_seconds) * _MICRO)
            log.sweep(policy.keep_bytes, horizon)
            self._settle(copy)

    def _check_open(self) -> None:
        if self._is_stopped:
            raise JournalError("the server closes")

    def _settle(self, copy: _Copy) -> None:
        before, octets = copy.log.last, copy.log.pending_bytes
        settle(self._store, copy.log, PATIENCE)
        if not copy.log.is_owner:
            raise StoreError(f"the copy was taken by another server: it is {copy.log.state.value}; name this one anew")
        self.counters.messages += copy.log.last - before
        self.counters.octets += octets
        copy.journal.copied = copy.log.last

    def _begin(self, journal: Journal, now: float) -> _Copy:
        """Take the copy of a stream. One that is not of this stream, or not any more, is deleted, and made anew."""
        log = self._take(journal)
        if not _fits(log, journal):
            _delete_log(self._store, log)
            log = self._take(journal)
        journal.copied = log.last
        return _Copy(log, journal, now, now)

    def _take(self, journal: Journal) -> StreamLog:
        stream = self._store.run(make_stream(journal.name, journal.incarnation, journal.settings), PATIENCE)
        log = StreamLog(stream.place, self._id, stream.incarnation.bytes, _SETTINGS)
        take_log(self._store, log, f"the copy of stream {journal.name!a}", PATIENCE)
        return log

    def _delete(self, name: str) -> None:
        """Delete the copy of a stream that was deleted."""
        _delete_log(self._store, self._copies[name].log)
        del self._copies[name]


def _delete_log(store: ObjectStore, log: StreamLog) -> None:
    log.delete()
    settle(store, log, PATIENCE)
    if log.state is not State.DELETED:
        raise StoreError(f"the copy could not be deleted: it is {log.state.value}")


def _fits(log: StreamLog, journal: Journal) -> bool:
    """Return whether a copy can go on: it is of the same stream, and no message is missing between them."""
    is_same = log.incarnation in (journal.incarnation.bytes, UNCHANGED)
    return is_same and log.last <= journal.last and (not log.last or log.last + 1 >= journal.first)


def _safe(journal: Journal) -> int:
    """Return the last sequence to copy: what the disk has, if the stream is synced to it."""
    return journal.last if journal.policy.sync == "never" else journal.synced


def _changed_counts(journal: Journal, log: StreamLog, last: int) -> list[Count]:
    """Return the counts of publishers that have published since the copy before, as they were at a sequence."""
    if not len(journal.counts):
        return []
    known = Recount(Counts(journal.policy.publishers))
    segment = next((one for one in reversed(journal.segments) if one.first <= last + 1), journal.segments[0])
    known.read(segment.path, last)
    return [count for count in known.counts.states() if log.counts.get(count.publisher) != count]


def _changed_positions(journal: Journal, log: StreamLog, last: int) -> bytes:
    """Return the records of positions that have changed since the copy before, for a copy that ends at a sequence."""
    states = [state.cut_after(last) for kind in KINDS for state in journal.positions.all(kind)]
    return changed_positions({state.key: state for state in states}, log.positions.octets)


def restore_copies(store: ObjectStore, data: Store, is_wanted: Callable[[str], bool]) -> Sequence[str]:
    """Make streams from their copies that the disk does not have; return their names. Blocks."""
    store.run(check_format(create=True))
    restored = []
    for stream in store.run(list_streams()):
        if (data.path / stream.place.directory).is_dir() or not is_wanted(stream.name):
            continue
        try:
            if _restore(store, data, stream):
                restored.append(stream.name)
        except StoreSilent:
            raise
        except (StoreError, JournalError) as error:
            _log.error(
                "stream %s cannot be made again from its copy: %s",
                printable(stream.name),
                error,
                extra=about(stream.name, error),
            )
    return restored


def _restore(store: ObjectStore, data: Store, stream: StoredStream) -> bool:
    end = end_of(store, stream)
    if end.is_deleted:
        return False
    if not end.is_released:
        _renew(store, stream)
    restore_stream(store, stream, data)
    told = "" if end.is_released else "; messages may be missing at its end, so it has a new incarnation"
    _log.warning(
        "stream %s was made again from its copy in the object store%s",
        printable(stream.name),
        told,
        extra=about(stream.name),
    )
    return True


def _renew(store: ObjectStore, stream: StoredStream) -> None:
    """Give a copy a new incarnation: sequences after its end were used for messages that it does not have."""
    log = StreamLog(stream.place, uuid4().bytes, incarnation_of(stream, UNCHANGED).bytes, _SETTINGS)
    log.take(time.monotonic(), uuid4().bytes)
    settle(store, log)
    log.release()
    settle(store, log)
    if log.state is not State.RELEASED:
        raise StoreError(f"the copy of stream {stream.name!a} could not be taken: it is {log.state.value}")
