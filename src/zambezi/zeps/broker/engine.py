"""The broker without sockets and threads: its streams, its sessions, and what is done as time passes.

Messages go in by sessions, and come out by the connections that the sessions were made with. The engine appends to
journals and reads them, which are files in the page cache. It asks a `Shell` for the time, and for everything that
could make the thread wait: to read pages from the disk, to sync a journal, to make a stream or to wake an idle one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias, TypedDict

from zambezi.zeps.broker.reports import Reports
from zambezi.zeps.broker.session import Connection, Session
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import BrokerError, JournalError, ZepsError
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.matchers import Matchers

_log: Final = logging.getLogger("zambezi.zeps")

TENDED: Final = 500  # streams that are looked after in one turn: a millisecond or so

Action: TypeAlias = Literal["publish", "subscribe", "create"]
Allow: TypeAlias = Callable[[str, Action, str], bool]


def everybody(_user: str, _action: Action, _stream: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may ask of a broker."""

    streams: int = 10_000
    subscriptions: int = 100  # of one connection
    connections: int = 10_000
    message: int = 16 * 1024 * 1024  # octets of a PUBLISH


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """How a broker behaves. The names are those of the arguments of `Broker`."""

    create: bool = True  # whether ATTACH makes a stream that is not there
    streams: Iterable[str] = ()  # those that are there from the beginning
    policies: dict[str, Policy] = field(default_factory=dict)  # by the name of the stream, where it is not the default
    behind: Literal["invalid", "oldest"] = "invalid"  # for a reader that retention has passed
    limits: Limits = field(default_factory=Limits)
    matchers: Matchers = field(default_factory=Matchers)
    allow: Allow = everybody  # may this user do this to that stream?


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
class Counters:
    """What happened, counted."""

    published: int = 0
    fell_behind: int = 0  # cursors that retention has passed
    dismissed: int = 0  # publishers that were sent away because too much waited for room on the disk already
    unread: int = 0  # connections that were ended because they did not read their answers
    invalid: Counter[str] = field(default_factory=Counter)  # by kind


class Shell(Protocol):
    """What the engine cannot do by itself."""

    def soon(self, callback: Callable[[], object]) -> None:
        """Call back when what can be read now has been read."""

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        """Bring a part of a journal into memory, then call back."""

    def sync(self, stream: BrokerStream) -> None:
        """Bring a journal onto the disk, then call `stream.settle`."""

    def wake(self, stream: BrokerStream) -> None:
        """Wake an idle journal, then call `stream.woken`. It may be asked for again before that has come."""

    def make(self, name: str, callback: Callable[[ZepsError | None], object]) -> None:
        """Have a new stream on disk, then call back, but not at once; or say why not."""

    def clock(self) -> float:
        """Seconds since 1970."""


