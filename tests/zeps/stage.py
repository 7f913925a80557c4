"""A broker's engine without sockets, threads and a clock, for tests of its rules.

`Stage` is the shell: time, callbacks and the disk advance only when the test says so. `Client`
is the other end of a connection, with as much buffer in between as the test gives it. The engine gets the same
calls as from a link over a socket, in the same order, re-entrance included.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from zambezi.zeps.block import Block
from zambezi.zeps.broker.engine import BrokerArguments, BrokerOptions, Engine
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import Absent, JournalError, ZepsError
from zambezi.zeps.journal import Policy, Span, Store
from zambezi.zeps.messages import (
    LATEST,
    TIME,
    Attach,
    Credit,
    Deliver,
    Detach,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    Zeps,
)
from zambezi.zmtp.frames import encode
from zambezi.zmtp.source import Framed

if TYPE_CHECKING:
    import pytest

M = TypeVar("M", bound=Zeps)

PLENTY = 1 << 60
ANSWERS = 100  # messages that can wait for a client that does not read


def never_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Make syncs free, for tests with hundreds of journals that are not about crashes of the system."""
    for name in ("fsync", "fdatasync"):
        patch.setattr(os, name, lambda descriptor: None)


def replace_method(patch: pytest.MonkeyPatch, target: object, name: str, function: Callable[..., Any]) -> None:
    """Replace a method of one object, whose class has slots."""
    kind = type(target)
    original = getattr(kind, name)

    def chosen(one: object, *arguments: Any) -> Any:
        return function(*arguments) if one is target else original(one, *arguments)

    patch.setattr(kind, name, chosen)


