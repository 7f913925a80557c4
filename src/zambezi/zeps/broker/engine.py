"""The broker without sockets and threads: its streams, its sessions, and its periodic work.

Sessions pass messages in, and the connections of the sessions take messages out. The engine appends to journals and
reads them: these are files in the page cache. It asks a `Shell` for the time, and for everything that could make the
thread wait: to read pages from the disk, to sync a journal, to create a stream or to wake an idle one. Only the
constructor, `find_or_make`, `close` and `BrokerStream.append` may wait for the disk themselves.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, TypeAlias, TypedDict

from zambezi.wire.text import printable
from zambezi.zeps.about import about
from zambezi.zeps.broker.client_connection import Connection
from zambezi.zeps.broker.deliveries import Deliveries
from zambezi.zeps.broker.depot import STORE, Depot
from zambezi.zeps.broker.exchange import Exchange
from zambezi.zeps.broker.quota import Quota, site_of
from zambezi.zeps.broker.reports import Reports
from zambezi.zeps.broker.seeking import Seeking, Waiting, log_created, log_made
from zambezi.zeps.broker.session import Session
from zambezi.zeps.broker.shell import Shell
from zambezi.zeps.broker.stored_stream import StoredStream
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.broker.turns import Turns
from zambezi.zeps.directory import ABOUT, BROKERS, ELSEWHERE
from zambezi.zeps.errors import Absent, BrokerError, JournalError, Moved, ZepsError
from zambezi.zeps.histogram import Histogram
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.journal.store import Fill
from zambezi.zeps.journal.stored_policy import changed
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.store.stream_log import State

_log: Final = logging.getLogger("zambezi.zeps")

STREAMS_PER_TURN: Final = 500  # streams that get their periodic work in one turn of the loop: about a millisecond
PUBLISHERS: Final = 1_000_000  # of all streams, whose messages are counted: about 260 MB
READERS: Final = 1_000_000  # named readers of all streams, above which no new ones are added: about 400 MB
FREED: Final = 64 << 20  # bytes of a cache that are removed if the disk is full
CACHE_INTERVAL: Final = 30.0  # seconds between two syncs of a journal that is a cache, at least
UNREAD: Final = 30  # ticks that a client may leave its answers unread, while its messages wait

Action: TypeAlias = Literal["publish", "subscribe", "create", "edit", "delete", "serve"]
Done: TypeAlias = Callable[[ZepsError | None], object]
Allow: TypeAlias = Callable[[str, Action, str], bool]


def allow_all(_user: str, _action: Action, _stream: str) -> bool:
    """Allow every user everything."""
    return True


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a broker."""

    streams: int = 10_000
    subscriptions: int = 100  # of one connection
    connections: int = 10_000
    message: int = 16 * 1024 * 1024  # bytes of a PUBLISH
    user_streams: int = 1000  # that one user can create in an hour
    address_streams: int = 1000  # that one address can create in an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options of a broker. The names are those of the arguments of `Broker`."""

    create: bool = True  # whether ATTACH creates a stream that does not exist
    streams: Iterable[str] = ()  # streams that are created when the broker starts
    policies: dict[str, Policy] = field(default_factory=dict)  # by the name of the stream, if it is not the default
    behind: Literal["invalid", "oldest"] = "invalid"  # for a subscriber whose next message was removed by retention
    limits: Limits = field(default_factory=Limits)
    matchers: Matchers = field(default_factory=Matchers)
    allow: Allow = allow_all  # whether a user may do something to a stream
    own: Container[str] = ()  # streams that only this process writes, with `BrokerStream.append`


class BrokerArguments(TypedDict, total=False):
    """The options of a broker, by keyword."""

    create: bool
    streams: Iterable[str]
    policies: dict[str, Policy]
    behind: Literal["invalid", "oldest"]
    limits: Limits
    matchers: Matchers
    allow: Allow


