"""A simulation of brokers, clients and an object store in virtual time.

The store has put if absent and consistent LISTs, page by page. The network between the brokers and the store fails,
delays, repeats, answers late and loses answers. Brokers stall, are killed and come back with another id; they take the
stream from each other at random. Publishers count their messages, and subscribers go on with the next sequence.

`World.run` runs one seed and raises `Violation` if an invariant does not hold:

- the chunks with messages that were ever accepted are one log without a fork, each message once;
- a confirmed message is in the log, at the sequence that was confirmed;
- every subscriber, and every reader without a broker, saw a prefix of the log;
- publishes and reads are linearizable (see `history`);
- a message whose acknowledgement was confirmed does not come again (see `positions_simulation`);
- messages that an operator has removed are not read again, and all others are (see `trimming_simulation`);
- when the faults end, a broker owns the stream again, and messages are confirmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count as count_from
from typing import Final

from tests.zeps.store.history import History
from tests.zeps.store.positions_simulation import Acknowledged, Readers, Violation
from tests.zeps.store.simulated_store import CALM, LATEST, TIMEOUT, Clock, Network, Stalling, Store
from tests.zeps.store.trimming_simulation import Trims, check_tidy, highest_beginning
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.errors import OutOfRange, ZepsError
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.layout import DELIVER_LEAST, sequence_of
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.chunk import Kind, Piece, piece_of, unpack_footer, unpack_object
from zambezi.zeps.store.commands import Answer, List, Procedure, Request, StoredObject
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.runner import Runner
from zambezi.zeps.store.stream_log import Ended, LogSettings, Owned, State, Stored, StreamLog
from zambezi.zeps.store.takeover import Prepared, prepare
from zambezi.zeps.store.view import View

PLACE: Final = StreamPlace.of("prices")
PATIENCE: Final = 2.0  # seconds after which a subscriber asks another broker
MICRO: Final = 1_000_000
Message = tuple[bytes, int]  # a publisher, and the number of its message


class Broker(Stalling):
    """A broker with one stream."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world.clock)
        self.world = world
        self.id = number.to_bytes(16, "big")
        self.log = StreamLog(PLACE, self.id, b"I" * 16, world.settings)
        self.counts: dict[bytes, int] = {}  # of accepted messages
        self.last = 0  # the last sequence given out
        self.acknowledged = Acknowledged(self.log)
        self._confirmations: dict[int, list[Callable[[], object]]] = {}  # by ticket
        self._runner = Runner()  # for readers on behalf of subscribers
        self._alarm: float | None = None
        self._prepared: Prepared | None = None

    def _turn(self) -> None:
        now = self.world.clock.now
        for engine in (self.log, self._runner):
            for number, request in engine.requests(now):
                self._send(engine, number, request)
        self._note_events()
        self._set_alarm()

    def _send(self, engine: StreamLog | Runner, number: int, request: Request) -> None:
        def answer(value: Answer) -> None:
            self.call(lambda: engine.answer(number, value, self.world.clock.now))

        self.world.network.send(request, answer)

    def _set_alarm(self) -> None:
        times = [time for engine in (self.log, self._runner) if (time := engine.next_time) is not None]
        if not times:
            return
        wanted = max(min(times), self.world.clock.now)
        if self._alarm is None or wanted < self._alarm or self._alarm < self.world.clock.now:
            self._alarm = wanted
            self.world.clock.after(wanted - self.world.clock.now, lambda: self.call(self._ring))

    def _ring(self) -> None:
        self._alarm = None

    def _note_events(self) -> None:
        for event in self.log.take_events():
            if isinstance(event, Owned):
                self.counts = {state.publisher: state.count for state in self.log.counts.states()}
                self.last = self.log.last
                self._confirmations.clear()
                self.acknowledged = Acknowledged(self.log)
                self.world.readers.note_owner(self.acknowledged)
                self.world.trims.note_owner(self.log)
            elif isinstance(event, Stored):
                for ticket in [ticket for ticket in self._confirmations if ticket <= event.ticket]:
                    for confirm in self._confirmations.pop(ticket):
                        confirm()
            elif isinstance(event, Ended):
                self._confirmations.clear()
                if event.state is State.BROKEN:
                    raise Violation(f"broker {self.id.hex()[-2:]}: {event.reason}")

    # For clients

    def take(self) -> None:
        self.call(lambda: self.log.take(self.world.clock.now, prepared=self._prepared))
        self._prepared = None

    def prepare(self) -> None:
        """Prepare a take. What was prepared is used at the next take, however late that is."""

        def note(prepared: Prepared | None) -> None:
            self._prepared = prepared

        self.call(lambda: self._runner.start(prepare(PLACE), self.world.clock.now, note, lambda _: None))

    def check(self) -> None:
        self.call(lambda: self.log.check(self.world.clock.now))

    def sweep(self, keep: int) -> None:
        self.call(lambda: self.log.sweep(keep, None))

    def trim(self) -> None:
        self.call(lambda: self.world.trims.step(self.log, self._when_stored) if self.log.is_owner else None)

    def release(self) -> None:
        self.call(self.log.release)

    def publish(self, publisher: bytes, numbers: Iterable[int], confirm: Callable[[int, int], object]) -> None:
        """Append messages of a publisher, if they are the next ones; `confirm` gets each number and its sequence."""
        if not self.log.is_owner:
            return
        wanted = [number for number in numbers if number > self.counts.get(publisher, 0)]
        if not wanted or wanted[0] != self.counts.get(publisher, 0) + 1:
            return
        frames = [Publish(publisher.decode(), b"%d" % number).encode()[0] for number in wanted]
        block = deliver(frames, self.last + 1)
        time = max(int(self.world.clock.now * MICRO), self.log.last_time)
        piece = piece_of(block, time, 1 << 20, [Count(publisher, 1, wanted[-1])])
        self.counts[publisher] = wanted[-1]
        self.last = block.last
        first = block.first
        self._when_stored(
            self.log.append(piece), lambda: [confirm(number, first + index) for index, number in enumerate(wanted)]
        )

    def _when_stored(self, ticket: int, action: Callable[[], object]) -> None:
        self._confirmations.setdefault(ticket, []).append(action)

    def acknowledge(self) -> None:
        """Let the readers acknowledge some messages."""
        if self.log.is_owner:
            self.world.readers.step(self.acknowledged, self._when_stored)

    def count_of(self, publisher: bytes) -> int:
        return self.counts.get(publisher, 0)

    def read(self, after: int, give: Callable[[tuple[int, list[tuple[int, Message]]]], object]) -> None:
        """Read messages from the store, for a subscriber of this broker or a reader."""
        self._runner.start(read_after(after), self.world.clock.now, give, _raise)