class Stage:
    """An engine over journals in a directory."""

    def __init__(
        self, path: Path, *, policy: Policy | None = None, own: Sequence[str] = (), **options: Unpack[BrokerArguments]
    ) -> None:
        self.now = 1_700_000_000.0
        self._soon: deque[Callable[[], object]] = deque()
        self.warming: deque[tuple[Span, Callable[[], object]]] = deque()
        self.syncing: dict[BrokerStream, None] = {}
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self.syncs = 0
        self.slow = False  # whether streams are created and woken only when the test calls `let_disk_work`
        self._jobs: deque[Callable[[], object]] = deque()
        self.long_jobs: deque[Callable[[], object]] = deque()  # the slow disk does them after the others
        self.store = Store(path, policy=policy or Policy(sync="never"))
        self.engine = Engine(self.store, BrokerOptions(own=own, **options), self)

    # Calls from the engine

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        self.warming.append((span, callback))

    def fetch(self, absent: Absent, callback: Callable[[ZepsError | None], object]) -> None:
        self.work(absent.load, callback)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        heappush(self._later, (self.now + seconds, next(self._order), callback))

    def sync_journal(self, stream: BrokerStream) -> None:
        self.syncing[stream] = None

    def wake_journal(self, stream: BrokerStream) -> None:
        (self._jobs if self.slow else self._soon).append(partial(self._wake, stream))

    def work(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        (self._jobs if self.slow else self._soon).append(partial(self._do, action, callback))

    def work_remote(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        self.work(action, callback)

    def work_long(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        (self.long_jobs if self.slow else self._soon).append(partial(self._do, action, callback))

    def search(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        self.work(action, callback)

    def clock(self) -> float:
        return self.now

    def _wake(self, stream: BrokerStream) -> None:
        try:
            stream.journal.wake()
        except JournalError as error:
            stream.on_woken(str(error))
        else:
            stream.on_woken()

    def _do(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        try:
            action()
        except ZepsError as error:
            callback(error)
        else:
            callback(None)

    # Steps of a test

    def run(self) -> None:
        """Run all scheduled callbacks."""
        for turn in count():
            if not self._soon:
                return
            assert turn < 1_000_000, "the callbacks never end"
            self._soon.popleft()()

    def let_disk_work(self, jobs: int = 1000) -> None:
        """Let the slow disk do the jobs that were asked for: create and wake streams, and execute orders."""
        while (self._jobs or self.long_jobs) and jobs:
            jobs -= 1
            (self._jobs or self.long_jobs).popleft()()
        self.run()

    def warm_up(self) -> None:
        """Let the disk read the spans that were asked for."""
        while self.warming:
            span, callback = self.warming.popleft()
            span.warm()
            callback()
        self.run()

    def write_back(self) -> None:
        """Let the disk sync the journals that were asked for, or fail."""
        while self.syncing:
            stream = next(iter(self.syncing))
            del self.syncing[stream]
            self.syncs += 1
            try:
                stream.journal.sync()
            except JournalError:
                stream.stop()
            else:
                stream.confirm_barriers()
        self.run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and call what was to be called later."""
        until = self.now + seconds
        while self._later and self._later[0][0] <= until:
            self.now, _, callback = heappop(self._later)
            callback()
            self.run()
        self.now = until

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.engine.tick()
        self.run()

    def client(self, stream: str = "", *, user: str = "", room: int = PLENTY, credit: int = 0) -> Client:
        """Return a new client, attached if a stream is given."""
        client = Client(self, user, room)
        if stream:
            client.send(Attach(stream))
        if credit:
            client.send(Credit(credit))
        return client

    def stream(self, name: str) -> BrokerStream:
        stream = self.engine.find(name)
        assert stream is not None
        return stream

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Connection:
    """The connection of a client, as its session sees it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.send = client.say
        self.pause = client.pause
        self.resume = client.resume
        self.wake = client.wake
        self.offer = client.offer
        self.flush = client.flush

    @property
    def busy(self) -> bool:
        return self._client.blocked

    @property
    def full(self) -> bool:
        return self._client.queue_length >= ANSWERS

    def close(self, linger: float | None) -> None:
        self._client.parted = True

    def abort(self, reason: str) -> None:
        self._client.close()


class Client:
    """A client, its connection, and the broker's end of it."""

    def __init__(self, stage: Stage, user: str = "", room: int = PLENTY) -> None:
        self.stage = stage
        self.heard: list[Zeps] = []
        self.room = room  # bytes that the kernel takes before the client reads
        self.parted = False
        self.gone = False
        self.broken = False  # whether the next write finds the connection lost
        self._outbox: list[bytes] = []
        self._unsent = b""
        self._wire = bytearray()  # bytes in the kernel
        self._buffer = bytearray()  # the beginning of a message that is not complete
        self._inbox: deque[list[bytes]] = deque()
        self._held = False
        self._blocked = False
        self.connection = Connection(self)
        self.session = stage.engine.new_session(self.connection, "test", user)

    # The broker's end of the connection

    def say(self, message: bytes) -> None:
        self._outbox.append(message)
        if not self._blocked:
            self.flush()

    def pause(self) -> None:
        self._held = True

    def resume(self) -> None:
        self._held = False
        self._drain()

    def wake(self) -> None:
        if not self._blocked:
            self.stage.call_soon(self._flush_soon)

    def offer(self, messages: Framed) -> bool:
        if self._blocked or self.gone:
            return False
        if self._unsent or self._outbox:
            self.flush()
            if self._unsent:
                return False
        if not self.room:
            self._blocked = True
            return False
        assert messages.octets, "a block of nothing was offered"
        self._write(messages.octets)
        return not self.gone

    # The link

    def _flush_soon(self) -> None:
        if not self._blocked:
            self.flush()

    def flush(self) -> None:
        while not self.gone:
            if not self._unsent:
                if self._outbox:
                    outbox, self._outbox = self._outbox, []
                    self._unsent = encode(outbox)
                else:
                    more = self.session.pull()
                    if more is None:
                        return
                    block = more.read() if isinstance(more, Span) else more
                    if isinstance(block, Block):
                        assert block.credit == sum(map(len, block.bodies))
                        assert block.count == len(block.bodies) > 0
                    assert not self._unsent, "it was asked for more while it was asked for more"
                    self._unsent = block.octets
            unsent, self._unsent = self._unsent, b""
            self._write(unsent)
            if self._unsent:
                return

    def _write(self, octets: bytes) -> None:
        if self.broken:
            self.close()
            return
        taken = octets[: self.room]
        self.room -= len(taken)
        self._wire += taken
        self._unsent = octets[len(taken) :]
        if self._unsent:
            self._blocked = True

    @property
    def blocked(self) -> bool:
        """Whether the kernel accepts no more before the client reads."""
        return self._blocked

    @property
    def paused(self) -> bool:
        """Whether the broker does not read from the connection."""
        return self._held

    @property
    def queue_length(self) -> int:
        """The number of answers that wait to be written."""
        return len(self._outbox)

    @property
    def unread(self) -> int:
        """The bytes that the kernel keeps until the client reads."""
        return len(self._wire)

    @property
    def held_for_it(self) -> int:
        """The bytes that the broker keeps in memory for the client."""
        return len(self._unsent) + sum(map(len, self._outbox))

    # Steps of the client

    def send(self, *messages: Zeps | bytes) -> None:
        """Send messages, which the broker gets in one read."""
        self._inbox.append([message if isinstance(message, bytes) else message.encode()[0] for message in messages])
        self._drain()
        self.stage.run()
        self.read()

    def _drain(self) -> None:
        while self._inbox and not self._held:
            self.session.receive(self._inbox.popleft())

    def read(self) -> list[Zeps]:
        """Read everything, also what the broker sends because of that; return the messages."""
        before = len(self.heard)
        while self._wire:
            self._took(len(self._wire))
        return self.heard[before:]

    def _took(self, octets: int) -> None:
        buffer = self._buffer
        buffer += self._wire[:octets]
        del self._wire[:octets]
        position = 0
        while position < len(buffer):
            head = 9 if buffer[position] & 2 else 2
            body = position + head
            end = body + int.from_bytes(buffer[position + 1 : body])
            if body > len(buffer) or end > len(buffer):
                break
            self.heard.append(Zeps.decode(bytes(buffer[body:end])))
            position = end
        del buffer[:position]
        self.room += octets
        if self._blocked:
            self._blocked = False
            self.flush()
            if self.session in self.stage.engine.unread:
                self.session.on_writable()
        self.stage.run()

    def close(self) -> None:
        """Lose the connection."""
        self.gone = True
        while self._held and self._inbox:
            self.resume()
        self.session.on_connection_lost()

    # Shortcuts

    def subscribe(self, pattern: str = "", latest: int = 0) -> None:
        self.send(Subscribe(pattern, latest))

    def subscribe_since(self, seconds: float, pattern: str = "") -> None:
        self.send(Subscribe(pattern, TIME | int(seconds * 1000)))

    def follow(self, pattern: str = "") -> None:
        self.send(Subscribe(pattern, LATEST))

    def publish(self, key: str, body: bytes = b"") -> None:
        self.send(Publish(key, body))

    def publish_many(self, keys: list[str], body: bytes = b"") -> None:
        self.send(*[Publish(key, body) for key in keys])

    def credit(self, octets: int) -> None:
        self.send(Credit(octets))

    def ping(self) -> None:
        self.send(Ping())

    def detach(self) -> None:
        self.send(Detach())

    # Received messages

    def of(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    @property
    def delivered(self) -> list[Deliver]:
        return self.of(Deliver)

    @property
    def sequences(self) -> list[int]:
        return [message.sequence for message in self.delivered]

    @property
    def keys(self) -> list[str]:
        return [message.key for message in self.delivered]

    @property
    def reasons(self) -> list[str]:
        return [message.reason for message in self.of(Invalid)]

    @property
    def confirmed(self) -> int:
        return len(self.of(PingOk))

    @property
    def said(self) -> list[str]:
        """The names of all received messages."""
        return [type(message).__name__ for message in self.heard]
