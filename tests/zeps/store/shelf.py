"""An object store in memory that answers at once, for tests of procedures and engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tests.zeps.store.simulated_store import Clock, Store
from tests.zeps.store.simulation import Message, messages_of
from zambezi.zeps.block import deliver
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.chunk import Piece, piece_of
from zambezi.zeps.store.commands import Answer, Failed, List, Procedure, Request
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.runner import Runner
from zambezi.zeps.store.stream_log import Event, LogSettings, StreamLog
from zambezi.zeps.store.view import View, look

T = TypeVar("T")
PLACE = StreamPlace.of("prices")
INCARNATION = b"I" * 16


class Shelf:
    """The store, and shells that run procedures and engines against it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = Store(self.clock)
        self.failures = 0  # requests that fail next, without being executed
        self.requests: list[Request] = []

    def execute(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.failures:
            self.failures -= 1
            return Failed("the store is down")
        if isinstance(request, List):
            found = self.store.page(request.prefix + "/", "")
            while page := self.store.page(request.prefix + "/", found[-1].key if found else ""):
                found += page
            return found
        return self.store.execute(request)

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure to its end."""
        results: list[T] = []
        errors: list[ZepsError] = []
        runner = Runner()
        runner.start(procedure, self.clock.now, results.append, errors.append)
        while not results and not errors:
            self._turn(runner)
        if errors:
            raise errors[0]
        return results[0]

    def settle(self, log: StreamLog) -> list[Event]:
        """Run an engine until it has nothing to do, and return its events."""
        events = log.take_events()
        while self._turn(log) or log.next_time is not None:
            events += log.take_events()
        return events + log.take_events()

    def _turn(self, engine: Runner | StreamLog) -> bool:
        requests = engine.requests(self.clock.now)
        for number, request in requests:
            engine.answer(number, self.execute(request), self.clock.now)
        if not requests and engine.next_time is not None:
            self.clock.now = max(self.clock.now, engine.next_time)
        return bool(requests)

    def log(self, owner: int = 1, settings: LogSettings | None = None) -> StreamLog:
        """Return a log that its broker owns."""
        log = StreamLog(PLACE, owner.to_bytes(16, "big"), INCARNATION, settings)
        log.take(self.clock.now)
        self.settle(log)
        return log

    def publish(self, log: StreamLog, *bodies: bytes, counts: Sequence[Count] = ()) -> None:
        """Append messages as one chunk."""
        log.append(piece(log.last + 1, *bodies, counts=counts, time=int(self.clock.now * 1_000_000)))
        self.settle(log)

    def view(self) -> View:
        return self.run(look(PLACE))

    def messages(self) -> list[Message]:
        """Return all messages, read without a broker."""
        return [message for _, message in self.run(_read_all())]


def _read_all() -> Procedure[list[tuple[int, Message]]]:
    reader = LogReader(PLACE)
    yield from reader.refresh()
    found: list[tuple[int, Message]] = []
    after = reader.first - 1
    while (read := (yield from reader.read(after, 100))) is not None:
        found += [one for one in messages_of(read) if one[0] > after]
        after = found[-1][0]
    return found


def piece(first: int, *bodies: bytes, counts: Sequence[Count] = (), time: int = 1_000_000) -> Piece:
    """Return messages with the key `key` as a piece."""
    return piece_of(deliver([Publish("key", body).encode()[0] for body in bodies], first), time, 1 << 20, counts)