def _raise(error: ZepsError) -> None:
    if not isinstance(error, OutOfRange):
        raise Violation(str(error))


def read_all(after: int) -> Procedure[list[tuple[int, Message]]]:
    """Return all messages after a sequence, as a reader without a broker finds them."""
    _, found = yield from read_after(after)
    return found


def read_after(after: int) -> Procedure[tuple[int, list[tuple[int, Message]]]]:
    """Return the last sequence of the log, and all messages after a sequence that retention has not removed."""
    reader = LogReader(PLACE)
    yield from reader.refresh()
    found: list[tuple[int, Message]] = []
    after = max(after, reader.first - 1)
    while True:
        try:
            piece = yield from reader.read(after, 400)
        except OutOfRange as error:
            after = error.oldest - 1
            found.clear()
            continue
        if piece is None:
            return after, found
        found += [one for one in messages_of(piece) if one[0] > after]
        after = found[-1][0]


def messages_of(piece: Piece) -> list[tuple[int, Message]]:
    """Return the messages of a piece, with their sequences. The bodies are numbers."""
    found: list[tuple[int, Message]] = []
    for entry in piece.entries:
        block = Block(entry.first, entry.last, entry.count, piece.octets[entry.offset : entry.end], entry.credit)
        bodies = [body[DELIVER_LEAST + len(key) :] for key, body in zip(block.keys, block.bodies, strict=True)]
        sequences = [sequence_of(body) for body in block.bodies]
        if sequences != list(range(entry.first, entry.last + 1)):
            raise Violation(f"a batch of {entry.first} to {entry.last} has {sequences}")
        found += zip(sequences, zip(block.keys, map(int, bodies), strict=True), strict=True)
    return found


