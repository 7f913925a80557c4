"""Named readers whatever breaks: nothing that is acknowledged comes again, and nothing else is missed.

The simulation has real engines on both sides (the client's `Subscriber` and `NamedReader`, the broker's `Engine` with
its files), and no sockets, threads or clocks. Two programs read under each name, one after the other or at the same
time: the newest one wins. A random generator decides what happens next; the same seed gives the same run.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.zeps.journal.streams import directory, kill
from tests.zeps.stage import Client, Stage
from tests.zeps.test_once import Disk, Killed
from zambezi.zeps.client.batch import check_deliveries
from zambezi.zeps.client.named_reader import NamedReader
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.journal import Policy, positions
from zambezi.zeps.journal.positions import FILE
from zambezi.zeps.messages import EARLIEST, ClaimOk, Deliver, Detach, Invalid, Ping, PingOk, Publish, Taken

ACTIONS = (
    *("publish", "handle", "handle", "acknowledge", "acknowledge", "send", "ping"),
    *("sync", "tick", "connect", "connect", "cut", "rare"),
)


class Program:
    """A program that reads under a name. Its lives follow each other, and know nothing of each other."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.lives = 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.subscriber = Subscriber("s", window=2_000, is_named=True)
        self.reader = NamedReader(self.name, EARLIEST, takes=True, is_automatic=False)
        self.client: Client | None = None
        self.holds_name = False
        self.handled: list[int] = []  # in this life

    @property
    def holder(self) -> Client | None:
        """The connection, if the broker has granted the name on it."""
        return self.client if self.holds_name and self.client is not None and not self.client.gone else None

    def connect(self) -> None:
        self.holds_name = False
        self.client = self.world.stage.client("s")
        self.client.send(self.reader.claim())
        self.listen()

    def listen(self) -> None:
        client = self.client
        if client is None or client.gone:
            return
        client.read()
        heard, client.heard = client.heard, []
        for message in heard:
            if isinstance(message, Deliver):
                frames = [message.encode()[0]]
                body_at = check_deliveries(frames)
                assert body_at is not None
                self.subscriber.accept_from_broker(frames, body_at)
            elif isinstance(message, ClaimOk):
                self.claimed(message)
            elif isinstance(message, PingOk):
                self.reader.note_ping_answered()
                confirmed = self.world.confirmed
                confirmed[self.name] = max(confirmed[self.name], self.reader.confirmed)
            elif isinstance(message, Taken):
                self.start()  # as a supervisor does
                return
            elif isinstance(message, Detach | Invalid):
                self.cut()
                return

    def claimed(self, answer: ClaimOk) -> None:
        world = self.world
        # Nothing that is acknowledged comes again, and nothing that is not is passed over.
        assert world.confirmed[self.name] <= answer.position <= world.acknowledged[self.name]
        assert answer.missed == 0
        if not self.reader.is_claimed:
            self.subscriber.begin_at(answer.position, 0)
        self.reader.note_claimed(answer)
        self.holds_name = True
        world.confirmed[self.name] = max(world.confirmed[self.name], answer.position)
        assert self.client is not None
        self.client.send(*self.subscriber.subscribe_messages())
        self.send_acks()

    def handle(self, count: int) -> None:
        """Read some batches; check that each message comes once in this life, and none is missed."""
        for _ in range(count):
            batch = self.subscriber.next_batch()
            if batch is None:
                break
            for sequence in batch.sequences():
                if self.handled:
                    assert sequence == self.handled[-1] + 1
                else:
                    assert sequence <= self.world.acknowledged[self.name] + 1
                self.handled.append(sequence)
                self.world.handled[self.name].add(sequence)
        if self.holder is not None and (credit := self.subscriber.next_credit()) is not None:
            self.holder.send(credit)
            self.listen()

    def acknowledge(self, chance: random.Random) -> None:
        if self.handled:
            sequence = chance.choice(self.handled[-10:])
            self.reader.acknowledge(sequence)

    def send_acks(self) -> None:
        client = self.holder
        if client is None:
            return
        acknowledged = self.world.acknowledged
        acknowledged[self.name] = max(acknowledged[self.name], self.reader.acknowledged)
        ack = self.reader.take_ack()
        if ack is not None:
            client.send(ack)

    def ping(self) -> None:
        if self.holder is not None:
            self.send_acks()
            self.reader.note_ping()
            self.holder.send(Ping())
            self.listen()

    def cut(self) -> None:
        client, self.client = self.client, None
        self.reader.note_disconnected()
        if client is not None and not client.gone:
            client.close()

    def restart(self) -> None:
        self.cut()
        self.start()


