"""A simulation of brokers that share the streams of a prefix, and of clients that know all of them, in virtual time.

Brokers find each other by heartbeats, take the streams of brokers that are gone, and hand streams over. Clients ask the
brokers in turn and follow `moved`. `ClusterWorld.run` runs one seed with random faults, and raises `Violation` if

- a stream has a fork, a confirmed message is not in the log, or a message is there twice;
- a subscriber missed a message, or saw another one than the log has;
- a named reader or a group gets a message again whose acknowledgement was confirmed;
- the streams are not served by their homes, or messages are not confirmed, some time after the faults have ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count as count_from
from typing import Final
from uuid import UUID

from tests.zeps.store.positions_simulation import Acknowledged, Readers, Violation
from tests.zeps.store.simulated_store import CALM, Clock, Faults, Network, Stalling, Store
from tests.zeps.store.simulation import Message, messages_of
from zambezi.zeps.block import deliver
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.catalog import make_stream
from zambezi.zeps.store.chunk import Kind, piece_of, unpack_footer, unpack_object
from zambezi.zeps.store.cluster import Back, Cluster, Cut, Expected, Found, Located
from zambezi.zeps.store.commands import Answer
from zambezi.zeps.store.members import leave
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.runner import Runner, Ticket
from zambezi.zeps.store.stream_log import Ended, LogSettings, Owned, State, Stored, StreamLog
from zambezi.zeps.store.takeover import Prepared, prepare

STREAMS: Final = ("prices", "orders", "events")
PATIENCE: Final = 2.0  # seconds after which a client tries another broker
SETTINGS: Final = LogSettings(commit=0.05, chunk=300, segment=1_000_000, chunks=8, check=20.0)
Engine = StreamLog | Runner | Cluster


class Moved(Exception):
    """A broker's answer: another broker has the stream. The endpoint is empty if the broker does not know which."""

    def __init__(self, endpoint: str = "") -> None:
        self.endpoint = endpoint


class Served:
    """A stream at the broker that owns it."""

    def __init__(self, log: StreamLog) -> None:
        self.log = log
        self.last = log.last
        self.counts = {state.publisher: state.count for state in log.counts.states()}
        self.messages: list[Message] = []  # stored since the broker owns it
        self.confirmations: dict[int, list[Callable[[], object]]] = {}
        self.acknowledged = Acknowledged(log)

    def when_stored(self, ticket: int, action: Callable[[], object]) -> None:
        """Do something when a ticket is stored."""
        self.confirmations.setdefault(ticket, []).append(action)