@dataclass
class Publisher:
    """A publisher that sends each message until it is confirmed."""

    world: World
    name: bytes
    sent: int = 0
    confirmed: int = 0
    begun: dict[int, float] = field(default_factory=dict)  # when a message was first sent

    def step(self) -> None:
        broker = self.world.some_broker()
        if broker is None:
            return
        if self.sent == self.confirmed and not self.world.is_over:
            for number in range(self.sent + 1, self.sent + 1 + self.world.chance.randint(1, 3)):
                self.sent = number
                self.begun[number] = self.world.clock.now
                self.world.history.begin(self.name, number, self.world.clock.now)
        broker.call(lambda: self._send(broker))

    def _send(self, broker: Broker) -> None:
        if broker.log.is_owner:
            broker.publish(self.name, range(broker.count_of(self.name) + 1, self.sent + 1), self._confirm)
            if broker.count_of(self.name) > self.sent:
                raise Violation(f"{self.name!r} has sent {self.sent} messages, and the broker counts more")
            # The broker has all: those that are stored are confirmed now, as RESUME does.
            stored = broker.log.counts.get(self.name)
            self.confirmed = max(self.confirmed, stored.count if stored is not None else 0)

    def _confirm(self, number: int, sequence: int) -> None:
        self.confirmed = max(self.confirmed, number)
        self.world.history.confirm(self.name, number, sequence, self.world.clock.now)


@dataclass
class Subscriber:
    """A subscriber, or a reader without a broker: it goes on with the next sequence at any broker."""

    world: World
    seen: dict[int, Message] = field(default_factory=dict)
    last: int = 0
    waits_until: float = 0.0

    def step(self) -> None:
        broker = self.world.some_broker()
        begun = self.world.clock.now
        if broker is not None and begun >= self.waits_until:
            self.waits_until = begun + PATIENCE
            after = self.last
            broker.call(lambda: broker.read(after, lambda result: self._note(*result, begun)))

    def _note(self, last: int, found: list[tuple[int, Message]], begun: float) -> None:
        self.waits_until = 0.0
        for sequence, message in found:
            if self.seen.setdefault(sequence, message) != message:
                raise Violation(f"sequence {sequence} was {self.seen[sequence]}, and is {message} now")
        self.last = max(self.last, last)
        self.world.trims.note_read([sequence for sequence, _ in found], begun)
        self.world.history.read(last, begun, self.world.clock.now)


