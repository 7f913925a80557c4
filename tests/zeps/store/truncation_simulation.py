"""A simulation of brokers that truncate a stream, at random moments, in virtual time.

The store, the network and the faults are those of `simulation`. Brokers find the stream, take it from each other,
stall, are killed, publish to it and truncate it. `Violation` is raised if

- the log of a generation has a fork or a gap, or a generation is continued by two others;
- a message that was confirmed is not in the log of its generation, or is gone though no truncation has cut it off;
- a truncation that was confirmed is not in force: a later reader finds the old stream, or nothing;
- a reader without a broker saw anything else than the beginning of a generation;
- a broker knows fewer messages of the publisher than were confirmed;
- messages of old generations, and of attempts that have failed, stay when a broker has had the time to remove them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as count_from
from typing import TypeVar
from uuid import UUID

from tests.zeps.store.positions_simulation import Violation
from tests.zeps.store.simulated_store import CALM, LATEST, TIMEOUT, Clock, Network, Stalling, Store
from tests.zeps.store.simulation import Message, messages_of
from zambezi.zeps.block import deliver
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.catalog import StoredStream, find_stream, make_stream
from zambezi.zeps.store.chunk import Kind, piece_of, unpack_footer, unpack_object
from zambezi.zeps.store.commands import Answer, List, Procedure, Request
from zambezi.zeps.store.names import StreamPlace, parse_identity
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.runner import Runner
from zambezi.zeps.store.stream_log import LogSettings, Owned, State, Stored, StreamLog
from zambezi.zeps.store.truncation import truncate

T = TypeVar("T")
NAME = "prices"
PUBLISHER = b"publisher-000001"
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader without a broker has found."""

    generation: int
    messages: dict[int, Message]


def read_stream() -> Procedure[Seen | None]:
    """Find the stream, and read all of it."""
    stream = yield from find_stream(NAME)
    if stream is None:
        return None
    reader = LogReader(stream.place)
    yield from reader.refresh()
    found: dict[int, Message] = {}
    after = reader.first - 1
    while (piece := (yield from reader.read(after, 400))) is not None:
        found |= {sequence: message for sequence, message in messages_of(piece) if sequence > after}
        after = max(found)
    return Seen(stream.place.generation, found)


