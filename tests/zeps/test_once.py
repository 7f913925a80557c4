"""A message is in the stream once, whatever breaks: connections, the disk, the broker at any byte, the publisher.

The simulation has real engines on both sides (the client's `Publisher`, the broker's `Engine` and its journal on
files), and no sockets, threads or clocks. A random generator decides what happens next; the same seed gives the same
run.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.zeps.journal.streams import consistent, directory, kill
from tests.zeps.stage import Client, Stage
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.session_state import SessionState
from zambezi.zeps.client.publisher import OnFull, Publisher
from zambezi.zeps.errors import QueueFull
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.verify import Checked, verify
from zambezi.zeps.layout import PUBLISH
from zambezi.zeps.messages import Deliver, Detach, Fenced, Invalid, PingOk, ResumeOk
from zambezi.zmtp.frames import Oversize

LARGEST = 300  # bytes of a message that the broker accepts


class Killed(BaseException):
    """The process of the broker is killed."""


class Disk:
    """The disk of a broker: it can be full, and the broker can be killed while it writes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.left: int | None = None  # bytes until the broker is killed
        self._pwrite = os.pwrite
        self._ftruncate = os.ftruncate
        patch.setattr(os, "pwrite", self._write)
        patch.setattr(os, "ftruncate", self._truncate)
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: None)

    def _write(self, descriptor: int, octets: bytes, offset: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.left is not None:
            if len(octets) >= self.left:
                self._pwrite(descriptor, bytes(octets)[: self.left], offset)
                self.left = 0
                raise Killed
            self.left -= len(octets)
        return self._pwrite(descriptor, octets, offset)

    def _truncate(self, descriptor: int, size: int) -> None:
        if self.left == 0:
            raise Killed
        self._ftruncate(descriptor, size)


class Program:
    """A program that publishes the numbers from 0 on. Some of its messages are refused by the broker."""

    def __init__(self, name: str, on_full: OnFull, world: World) -> None:
        self.name = name
        self.world = world
        self.id = name.encode().ljust(16, b"-")
        self.on_full = on_full
        self.next = 0
        self.lives = 0
        self.start()

    def start(self) -> None:
        """Begin as a new process, which knows nothing of the one before."""
        self.lives += 1
        self.engine = Publisher(self.id, 700, self.on_full)
        self.client: Client | None = None
        self.flying: deque[bytes] = deque()
        self.resumed = False
        self.knows = False

    def body(self, number: int) -> bytes:
        if number % 13 == 5:
            return b"x" * LARGEST  # too long
        return f"{self.name} {number} {'bad' if number % 13 == 9 else 'good'}".encode()

    def publish(self, count: int) -> None:
        if not self.knows:
            return
        for _ in range(count):
            try:
                if not self.engine.publish(self.name, self.body(self.next)):
                    return
            except QueueFull:
                return
            self.next += 1

    def connect(self) -> None:
        self.client = self.world.stage.client("s")
        self.resumed = False
        self.client.send(self.engine.position.request())
        self.listen()

    def send(self, count: int) -> None:
        """Write messages into the connection."""
        if self.client is None or not self.resumed:
            return
        for _ in range(count):
            outgoing = self.engine.next_outgoing(self.world.now)
            if outgoing is None:
                return
            self.engine.mark_sent(outgoing, self.world.now)
            self.flying += outgoing.bodies

    def arrive(self, count: int) -> None:
        """Let the broker read some of the messages that are under way."""
        if self.client is not None and not self.client.gone:
            deliver(self.client, self.flying, count)
            self.listen()

    def listen(self) -> None:
        client = self.client
        if client is None:
            return
        client.read()
        answers, client.heard = client.heard, []
        for answer in answers:
            if isinstance(answer, ResumeOk):
                self.engine.resume(answer)
                self.engine.begin()
                self.resumed = True
                if not self.knows:
                    assert self.engine.position.found is not None
                    self.knows = True
                    if self.on_full != "drop-oldest":
                        self.next = self.engine.position.found
            elif isinstance(answer, PingOk):
                self.engine.ping_answered()
            elif isinstance(answer, Invalid):
                self.engine.note_refusal(answer.reason)
            elif isinstance(answer, Detach):
                self.cut()
                return
            assert not isinstance(answer, Fenced)

    def cut(self, *, silently: bool = False) -> None:
        """Lose the connection; the broker learns of it later, if at all."""
        client, self.client = self.client, None
        flying, self.flying = self.flying, deque()
        if client is None:
            return
        self.engine.connection_lost()
        if silently:
            self.world.zombies.append((client, flying))
        elif not client.gone:
            client.close()


class World:
    """A broker, its disk, and some programs."""

    def __init__(self, path: str, seed: int, disk: Disk) -> None:
        self.path = Path(path)
        self.random = random.Random(seed)
        self.disk = disk
        self.now = 0.0
        self.kills = 0
        self.cuts = 0
        self.policy = Policy(sync=self.random.choice(["always", "never"]), segment=3_000, batch=500)
        self.zombies: list[tuple[Client, deque[bytes]]] = []
        self.begin()
        kinds: list[OnFull] = ["wait", "raise", "drop-oldest"]
        self.programs = [Program(f"p{number}", kind, self) for number, kind in enumerate(kinds)]

    def begin(self) -> None:
        self.stage = Stage(self.path, policy=self.policy, limits=Limits(message=LARGEST))

    def die(self) -> None:
        """Handle the death of the broker, and start it again."""
        self.kills += 1
        self.disk.left = None
        kill(self.stage.store)
        self.zombies.clear()
        for program in self.programs:
            if program.client is not None:
                program.client.gone = True
            program.cut()
        self.begin()

    def step(self) -> None:
        chance = self.random
        self.now += chance.random() * 0.1
        program = chance.choice(self.programs)
        action = chance.choice(
            ["publish", "publish", "send", "send", "arrive", "arrive", "sync", "tick", "connect", "cut", "rare"]
        )
        if action == "publish":
            program.publish(chance.randrange(1, 6))
        elif action == "send":
            program.engine.request_confirmation()
            program.send(chance.randrange(1, 4))
        elif action == "arrive":
            program.arrive(chance.randrange(1, 12))
        elif action == "sync":
            self.stage.write_back()
            program.listen()
        elif action == "tick":
            self.stage.tick()
            program.listen()
        elif action == "connect" and program.client is None:
            program.connect()
        elif action == "cut" and program.client is not None and chance.random() < 0.3:
            self.cuts += 1
            program.cut(silently=chance.random() < 0.5)
        elif action == "rare":
            self.rare(program)

    def rare(self, program: Program) -> None:
        chance = self.random
        what = chance.choice(["kill", "kill", "full", "restart", "zombie", "zombie"])
        if what == "kill":
            self.disk.left = chance.randrange(1, 1_000)
        elif what == "full":
            self.disk.is_full = not self.disk.is_full
        elif what == "restart" and program.on_full != "drop-oldest":
            program.cut(silently=chance.random() < 0.5)
            program.start()
        elif what == "zombie" and self.zombies:
            client, flying = self.zombies.pop(chance.randrange(len(self.zombies)))
            deliver(client, flying, len(flying))
            if not client.gone:
                client.close()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.alive(self.step)
        self.disk.is_full = False
        self.disk.left = None
        for program in self.programs:
            for _ in range(100):
                self.alive(lambda program=program: self.finish(program))
                if program.knows and not program.engine.unconfirmed:
                    break
            assert program.knows
            assert program.engine.unconfirmed == 0

    def alive(self, action: object) -> None:
        assert callable(action)
        try:
            action()
        except Killed:
            self.die()

    def finish(self, program: Program) -> None:
        if program.client is None or program.client.gone or program.client.session.state is SessionState.NEW:
            program.cut()
            program.connect()
        program.engine.request_confirmation()
        program.send(1000)
        program.arrive(1000)
        self.stage.tick()
        self.stage.write_back()
        program.listen()

    def check(self) -> None:
        self.stage.close()
        with Store(self.path, policy=self.policy) as store:
            journal = store.open("s")
            found = [Deliver.decode([octets[9 if octets[0] else 2 :]]) for octets in consistent(journal).values()]
            assert all(isinstance(result, Checked) for result in verify(journal))
        for program in self.programs:
            numbers = [int(one.body.split()[1]) for one in found if one.key == program.name]
            if program.on_full == "drop-oldest":
                assert numbers == sorted(set(numbers))
            else:
                assert numbers == [number for number in range(program.next) if number % 13 not in (5, 9)]


def deliver(client: Client, flying: deque[bytes], count: int) -> None:
    """Let the broker read messages, as the connection passes them on."""
    frames = []
    for _ in range(min(count, len(flying))):
        frame = flying.popleft()
        if len(frame) > LARGEST:
            frame = Oversize(len(frame))
        elif frame.endswith(b"bad"):
            frame = PUBLISH + b"\xff"  # a key that is longer than the message
        frames.append(frame)
    if frames:
        client.send(*frames)


@contextmanager
def world(seed: int, patch: pytest.MonkeyPatch) -> Iterator[World]:
    with directory() as path, patch.context() as context:
        yield World(path, seed, Disk(context))


@pytest.mark.parametrize("group", range(8))
def test_each_message_is_in_the_stream_once_whatever_breaks(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = cuts = 0
    for seed in range(group * 25, group * 25 + 25):
        with world(seed, monkeypatch) as one:
            one.run(600)
            one.check()
            kills += one.kills
            cuts += one.cuts
    assert kills > 50
    assert cuts > 200
