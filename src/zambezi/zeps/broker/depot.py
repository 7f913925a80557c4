"""A data directory whose streams can be in an object store: then their journals here are a cache.

A stream is in the store if its policy says `sync = "store"`, or if the store has it already. Before it is opened, the
broker takes it: it becomes the owner of the log, and brings its journal up to date. A journal that is a cache has a
file `cached` in its directory. Such a journal can be made again from the store at any time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import UUID, uuid4

from zambezi.zeps.broker.preparations import Preparations
from zambezi.zeps.errors import JournalError, Moved, StoreError, StoreFull, StoreSilent, ZepsError
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.disk_cache import DiskCache
from zambezi.zeps.journal.identity import Identity, is_cached, write_cached
from zambezi.zeps.journal.loaded import reset_cache
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.journal.reading import JournalReading
from zambezi.zeps.journal.store import Fill
from zambezi.zeps.journal.stored_policy import changed, find_settings, merged, write_changes
from zambezi.zeps.store.backing import PIECE, LoadCounters, ReaderPool, StoreBacking
from zambezi.zeps.store.catalog import StoredStream as StreamInStore
from zambezi.zeps.store.catalog import check_format, find_stream, list_streams, make_stream
from zambezi.zeps.store.cluster import Cluster, Located, find_owner
from zambezi.zeps.store.copier import Copier, restore_copies
from zambezi.zeps.store.copying import StreamEnded, copy_stream, incarnation_of, take_log
from zambezi.zeps.store.members import LIMIT, PERIOD, Member, beat, leave, notify, reachable
from zambezi.zeps.store.removing import delete_stream, truncate_stream
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, StreamLog
from zambezi.zeps.store.truncation import clear_deleted

if TYPE_CHECKING:
    from zambezi.zeps.broker.stored_stream import StoredStream
    from zambezi.zeps.store.driver import Driver

_log: Final = logging.getLogger("zambezi.zeps")

COPIES: Final = "copies"  # the prefix of copies of streams that are on a disk
IDENTITY: Final = "broker"  # the file with the id of the last run of a broker in this directory
STORE: Final = "store"
KNOWN: Final = 0.5  # seconds for which the broker that a look-up has found counts as known
MOST_KNOWN: Final = 10_000  # streams
TAKEN_AT_ONCE: Final = 16  # streams
TAKE_AGAIN: Final = 10.0  # seconds between two times that the broker takes the same stream from another one
Sync: TypeAlias = Literal["always", "interval", "never", "store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The object store of a broker."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)  # of obstore
    log: LogSettings = field(default_factory=LogSettings)
    endpoint: str = ""  # for clients that another broker sends here; by default the one that the broker is bound to
    period: float = PERIOD  # seconds between two heartbeats
    limit: float = LIMIT  # seconds after which a broker counts as dead
    cache: int | None = None  # bytes that the disk can have of streams in the store; None is no limit
    copies: str = ""  # the name under which streams with another sync are copied; empty: they are not
    piece: int = PIECE  # bytes that are read from the store at once, if the disk does not have them


class Depot(Store):
    """The data directory of a broker that has an object store."""

    def __init__(
        self,
        path: str | PathLike[str],
        options: StoreOptions,
        *,
        policy: Policy,
        policies: Mapping[str, Policy],
        own: Container[str],
    ) -> None:
        super().__init__(path, policy=policy)
        self.id = uuid4().bytes  # of this run of the broker: a broker that was restarted is another one
        self.policies = policies
        self._own = own
        self._settings = options.log
        self.cache = DiskCache(options.cache, self.journals)
        self.loads = LoadCounters()
        self.read_ahead: Callable[[JournalReading, Sequence[int]], object] = lambda _journal, _sequences: None
        self.knock: Callable[[Member], object] = lambda _server: None  # connects to a broker that is perhaps dead
        self._readers = ReaderPool()
        self._piece = options.piece
        self._logs: dict[str, StreamLog] = {}  # owned
        self._stored: set[str] = set()  # streams that are in the store
        self._taking: set[str] = set()
        self._taken: dict[str, ZepsError | None] = {}  # at the start, and not opened yet; or why that was not possible
        self._unfinished: dict[str, StreamLog] = {}  # owned, and the journal could not be brought up to date
        self.untaken: dict[str, str] = {}  # streams that nobody serves because the store has no room, and the error
        self._moved: dict[str, tuple[Moved, float]] = {}  # streams of other brokers, and when that was found
        self._releasing: dict[str, StreamLog] = {}  # handed over to another broker
        self._taken_at: dict[str, float] = {}  # streams that other brokers had, and when they were taken
        self.preparations = Preparations(self)
        self.cluster = Cluster(self.id, options.period, options.limit, time.time())
        self.endpoint = options.endpoint
        self._driver: Driver | None = None
        self._beats: Driver | None = None
        self._attached: list[StoredStream] = []
        try:
            self.remote = ObjectStore(options.url, options.options)
            self.remote.run(check_format(create=True))
            self._last_run = self._note_run()
            problem = self._try_beat(options.limit)
            streams = self.remote.run(list_streams(skip_damaged=True))
            if problem is None:
                self._take_all(streams, options)
            else:
                self._leave_untaken(streams, problem)
            if self.untaken:
                _log.warning("%d streams are not served: %s", len(self.untaken), self.why_untaken)
            if self._last_run:
                self.remote.run(leave(self._last_run))
            self.copier = self._copier(options) if options.copies else None
        except BaseException:
            super().close()
            raise

    def _copier(self, options: StoreOptions) -> Copier:
        """Make streams again from their copies, if the disk does not have them; return what copies the others."""
        copies = ObjectStore(f"{options.url.rstrip('/')}/{COPIES}/{options.copies}", options.options)
        restore_copies(copies, self, lambda name: not self.is_stored(name))
        return Copier(copies, self._local_journals)

    def _local_journals(self) -> list[Journal]:
        """Return the journals of streams that are on this disk, and not in the store."""
        journals = [journal for journal in self.journals() if journal.is_open and not journal.is_cache]
        return [journal for journal in journals if not self.is_stored(journal.name, journal.settings)]

    def _note_run(self) -> bytes:
        """Write the id of this run into the directory, and return that of the last one; nothing if there was none.

        The last one is dead, for the directory was not locked. This one takes its streams, before other brokers do.
        """
        path = self.path / IDENTITY
        try:
            last = bytes.fromhex(path.read_text())
        except (OSError, ValueError):
            last = b""
        path.touch(mode=0o600)
        path.write_text(self.id.hex())
        return last if len(last) == len(self.id) else b""

    def _beat(self, limit: float) -> None:
        roll = self.remote.run(beat(self.id, (), self.cluster.roll.members, limit, since=self.cluster.since))
        if roll is not None:
            self.cluster.roll = replace(roll, members=[one for one in roll.members if one.id != self._last_run])

    def _try_beat(self, limit: float) -> StoreFull | None:
        """Put a heartbeat, and read which brokers live. Return the error if the store has no room for it."""
        try:
            self._beat(limit)
        except StoreFull as error:
            return error
        return None

    def _leave_untaken(self, streams: Iterable[StreamInStore], problem: StoreFull) -> None:
        """Take no stream: without a heartbeat it is not known which of them other brokers have."""
        for stream in streams:
            self._stored.add(stream.name)
            self._taken[stream.name] = Moved(reason=str(problem))
            self.untaken[stream.name] = str(problem)

    def _take_all(self, streams: Iterable[StreamInStore], options: StoreOptions) -> None:
        """Take all streams that no other live broker has. Heartbeats go on meanwhile."""
        with ThreadPoolExecutor(TAKEN_AT_ONCE, "zambezi-take") as pool:
            waiting = {pool.submit(self._take_if_ours, stream) for stream in streams}
            try:
                while waiting:
                    done, waiting = wait(waiting, options.period)
                    for one in done:
                        self._taken |= one.result()
                    if waiting:
                        self._try_beat(options.limit)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self._stored |= set(self._taken)

    def _take_if_ours(self, stream: StreamInStore) -> dict[str, ZepsError | None]:
        """Take a stream, unless it is deleted or another broker has it; an error is for the caller that opens it."""
        try:
            owner, is_deleted = self.remote.run(find_owner(stream.place))
            if is_deleted:
                self.remote.run(clear_deleted(stream.place))  # a broker that deleted it was perhaps killed
                return {}
            server = None if owner == self._last_run else self.cluster.server_of(stream.name, owner)
            if server is not None:
                return {stream.name: Moved(server.endpoint)}
            self.take(stream, owner)
        except ZepsError as error:
            return {stream.name: error}
        except OSError as error:
            return {stream.name: JournalError(f"{error.filename}: {error.strerror or error}")}
        return {stream.name: None}

    def take(self, stream: StreamInStore, owner: bytes) -> None:
        """Become the owner of a stream, and bring its journal up to date. `owner` is the owner before.

        Blocks. Several threads can take several streams.
        """
        name = stream.name
        self._taking.add(name)
        try:
            if self.remote.is_full:
                raise StoreFull(f"{self.remote.url} has no room: {self.remote.problem}")
            unfinished = self._unfinished.pop(name, None)
            log = unfinished if unfinished is not None and owner == self.id else self._acquire(stream, owner)
            self._unfinished[name] = log  # so that the next attempt needs no other fence
            self._update(stream, log, self.path / directory_of(name))
            self._load_positions(super().open(name), log)
            del self._unfinished[name]
        except StreamEnded:
            raise Moved from None  # clients look for it again
        except StoreError as error:
            if isinstance(error, StoreFull):
                self.untaken.setdefault(name, str(error))
            raise _refusal(error, f"stream {name!a} cannot be used") from error
        finally:
            self._taking.discard(name)
        self.untaken.pop(name, None)
        self._logs[name] = log
        self._stored.add(name)

    def _acquire(self, stream: StreamInStore, owner: bytes) -> StreamLog:
        log = StreamLog(stream.place, self.id, stream.incarnation.bytes, self._settings)
        log.has_others = stream.has_others
        take_log(self.remote, log, prepared=self.preparations.take(stream))
        if any(owner == member.id for member in self.cluster.roll.members):
            self.remote.run(notify(owner))
        return log

    @property
    def why_untaken(self) -> str:
        """Why nobody serves some streams: the store has no room. Empty if all are served."""
        return next(iter(list(self.untaken.values())), "")

    @property
    def cache_state(self) -> dict[str, int]:
        """The bytes of the cache, and what was evicted from it and loaded into it."""
        cache = self.cache
        return {
            "octets": cache.used,
            "limit": cache.limit or 0,
            "evicted": cache.counters.octets,
            "loaded": self.loads.octets,
        }

    @property
    def copy_state(self) -> dict[str, int]:
        """The lag and the counters of the copies; empty if there are none."""
        copier = self.copier
        return {"lag": copier.lag, **asdict(copier.counters)} if copier is not None else {}

    def names(self) -> list[str]:
        return sorted({*super().names(), *self._stored})

    def is_stored(self, name: str, settings: Mapping[str, object] | None = None) -> bool:
        """Return whether a stream is in the store, or is to be. The server's own streams never are."""
        if name in self._own:
            return False
        policy = self.policies.get(name) or changed(self.policy, settings or {})
        return name in self._stored or policy.sync == STORE

    def can_be_elsewhere(self, name: str) -> bool:
        """Return whether the store must be asked for a stream that is not open."""
        return name not in self._own and (self.cluster.has_others or self.is_stored(name))

    def is_taking(self, name: str) -> bool:
        return name in self._taking or name in self._logs

    def log_of(self, name: str) -> StreamLog | None:
        """Return the log of an open stream that is in the store."""
        return self._logs.get(name)

    def open(self, name: str, policy: Policy | None = None, create: bool = True) -> Journal:
        problem = self._taken.pop(name, None)
        if problem is not None:
            raise problem
        if name not in self._logs and self.is_stored(name, self._settings_of(name)):
            self._take(name, self._locate(name), {})
        journal = super().open(name, policy, create)
        journal.policy = replace(journal.policy, sync=self._sync_of(name, journal.policy))
        return journal

    def _sync_of(self, name: str, policy: Policy) -> Sync:
        if name in self._logs:
            return STORE
        return "always" if policy.sync == STORE else policy.sync

    def _settings_of(self, name: str) -> Mapping[str, object]:
        journal = self.opened(name)
        return journal.settings if journal is not None else {}

    def make(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        fill: Fill | None = None,
        *,
        first: int = 1,
        incarnation: UUID | None = None,
    ) -> None:
        must_take = name not in self._logs and name not in self._taking and self.is_stored(name, settings)
        located = self._locate(name, is_filled=fill is not None) if must_take else None
        if located is None or (located.stream is None and fill is not None):
            super().make(name, settings, fill, first=first, incarnation=incarnation)
        if located is not None:
            self._take(name, located, settings or {})

    def look_up(self, name: str, done: Callable[[Located | ZepsError], object]) -> None:
        """Find a stream in the store, and the broker that serves it, and call back. Does not block.

        The result is `Moved` if that is another broker, or this one cannot serve it now.
        """
        if self.cluster.is_cut or name in self._releasing or self._beats is None:
            raise Moved
        self.check_not_moved(name)
        self.cluster.look_up(name, lambda found: done(self._note_located(name, found)))
        self._beats.advance_soon(self.cluster)  # so that it never calls back at once

    def has_stored(self, name: str) -> bool:
        """Return whether the store is known to have a stream."""
        return name in self._stored

    def may_take_again(self, name: str, now: float) -> bool:
        """Return whether a stream of another broker may be taken now: brokers must not take it in turn too often."""
        if now < self._taken_at.get(name, 0.0) + TAKE_AGAIN:
            return False
        if len(self._taken_at) >= MOST_KNOWN:
            self._taken_at.clear()
        self._taken_at[name] = now
        return True

    def take_or_make(self, name: str) -> None:
        """Take a stream, also if another live broker has it; make it in the store if it does not exist. Blocks."""
        if self.cluster.is_cut or name in self._releasing:
            raise Moved
        try:
            located = self.remote.run(self.cluster.locate(name))
        except StoreError as error:
            raise JournalError(f"stream {name!a} cannot be found: {error}") from error
        if name not in self._logs:
            self._take(name, located, {"sync": STORE})

    def check_not_moved(self, name: str) -> None:
        """Raise `Moved` if another broker has named a stream as its own, or a look-up has found it a moment ago.

        So clients of many streams that are elsewhere do not ask the store.
        """
        server = self.cluster.named_by(name)
        if server is not None:
            self._suspect(server, name)
            raise Moved(server.endpoint)
        moved, time_found = self._moved.get(name, (None, 0.0))
        if moved is not None and time.monotonic() < time_found + KNOWN:
            raise moved

    def _suspect(self, server: Member, name: str) -> None:
        if self._beats is not None:
            if self.cluster.suspect(server, name, self._beats.time()):
                self.knock(server)
            self._beats.advance_soon(self.cluster)

    def _note_located(self, name: str, found: Located | ZepsError) -> Located | ZepsError:
        """Return where a stream is; `Moved` if that is not here."""
        if isinstance(found, ZepsError):
            return _refusal(found, f"stream {name!a} cannot be found")
        is_new = found.stream is None
        if found.server is None or (is_new and (not self.is_stored(name) or (self.path / directory_of(name)).is_dir())):
            return found
        moved = Moved(found.server.endpoint)
        if len(self._moved) >= MOST_KNOWN:
            self._moved.clear()
        self._moved[name] = moved, time.monotonic()
        return moved

    def _locate(self, name: str, *, is_filled: bool = False) -> Located:
        """Return where a stream is; raise `Moved` if that is not here. Blocks.

        A new stream that is filled here must be here first, wherever its home is.
        """
        if self.cluster.is_cut or name in self._releasing:
            raise Moved
        found: Located | ZepsError
        try:
            found = self.remote.run(self.cluster.locate(name))
        except StoreError as error:
            found = error
        if is_filled and isinstance(found, Located):
            if found.stream is not None:
                raise JournalError(f"there is a stream {name!a} already")
            return found
        located = self._note_located(name, found)
        if isinstance(located, ZepsError):
            raise located
        return located

    def _take(self, name: str, located: Located, settings: Mapping[str, object]) -> None:
        """Take a stream that was located; put it into the store first if it is not there. Blocks."""
        self._taking.add(name)
        try:
            stream = located.stream or self._upload(name, self.path / directory_of(name), settings)
        except StoreError as error:
            raise _refusal(error, f"stream {name!a} cannot be used") from error
        finally:
            self._taking.discard(name)
        self.take(stream, located.owner)

    def _upload(self, name: str, directory: Path, settings: Mapping[str, object]) -> StreamInStore:
        """Put a new stream, or one that was on the disk only, into the store.

        Another broker can make a new stream at the same time. Then it is one stream. If the other broker has it
        already, `Moved` is raised.
        """
        if not directory.is_dir():
            incarnation = uuid4()
            made = self.remote.run(make_stream(name, incarnation, settings))
            if made.incarnation != incarnation:
                self._locate(name)
            return made
        journal = super().open(name)
        copy_stream(self.remote, journal)
        stream = self.remote.run(find_stream(name))
        if stream is None:
            raise StoreError("it was deleted while it was copied")
        write_cached(directory)
        return stream

    def _update(self, stream: StreamInStore, log: StreamLog, directory: Path) -> None:
        """Let the journal be a cache of the stream: it goes on after the last message of the store."""
        journal = self._cache_of(stream, log, directory)
        journal.become_cache(
            StoreBacking(
                self.remote,
                log,
                self._readers,
                self.loads,
                cache=self.cache,
                read_ahead=self._begin_ahead,
                piece=self._piece,
            )
        )
        journal.drop_trimmed()
        missing = [count for count in log.counts.states() if journal.counts.get(count.publisher) != count]
        if missing:
            journal.note_counts(missing, time.time())

    def _begin_ahead(self, journal: JournalReading, sequences: Sequence[int]) -> None:
        self.read_ahead(journal, sequences)

    def _cache_of(self, stream: StreamInStore, log: StreamLog, directory: Path) -> Journal:
        """Return a journal whose messages are all in the store."""
        incarnation = incarnation_of(stream, log.incarnation)
        self.make_cache(stream.name, stream.settings, log.last + 1, incarnation)
        journal = super().open(stream.name)
        if journal.incarnation != incarnation or journal.last > log.last:
            if not is_cached(directory):
                raise StoreError(
                    f"{directory} is another stream of this name, and not a copy of the one in {self.remote.url}: move "
                    "it away, or use another prefix"
                )
            journal.abandon()
            reset_cache(directory, Identity(stream.name, incarnation), log.last + 1)
            journal = super().open(stream.name)
        return journal

    def _load_positions(self, journal: Journal, log: StreamLog) -> None:
        """Let the journal have the positions and the settings of the store, and no others."""
        journal.positions.load(log.positions.octets)
        settings = find_settings(journal.positions)
        if settings is not None and settings != journal.settings:
            write_changes(journal.directory, settings)
            journal.settings, journal.policy = settings, changed(self.policy, settings)

    def delete(self, name: str) -> None:
        """Delete a stream, in the store first. Blocks. Its log is not run by the driver any more."""
        log = self._logs.pop(name, None)
        if log is not None:
            try:
                delete_stream(self.remote, log, self.id)
            except StoreError as error:
                raise JournalError(f"stream {name!a} cannot be deleted: {error}") from error
            self._stored.discard(name)
        super().delete(name)

    def truncate(self, name: str, last: int) -> None:
        if self._logs.pop(name, None) is None:
            super().truncate(name, last)
            return
        try:
            self.take(truncate_stream(self.remote, name, self.id, last), b"")
        except ZepsError as error:  # the stream is found in the store, and taken, when a client wants it
            self._taken[name] = Moved()
            raise JournalError(f"stream {name!a} was not truncated: {error}") from error

    def edit(self, name: str, changes: Mapping[str, object]) -> None:
        journal = self.opened(name)
        if journal is not None:
            sync = merged(journal.settings, changes).get("sync", self.policy.sync)
            if (sync == STORE) != (name in self._logs) and "sync" in changes:
                raise JournalError("a stream cannot be moved to the store or from it while the broker runs")
        super().edit(name, changes)
        if journal is not None:
            journal.policy = replace(journal.policy, sync=self._sync_of(name, journal.policy))

    # The event loop

    def attach(self, stream: StoredStream) -> None:
        """Run the log of a stream that was opened."""
        self._attached.append(stream)
        self.cluster.owned.add(stream.name)
        stream.owner = self._own_endpoint
        if self._driver is not None:
            self._run(stream, self._driver)

    def _run(self, stream: StoredStream, driver: Driver) -> None:
        stream.advance = partial(driver.advance, stream.log)
        driver.add(stream.log, stream.on_events)

    def detach(self, stream: StoredStream) -> None:
        """Run the log of a stream no more: the stream is lost, or is being deleted."""
        self._attached.remove(stream)
        self.cluster.owned.discard(stream.name)
        if self._driver is not None:
            self._driver.remove(stream.log)
        if not stream.log.is_owner:
            self._logs.pop(stream.name, None)

    def forget(self, name: str) -> None:
        """Own a stream no more, whatever its log says: it is detached, and another broker can have it."""
        self._logs.pop(name, None)

    def note_streams(self, names: Iterable[str]) -> None:
        """Note which streams are in the store."""
        self._stored |= set(names)

    def note_orphans(self, names: Container[str]) -> None:
        """Note which streams no broker has: the others are taken."""
        self.untaken = {name: problem for name, problem in list(self.untaken.items()) if name in names}

    def hand_over(self, log: StreamLog, name: str) -> None:
        """Give up a stream that is detached, when everything that was sent to the store is stored."""
        driver = self._driver
        self.forget(name)
        if driver is None:
            return

        def look() -> None:
            if not log.is_owner:
                driver.remove(log)
                self._releasing.pop(name, None)

        self._releasing[name] = log
        log.release()
        driver.add(log, look)

    def announce(self, endpoint: str) -> None:
        """Tell the other brokers an endpoint of this one."""
        found = self.endpoint or reachable(endpoint)
        if found and found not in self.cluster.endpoints:
            self.cluster.announce([*self.cluster.endpoints, found])
            for stream in self._attached:
                stream.owner = self._own_endpoint

    @property
    def _own_endpoint(self) -> str:
        return next(iter(self.cluster.endpoints), "")

    def age_of(self, member: Member) -> float:
        """Return how many seconds ago a broker has put its last heartbeat."""
        waited = self._driver.time() - self.cluster.beaten_at if self._driver is not None else 0.0
        return max(0.0, self.cluster.roll.time - member.time) + waited

    def start(self, driver: Driver, beats: Driver) -> None:
        """Run the logs of all streams. `beats` runs the cluster."""
        self._driver, self._beats = driver, beats
        for stream in self._attached:
            self._run(stream, driver)

    def check(self, now: float) -> None:
        """Find out which streams other brokers have taken, after this process did not run for a while."""
        for stream in self._attached:
            stream.log.check(now)
            stream.advance()

    def check_idle(self, now: float) -> None:
        """Check streams to which nobody publishes, now and then."""
        if self.cluster.has_others:
            for stream in self._attached:
                stream.log.check_if_idle(now)
                stream.advance()

    def release(self, done: Callable[[], object]) -> None:
        """Give all streams up when everything is stored, and then call back."""
        streams = [stream for stream in self._attached if stream.log.is_owner]
        waiting = set(streams)

        def look(stream: StoredStream) -> None:
            stream.on_events()
            if not stream.log.is_owner and stream in waiting:
                waiting.discard(stream)
                if not waiting:
                    done()

        for stream in streams:
            stream.send_all_positions()
            stream.log.release()
            if self._driver is not None:
                self._driver.add(stream.log, partial(look, stream))
        if not streams:
            done()

    def leave(self) -> None:
        """Remove the heartbeat of this broker. Blocks for a second at most if the store does not answer."""
        with suppress(StoreError):
            self.remote.run(leave(self.id, self.cluster.revision), patience=1.0)

    def close(self) -> None:
        super().close()
        self.remote.close()


def _refusal(error: ZepsError, text: str) -> ZepsError:
    """Return the error for clients. If the store does not answer, they ask another broker, or this one later."""
    return Moved(reason=str(error)) if isinstance(error, StoreSilent) else JournalError(f"{text}: {error}")