class Broker(Stalling):
    """A broker with one stream."""

    def __init__(self, world: TruncationWorld, number: int) -> None:
        super().__init__(world.clock)
        self.world = world
        self.id = number.to_bytes(16, "big")
        self.is_truncating = False
        self.is_taking = False
        self.log: StreamLog | None = None
        self._runner = Runner()
        self._sent: dict[int, tuple[int, int]] = {}  # the sequences and the numbers of messages, by ticket
        self._count = self._last = 0
        self._alarm: float | None = None

    @property
    def is_busy(self) -> bool:
        has_log = self.log is not None and self.log.state in (State.OWNER, State.TAKING)
        return has_log or self.is_truncating or self.is_taking

    def _turn(self) -> None:
        now = self.world.clock.now
        for engine in (self._runner, self.log):
            if engine is not None:
                for number, request in engine.requests(now):
                    self._send(engine, number, request)
        self._note_events()
        self._set_alarm(now)

    def _set_alarm(self, now: float) -> None:
        times = [one.next_time for one in (self._runner, self.log) if one is not None and one.next_time is not None]
        wanted = max(min(times), now) if times else None
        if wanted is not None and (self._alarm is None or wanted < self._alarm):
            self._alarm = wanted
            self.world.clock.after(wanted - now, lambda: self.call(self._ring))

    def _ring(self) -> None:
        self._alarm = None

    def _send(self, engine: StreamLog | Runner, number: int, request: Request) -> None:
        def answer(value: Answer) -> None:
            self.call(lambda: engine.answer(number, value, self.world.clock.now))

        self.world.network.send(request, answer)

    def _run(self, procedure: Procedure[T], done: Callable[[T], object]) -> None:
        self._runner.start(procedure, self.world.clock.now, done, self._fail)

    def _fail(self, _: ZepsError) -> None:
        """Do nothing: the stream is gone, or another broker has it."""
        self.is_truncating = self.is_taking = False

    def _note_events(self) -> None:
        log = self.log
        for event in log.take_events() if log is not None else ():
            assert log is not None
            if isinstance(event, Owned):
                state = log.counts.get(PUBLISHER)
                self._count, self._last = state.count if state is not None else 0, log.last
                self._sent.clear()
                self.world.note_count(log, self._count)
            elif isinstance(event, Stored):
                for ticket in [one for one in self._sent if one <= event.ticket]:
                    self.world.confirm(log.place.generation, *self._sent.pop(ticket))
            elif event.state is State.BROKEN:
                raise Violation(f"broker {self.id.hex()[-2:]}: {event.reason}")

    # What happens

    def take(self) -> None:
        if not self.is_busy:
            self.is_taking = True
            self._run(make_stream(NAME, self.world.new_incarnation(), {}), self._take)

    def _take(self, stream: StoredStream) -> None:
        self.is_taking = False
        self.log = StreamLog(stream.place, self.id, stream.incarnation.bytes, self.world.settings)
        self.log.has_others = True
        self.log.take(self.world.clock.now)

    def publish(self) -> None:
        if self.log is not None and self.log.is_owner:
            self._count, self._last = self._count + 1, self._last + 1
            frame = Publish(PUBLISHER.decode(), b"%d" % self._count).encode()[0]
            time = max(int(self.world.clock.now * MICRO), self.log.last_time)
            piece = piece_of(deliver([frame], self._last), time, 1 << 20, [Count(PUBLISHER, 1, self._count)])
            self._sent[self.log.append(piece)] = (self._last, self._count)

    def truncate(self) -> None:
        log = self.log
        if log is not None and log.is_owner and log.last and not self.is_truncating:
            cut = self.world.chance.randint(log.first - 1, log.last - 1) if log.first <= log.last else log.last
            self.log = None
            self.is_truncating = True
            self._run(find_stream(NAME), lambda stream: self._truncate(stream, cut))

    def _truncate(self, stream: StoredStream | None, cut: int) -> None:
        if stream is None:
            raise Violation("there is no stream any more")
        self._run(truncate(stream, self.id, cut, self.world.new_incarnation()), self._note_truncated)

    def _note_truncated(self, made: StoredStream) -> None:
        self.is_truncating = False
        self.world.note_truncated(made.place.generation)
        self._take(made)

    def trim(self) -> None:
        if self.log is not None and self.log.is_owner:
            self.log.trim(self.world.chance.randint(1, self.log.last + 1), lambda _: None)

    def sweep(self) -> None:
        if self.log is not None:
            self.log.sweep(None, None)

    def read(self) -> None:
        begun = len(self.world.truncated)
        self._run(read_stream(), lambda seen: self.world.note_read(seen, begun))