@dataclass(slots=True)
class BrokerCounters:
    """Counters of a broker."""

    published: int = 0  # messages
    fell_behind: int = 0  # subscriptions whose next message was removed by retention
    dismissed: int = 0  # publishers that were disconnected because too many messages waited for room on the disk
    readers_refused: int = 0  # claims of a name that the limit refused
    readers_taken: int = 0  # claims that were refused, and connections that were closed: another client has the name
    fenced: int = 0  # connections that were closed because their publisher has a newer epoch
    streams_refused: int = 0  # requests for a new stream that a limit refused
    unread: int = 0  # connections that were closed because the client did not read its answers
    requests: int = 0  # that clients have sent
    unserved: int = 0  # requests that no server wanted
    unclaimed: int = 0  # replies whose client was gone, or did not read
    expelled: int = 0  # connections that were closed because the client sent too many messages that are not ZEPS
    invalid: Counter[str] = field(default_factory=Counter)  # INVALID answers, by kind


class Engine:
    """All streams and sessions of one broker."""

    def __init__(self, store: Store, options: BrokerOptions, shell: Shell) -> None:
        self.options = options
        self.limits = options.limits
        self.matchers = options.matchers
        self.counters = BrokerCounters()
        self.deliveries = Deliveries()  # to connections that have ended, and to groups; also of streams that are gone
        self.latency = Histogram()  # from `publish` until the live subscribers have a message
        self.sessions: dict[Session, None] = {}
        self.report_readers: dict[Session, None] = {}  # sessions that read a reserved stream
        self.unread: dict[Session, int] = {}  # sessions whose clients must read answers first, and for how many ticks
        self.turns = Turns(shell.call_soon)
        self._is_closing = False
        self.has_most_readers = False  # whether no named readers are added any more
        self.on_empty: Callable[[], object] = lambda: None
        self.on_open: Callable[[BrokerStream], object] = lambda _: None  # called with each stream that is opened
        self.on_taken: Callable[[BrokerStream], object] = lambda _: None  # called with a stream that is cut or deleted
        self.store = store
        self.seeking = Seeking(self, store) if isinstance(store, Depot) else None
        self.reports = Reports(self)
        self.exchange = Exchange(self, shell.clock)
        self._shell = shell
        self._policies = dict(options.policies)
        self._numbers = 0
        self._streams: dict[str, BrokerStream] = {}
        self._in_order: tuple[BrokerStream, ...] | None = None  # all of them; None if one was added or removed
        # Streams that are being sought, created or cut, and the sessions that wait for them.
        self.making: dict[str, list[Waiting]] = {}
        self._by_user = Quota(self.limits.user_streams)
        self._by_address = Quota(self.limits.address_streams)
        self.unusable: dict[str, str] = {}  # streams that could not be opened at the start, and why
        for name in options.streams:
            directory_of(name)  # raises JournalError for a name that no stream can have
        for name in dict.fromkeys([*store.names(), *options.streams]):
            self._open_at_start(name)
        if store.problems:
            store.names()  # again: those that could be repaired are no problems any more
        self.problems = list(store.problems)  # directories that are not valid streams

    def _open_at_start(self, name: str) -> None:
        """Open a stream. If it is damaged or cannot be read, report that: the other streams must work."""
        try:
            stream = self._open_stream(name)
        except Moved:
            return
        except (ZepsError, OSError) as error:
            self.unusable[name] = str(error)
            _log.error("stream %s cannot be used: %s", printable(name), error, extra=about(name, error))
        else:
            for problem in stream.journal.problems:
                _log.warning("stream %s: %s", printable(name), problem, extra=about(name, problem))

    # Streams

    def names(self) -> list[str]:
        """Return the names of all streams, in order."""
        return [stream.name for stream in self.streams]

    @property
    def streams(self) -> tuple[BrokerStream, ...]:
        """All streams, in the order of their names. They are sorted only if there are others than before."""
        if self._in_order is None:
            self._in_order = tuple(stream for _, stream in sorted(self._streams.items()))
        return self._in_order

    def find(self, name: str) -> BrokerStream | None:
        """Return the stream of that name, or None."""
        return self._streams.get(name)

    def find_or_make(self, name: str) -> BrokerStream:
        """Return the stream of that name; create it if it does not exist. Blocks: call it before clients connect."""
        stream = self._streams.get(name)
        if stream is None:
            self._refuse_unusable(name)
            try:
                self.store.make(
                    name
                )  # even if another thread is creating it: it must be on the disk before it is opened
                stream = self._open_stream(name)
            except JournalError as error:
                self.unusable[name] = str(error)
                raise
        return stream

    def _open_stream(self, name: str) -> BrokerStream:
        stream = self._streams.get(name)
        if stream is None:
            shell = self._shell
            journal = self.store.open(name, self._policies.get(name))
            log = self.store.log_of(name) if isinstance(self.store, Depot) else None
            if log is None and journal.is_cache:
                raise journal.unreachable_error()
            if log is None and journal.policy.sync == STORE:
                raise JournalError(f"stream {name!a} has sync = {STORE!a}, and the broker has no store")
            make = BrokerStream if log is None else partial(StoredStream, log)
            stream = self._streams[name] = make(
                journal,
                self.matchers,
                self.turns,
                call_soon=shell.call_soon,
                warm=shell.warm,
                sync=shell.sync_journal,
                wake=shell.wake_journal,
                call_later=shell.call_later,
                clock=shell.clock,
            )
            self._in_order = None
            stream.fetch = shell.fetch
            stream.latency = self.latency
            stream.groups.find_stream = self.find
            stream.groups.make_stream = self._make_for_letters
            if isinstance(stream, StoredStream) and isinstance(self.store, Depot):
                stream.on_lost = self.lose_stream
                stream.on_full = partial(self.work, partial(self.store.cache.free, FREED), lambda _: None)
                self.store.attach(stream)
            self.on_open(stream)
        return stream

    def lose_stream(self, stream: BrokerStream, reason: str) -> None:
        """Disconnect the clients of a stream that another broker has taken, or that is damaged; serve it no more."""
        if self._streams.get(stream.name) is not stream:
            return
        _log.warning("stream %s is lost: %s", printable(stream.name), reason, extra=about(stream.name, reason))
        if isinstance(stream, StoredStream) and stream.log.state is State.DEPOSED:
            self.drop_stream(stream, Moved())
            return
        self._remove(stream.name)
        self.unusable[stream.name] = reason
        self._stop_stream(stream, reason)

    def drop_stream(self, stream: BrokerStream, moved: Moved) -> None:
        """Serve a stream no more, and send its clients to another broker. What is not stored is dropped."""
        assert isinstance(self.store, Depot)
        stream.readers.close()
        stream.groups.close()
        self._remove(stream.name)
        self.on_taken(stream)
        self._stop_stream(stream, str(moved))
        self.store.forget(stream.name)

    def _remove(self, name: str) -> None:
        del self._streams[name]
        self._in_order = None

    def is_here(self, name: str) -> bool:
        """Return whether this broker serves a stream, or should make it: of brokers that share a store, one does."""
        return name in self._streams or self.seeking is None or self.seeking.is_at_home(name)

    def is_known(self, name: str) -> bool:
        """Return whether a stream is open, is being made, or cannot be used."""
        return name in self._streams or name in self.making or name in self.unusable

    def _stop_stream(self, stream: BrokerStream, reason: str) -> None:
        if isinstance(stream, StoredStream) and isinstance(self.store, Depot):
            self.store.detach(stream)
        stream.stop(reason)
        about = {prefix + stream.name for prefix in ABOUT}
        for session in [one for one in self.sessions if one.stream is stream or one.stream_name in about]:
            session.lose_stream(reason)

    def elsewhere(self, name: str) -> Moved | None:
        """Return where another broker has a stream that is not open here, as far as that is known."""
        return self.seeking.elsewhere(name) if self.seeking is not None else None

    @property
    def shared_reports(self) -> Mapping[str, Callable[[], list[tuple[str, dict[str, object]]]]]:
        """The rows of reserved streams about the brokers that share an object store."""
        return {BROKERS: self.seeking.brokers, ELSEWHERE: self.seeking.streams} if self.seeking is not None else {}

    def request_stream(self, session: Session, name: str) -> BrokerStream | None:
        """Return the stream of that name for a session, or raise `ZepsError` if the session may not have it.

        Returns None if the stream is being created: the session's `on_stream_ready` or `on_stream_refused` follows.
        """
        stream = self._streams.get(name)
        if stream is not None:
            return stream
        self._refuse_unusable(name)
        if name in self.making:
            self.making[name].append(session)
            return None
        if self.may_use(session, name) and self.seek(name, session):
            return None
        return self.request_new_stream(session, name)

    def seek(self, name: str, waiting: Waiting) -> bool:
        """Look for a stream that is not open in the object store, if there is one; see `Seeking.seek`."""
        return self.seeking is not None and self.seeking.seek(name, waiting)

    def request_new_stream(self, session: Session, name: str) -> BrokerStream | None:
        """Create a stream for a session, or raise `ZepsError` if the session may not create it."""
        self._refuse_unusable(name)
        if name in self.making:
            self.making[name].append(session)
            return None
        if not self.options.create:
            raise BrokerError(f"there is no stream {name}, and this broker does not create streams for clients")
        if not self.allows(session, "create", name):
            raise BrokerError(f"there is no stream {name}, and {session.user_name} may not create it")
        self._count_new_stream(session, name)
        self.making[name] = [session]
        done = partial(log_created, name, session.user or session.address or "this process")
        self._work_for_new(name, {})(partial(self.store.make, name), partial(self.on_stream_made, name, done=done))
        return None

    def _work_for_new(self, name: str, settings: Mapping[str, object]) -> Callable[[Callable[[], object], Done], None]:
        """Return how to create a stream: on one thread, or on several if that waits for a store."""
        is_stored = isinstance(self.store, Depot) and self.store.is_stored(name, settings)
        return self._shell.work_remote if is_stored else self._shell.work

    def create_stream(
        self, session: Session, name: str, settings: Mapping[str, object], done: Done, fill: Fill | None
    ) -> None:
        """Create a stream that does not exist, with its own settings, and call back; raise `BrokerError` otherwise."""
        self._refuse_unusable(name)
        if name in self._streams or name in self.making:
            raise BrokerError(f"there is a stream {name} already")
        self._count_new_stream(session, name)
        self.making[name] = []
        work = self._work_for_new(name, settings) if fill is None else self.work_long
        work(partial(self.store.make, name, settings, fill), partial(self.on_stream_made, name, done=done))

    def make_missing(self, names: Iterable[str]) -> None:
        """Create the streams of a new configuration that do not exist."""
        for name in names:
            if not self.is_known(name):
                self.making[name] = []
                done = partial(log_made, name)
                make = self._work_for_new(name, {})
                make(partial(self.store.make, name), partial(self.on_stream_made, name, done=done))

    def _make_for_letters(self, source: BrokerStream, name: str) -> None:
        """Create the stream for the dead letters of another one, or take it from the broker that has it."""
        depot = self.store
        if not source.is_shared or not isinstance(depot, Depot) or not depot.is_stored(name, {"sync": STORE}):
            self.make_missing([name])
        elif not self.is_known(name) and depot.may_take_again(name, self._shell.clock()):
            self.making[name] = []
            self._shell.work_remote(partial(depot.take_or_make, name), partial(self.on_stream_made, name))

    def request_stream_for_letters(self, session: Session, source: BrokerStream, name: str) -> None:
        """Create a stream for dead letters, later; raise `BrokerError` if the session may not create it."""
        self._refuse_unusable(name)
        if source.is_shared and isinstance(self.store, Depot) and self.store.has_stored(name):
            return  # another broker has it: it is taken when there are letters
        if name not in self.making:
            if not self.options.create or not self.allows(session, "create", name):
                raise BrokerError(f"there is no stream {name}, and {session.user_name} may not create it")
            self._count_new_stream(session, name)
            self._make_for_letters(source, name)

    def take_away(
        self, stream: BrokerStream, reason: str, action: Callable[[], object], done: Done, *, keep: bool
    ) -> None:
        """Disconnect the clients of a stream, and do something with its journal; then open it again, if it is kept."""
        stream.flush()
        if keep and stream.pending_bytes and not stream.is_shared:
            raise BrokerError(f"messages of {stream.name} wait for the disk: {stream.held or 'try again'}")
        stream.readers.close()
        stream.groups.close()
        name = stream.name
        self._remove(name)
        self.making[name] = []
        self.on_taken(stream)
        self._stop_stream(stream, reason)
        work = self.work_remote if stream.is_shared else self.work
        work(action, partial(self._on_stream_cut if keep else self._on_stream_deleted, name, done=done))

    def _on_stream_cut(self, name: str, problem: ZepsError | None, done: Done) -> None:
        """Serve the stream again, as it is now: also if it could not be cut."""
        self.on_stream_made(name, None, lambda unopened: done(problem or unopened))

    def _on_stream_deleted(self, name: str, problem: ZepsError | None, done: Done) -> None:
        sessions = self.making.pop(name)
        if problem is not None:
            self.unusable[name] = str(problem)
        for session in sessions:
            session.on_stream_missing(name)
        done(problem)

    def check_settings(self, settings: Mapping[str, object]) -> None:
        """Raise `BrokerError` for settings of a stream that this broker does not have."""
        if settings.get("sync") == STORE and not isinstance(self.store, Depot):
            raise BrokerError(f"sync cannot be {STORE!a}: the broker has no object store")

    def work(self, action: Callable[[], object], callback: Done) -> None:
        """Do something that waits for the disk, then call back with None or with the error."""
        self._shell.work(action, callback)

    def work_remote(self, action: Callable[[], object], callback: Done) -> None:
        """Do something that waits for an object store; several actions are done at once."""
        self._shell.work_remote(action, callback)

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        """Load a part of a journal into the page cache, then call back."""
        self._shell.warm(span, callback)

    def fetch(self, absent: Absent, callback: Done) -> None:
        """Load messages that only the object store has, then call back with None or with the error."""
        self._shell.fetch(absent, callback)

    def work_long(self, action: Callable[[], object], callback: Done) -> None:
        """Do something that can take minutes, while other work is done; it calls `check_open` now and then."""
        self._shell.work_long(action, callback)

    def search(self, action: Callable[[], object], callback: Done) -> None:
        """Search in a journal, then call back with None or with the error. The action ends if its client leaves."""
        self._shell.search(action, callback)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back in the next turn of the loop."""
        self._shell.call_soon(callback)

    def check_open(self) -> None:
        """Raise `BrokerError` if the broker closes. Any thread may call this."""
        if self._is_closing:
            raise BrokerError("the broker closes: give the order again later")

    def is_configured(self, name: str) -> bool:
        """Return whether the settings of a stream are in the configuration of the broker."""
        return name in self._policies

    def absence(self, name: str) -> BrokerError:
        """Return the error for a stream that `find` does not find."""
        if name in self.making:
            return BrokerError(f"stream {name} is being created, cut or deleted at this moment: try again")
        try:
            self._refuse_unusable(name)
        except BrokerError as error:
            return error
        return BrokerError(f"there is no stream {name}")

    def _refuse_unusable(self, name: str) -> None:
        if name in self.unusable:
            raise BrokerError(f"stream {name} cannot be used until the operator has repaired it: {self.unusable[name]}")

    def _count_new_stream(self, session: Session, name: str) -> None:
        """Count a stream that a client creates, or raise `BrokerError` if a limit does not allow it."""
        limits = self.limits
        now = self._shell.clock()
        user, address = ("", "") if session.trusted else (session.user, site_of(session.address))
        problem = ""
        if len(self._streams) + len(self.making) >= limits.streams:
            problem = f"there are {limits.streams} streams already, the limit"
        elif user and not self._by_user.allows(user, now):
            problem = f"{user} has created {limits.user_streams} streams within an hour, the limit; try again later"
        elif address and not self._by_address.take(address, now):
            problem = (
                f"{address} has created {limits.address_streams} streams within an hour, the limit; try again later"
            )
        elif user:
            self._by_user.take(user, now)
        if problem:
            self.counters.streams_refused += 1
            raise BrokerError(f"{problem}: {name} was not created")

    def on_stream_made(self, name: str, problem: ZepsError | None, done: Done = lambda _: None) -> None:
        sessions = self.making.pop(name)
        stream = None
        if problem is None:
            try:
                stream = self._open_stream(name)
            except ZepsError as error:
                problem = error
        for session in sessions:
            if stream is not None:
                session.on_stream_ready(stream)
            else:
                session.on_stream_refused(str(problem))
        done(problem)

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Change the storage policies: the default, and those of some streams."""
        self.store.policy = default
        self._policies = dict(policies)
        if isinstance(self.store, Depot):
            self.store.policies = self._policies
        for name, stream in self._streams.items():
            policy = self._policies.get(name) or changed(default, stream.journal.settings)
            if (policy.sync == STORE) != isinstance(stream, StoredStream):
                _log.warning(
                    "stream %s is moved to the store, or from it, at the next start only",
                    printable(name),
                    extra=about(name),
                )
                policy = replace(policy, sync=stream.journal.policy.sync)
            stream.journal.policy = policy

    # Sessions

    def new_session(self, connection: Connection, address: str = "", user: str = "", trusted: bool = False) -> Session:
        """Return the session of a new connection. A trusted one, from inside this process, may do everything."""
        self._numbers += 1
        session = Session(self, connection, self._numbers, address, user, trusted)
        self.sessions[session] = None
        return session

    def session_ended(self, session: Session) -> None:
        """Remove a session that has ended."""
        self.sessions.pop(session, None)
        self.report_readers.pop(session, None)
        if not self.sessions:
            self.on_empty()

    def allows(self, session: Session, action: Action, stream: str) -> bool:
        """Return whether a session may do something to a stream. No session may write the broker's own streams."""
        if action != "subscribe" and stream in self.options.own:
            return False
        return session.trusted or self.options.allow(session.user, action, stream)

    def may_use(self, session: Session, stream: str) -> bool:
        """Return whether a session may do anything to a stream; if not, the object store is not asked for it."""
        return any(self.allows(session, action, stream) for action in ("publish", "subscribe", "create"))

    def apply_rules(self) -> None:
        """Apply changed permissions to the existing sessions."""
        for session in tuple(self.sessions):
            session.apply_rules()

    # Time

    def tick(self) -> None:
        """Do the periodic work, about once a second: retry appends, sync, apply retention, report changes."""
        for session, ticks in tuple(self.unread.items()):
            self.unread[session] = ticks + 1
            if ticks >= UNREAD:
                session.give_up()
        self._forget_publishers()
        self.store.keep_reserve()
        self.has_most_readers = sum(len(stream.readers) for stream in self._streams.values()) >= READERS
        self._maintain_some(list(self._streams.values()), self._shell.clock())

    def _forget_publishers(self) -> None:
        """Forget publishers of the stream that has most of them, if all streams together have too many."""
        counts = [stream.journal.counts for stream in self._streams.values()]
        over = sum(map(len, counts)) - PUBLISHERS
        if over > 0:
            max(counts, key=len).forget(over)

    def _maintain_some(self, streams: list[BrokerStream], now: float) -> None:
        """Do the periodic work of some streams now, and of the rest after clients have had their turn."""
        for stream in streams[:STREAMS_PER_TURN]:
            try:
                self._maintain(stream, now)
            except (JournalError, OSError) as error:
                _log.warning("stream %s: %s", printable(stream.name), error, extra=about(stream.name, error))
        if len(streams) > STREAMS_PER_TURN:
            self._shell.call_soon(partial(self._maintain_some, streams[STREAMS_PER_TURN:], now))
        else:
            self._report_changes()

    def _report_changes(self) -> None:
        self.reports.invalidate()
        for session in tuple(self.report_readers):
            session.delivery.report_changes()

    def _maintain(self, stream: BrokerStream, now: float) -> None:
        journal = stream.journal
        stream.update_rate()
        stream.retry()
        policy = journal.policy
        interval = max(policy.interval, CACHE_INTERVAL) if journal.is_cache else policy.interval
        if policy.sync != "never" and journal.is_dirty and now >= stream.synced_at + interval:
            stream.synced_at = now
            self._shell.sync_journal(stream)
        journal.retain(now)
        if isinstance(stream, StoredStream):
            stream.sweep(now)
        stream.readers.flush()
        stream.groups.tick()
        compact = stream.readers.take_compaction()
        if compact is not None:
            self._shell.work(compact, stream.readers.note_compacted)

    def detach_all(self) -> None:
        """Append all pending messages, and send DETACH to all clients. End work that takes long."""
        self._is_closing = True
        for stream in self._streams.values():
            stream.flush()
            stream.retry()
        for session in tuple(self.sessions):
            session.detach()

    def close(self) -> None:
        """Append and sync everything, and close the journals. Blocks."""
        for stream in self._streams.values():
            stream.finish()
        self.store.close()
