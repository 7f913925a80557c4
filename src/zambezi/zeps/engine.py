"""The broker without I/O: its streams, its sessions, and what is done as time passes.

Messages go in by sessions, and come out by the lines that the sessions were made with. The journals are files; all that
could make the thread wait for them (to bring pages into memory, to bring what was written onto the disk) is asked of a
`Shell`, which has other threads for it. Time is an argument.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, TypedDict

from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.reports import Reports
from zambezi.zeps.session import Line, Session
from zambezi.zeps.stream import Stream

_log: Final = logging.getLogger("zambezi.zeps")

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

    def sync(self, stream: Stream) -> None:
        """Bring a journal onto the disk, then call `stream.settle`."""

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
        self.on_empty: Callable[[], object] = lambda: None
        self.reports = Reports(self)
        self._store = store
        self._shell = shell
        self._policies = dict(options.policies)
        self._numbers = 0
        self._streams: dict[str, Stream] = {}
        for name in [*store.names(), *options.streams]:
            self._open(name)

    # Streams

    def names(self) -> list[str]:
        return sorted(self._streams)

    @property
    def streams(self) -> list[Stream]:
        return [self._streams[name] for name in self.names()]

    def find(self, name: str, create: bool) -> Stream | None:
        stream = self._streams.get(name)
        return self._open(name) if stream is None and create else stream

    def _open(self, name: str) -> Stream:
        stream = self._streams.get(name)
        if stream is None:
            shell = self._shell
            stream = self._streams[name] = Stream(
                self._store.open(name, self._policies.get(name)),
                self.matchers,
                soon=shell.soon,
                warm=shell.warm,
                sync=shell.sync,
                clock=shell.clock,
            )
        return stream

    def admit(self, session: Session, name: str) -> Stream:
        """The stream of that name, made if need be; `ZepsError` if it cannot be had."""
        stream = self._streams.get(name)
        if stream is not None:
            return stream
        if not self.options.create:
            raise BrokerError(f"there is no stream {name}, and this broker makes none by itself")
        if not self.allows(session, "create", name):
            raise BrokerError(f"there is no stream {name}, and {session.user or 'anybody'} may not make one")
        if len(self._streams) >= self.limits.streams:
            raise BrokerError(f"there are {len(self._streams)} streams already, the limit: {name} was not made")
        return self._open(name)

    def set_policies(self, default: Policy, policies: Mapping[str, Policy]) -> None:
        """Keep streams by other rules from now on."""
        self._store.policy = default
        self._policies = dict(policies)
        for name, stream in self._streams.items():
            stream.journal.policy = self._policies.get(name, default)

    # Sessions

    def session(self, line: Line, address: str = "", user: str = "", trusted: bool = False) -> Session:
        """A new connection; one from within this process is trusted, and may do everything."""
        self._numbers += 1
        session = Session(self, line, self._numbers, address, user, trusted)
        self.sessions[session] = None
        return session

    def ended(self, session: Session) -> None:
        self.sessions.pop(session, None)
        if not self.sessions:
            self.on_empty()

    def allows(self, session: Session, action: Action, stream: str) -> bool:
        return session.trusted or self.options.allow(session.user, action, stream)

    # Time

    def tick(self) -> None:
        """Every second or so: what could not be appended is tried again, what is old goes, changes are told."""
        now = self._shell.clock()
        for stream in tuple(self._streams.values()):
            try:
                self._tend(stream, now)
            except (JournalError, OSError) as error:
                _log.warning("stream %s: %s", stream.name, error)
        for session in tuple(self.sessions):
            session.look()

    def _tend(self, stream: Stream, now: float) -> None:
        journal = stream.journal
        stream.measure()
        if stream.held:
            stream.retry()
        policy = journal.policy
        if policy.sync != "never" and journal.is_dirty and now >= stream.synced_at + policy.interval:
            stream.synced_at = now
            self._shell.sync(stream)
        journal.retain(now)

    def detach(self) -> None:
        """Say goodbye to all."""
        self._flush()
        for session in tuple(self.sessions):
            session.detach()

    def _flush(self) -> None:
        for stream in self._streams.values():
            stream.flush()
            stream.retry()

    def close(self) -> None:
        self._flush()
        self._store.close()