class World:
    """Everything, and the invariants."""

    def __init__(
        self,
        seed: int,
        *,
        keep: int | None = None,
        deletes: bool = False,
        acknowledges: bool = True,
        trims: bool = False,
    ) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.store = Store(self.clock)
        self.network = Network(self.clock, self.store, self.chance)
        self.settings = LogSettings(
            commit=0.05,
            chunk=300,
            segment=self.chance.choice([300, 2000]),
            chunks=self.chance.choice([2, 3, 5]),
            snapshot=self.chance.choice([0.0, 10.0]),  # whether chunks become segments as they are
            grace=self.chance.choice([0.0, 1.0]) if trims else 0.0,
        )
        self.history = History()
        self.is_over = False
        self.keep = keep
        self.acknowledges = acknowledges  # whether there are named readers and a group
        self.is_trimmed = trims  # whether operators trim the stream
        self.trims = Trims(self.chance, lambda: self.clock.now)
        self.deletes = deletes  # whether brokers delete the stream, too
        self._ids = count_from(1)
        self.brokers = [Broker(self, next(self._ids)) for _ in range(3)]
        self.publishers = [Publisher(self, b"publisher-%06d" % number) for number in range(2)]
        self.subscribers = [Subscriber(self) for _ in range(2)]
        self.readers = Readers(self.chance)

    def some_broker(self) -> Broker | None:
        alive = [broker for broker in self.brokers if broker.is_alive and not broker.is_stalled]
        owners = [broker for broker in alive if broker.log.is_owner]
        return self.chance.choice(owners or alive) if alive else None

    def run(self, seconds: float = 8.0) -> World:
        """Run with faults for some time, and then without; check all invariants."""
        self._every(0.3, self._disturb)
        for publisher in self.publishers:
            self._every(0.4, self._unless_waiting(publisher.step))
        for subscriber in self.subscribers:
            self._every(0.8, self._unless_waiting(subscriber.step))
        if self.acknowledges:
            self._every(0.5, self._unless_waiting(self._acknowledge))
        self.brokers[0].take()
        self.clock.run_until(seconds)
        self.network.faults = CALM
        self.is_calm = self.is_waiting = True
        self.clock.run_until(seconds + LATEST + TIMEOUT)  # late requests arrive
        self.is_waiting = False
        self._every(0.5, self._heal)
        self.clock.run_until(self.clock.now + 1)
        self.is_over = True
        end = self.clock.now + 8
        while self.clock.now < end and not self._is_done:
            self.clock.run_until(self.clock.now + 0.5)
        self._check()
        return self

    def _acknowledge(self) -> None:
        broker = self.some_broker()
        if broker is not None:
            broker.call(broker.acknowledge)

    is_calm = False
    is_waiting = False

    def _unless_waiting(self, step: Callable[[], object]) -> Callable[[], object]:
        return lambda: None if self.is_waiting else step()

    def _every(self, seconds: float, action: Callable[[], object]) -> None:
        def again() -> None:
            action()
            self.clock.after(self.chance.uniform(0.2, 1.8) * seconds, again)

        self.clock.after(self.chance.uniform(0, seconds), again)

    def _disturb(self) -> None:
        """Do something bad to a broker, or let it take the stream."""
        if self.is_calm:
            return
        broker = self.chance.choice(self.brokers)
        choice = self.chance.random()
        if choice < 0.25:
            broker.take()
        elif choice < 0.3:
            broker.prepare()
        elif choice < 0.35:
            broker.check()
        elif choice < 0.5 and not broker.is_stalled:
            broker.stall(self.chance.choice([0.1, 1.0, 3.0, 10.0]))
        elif choice < 0.55:
            broker.kill()
            self.brokers[self.brokers.index(broker)] = Broker(self, next(self._ids))
        elif choice < 0.6:
            broker.release()
        elif choice < 0.7 and self.keep is not None:
            broker.sweep(self.keep)
        elif choice < 0.75 and self.deletes:
            broker.call(broker.log.delete)
        elif choice < 0.9 and self.is_trimmed:
            broker.trim()

    def _heal(self) -> None:
        """Let owners check that they are, and let a live broker take a stream without an owner."""
        owners = [broker for broker in self.brokers if broker.log.is_owner]
        for broker in owners or [self.chance.choice(self.brokers)]:
            broker.call(broker.take if not owners else broker.check)

    @property
    def _is_done(self) -> bool:
        """Whether all messages are confirmed, read and acknowledged. They must be, some time after the last fault."""
        owners = [broker for broker in self.brokers if broker.log.is_owner]  # some do not know of a newer one
        owner = max(owners, key=lambda broker: broker.log.epoch, default=None)
        last = owner.log.last if owner is not None else 0
        return (
            owner is not None
            and all(publisher.confirmed == publisher.sent for publisher in self.publishers)
            and all(subscriber.last == last for subscriber in self.subscribers)
            and (not self.acknowledges or self.readers.is_done(last))
        )

    def _check(self) -> None:
        log = self._true_log()
        for publisher in self.publishers:
            numbers = [number for name, number in log.values() if name == publisher.name]
            if numbers != list(range(1, len(numbers) + 1)):
                raise Violation(f"{publisher.name!r} has {numbers} in the log")
            if publisher.confirmed < publisher.sent and not self._deletion:
                raise Violation(
                    f"{publisher.name!r}: nothing was confirmed after {publisher.confirmed}, when all faults had ended"
                )
        for subscriber in self.subscribers:
            for sequence, message in subscriber.seen.items():
                if log.get(sequence) != message:
                    raise Violation(f"a reader saw {message} at {sequence}, and the log has {log.get(sequence)}")
            if log and subscriber.last != max(log) and not self._deletion:
                raise Violation(f"a reader came to {subscriber.last} of {max(log)} only, when all faults had ended")
            # Whoever reads a stream while it is deleted may find its end only.
            is_kept = self.keep is None and not self._deletion and not self.is_trimmed
            if is_kept and list(subscriber.seen) != list(range(1, len(subscriber.seen) + 1)):
                raise Violation("a reader missed messages")
        for (name, number), sequence in self.history.confirmed.items():
            if log.get(sequence) != (name, number):
                raise Violation(f"{name!r} {number} was confirmed at {sequence}, and the log has {log.get(sequence)}")
        if self._deletion:
            self._check_deleted()
            return
        if problem := self.history.problem(log):
            raise Violation(problem)
        self._check_readable(log)
        if self.acknowledges:
            self.readers.check(len(log))
        if self.is_trimmed:
            self._check_tidy()

    def _check_tidy(self) -> None:
        """Let a new broker take the stream: it finds all that others have left behind, and removes it."""
        broker = Broker(self, next(self._ids))
        broker.take()
        for _ in range(8):
            self.clock.run_until(self.clock.now + 1)
            broker.call(lambda: broker.log.sweep(None, None))
        self.clock.run_until(self.clock.now + 1)
        view = View.of(*(self._execute_now(List(prefix)) for prefix in (PLACE.chunks, PLACE.segments)))
        tail = [unpack_footer(self.store.objects[PLACE.chunk(one.number)][0], "a chunk") for one in view.tail]
        check_tidy(view, [footer.last for footer in tail if footer.count], view.beginning.first)

    @cached_property
    def _deletion(self) -> int:
        """The number of the chunk that deletes the stream; 0 if there is none."""
        chunks = (unpack_footer(octets, key) for key, octets in self.store.accepted if key.startswith(PLACE.chunks))
        return min((chunk.number for chunk in chunks if chunk.kind is Kind.DELETION), default=0)

    def _check_deleted(self) -> None:
        """Check that no broker owns the stream any more, and that nothing of it can be read."""
        for key, octets in self.store.accepted:
            if key.startswith(PLACE.chunks):
                footer = unpack_footer(octets, key)
                if footer.kind is Kind.DATA and footer.number > self._deletion:
                    raise Violation(f"chunk {footer.number} has messages, and {self._deletion} deletes the stream")
        for broker in self.brokers:
            broker.take()
        self.clock.run_until(self.clock.now + 5)
        if any(broker.log.is_owner for broker in self.brokers):
            raise Violation("a broker owns a stream that is deleted")
        if found := self.execute(read_all(0)):
            raise Violation(f"{len(found)} messages of a deleted stream can be read")

    def _true_log(self) -> dict[int, Message]:
        """Return the log of all chunks with messages that were ever accepted: it must have no fork."""
        chunks: dict[int, bytes] = {}
        for key, octets in self.store.accepted:
            if key.startswith(PLACE.chunks):
                footer = unpack_footer(octets, key)
                if footer.kind is Kind.DATA and chunks.setdefault(footer.number, octets) != octets:
                    raise Violation(f"chunk {footer.number} was put twice with different messages")
        log: dict[int, Message] = {}
        for number in sorted(chunks):
            chunk = unpack_object(chunks[number], str(number))
            if chunk.footer.first != len(log) + 1:
                raise Violation(f"chunk {number} begins at {chunk.footer.first}, and {len(log) + 1} must follow")
            log |= dict(messages_of(chunk.piece))
        return log

    def _check_readable(self, log: dict[int, Message]) -> None:
        """Read the whole log from the objects that exist."""
        found = dict(self.execute(read_all(0)))
        first = min(found, default=len(log) + 1)
        wanted = {sequence: message for sequence, message in log.items() if sequence >= first}
        begins = min(highest_beginning([key for key, _ in self.store.accepted]), len(log) + 1)
        if found != wanted or first < begins or (self.keep is None and first > begins and log):
            raise Violation(f"{len(found)} messages can be read from {first} on, and the log has {len(log)}")

    def execute(self, procedure: Procedure[list[tuple[int, Message]]]) -> list[tuple[int, Message]]:
        """Run a procedure against the store, without a network."""
        results: list[list[tuple[int, Message]]] = []
        runner = Runner()
        runner.start(procedure, 0.0, results.append, _raise)
        while not results:
            for number, request in runner.requests(0.0):
                runner.answer(number, self._execute_now(request), 0.0)
        return results[0]

    def _execute_now(self, request: Request) -> Answer:
        if not isinstance(request, List):
            return self.store.execute(request)
        found: list[StoredObject] = []
        while page := self.store.page(request.prefix + "/", found[-1].key if found else ""):
            found += page
        return found