class Engine:
    """All streams and sessions of one broker."""

    def __init__(self, store: Store, options: BrokerOptions, shell: Shell) -> None:
        self.options = options
        self.limits = options.limits
        self.matchers = options.matchers
        self.counters = Counters()
        self.sessions: dict[Session, None] = {}
        self.readers: dict[Session, None] = {}  # of reserved streams: they are told as time passes
        self.on_empty: Callable[[], object] = lambda: None
        self.reports = Reports(self)
        self._store = store
        self._shell = shell
        self._policies = dict(options.policies)
        self._numbers = 0
        self._streams: dict[str, BrokerStream] = {}
        self._making: dict[str, list[Session]] = {}  # streams that are being made, and who waits for them
        for name in [*store.names(), *options.streams]:
            self._open(name)

    # Streams

    def names(self) -> list[str]:
        return sorted(self._streams)

    @property
    def streams(self) -> list[BrokerStream]:
        return [self._streams[name] for name in self.names()]

    def find(self, name: str, create: bool) -> BrokerStream | None:
        """The stream of that name. To make it waits for the disk: for the time before clients come."""
        stream = self._streams.get(name)
        if stream is not None or not create:
            return stream
        self._store.make(name)  # also if that is under way: what is opened is on disk
        return self._open(name)

    def _open(self, name: str) -> BrokerStream:
        stream = self._streams.get(name)
        if stream is None:
            shell = self._shell
            stream = self._streams[name] = BrokerStream(
                self._store.open(name, self._policies.get(name)),
                self.matchers,
                soon=shell.soon,
                warm=shell.warm,
                sync=shell.sync,
                wake=shell.wake,
                clock=shell.clock,
            )
        return stream

    def admit(self, session: Session, name: str) -> BrokerStream | None:
        """The stream of that name; None if it is being made, and the session will be told; or `ZepsError`."""
        stream = self._streams.get(name)
        if stream is not None:
            return stream
        if name in self._making:
            self._making[name].append(session)
            return None
        if not self.options.create:
            raise BrokerError(f"there is no stream {name}, and this broker makes none by itself")
        if not self.allows(session, "create", name):
            raise BrokerError(f"there is no stream {name}, and {session.user or 'anybody'} may not make one")
        if len(self._streams) + len(self._making) >= self.limits.streams:
            raise BrokerError(f"there are {self.limits.streams} streams already, the limit: {name} was not made")
        self._making[name] = [session]
        self._shell.make(name, partial(self._made, name))
        return None

    def _made(self, name: str, problem: ZepsError | None) -> None:
        sessions = self._making.pop(name)
        stream = None
        if problem is None:
            try:
                stream = self._open(name)
            except ZepsError as error:
                problem = error
        for session in sessions:
            if stream is not None:
                session.admitted(stream)
            else:
                session.refused(str(problem))

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Keep streams by other rules from now on."""
        self._store.policy = default
        self._policies = dict(policies)
        for name, stream in self._streams.items():
            stream.journal.policy = self._policies.get(name, default)

    # Sessions

    def session(self, connection: Connection, address: str = "", user: str = "", trusted: bool = False) -> Session:
        """Return the session of a new connection; one from within this process is trusted, and may do everything."""
        self._numbers += 1
        session = Session(self, connection, self._numbers, address, user, trusted)
        self.sessions[session] = None
        return session

    def ended(self, session: Session) -> None:
        self.sessions.pop(session, None)
        self.readers.pop(session, None)
        if not self.sessions:
            self.on_empty()

    def allows(self, session: Session, action: Action, stream: str) -> bool:
        return session.trusted or self.options.allow(session.user, action, stream)

    def apply_rules(self) -> None:
        """Apply rules that have changed to the sessions that exist."""
        for session in tuple(self.sessions):
            session.apply_rules()

    # Time

    def tick(self) -> None:
        """Every second or so: what could not be appended is tried again, what is old goes, changes are told."""
        self._tend_some(list(self._streams.values()), self._shell.clock())

    def _tend_some(self, streams: list[BrokerStream], now: float) -> None:
        """Look after some streams, and after the others when clients have had their turn."""
        for stream in streams[:TENDED]:
            try:
                self._tend(stream, now)
            except (JournalError, OSError) as error:
                _log.warning("stream %s: %s", stream.name, error)
        if len(streams) > TENDED:
            self._shell.soon(partial(self._tend_some, streams[TENDED:], now))
        else:
            self._tell()

    def _tell(self) -> None:
        self.reports.outdate()
        for session in tuple(self.readers):
            session.report_changes()

    def _tend(self, stream: BrokerStream, now: float) -> None:
        journal = stream.journal
        stream.measure()
        stream.retry()
        policy = journal.policy
        if policy.sync != "never" and journal.is_dirty and now >= stream.synced_at + policy.interval:
            stream.synced_at = now
            self._shell.sync(stream)
        journal.retain(now)

    def detach(self) -> None:
        """Say goodbye to all."""
        for stream in self._streams.values():
            stream.flush()
            stream.retry()
        for session in tuple(self.sessions):
            session.detach()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.finish()
        self._store.close()
