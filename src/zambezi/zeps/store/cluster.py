"""The brokers of a prefix share its streams: which broker serves which stream. An engine without I/O.

The broker puts a heartbeat every few seconds (`members`). When a broker comes or goes, each broker looks at all streams
of the prefix (a *scan*), and

- takes the streams that no live broker owns, and whose home is this broker;
- hands over the streams that it owns, and whose home is another broker.

Brokers tell each other the names of the streams that they own (`Member.streams`). A scan does not look at those, and
another one follows if a stream is among the names of no broker any more.

A broker that is asked for a stream looks at that stream alone, or believes the broker that has named it. So between the
changes an idle broker asks the store only for its heartbeat and the list of brokers.

A broker whose heartbeat is late, that refuses connections, or that says that it leaves, is *failing*. The streams that
it has named are expected by the brokers that will be their homes: these prepare to take them, and let clients wait.
When it is gone, they take the streams without looking at each of them first. A broker that is asked for a stream of
another one again looks at the heartbeat of that one, at most every `PROBE` seconds, and the shell connects to it: so
the broker finds out at once that the other one leaves, or does not run.

A broker whose heartbeat was not stored for `LIMIT` seconds is *cut off*: other brokers take its streams. It gives up
its streams by itself, so that its clients go to the other brokers, and begins again when the store answers. That is
never needed for safety: `takeover` has the reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from zambezi.zeps.errors import StoreError, ZepsError
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.store.catalog import StoredStream, latest_stream, list_streams
from zambezi.zeps.store.chunk import FOOTER, NOBODY, Footer, Kind, unpack_footer
from zambezi.zeps.store.commands import Answer, Procedure, get, within
from zambezi.zeps.store.members import LIMIT, PERIOD, Member, Owned, Roll, is_leaving, notify, put_beat, read_roll
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.runner import Runner, Ticket
from zambezi.zeps.store.view import View, look_and_read

SCANS_AT_ONCE: Final = 16  # streams that a scan looks at, at the same time
LOOKUPS_AT_ONCE: Final = 8  # streams that clients have asked for
PATIENCE: Final = 5.0  # seconds of pauses, while the store fails, after which a look-up fails
AFTER: Final = 0.1  # seconds between the death of a broker and the heartbeat that finds it
SILENT: Final = 1.5  # periods after which a heartbeat is late
ASKED: Final = 5.0  # seconds in which a client that was sent to another broker in vain comes back
_MOST_ASKED: Final = 10_000  # streams
PROBE: Final = 0.25  # seconds between two looks at a broker that is asked for, or that leaves
TRUST: Final = 600.0  # seconds for which a broker is not connected to, if it lives although it refused a connection
_TICK: Final = 1.0  # seconds by which a store's times can be wrong
RESCAN: Final = 60.0  # seconds after which a broker looks again at streams that no broker serves


class Ownership(NamedTuple):
    """The owner of a stream, as the end of its log tells; `NOBODY` if it has none."""

    owner: bytes
    is_deleted: bool


class Scanned(NamedTuple):
    """A stream of the prefix that is not deleted, and its owner."""

    stream: StoredStream
    owner: bytes


class Located(NamedTuple):
    """A stream, unless it does not exist, and the other broker that serves it or should; None if this broker should."""

    stream: StoredStream | None
    server: Member | None
    owner: bytes


LookedUp: TypeAlias = Callable[[Located | ZepsError], object]
Place: TypeAlias = tuple[bytes, tuple[str, ...]]  # a broker, and its endpoints


@dataclass(frozen=True, slots=True)
class Cut:
    """The broker is cut off: it must give up its streams."""


@dataclass(frozen=True, slots=True)
class Back:
    """Other brokers can have taken streams: the store answers again after a long time, or a broker has said so."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a scan."""

    streams: Mapping[str, Scanned]
    orphans: Sequence[Scanned]  # streams that this broker must take
    guests: Sequence[tuple[str, Member]]  # streams that this broker must hand over, and to which broker


@dataclass(frozen=True, slots=True)
class Expected:
    """Streams of a broker whose heartbeat is late: this broker must take them if that broker is dead."""

    names: Sequence[str]


ClusterEvent: TypeAlias = Cut | Back | Found | Expected


