"""A publisher at full speed, and subscribers that join, stall, lose credit, are killed and come back."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zmtp.waiting import PATIENCE, eventually
from zambezi.zeps.journal import Store
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import LATEST, TIME, Attach, AttachOk, Credit, Ping, PingOk, Publish, Subscribe, SubscribeOk
from zambezi.zmtp.asyncio import Dealer
from zambezi.zmtp.options import Bound

TOTAL = 80_000
BATCH = 400
LAST_PART = TOTAL - 20 * BATCH
KEYS = ["temp.attic", "temp.kitchen", "wind", "temp.hall", "rain.attic", "rain", "wind.hall"]
# The bytes after the sequence of a DELIVER, in turn.
TAILS = [Publish(KEYS[n % 7], b"%d" % n * (n % 11)).encode()[0][3:] for n in range(7 * 11)]
FRAMES = [b"\xaa\xa5\x06" + tail for tail in TAILS]
PATTERNS = [
    "",
    "temp.",
    "exact:wind",
    "glob:*.attic",
    "regex:^(rain|wind)$",
    "prefix:",
    "glob:w*",
    "regex:h.ll",
    "rain",
]

DELIVER = b"\xaa\xa5\x07"
ATTACH = Attach("storm").encode()[0]
PING = Ping().encode()[0]
PING_OK = PingOk().encode()[0]
ATTACH_OK = AttachOk().encode()[0]
SUBSCRIBE_OK = SubscribeOk().encode()[0]


class Publisher:
    """A publisher at full speed. `sent` and `confirmed` are its progress."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self.expected = 0  # subscribers that have not joined yet
        self.not_before = 0.0  # the time at which a subscriber begins
        self._watched: list[tuple[int, asyncio.Event]] = []

    async def run(self, endpoint: str) -> None:
        async with Dealer(linger=None) as dealer:
            dealer.connect(endpoint)
            await dealer.send(ATTACH)
            assert await dealer.recv(PATIENCE) == [ATTACH_OK]
            while self.sent < TOTAL:
                # Every subscriber must get messages: the last part is for late ones.
                if self.sent == LAST_PART:
                    await eventually(lambda: not self.expected and time.time() > self.not_before)
                batch = [FRAMES[(self.sent + n) % len(FRAMES)] for n in range(BATCH)]
                self.sent += BATCH
                await dealer.send_batch(batch)
                if self.sent % (20 * BATCH) == 0:
                    await dealer.send(PING)
                    assert await dealer.recv(PATIENCE) == [PING_OK]
                    self.confirmed = self.sent
                self._tell()
            await dealer.send(PING)
            assert await dealer.recv(PATIENCE) == [PING_OK]
            self.confirmed = self.sent

    def _tell(self) -> None:
        for sent, event in self._watched:
            if self.sent >= sent:
                event.set()

    async def until(self, sent: int) -> None:
        """Wait until so many messages were sent."""
        if self.sent < min(sent, TOTAL):
            event = asyncio.Event()
            self._watched.append((min(sent, TOTAL), event))
            await event.wait()


@dataclass
class Start:
    """A way to begin, and what it says about the first sequence."""

    latest: int
    after: int = 0  # no message up to this one
    before: int = TOTAL  # every message after this one