class TruncationWorld:
    """Everything, and the invariants."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.store = Store(self.clock)
        self.network = Network(self.clock, self.store, self.chance)
        self.settings = LogSettings(
            commit=0.05,
            chunk=300,
            segment=self.chance.choice([300, 2000]),
            chunks=self.chance.choice([2, 3, 5]),
            snapshot=self.chance.choice([0.0, 10.0]),
        )
        self.confirmed: dict[tuple[int, int], int] = {}  # numbers of messages, by generation and sequence
        self.truncated: list[int] = []  # the new generations, as the operators were told
        self.seen: list[tuple[Seen, int]] = []
        self._ids = count_from(1)
        self.brokers = [Broker(self, next(self._ids)) for _ in range(3)]

    def new_incarnation(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128))

    def confirm(self, generation: int, sequence: int, number: int) -> None:
        self.confirmed[generation, sequence] = number

    def note_count(self, log: StreamLog, count: int) -> None:
        """Check the count of a broker that becomes the owner."""
        known = [number for (generation, _), number in self.confirmed.items() if generation < log.place.generation]
        if known and max(known) > count:
            raise Violation(f"a broker counts {count} messages, and {max(known)} were confirmed")

    def note_truncated(self, generation: int) -> None:
        self.truncated.append(generation)

    def note_read(self, seen: Seen | None, begun: int) -> None:
        if seen is None:
            raise Violation("a reader found no stream")
        newest = max(self.truncated[:begun], default=1)
        if seen.generation < newest:
            raise Violation(f"a reader has found generation {seen.generation}, and {newest} was made before")
        self.seen.append((seen, begun))

    def run(self, seconds: float = 15.0) -> TruncationWorld:
        """Run with faults for some time, and then without; check all invariants."""
        first = self.brokers[0]
        self.execute(make_stream(NAME, self.new_incarnation(), {}))
        first.call(first.take)
        self._every(0.3, self._disturb)
        self._every(0.1, lambda: self._do(Broker.publish))
        self._every(2.0, lambda: self._do(Broker.read))
        self.clock.run_until(seconds)
        self.network.faults = CALM
        self.is_calm = True
        self.clock.run_until(seconds + LATEST + TIMEOUT)  # late requests arrive
        self._check()
        return self

    is_calm = False

    def _every(self, seconds: float, action: Callable[[], object]) -> None:
        def again() -> None:
            if not self.is_calm:
                action()
                self.clock.after(self.chance.uniform(0.2, 1.8) * seconds, again)

        self.clock.after(self.chance.uniform(0, seconds), again)

    def _do(self, action: Callable[[Broker], object]) -> None:
        alive = [broker for broker in self.brokers if broker.is_alive and not broker.is_stalled]
        owners = [broker for broker in alive if broker.log is not None and broker.log.is_owner]
        if alive:
            broker = self.chance.choice(owners or alive)
            broker.call(lambda: action(broker))

    def _disturb(self) -> None:
        broker = self.chance.choice(self.brokers)
        choice = self.chance.random()
        if choice < 0.06 or not any(one.is_busy for one in self.brokers):
            broker.call(broker.take)
        elif choice < 0.21:
            self._do(Broker.truncate)
        elif choice < 0.27 and not broker.is_stalled:
            broker.stall(self.chance.choice([0.1, 1.0, 3.0, 10.0]))
        elif 0.27 < choice < 0.3:
            broker.is_alive = False
            self.brokers[self.brokers.index(broker)] = Broker(self, next(self._ids))
        elif 0.3 < choice < 0.4:
            self._do(Broker.sweep)
        elif 0.4 < choice < 0.45:
            self._do(Broker.trim)

    # The invariants

    def _check(self) -> None:
        logs, cuts = self._true_logs()
        for (generation, sequence), number in self.confirmed.items():
            if logs[generation].get(sequence) != number:
                raise Violation(f"{number} was confirmed at {sequence}, and is not in generation {generation}")
        for seen, _ in self.seen:
            for sequence, (_, number) in seen.messages.items():
                if logs[seen.generation].get(sequence) != number:
                    raise Violation(f"a reader saw {number} at {sequence}, and generation {seen.generation} has not")
        final = max(logs)
        if max(self.truncated, default=1) > final:
            raise Violation(f"generation {max(self.truncated)} was made, and {final} counts")
        found = self.execute(read_stream())
        if found is None or found.generation != final:
            raise Violation(f"a reader finds {found}, and generation {final} counts")
        first = min(found.messages, default=len(logs[final]) + 1)
        wanted = {sequence: number for sequence, number in logs[final].items() if sequence >= first}
        if {sequence: number for sequence, (_, number) in found.messages.items()} != wanted:
            raise Violation(f"a reader finds {sorted(found.messages)}, and generation {final} has {sorted(wanted)}")
        self._check_tidy(final)
        self.cuts = len(cuts)

    def _true_logs(self) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
        """Return the numbers of the messages of all generations that count, by sequence; and where they begin anew."""
        accepted = dict(self.store.accepted)
        origins: dict[int, int] = {}
        cuts: dict[int, int] = {}
        for key, octets in accepted.items():
            place = parse_identity(key)
            if place is None or b'"truncated"' not in octets:
                continue
            content = json.loads(octets)
            generation, chunk = content["truncated"]["generation"], content["truncated"]["chunk"]
            commit = accepted.get(StreamPlace.of(NAME, generation).chunk(chunk), b"")
            footer = unpack_footer(commit, key) if commit else None
            incarnation = UUID(content["incarnation"]).bytes
            if footer is not None and (footer.kind, footer.incarnation) == (Kind.DELETION, incarnation):
                if generation in origins.values():
                    raise Violation(f"generation {generation} is continued twice")
                origins[place.generation] = generation
                last = [one for one in accepted if one.startswith(f"{place.segments}/{chunk:020}-")]
                cuts[place.generation] = unpack_footer(accepted[last[0]], last[0]).last
        logs: dict[int, dict[int, int]] = {}
        for generation in sorted({1, *origins}):
            base = logs[origins[generation]] if generation in origins else {}
            log = {sequence: number for sequence, number in base.items() if sequence <= cuts.get(generation, 0)}
            logs[generation] = self._add_chunks(StreamPlace.of(NAME, generation), log, cuts.get(generation, 0))
        return logs, cuts

    def _parse(self, octets: bytes, place: StreamPlace) -> StoredStream:
        from zambezi.zeps.store import catalog

        return catalog._parse(octets, place)

    def _add_chunks(self, place: StreamPlace, log: dict[int, int], last: int) -> dict[int, int]:
        chunks: dict[str, bytes] = {}
        for key, octets in self.store.accepted:
            if key.startswith(place.chunks):
                chunk = unpack_object(octets, key)
                if chunk.footer.kind is Kind.DATA and chunks.setdefault(key, octets) != octets:
                    raise Violation(f"{key} was put twice with different messages")
        for key in sorted(chunks):
            chunk = unpack_object(chunks[key], key)
            if chunk.footer.first != last + 1:
                raise Violation(f"{key} begins at {chunk.footer.first}, and {last + 1} must follow")
            log |= {sequence: number for sequence, (_, number) in messages_of(chunk.piece)}
            last = chunk.footer.last
        return log

    def _check_tidy(self, final: int) -> None:
        """Let a new broker take the stream: it removes what other generations have left behind."""
        for other in self.brokers:
            other.is_alive = False  # one that was stalled can still be taking the stream
        broker = Broker(self, next(self._ids))
        broker.call(broker.take)
        for _ in range(4):
            self.clock.run_until(self.clock.now + 2)
            broker.call(broker.sweep)
        self.clock.run_until(self.clock.now + 2)
        if broker.log is None or not broker.log.is_owner or broker.log.place.generation != final:
            raise Violation("no broker can take the stream")
        for key, (octets, _) in self.store.objects.items():
            is_old = not key.startswith(StreamPlace.of(NAME, final).path) and not key.endswith("stream.json")
            if is_old and (not octets or unpack_footer(octets, key).size > 136 + 500):
                raise Violation(f"{key} stays, and generation {final} counts")
            if is_old and octets and unpack_footer(octets, key).count:
                raise Violation(f"{key} has messages, and generation {final} counts")

    def execute(self, procedure: Procedure[T]) -> T:
        """Run a procedure against the store, without a network."""
        results: list[T] = []
        errors: list[ZepsError] = []
        runner = Runner()
        runner.start(procedure, 0.0, results.append, errors.append)
        while not results:
            if errors:
                raise Violation(str(errors[0]))
            for number, request in runner.requests(0.0):
                runner.answer(number, self._execute_now(request), 0.0)
        return results[0]

    def _execute_now(self, request: Request) -> Answer:
        if not isinstance(request, List):
            return self.store.execute(request)
        found = self.store.page(request.prefix + "/", "")
        while page := self.store.page(request.prefix + "/", found[-1].key if found else ""):
            found += page
        return found
