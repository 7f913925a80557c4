"""ZEPS: messages, the broker's sessions, what a client reads from a broker, patterns, datagrams of a group."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from uuid import UUID

from tests.campaign.mutations import Frames
from tests.campaign.target import ParserTarget, SessionTarget, Target
from tests.zeps.journal.streams import directory
from tests.zeps.stage import PLENTY, Client, Stage
from zambezi.wire import WireError
from zambezi.zeps.block import deliver, end_of_publishes, walk_messages
from zambezi.zeps.broker.client_connection import MULTIPART
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.client.batch import MessageBatch, check_deliveries
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.directory import StreamInfo, read_clients, read_index, read_streams
from zambezi.zeps.errors import BrokerError, PatternError
from zambezi.zeps.journal import IndexEntry, Policy
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import (
    LATEST,
    TIME,
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Detach,
    DetachOk,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
    Zeps,
)
from zambezi.zeps.multicast.datagram import KEY, NONCE, Fragment, Mark, seal
from zambezi.zeps.multicast.datagram import Messages as GroupMessages
from zambezi.zeps.multicast.reception import Reception

GROUP = UUID(int=7)
GROUP_KEY = bytes(range(KEY))


def is_a(kind: type[Zeps], octets: bytes) -> bool:
    try:
        kind.decode(octets)
    except WireError:
        return False
    return True


class Messages(Target):
    """All messages. The fast checks of many messages agree with the grammar."""

    name = "ZEPS messages"
    share = 60
    errors = (WireError,)

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self._seeds = [
            message.encode()[0]
            for message in (
                Attach("prices"),
                AttachOk(),
                Subscribe("glob:a.*", 7),
                SubscribeOk(),
                Credit(1 << 20),
                Publish("key", b"body" * 10),
                Publish("key", b"other"),
                Deliver(7, "key", b"body" * 10),
                Deliver(1 << 40, "another key", b""),
                Ping(),
                PingOk(),
                Detach(),
                DetachOk(),
                Invalid("no"),
            )
        ]

    def feed(self) -> None:
        seeds, below = self._seeds, self.mutator.below
        octets = self.mutator.mutate(seeds[below(len(seeds))], seeds[below(len(seeds))])
        self.history = [octets]
        if (end_of_publishes([octets]) == 1) != is_a(Publish, octets):
            raise AssertionError("the check of PUBLISH does not agree with the grammar")
        if octets and (check_deliveries([octets]) is not None) != is_a(Deliver, octets):
            raise AssertionError("the check of DELIVER does not agree with the grammar")
        Zeps.decode(octets)

    def check(self) -> None:
        assert all(is_a(Zeps, seed) for seed in self._seeds)


class Broker(SessionTarget):
    """Sessions of a broker: after each hostile client, another client can publish, read and get confirmations."""

    name = "ZEPS broker"
    share = 60
    unchanged = 0.5
    seeds = [
        message.encode()
        for message in (
            Attach("prices"),
            Attach("prices"),
            Attach("lawful"),
            Attach("$streams"),
            Attach("$clients"),
            Attach("$index/prices"),
            Credit(1 << 16),
            Credit(PLENTY),
            Publish("key", b"body" * 10),
            Publish("key.other", b"12"),
            Subscribe("", 0),
            Subscribe("key", LATEST),
            Subscribe("exact:key", 3),
            Subscribe("glob:k*[a-y]", TIME | 1_700_000_000_000),
            Subscribe("regex:^k[a-e]+y$", 0),
            Ping(),
            PingOk(),
            Ping(),
            Detach(),
            DetachOk(),
        )
    ]

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self._held = directory()
        self._path = Path(self._held.__enter__())
        self._stage: Stage | None = None
        self.start()

    def start(self) -> None:
        if self._stage is not None:
            self._stage.close()
        policy = Policy(sync="never", segment=1 << 18, keep_bytes=1 << 19)
        limits = Limits(streams=24, subscriptions=20, message=1 << 16)
        path = Path(tempfile.mkdtemp(dir=self._path))
        self._stage = Stage(path, policy=policy, limits=limits, streams=["prices", "lawful"])
        self._lawful = self._stage.client("lawful", credit=PLENTY)
        self._lawful.follow()
        self._count = 0

    def begin(self) -> None:
        assert self._stage is not None
        self._client: Client = self._stage.client(user="mallory", room=1 << 12)
        if self.mutator.below(4):
            self.receive(self.seeds[0])

    def receive(self, frames: Frames) -> None:
        client = self._client
        if client.gone:
            return
        if len(frames) > 1:
            client.session.receive([MULTIPART])
        else:
            client.send(frames[0])
        client.heard.clear()

    def end(self) -> None:
        assert self._stage is not None
        if not self._client.gone:
            self._client.close()
        self._stage.tick()
        self._stage.write_back()
        self._stage.warm_up()

    def check(self) -> None:
        lawful = self._lawful
        lawful.heard.clear()
        self._count += 1
        body = b"%d" % self._count
        lawful.publish("lawful", body)
        lawful.ping()
        assert lawful.confirmed == 1
        assert body in [message.body for message in lawful.delivered]
        assert self._stage is not None
        assert len(self._stage.engine.sessions) == 1

    def close(self) -> None:
        assert self._stage is not None
        self._stage.close()
        self._held.__exit__(None, None, None)


class Reader(SessionTarget):
    """A client that reads from a broker which sends anything: messages are in order, and none comes twice."""

    name = "ZEPS client"
    share = 40
    unchanged = 0.5

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        made = deliver([Publish(f"k{number % 3}", b"%d" % number * 4).encode()[0] for number in range(40)], 1)
        self.seeds = [tuple(made.bodies[start : start + size]) for start in range(0, 30, 5) for size in (1, 5, 10)]

    def begin(self) -> None:
        self._subscriber = Subscriber("s", "", 0, until=30 if self.mutator.below(2) else None)
        self._last = 0

    def receive(self, frames: Frames) -> None:
        subscriber = self._subscriber
        body_at = check_deliveries(list(frames))
        if body_at is None:
            return
        subscriber.accept_from_broker(list(frames), body_at)
        subscriber.next_credit()
        while (batch := subscriber.next_batch()) is not None:
            for message in batch:
                if message.sequence < self._last:
                    raise AssertionError(f"{message.sequence} came after {self._last}")
                self._last = message.sequence

    def check(self) -> None:
        subscriber = Subscriber("s", "", 0)
        frames = list(self.seeds[2])
        subscriber.accept_from_broker(frames, check_deliveries(frames) or 0)
        batch = subscriber.next_batch()
        assert batch is not None
        assert len(batch) == 10


def read_reports(octets: bytes) -> None:
    """Parse bytes as each of the reports that a broker sends; each may refuse them."""
    for read in (read_streams, read_clients, read_index):
        try:
            for each in read([octets]):
                if isinstance(each, StreamInfo):
                    Subscriber("s", "", 0).update(each)
        except BrokerError:
            continue


class Reports(ParserTarget):
    """The reports that a broker sends to its clients: streams, clients, the index of a journal."""

    name = "ZEPS reports"
    share = 20

    def __init__(self, chance: Random) -> None:
        seeds = [
            b'{"stream": "prices", "incarnation": "x", "first": 1, "last": 7, "octets": 70, "feed": {"sent": 1}}',
            b'{"client": 7, "address": "a", "patterns": ["a", "b"], "lag": 3}',
            IndexEntry(1, 0, 1_700_000_000_000_000, 3, 100, 90, 7).pack() * 3,
        ]
        super().__init__(chance, seeds, read_reports)


KEYS = [b"", b"key", b"kitchen.temp", b"\xff\x00", b"k" * 255]


class Patterns(ParserTarget):
    """Patterns of subscriptions, and the keys that they are asked about."""

    name = "patterns"
    share = 10
    errors = (PatternError,)

    def __init__(self, chance: Random) -> None:
        matchers = Matchers()

        def parse(octets: bytes) -> None:
            wanted = matchers.parse(octets[:255].decode("utf-8", "surrogateescape"))
            for key in KEYS:
                wanted(key)

        seeds = [
            b"prefix:a",
            b"exact:key",
            b"glob:k*[a-f]?n.[!x]*",
            b"regex:^k(it|et)+[a-z]{1,9}\\.(?i)t.*$",
            b"regex:\\pL",
        ]
        super().__init__(chance, seeds, parse)


class Datagrams(SessionTarget):
    """The datagrams of a multicast group, sealed or not: what the program gets is in order and without repeats."""

    name = "multicast"
    share = 40
    unchanged = 0.5

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        plain = []
        for first in range(1, 30, 3):
            made = deliver([Publish("k", b"%d" % number * 9).encode()[0] for number in range(first, first + 3)], first)
            plain.append(GroupMessages(GROUP, first, 3, made.octets).encode())
        large = deliver([Publish("k", b"x" * 500).encode()[0]], 31).octets
        plain += [
            Fragment(GROUP, 31, len(large), at, large[at : at + 200]).encode() for at in range(0, len(large), 200)
        ]
        plain.append(Mark(GROUP, 31).encode())
        self._plain = [(octets,) for octets in plain]
        self._sealed = [(seal(octets, GROUP_KEY, bytes(NONCE)),) for octets in plain]

    def begin(self) -> None:
        sealed = self.mutator.below(3) == 0
        self.seeds = self._sealed if sealed else self._plain
        self._reception = Reception(0, GROUP, 0.0, key=GROUP_KEY if sealed else b"", window=1 << 14)
        self._reception.on_messages = self._take
        self._last = 0
        self._now = 0.0

    def _take(self, frames: list[bytes], body_at: int) -> None:
        if sequence_of(frames[0]) != self._last + 1:
            raise AssertionError(f"{sequence_of(frames[0])} came after {self._last}")
        self._last = sequence_of(frames[-1])
        for message in MessageBatch("s", frames, body_at):
            assert message.stream == "s"

    def receive(self, frames: Frames) -> None:
        self._now += 0.01
        self._reception.receive(list(frames), self._now)
        if self._reception._kept_bytes > 1 << 14:
            raise AssertionError(f"{self._reception._kept_bytes} bytes are kept")
        deadline = self._reception.deadline
        if deadline is not None and deadline <= self._now:
            self._reception.tick(self._now)

    def check(self) -> None:
        reception = Reception(0, GROUP, 0.0)
        reception.receive([frames[0] for frames in self._plain], 0.1)
        assert reception.position == 31


def walk(octets: bytes) -> None:
    """Find the messages in bytes that may be damaged, as recovery does."""
    for place in walk_messages(octets):
        Deliver.decode(octets[place.start + (9 if octets[place.start] else 2) : place.stop])


class Blocks(ParserTarget):
    """Blocks of messages, as they are in a journal: each message that is found is a DELIVER."""

    name = "blocks"
    share = 30

    def __init__(self, chance: Random) -> None:
        short = deliver([Publish("key", b"body").encode()[0]] * 5, 1).octets
        large = deliver([Publish("key", b"body" * size).encode()[0] for size in (1, 100, 2)], 1 << 33).octets
        super().__init__(chance, [short, large], walk)


TARGETS = [Messages, Broker, Reader, Reports, Patterns, Datagrams, Blocks]