class Subscriber:
    """A subscriber that checks all messages."""

    def __init__(self, publisher: Publisher, endpoint: str, pattern: str, seed: int) -> None:
        self._publisher = publisher
        self._endpoint = endpoint
        self._pattern = pattern
        self._chance = random.Random(seed)
        self._seen = bytearray()
        self._last = 0
        test = Matchers().parse(pattern)
        self._wants = [bool(test(KEYS[n % 7].encode())) for n in range(len(TAILS))]
        self._final = max(n for n in range(1, TOTAL + 1) if self._wants[(n - 1) % len(TAILS)])

    async def run(self, join: int, start: Callable[[], Start], habits: Iterable[str]) -> tuple[str, Start, list[int]]:
        await self._publisher.until(join)
        began = start()
        latest = began.latest
        confirmed = self._publisher.confirmed
        for number, habit in enumerate([*habits, "steady"]):
            async with Dealer(linger=0, receive_bound=Bound(100, 65536)) as dealer:
                dealer.connect(self._endpoint)
                await dealer.send(ATTACH)
                assert await dealer.recv(PATIENCE) == [ATTACH_OK]
                await dealer.send(Subscribe(self._pattern, latest).encode()[0])
                assert await dealer.recv(PATIENCE) == [SUBSCRIBE_OK]
                if latest == LATEST:
                    began.after, began.before = confirmed, self._publisher.sent
                if not number:
                    self._last = began.after
                    self._publisher.expected -= 1
                await self._follow(dealer, habit)
            if self._seen:
                latest = self._last
            # else it was killed before its first message: it begins as before
            confirmed = self._publisher.confirmed
        return self._pattern, began, list(struct.unpack(f">{len(self._seen) // 8}Q", self._seen))

    async def _follow(self, dealer: Dealer, habit: str) -> None:
        """Read until the end, or until it is killed. A killed one loses the messages on their way."""
        credit = self._chance.randrange(1, 5000) if habit == "poor" else 1 << 20 if habit == "steady" else 1 << 40
        await self._grant(dealer, credit)
        lives = self._chance.randrange(1, 15_000) if habit == "killed" else TOTAL
        stalls = 3 if habit == "stalled" else 0
        while self._last < self._final and lives > 0:
            batch = await dealer.recv_batch(PATIENCE)
            spent = self._take(batch.frames)
            lives -= len(batch.frames)
            if habit == "steady":
                await self._grant(dealer, spent)
            elif habit == "poor":
                credit -= spent
                if credit <= 0:
                    granted = self._chance.randrange(1, 40_000)
                    credit += granted
                    await self._grant(dealer, granted)
            if stalls and self._chance.random() < 0.1:
                stalls -= 1
                await self._publisher.until(self._publisher.sent + 20_000)

    async def _grant(self, dealer: Dealer, octets: int) -> None:
        await dealer.send(Credit(octets).encode()[0], PATIENCE)

    def _take(self, frames: list[bytes]) -> int:
        sequences = b"".join([frame[3:11] for frame in frames])
        numbers = struct.unpack(f">{len(frames)}Q", sequences)
        count = len(TAILS)
        assert [frame[:3] for frame in frames].count(DELIVER) == len(frames)
        assert [frame[11:] for frame in frames] == [TAILS[(number - 1) % count] for number in numbers]
        self._seen += sequences
        self._last = numbers[-1]
        return sum(map(len, frames))


def starts(publisher: Publisher, kind: str) -> Callable[[], Start]:
    def sequence() -> Start:
        place = publisher.confirmed // 2
        return Start(place, place, place)

    def time_of(offset: float) -> Start:
        publisher.not_before = max(publisher.not_before, time.time() + offset + 0.01)
        return Start(TIME | int((time.time() + offset) * 1000))

    return {
        "earliest": lambda: Start(0, 0, 0),
        "sequence": sequence,
        "latest": lambda: Start(LATEST),
        "past": lambda: time_of(-0.1),
        "future": lambda: time_of(0.05),
    }[kind]


@pytest.mark.spec("ZEP-03", "ZEP-10", "ZEP-11", "ZEP-13")
def test_each_sees_its_subset_in_order(tmp_path: Path) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(200):
            await storm(tmp_path)

    asyncio.run(bounded())


async def storm(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, sync="interval", segment=4 << 20) as broker:
        publisher = Publisher()
        kinds = ["earliest", "sequence", "latest", "past", "future"]
        habits = [["steady"], ["stalled"], ["poor"], ["killed", "killed", "stalled"], ["poor", "killed"]]
        publisher.expected = 15
        async with asyncio.TaskGroup() as group:
            running = group.create_task(publisher.run(broker.endpoint))
            subscribers = [
                group.create_task(
                    Subscriber(publisher, broker.endpoint, PATTERNS[number % len(PATTERNS)], number).run(
                        join=number * TOTAL // 20,
                        start=starts(publisher, kinds[number % len(kinds)]),
                        habits=habits[(number + number // 5) % len(habits)],
                    )
                )
                for number in range(15)
            ]
        assert running.done()
        results = [task.result() for task in subscribers]
    with Store(tmp_path, write=False) as store:
        journal = store.open("storm")
        assert (journal.first, journal.last) == (1, TOTAL)
        for pattern, began, seen in results:
            test = Matchers().parse(pattern)
            if began.latest & TIME:
                began.after = began.before = journal.before((began.latest ^ TIME) * 1000)
            due = [n for n in range(began.after + 1, TOTAL + 1) if test(KEYS[(n - 1) % len(TAILS) % 7].encode())]
            # A live start is between the messages confirmed before it and those sent after it.
            place = due.index(seen[0])
            assert place == 0 or due[place - 1] <= began.before
            assert seen == due[place:]
            assert all(later > sooner for sooner, later in pairwise(seen))