class World:
    """A broker, its disk, and some programs."""

    def __init__(self, path: str, seed: int, disk: Disk, patch: pytest.MonkeyPatch) -> None:
        self.path = Path(path)
        self.random = random.Random(seed)
        self.disk = disk
        self.kills = self.crashes = self.cuts = 0
        self.policy = Policy(sync=self.random.choice(["always", "never"]))
        self.safe: dict[int, int] = {}  # bytes of each file that the disk has, by inode
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._sync)
        self.acknowledged: dict[str, int] = defaultdict(int)  # by the programs that held the name
        self.confirmed: dict[str, int] = defaultdict(int)
        self.handled: dict[str, set[int]] = defaultdict(set)
        self.begin()
        self.programs = [Program(name, self) for name in ("billing", "billing", "audit")]

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.safe[status.st_ino] = status.st_size

    def begin(self) -> None:
        self.stage = Stage(self.path, policy=self.policy)

    def die(self, *, crash: bool = False) -> None:
        """Handle the death of the broker, or of its system, and start it again."""
        self.kills += 1
        self.disk.left = None
        self.disk.is_full = False
        kill(self.stage.store)
        file = self.path / "s" / FILE
        if crash and self.policy.sync == "always" and file.exists():
            self.crashes += 1
            status = file.stat()
            safe = min(self.safe.get(status.st_ino, 0), status.st_size)
            os.truncate(file, self.random.randint(safe, status.st_size))
        for program in self.programs:
            if program.client is not None:
                program.client.gone = True
            program.cut()
        self.begin()

    def step(self) -> None:
        chance = self.random
        program = chance.choice(self.programs)
        action = chance.choice(ACTIONS)
        if action == "publish":
            self.stage.client("s").send(*[Publish("k", b"x" * chance.randrange(50))] * chance.randrange(1, 8))
        elif action == "handle":
            program.listen()
            program.handle(chance.randrange(1, 5))
        elif action == "acknowledge":
            program.acknowledge(chance)
        elif action == "send":
            program.send_acks()
        elif action == "ping":
            program.ping()
        elif action == "sync":
            self.stage.write_back()
            program.listen()
        elif action == "tick":
            self.stage.tick()
            program.listen()
        elif action == "connect" and program.client is None:
            program.connect()
        elif action == "cut" and program.client is not None and chance.random() < 0.5:
            self.cuts += 1
            program.cut()
        elif action == "rare":
            self.rare(program)

    def rare(self, program: Program) -> None:
        what = self.random.choice(["kill", "kill", "crash", "full", "restart"])
        if what == "kill":
            self.disk.left = self.random.randrange(1, 400)
        elif what == "crash":
            self.die(crash=True)
        elif what == "full":
            self.disk.is_full = not self.disk.is_full
        elif what == "restart":
            program.restart()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.step()
            except Killed:
                self.die()
        self.disk.is_full = False
        self.disk.left = None
        self.stage.tick()
        self.stage.write_back()
        for program in self.programs[1:]:
            program.restart()
            self.finish(program)

    def finish(self, program: Program) -> None:
        """Read everything to the end, and acknowledge it."""
        self.programs[0].cut()
        program.connect()
        last = self.stage.stream("s").journal.last
        for _ in range(1000):
            self.stage.write_back()
            program.listen()
            program.handle(100)
            if program.subscriber.position == last:
                break
        program.handle(100)
        # Every message was handled in some life: all of them, or those after the position are handled now.
        assert self.handled[program.name] == set(range(1, last + 1))
        program.reader.acknowledge(last)
        program.ping()
        self.stage.write_back()
        program.listen()
        assert self.confirmed[program.name] == last


@contextmanager
def world(seed: int, patch: pytest.MonkeyPatch) -> Iterator[World]:
    with directory() as path, patch.context() as context:
        context.setattr(positions, "COMPACT", 400)
        disk = Disk(context)
        one = World(path, seed, disk, context)
        yield one
        kill(one.stage.store)


@pytest.mark.parametrize("group", range(4))
def test_nothing_acknowledged_comes_again_and_nothing_is_missed(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = crashes = cuts = lives = 0
    for seed in range(group * 10, group * 10 + 10):
        with world(seed, monkeypatch) as one:
            one.run(400)
            kills += one.kills
            crashes += one.crashes
            cuts += one.cuts
            lives += sum(program.lives for program in one.programs)
    assert kills > 30
    assert crashes > 5
    assert cuts > 30
    assert lives > 100