def find_owner(place: StreamPlace) -> Procedure[Ownership]:
    """Return the owner of a stream: a LIST, and the footer of the last chunk; more if fences come last."""

    def read(view: View) -> Procedure[Ownership | None]:
        owner: bytes | None = None
        for chunk in reversed(view.tail):
            footer = yield from _footer(place.chunk(chunk.number), chunk.size)
            if footer is None:
                return None
            if footer.kind is Kind.DELETION:
                return Ownership(NOBODY, True)
            if owner is None:
                owner = NOBODY if footer.kind is Kind.RELEASE else footer.owner
            if footer.kind is not Kind.FENCE:
                return Ownership(owner, False)
        if owner is None and view.newest is not None:
            footer = yield from _footer(place.segment(view.newest.name), view.newest.size)
            if footer is None:
                return None
            owner = footer.owner
        return Ownership(owner or NOBODY, False)

    found = yield from look_and_read(place, read, is_hint=True)
    return found


def _footer(key: str, size: int) -> Procedure[Footer | None]:
    octets = yield from get(key, max(0, size - FOOTER), FOOTER)
    return None if octets is None else unpack_footer(octets, key)


class Cluster:
    """The view of one broker on the brokers and streams of a prefix."""

    def __init__(self, broker: bytes, period: float = PERIOD, limit: float = LIMIT, since: float = 0.0) -> None:
        self.id = broker
        self.endpoints: Sequence[str] = ()  # of this broker, for the heartbeat
        self.since = since  # when this broker was started
        self.owned: set[str] = set()  # the streams of this broker
        self.roll = Roll(0.0, ())
        self.streams: dict[str, Scanned] = {}  # of the last scan, and of the look-ups since then
        self.is_cut = False
        self._period = period
        self._limit = limit
        self._runner = Runner()
        self._events: list[ClusterEvent] = []
        self._is_beating = False
        self._next_beat = 0.0
        self._beaten_at: float | None = None  # when the last heartbeat that was stored began
        self._was_overdue = False  # since the last roll
        self._is_reading = False
        self._must_read = False  # whether a heartbeat was stored meanwhile
        self._rolled_at: float | None = None  # when the heartbeat before the last roll began
        self._settled: frozenset[Place] = frozenset()  # brokers that were in the last two rolls, at the same endpoints
        self._owners: dict[str, bytes] = {}  # of streams that other live brokers have named
        self._named: AbstractSet[str] = frozenset()  # own streams whose names were put
        self.revision = 0  # of these names
        self._is_scanning = False
        self._must_scan = True
        self._left: AbstractSet[str] = frozenset()  # streams that no broker had named after the last scan
        self._next_rescan = 0.0
        self._lookups: deque[tuple[str, LookedUp]] = deque()  # not begun
        self._looking = 0  # look-ups in progress
        self._notified = 0.0
        self._now = 0.0
        self._is_leaving = False
        self._failing: frozenset[bytes] = frozenset()  # brokers that leave, or whose heartbeats are late
        self._departed: dict[str, bytes] = {}  # streams of brokers that are gone since the last scan, and these brokers
        self._awaited: dict[str, float] = {}  # of these, streams that other brokers must take, and until when
        self._probed: dict[bytes, float] = {}  # when the heartbeat of a broker was looked at
        self._asked: dict[str, float] = {}  # when streams of other brokers were asked for
        self._refused: dict[bytes, float] = {}  # brokers that refused a connection, and the store's time of that
        self._trusted: dict[bytes, float] = {}  # brokers that live all the same, and until when

    # For the shell

    def requests(self, now: float) -> list[Ticket]:
        """Return the requests that the shell must execute now."""
        self._now = now
        if not self._is_beating and now >= self._next_beat:
            self._is_beating = True
            self._next_beat = now + self._period
            heartbeat = put_beat(self.id, self.endpoints, since=self.since, is_leaving=self._is_leaving)
            self._runner.start(heartbeat, now, lambda _: self._note_beat(now), self._fail_beat)
        if not self.is_cut and not self._is_leaving and self.has_others and self._is_overdue:
            self.is_cut = True
            self._events.append(Cut())
        return self._runner.requests(now)

    def answer(self, number: int, answer: Answer, now: float) -> None:
        """Continue with the answer of a request."""
        self._now = now
        self._runner.answer(number, answer, now)

    @property
    def next_time(self) -> float | None:
        """The time at which `requests` must be called again; None if only an answer matters."""
        times = [self._runner.next_time]
        if not self._is_beating:
            times.append(self._next_beat)
        if not self.is_cut and not self._is_leaving and self.has_others and self._beaten_at is not None:
            times.append(self._beaten_at + self._limit + 0.001)
        return min((time for time in times if time is not None), default=None)

    def take_events(self) -> list[ClusterEvent]:
        """Return what has happened since the last call."""
        events, self._events = self._events, []
        return events

    # For the broker

    def announce(self, endpoints: Sequence[str]) -> None:
        """Put the endpoints of this broker into the next heartbeat, which begins at once."""
        self.endpoints = endpoints
        self._next_beat = 0.0

    def leave(self) -> None:
        """Tell the others that this broker gives its streams up, by a heartbeat that begins at once; take no others."""
        self._is_leaving = True
        self._next_beat = 0.0

    def server_of(self, stream: str, owner: bytes) -> Member | None:
        """Return the other broker that serves a stream, or should take it; None if that is this broker."""
        if owner == self.id:
            return None
        found = self.roll.member(owner) or self.roll.home(stream, self.id)
        return None if found is None or found.id == self.id else found

    def locate(self, name: str) -> Procedure[Located]:
        """Find a stream, and the broker that serves it."""
        known = self.streams.get(name)
        found = yield from _find(name, known.stream if known is not None else None)
        stream, owner = found or (None, NOBODY)
        return Located(stream, self.server_of(name, owner), owner)

    def look_up(self, name: str, done: LookedUp) -> None:
        """Run `locate`, and call back; with an error if the store does not answer."""
        self._lookups.append((name, done))
        self._look_up_next()

    def _look_up_next(self) -> None:
        while self._lookups and self._looking < LOOKUPS_AT_ONCE:
            name, done = self._lookups.popleft()
            self._looking += 1
            note = partial(self._note_look_up, name, done)
            self._runner.start(within(self.locate(name), PATIENCE), self._now, note, note)

    def _note_look_up(self, name: str, done: LookedUp, found: Located | ZepsError) -> None:
        self._looking -= 1
        if isinstance(found, Located) and found.stream is not None:
            self.streams[name] = Scanned(found.stream, found.owner)
        done(found)
        self._look_up_next()

    def named_by(self, stream: str) -> Member | None:
        """Return the other live broker that has named a stream as its own.

        None if this broker should have the stream: the other one is perhaps handing it over.
        """
        home = self.roll.home(stream, self.id)
        if home is None or home.id == self.id:
            return None
        return self.owner_of(stream)

    def owner_of(self, stream: str) -> Member | None:
        """Return the other live broker that has named a stream as its own, also if it is handing the stream over."""
        found = self.roll.member(self._owners.get(stream, NOBODY))
        return found if found is not None and found.id != self.id and found.endpoints else None

    @property
    def owners(self) -> Mapping[str, bytes]:
        """The brokers of all streams, as far as they have named them; `NOBODY` for the other streams."""
        unowned = dict.fromkeys([*self.streams, *self._awaited], NOBODY)
        return unowned | self._owners | dict.fromkeys(self.owned, self.id)

    def heir_of(self, stream: str) -> Member | None:
        """Return the broker that will get a stream, which can be this one; None if its owner is not failing, or gone.

        None, too, if that broker should have taken the stream by now.
        """
        is_awaited = self._now < self._awaited.get(stream, 0.0)
        if not is_awaited and self._owners.get(stream, NOBODY) not in self._failing:
            return None
        return self.roll.home(stream, self.id, self._failing)

    @property
    def is_scanning(self) -> bool:
        """Whether a scan is in progress."""
        return self._is_scanning

    def suspect(self, member: Member, stream: str, now: float) -> bool:
        """Look whether a broker leaves, if a stream of it is asked for again: it has perhaps sent its client away.

        Return whether the shell must connect to the broker, too, and call `note_refused` if it refuses that.
        """
        asked = self._asked.get(stream)
        if len(self._asked) >= _MOST_ASKED:
            self._asked.clear()
        self._asked[stream] = now
        is_again = asked is not None and now < asked + ASKED
        if not is_again or now < self._probed.get(member.id, 0.0) + PROBE:
            return False
        self._probed[member.id] = now
        self._runner.start(within(is_leaving(member.id), PATIENCE), now, self._note_probe, lambda _: None)
        return member.id not in self._refused and now >= self._trusted.get(member.id, 0.0)

    def note_refused(self, member: Member, now: float) -> None:
        """Note that a broker has refused a connection. If it puts heartbeats after that, it lives all the same."""
        if self._rolled_at is not None and self.roll.member(member.id) is not None:
            self._refused[member.id] = self.roll.time + now - self._rolled_at + _TICK
            self._note_failing(self.roll)

    def _note_probe(self, leaves: bool) -> None:
        if leaves:
            self._next_beat = 0.0

    def note_taken(self, owner: bytes) -> None:
        """Tell the owner of a stream, if it lives, that this broker has taken the stream."""
        if owner not in (NOBODY, self.id):
            self._runner.start(notify(owner), self._now, lambda _: None, lambda _: None)

    def rescan(self) -> None:
        """Look at all streams again after the next heartbeat."""
        self._must_scan = True

    # Heartbeats

    @property
    def beaten_at(self) -> float:
        """The time when the heartbeat before the last roll began; now, before the first one."""
        return self._now if self._rolled_at is None else self._rolled_at

    def _read_roll(self) -> Procedure[Roll | None]:
        names = frozenset(self.owned)
        is_changed = names != self._named
        revision = self.revision + is_changed
        owned = Owned(names, revision, is_changed)
        roll = yield from read_roll(self.id, self.roll.members, self._limit, owned=owned)
        self._named, self.revision = names, revision
        return roll

    @property
    def has_others(self) -> bool:
        """Whether other brokers live."""
        return any(member.id != self.id for member in self.roll.members)

    @property
    def _is_overdue(self) -> bool:
        """Whether other brokers can believe that this one is dead."""
        return self._beaten_at is not None and self._now > self._beaten_at + self._limit

    def _note_beat(self, begun: float) -> None:
        """Note a heartbeat that is stored, and read which brokers live. The next heartbeat does not wait for that."""
        self._is_beating = False
        self._was_overdue |= self._is_overdue
        self._beaten_at = begun
        if self._is_reading:
            self._must_read = True
            return
        self._is_reading, self._must_read = True, False
        self._runner.start(self._read_roll(), self._now, lambda roll: self._note_roll(begun, roll), self._fail_roll)

    def _note_roll(self, begun: float, roll: Roll | None) -> None:
        self._is_reading = False
        if self._must_read and not self._is_beating:
            self._next_beat = 0.0
        if roll is None or self._is_overdue:
            return  # the heartbeat is removed already, or took too long: the next one begins at once
        was_overdue, self._was_overdue = self._was_overdue, False
        self._rolled_at = begun
        before, places = _places_of(self.roll), _places_of(roll)
        self._note_departed(roll)
        self.roll = roll
        now = {member.id for member in roll.members}
        for times in (self._probed, self._refused, self._trusted):
            for broker in times.keys() - now:
                del times[broker]
        if was_overdue or roll.notified > self._notified:
            self._events.append(Back())
        self._notified = max(self._notified, roll.notified)
        # A new broker is no home for streams until it tells its endpoints, and others can make some of its streams
        # before that. So endpoints count, too.
        if self.is_cut or was_overdue or places != before or places & before != self._settled:
            self._must_scan = True
        self.is_cut = False
        self._settled = places & before
        self._note_names(roll)
        self._note_failing(roll)
        self._scan()
        self._beat_when_one_dies(begun)

    def _beat_when_one_dies(self, begun: float) -> None:
        """Look at once when a silent broker counts as dead, and not up to a period later."""
        ages = [self.roll.time - member.time for member in self.roll.members]
        for left in [self._limit - age for age in ages if age > self._limit - self._period]:
            self._next_beat = min(self._next_beat, begun + left + AFTER)
        if any(member.is_leaving for member in self.roll.members if member.id != self.id):
            self._next_beat = min(self._next_beat, begun + PROBE)

    def _note_departed(self, roll: Roll) -> None:
        """Note the streams of brokers that are gone. A new broker can be one of these: it has its streams already."""
        before, now = ({member.id for member in one.members} for one in (self.roll, roll))
        if now <= before and all(member.endpoints for member in roll.members):
            for member in self.roll.members:
                if member.id not in now:
                    self._departed |= dict.fromkeys(member.streams, member.id)

    def _note_failing(self, roll: Roll) -> None:
        """Note which brokers are failing, and expect the streams of those that are perhaps dead."""
        before = self._failing
        others = [member for member in roll.members if member.id != self.id]
        for one in others:
            if one.time > self._refused.get(one.id, one.time):
                del self._refused[one.id]
                self._trusted[one.id] = self._now + TRUST
        late = {one.id for one in others if roll.time - one.time > SILENT * self._period} | self._refused.keys()
        self._failing = frozenset(late | {one.id for one in others if one.is_leaving})
        names = [name for one in others if one.id in late - before for name in one.streams]
        if names and not self._is_leaving:
            self._events.append(Expected([name for name in names if self._is_heir(name)]))

    def _is_heir(self, stream: str) -> bool:
        heir = self.heir_of(stream)
        return heir is not None and heir.id == self.id

    def _note_names(self, roll: Roll) -> None:
        """Note which streams the brokers have named; scan if none has named one that exists. The newest names count."""
        self._owners = {}
        for member in sorted(roll.members, key=lambda member: member.listed):
            if member.id != self.id:
                self._owners |= dict.fromkeys(member.streams, member.id)
        self._awaited = {name: until for name, until in self._awaited.items() if name not in self._owners}
        unnamed = self._unnamed
        if unnamed - self._left or (unnamed and self._now >= self._next_rescan):
            self._must_scan = True

    @property
    def _unnamed(self) -> set[str]:
        late = [name for name, until in self._awaited.items() if self._now >= until]
        return {*self.streams, *late} - self._owners.keys() - self.owned

    def _fail_beat(self, _: ZepsError) -> None:
        self._is_beating = False

    def _fail_roll(self, _: ZepsError) -> None:
        self._is_reading = False

    # Scans

    def _scan(self) -> None:
        if self._must_scan and not self._is_scanning and not self._is_leaving:
            self._must_scan = False
            self._is_scanning = True
            known = {one.stream.place.directory: one.stream for one in self.streams.values()}
            self._await_departed()
            skip = {directory_of(name) for name in (*self._owners, *self._awaited)}
            listing = list_streams(known, skip_damaged=True, skip=skip)
            self._runner.start(listing, self._now, self._scan_all, self._fail_scan)

    def _await_departed(self) -> None:
        """Leave the streams of brokers that are gone to the brokers that must take them, for a while."""
        times = dict.fromkeys(self._departed, self._now + self._limit) | self._awaited
        self._awaited = {
            name: until
            for name, until in times.items()
            if self._now < until and (home := self.roll.home(name, self.id)) is not None and home.id != self.id
        }

    def _fail_scan(self, _: ZepsError) -> None:
        self._is_scanning = False
        self._must_scan = True

    def _scan_all(self, streams: Sequence[StoredStream]) -> None:
        owners = self.owners
        found: dict[str, Scanned] = {}
        waiting: deque[StoredStream] = deque()
        departed, self._departed = self._departed, {}
        for stream in streams:
            owner = owners.get(stream.name, NOBODY)
            if owner == NOBODY:
                owner = departed.get(stream.name, NOBODY)
            if stream.name in self._awaited:
                found[stream.name] = Scanned(stream, owner)
            elif owner == NOBODY:
                waiting.append(stream)
            else:
                found[stream.name] = Scanned(stream, owner)
        running = 0

        def next_one(_: object = None) -> None:
            nonlocal running
            running -= 1
            if waiting:
                running += 1
                stream = waiting.popleft()
                self._runner.start(_scan_one(stream, found), self._now, next_one, next_one)
            elif not running:
                self._note_scan(found)

        running = min(SCANS_AT_ONCE, len(waiting)) or 1
        for _ in range(running):
            next_one()

    def _note_scan(self, found: dict[str, Scanned]) -> None:
        self._is_scanning = False
        self.streams = found
        self._left = self._unnamed
        self._next_rescan = self._now + RESCAN
        settled = {broker for broker, _ in self._settled}
        orphans = []
        guests = []
        for name, scanned in found.items():
            owner = scanned.owner
            home = self.roll.home(name, self.id)
            if owner == self.id and home is not None and home.id != self.id and home.id in settled:
                guests.append((name, home))
            elif self.server_of(name, owner) is None:
                orphans.append(scanned)
        self._events.append(Found(found, orphans, guests))


def _places_of(roll: Roll) -> frozenset[Place]:
    return frozenset((member.id, tuple(member.endpoints)) for member in roll.members)


def _scan_one(stream: StoredStream, found: dict[str, Scanned]) -> Procedure[None]:
    try:
        scanned = yield from _find(stream.name, stream)
    except StoreError:
        return  # a broker that opens the stream reports it
    if scanned is not None:
        found[stream.name] = scanned


def _find(name: str, known: StoredStream | None) -> Procedure[Scanned | None]:
    """Return a stream and its owner; None if it does not exist. `known` is how it was found before."""
    if known is not None:
        owner, is_deleted = yield from find_owner(known.place)
        if not is_deleted:
            return Scanned(known, owner)
    before = known.place if known is not None else None
    while True:
        latest = yield from latest_stream(name)
        if latest is None or latest.place == before:
            return None
        owner, is_deleted = yield from find_owner(latest.place)
        if not is_deleted:
            return Scanned(latest, owner)
        before = latest.place  # it was deleted, or truncated meanwhile: then there is a newer one