class ClusterBroker(Stalling):
    """A broker."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        super().__init__(world.clock)
        self.world = world
        self.endpoint = f"tcp://broker{number}:1"
        self.id = number.to_bytes(16, "big")
        self.network = Network(world.clock, world.store, world.chance)
        self.network.faults = world.faults
        self.cluster = Cluster(self.id)
        self.cluster.endpoints = [self.endpoint]
        self.served: dict[str, Served] = {}
        self.taking: dict[str, StreamLog] = {}
        self.taken_from: dict[str, bytes] = {}
        self.releasing: dict[str, StreamLog] = {}
        self.prepared: dict[str, Prepared] = {}
        self.is_leaving = False
        self.confirmed_at: dict[str, float] = {}
        self._runner = Runner()
        self._alarm: float | None = None
        self.call(lambda: None)

    # Time

    def kill(self) -> None:
        super().kill()
        self.is_stalled = False

    def terminate(self) -> None:
        """Release all streams, and leave, as after SIGTERM."""

        def end() -> None:
            self.is_leaving = True
            self.cluster.leave()
            for name in list(self.served):
                self._release(name)

        self.call(end)

    def _leave_if_released(self) -> None:
        if self.is_leaving and not self.releasing:
            self.is_leaving = False
            self._runner.start(leave(self.id), self.world.clock.now, lambda _: self.kill(), lambda _: None)
            self.call(lambda: None)

    @property
    def _engines(self) -> list[Engine]:
        logs = [served.log for served in self.served.values()]
        return [self.cluster, self._runner, *logs, *self.taking.values(), *self.releasing.values()]

    def _turn(self) -> None:
        now = self.world.clock.now
        self.cluster.owned = set(self.served)
        for engine in self._engines:
            for ticket in engine.requests(now):
                self._send(engine, ticket)
        self._note_cluster()
        for name, served in list(self.served.items()):
            self._note_served(name, served)
        for name, log in list(self.taking.items()):
            self._note_taking(name, log)
        for name, log in list(self.releasing.items()):
            if any(isinstance(event, Ended) for event in log.take_events()):
                del self.releasing[name]
        self._leave_if_released()
        times = [time for engine in self._engines if (time := engine.next_time) is not None]
        if not times:
            return
        wanted = max(min(times), now)
        if self._alarm is None or wanted < self._alarm or self._alarm < now:
            self._alarm = wanted
            self.world.clock.after(wanted - now, lambda: self.call(self._ring))

    def _ring(self) -> None:
        self._alarm = None
        if self.cluster.has_others:
            for served in self.served.values():
                served.log.check_if_idle(self.world.clock.now)

    def _send(self, engine: Engine, ticket: Ticket) -> None:
        def answer(value: Answer) -> None:
            self.call(lambda: engine.answer(ticket.number, value, self.world.clock.now))

        self.network.send(ticket.request, answer)

    # Streams

    def _note_cluster(self) -> None:
        for event in self.cluster.take_events():
            if isinstance(event, Cut):
                self.served.clear()
                self.taking.clear()
            elif isinstance(event, Back):
                for served in self.served.values():
                    served.log.check(self.world.clock.now)
            elif isinstance(event, Expected):
                for name in event.names:
                    self._prepare(name)
            elif isinstance(event, Found):
                for stream, owner in event.orphans:
                    self._take(stream.name, stream.place, owner)
                for name, _ in event.guests:
                    if name in self.served:
                        self._release(name)

    def _take(self, name: str, place: StreamPlace, owner: bytes) -> None:
        if name not in self.served and name not in self.taking and name not in self.releasing:
            log = self.taking[name] = StreamLog(place, self.id, b"I" * 16, SETTINGS)
            self.taken_from[name] = owner
            log.take(self.world.clock.now, prepared=self.prepared.pop(name, None))
            self.call(lambda: None)

    def _prepare(self, name: str) -> None:
        """Prepare a take. What was prepared is used at the next take, however late that is."""

        def note(prepared: Prepared | None) -> None:
            if prepared is not None:
                self.prepared[name] = prepared

        self._runner.start(prepare(self.world.places[name]), self.world.clock.now, note, _raise)

    def _release(self, name: str) -> None:
        log = self.releasing[name] = self.served.pop(name).log
        log.release()

    def _note_taking(self, name: str, log: StreamLog) -> None:
        for event in log.take_events():
            del self.taking[name]
            if isinstance(event, Owned):
                served = self.served[name] = Served(log)
                self.world.readers[name].note_owner(served.acknowledged)
                self.cluster.note_taken(self.taken_from[name])

    def _note_served(self, name: str, served: Served) -> None:
        for event in served.log.take_events():
            if isinstance(event, Stored):
                self.confirmed_at[name] = self.world.clock.now
                for ticket in [ticket for ticket in served.confirmations if ticket <= event.ticket]:
                    for confirm in served.confirmations.pop(ticket):
                        confirm()
            elif isinstance(event, Ended):
                if event.state is State.BROKEN:
                    raise Violation(f"{self.endpoint}: {event.reason}")
                self.served.pop(name, None)

    # For clients

    def attach(self, name: str, done: Callable[[Served | Moved], object]) -> None:
        """Answer with the stream if this broker serves it, or where it is; never if the broker dies meanwhile."""
        if name in self.served:
            done(self.served[name])
        elif self.cluster.is_cut or name in self.releasing or name in self.taking:
            done(Moved())
        elif (server := self.cluster.heir_of(name)) is not None:
            done(Moved(server.endpoint if server.id != self.id else ""))
        elif (server := self.cluster.named_by(name)) is not None:
            self.cluster.suspect(server, name, self.world.clock.now)
            done(Moved(server.endpoint))
        else:

            def note(located: Located | ZepsError) -> None:
                if isinstance(located, ZepsError):
                    done(Moved())
                    return
                if located.server is None and located.stream is not None:
                    self._take(name, located.stream.place, located.owner)
                done(Moved(located.server.endpoint if located.server is not None else ""))

            self.cluster.look_up(name, note)


def _raise(error: Exception) -> None:
    raise Violation(str(error))


@dataclass
class ClusterClient:
    """A publisher of one stream that knows all endpoints, and follows `moved`."""

    world: ClusterWorld
    name: bytes
    stream: str
    sent: int = 0
    confirmed: dict[int, int] = field(default_factory=dict)  # number: sequence
    stored: int = 0  # the last number that a broker has said to be stored
    endpoint: str = ""
    waits_until: float = 0.0
    turn: int = 0  # of the endpoints

    def step(self) -> None:
        """Publish the next message, or the last one again until it is confirmed."""
        now = self.world.clock.now
        if now < self.waits_until:
            return
        if self.sent == self.stored and not self.world.is_over:
            self.sent += 1
        broker = self.world.at(self.endpoint)
        if broker is None:
            self.endpoint = self._next_endpoint()
            return
        self.waits_until = now + PATIENCE
        asked = self.endpoint

        def answered(answer: Served | Moved) -> None:
            if asked == self.endpoint:
                self.waits_until = 0.0
                if isinstance(answer, Served):
                    self._publish(answer)
                else:
                    self.endpoint = answer.endpoint or self._next_endpoint()

        if broker.is_stalled and self.world.chance.random() < 0.5:
            self.endpoint = ""  # no heartbeat of the connection arrives
        broker.call(lambda: broker.attach(self.stream, answered))

    def _next_endpoint(self) -> str:
        self.turn += 1
        return self.world.endpoints[self.turn % len(self.world.endpoints)]

    def _publish(self, served: Served) -> None:
        if not served.log.is_owner:
            return
        stored = served.log.counts.get(self.name)
        self.stored = max(self.stored, stored.count if stored is not None else 0)
        if served.counts.get(self.name, 0) != self.sent - 1:
            return
        block = deliver([Publish(self.name.decode(), b"%d" % self.sent).encode()[0]], served.last + 1)
        time = max(int(self.world.clock.now * 1_000_000), served.log.last_time)
        number = self.sent
        served.counts[self.name] = number
        served.last = block.last
        ticket = served.log.append(piece_of(block, time, 1 << 20, [Count(self.name, 1, number)]))
        served.when_stored(ticket, lambda: self._confirm(number, block.last))

    def _confirm(self, number: int, sequence: int) -> None:
        self.confirmed[number] = sequence
        self.stored = max(self.stored, number)


class ClusterWorld:
    """Everything, and the invariants."""

    def __init__(self, seed: int = 0, brokers: int = 3, faults: Faults = CALM, pause: float = 0.2) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.store = Store(self.clock)
        self.faults = faults
        self.is_over = self.is_calm = False
        self._ids = count_from(1)
        self.places: dict[str, StreamPlace] = {}
        self.readers = {name: Readers(self.chance) for name in STREAMS}
        for name in STREAMS:
            self._make(name)
        self.brokers = [self.start() for _ in range(brokers)]
        self.clients = [
            ClusterClient(self, f"{name}-{number}".encode().ljust(16, b"-"), name)
            for name in STREAMS
            for number in range(2)
        ]
        for client in self.clients:
            self.every(pause, client.step)
        self.every(0.8, self._acknowledge)

    def start(self) -> ClusterBroker:
        return ClusterBroker(self, next(self._ids))

    def _make(self, name: str) -> None:
        runner = Runner()
        runner.start(
            make_stream(name, UUID(int=1), {}), 0.0, lambda made: self.places.update({name: made.place}), _raise
        )
        while name not in self.places:
            for number, request in runner.requests(0.0):
                runner.answer(number, self.store.execute(request), 0.0)  # type: ignore[arg-type]

    def every(self, seconds: float, action: Callable[[], object]) -> None:
        def again() -> None:
            action()
            self.clock.after(self.chance.uniform(0.5, 1.5) * seconds, again)

        self.clock.after(self.chance.uniform(0, seconds), again)

    @property
    def endpoints(self) -> list[str]:
        return [broker.endpoint for broker in self.brokers]

    def at(self, endpoint: str) -> ClusterBroker | None:
        """Return the live broker at an endpoint."""
        return next((one for one in self.brokers if one.endpoint == endpoint and one.is_alive), None)

    def _acknowledge(self) -> None:
        """Let the readers of each stream acknowledge messages, at a broker that serves it or believes so."""
        for name, readers in self.readers.items():
            brokers = [one for one in self.brokers if one.is_alive and not one.is_stalled and name in one.served]
            if brokers:
                broker = self.chance.choice(brokers)
                served = broker.served[name]
                if served.log.is_owner:
                    broker.call(partial(readers.step, served.acknowledged, served.when_stored))

    def run_for(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def owner_of(self, name: str) -> ClusterBroker | None:
        """Return the live broker that serves a stream."""
        return next((one for one in self.brokers if one.is_alive and not one.is_stalled and name in one.served), None)

    def confirmed(self, name: str) -> int:
        """Return how many messages of a stream were confirmed."""
        return sum(client.stored for client in self.clients if client.stream == name)

    def run(self, seconds: float = 40.0) -> ClusterWorld:
        """Run with faults for some time, and then without; check all invariants."""
        self.every(2.0, self._disturb)
        self.run_for(seconds)
        self.is_calm = True
        self.faults = CALM
        for broker in self.brokers:
            broker.network.faults = CALM
        self._run_until(50.0, lambda: self._is_settled)
        self.is_over = True
        self._run_until(10.0, lambda: self._is_done)
        self.check()
        return self

    def _run_until(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Run until a condition holds, and not longer than some time."""
        end = self.clock.now + seconds
        while self.clock.now < end and not condition():
            self.run_for(0.5)

    @property
    def _is_settled(self) -> bool:
        """Whether all brokers know each other, and each stream is at its home, and only there."""
        ids = {broker.id for broker in self.brokers}
        return all(
            not broker.is_stalled and {member.id for member in broker.cluster.roll.members} == ids
            for broker in self.brokers
        ) and all([self._is_home(one, name) for one in self._owners(name)] == [True] for name in STREAMS)

    def _is_home(self, broker: ClusterBroker, name: str) -> bool:
        """Return whether a stream belongs at a broker that no other one has deposed: an idle owner learns that late."""
        roll = broker.cluster.roll
        is_newest = broker.served[name].log.epoch == self.readers[name].epoch
        return is_newest and roll.home(name) == roll.member(broker.id)

    @property
    def _is_done(self) -> bool:
        """Whether each stream has one owner, and all messages are confirmed and acknowledged."""
        return all(client.stored == client.sent for client in self.clients) and all(
            [self.readers[name].is_done(owner.served[name].log.last) for owner in self._owners(name)] == [True]
            for name in STREAMS
        )

    def _owners(self, name: str) -> list[ClusterBroker]:
        return [broker for broker in self.brokers if broker.is_alive and name in broker.served]

    def _disturb(self) -> None:
        """Do something bad to a broker."""
        if self.is_calm:
            return
        broker = self.chance.choice(self.brokers)
        choice = self.chance.random()
        if choice < 0.2 and not broker.is_stalled:
            broker.stall(self.chance.choice([1.0, 5.0, 20.0]))
        elif choice < 0.35:
            broker.kill()
            self.brokers[self.brokers.index(broker)] = self.start()
        elif choice < 0.45:
            broker.terminate()
            self.brokers[self.brokers.index(broker)] = self.start()
        elif choice < 0.6:
            broker.network.faults = Faults(1.0, 0, 0, 0)
        elif choice < 0.8:
            broker.network.faults = self.faults

    def check(self) -> None:
        for name in STREAMS:
            log = self.log_of(name)
            owners = self._owners(name)
            if len(owners) != 1:
                raise Violation(f"{name} is served by {[one.endpoint for one in owners]} when all faults have ended")
            self.readers[name].check(len(log))
            for client in self.clients:
                if client.stream == name:
                    self._check_client(client, log)

    def _check_client(self, client: ClusterClient, log: dict[int, Message]) -> None:
        numbers = [number for publisher, number in log.values() if publisher == client.name]
        if numbers != list(range(1, len(numbers) + 1)):
            raise Violation(f"{client.name!r} has {numbers} in the log")
        if client.stored < client.sent:
            raise Violation(f"{client.name!r} has {client.stored} of {client.sent} messages confirmed")
        for number, sequence in client.confirmed.items():
            if log.get(sequence) != (client.name, number):
                raise Violation(f"{client.name!r} {number} was confirmed at {sequence}: {log.get(sequence)}")

    def log_of(self, name: str) -> dict[int, Message]:
        """Return the log of all chunks with messages that were ever accepted: it must have no fork."""
        chunks: dict[int, bytes] = {}
        for key, octets in self.store.accepted:
            if key.startswith(self.places[name].chunks):
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
