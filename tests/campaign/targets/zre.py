"""ZRE: messages in both dialects, a node with hostile peers, beacons, gossip, ZRE/LOG."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from uuid import UUID

from tests.campaign.mutations import Frames
from tests.campaign.target import FramesTarget, ParserTarget, SessionTarget
from zambezi.wire import Message, WireError
from zambezi.zre import messages
from zambezi.zre.beacon import Beacon
from zambezi.zre.dialect import DRAFT, STABLE, Dialect
from zambezi.zre.engine import Engine
from zambezi.zre.events import Enter, Whisper
from zambezi.zre.gossip import HEADER, MARK, Entry
from zambezi.zre.gossip import read as read_gossip
from zambezi.zre.log import Level, Log, What
from zambezi.zre.log import read as read_log

HEADERS = {"X-ZRELOG": "tcp://127.0.0.1:9999", HEADER: "tcp://127.0.0.1:5670", "key": "value"}
GOSSIP = (MARK, *(Entry(UUID(int=number).bytes, f"tcp://10.0.0.{number}:5670").encode() for number in range(1, 4)))
STABLE_SEEDS: Sequence[Message] = (
    messages.Hello(1, "tcp://127.0.0.1:49152", ["one", "two"], 2, "mallory", HEADERS),
    messages.Whisper(2, [b"hello"]),
    messages.Whisper(2, GOSSIP),
    messages.Shout(3, "one", [b"a", b"b"]),
    messages.Join(2, "three", 3),
    messages.Leave(2, "one", 3),
    messages.Ping(2),
    messages.PingOk(2),
)
DRAFT_SEEDS: Sequence[Message] = (
    messages.DraftHello(1, "127.0.0.1", 49152, ["one", "two"], 2, HEADERS),
    messages.DraftWhisper(2, [b"hello"]),
    messages.DraftShout(3, "one", [b"a", b"b"]),
    messages.DraftJoin(2, "three", 3),
    messages.DraftLeave(2, "one", 3),
    messages.DraftPing(2),
    messages.DraftPingOk(2),
)


class Stable(FramesTarget):
    """The messages of the stable protocol."""

    name = "ZRE messages: stable"
    share = 40
    errors = (WireError,)

    def __init__(self, chance: Random) -> None:
        super().__init__(chance, [message.encode() for message in STABLE_SEEDS], messages.Stable.decode)


class Draft(FramesTarget):
    """The messages of the draft dialect."""

    name = "ZRE messages: draft"
    share = 30
    errors = (WireError,)

    def __init__(self, chance: Random) -> None:
        super().__init__(chance, [message.encode() for message in DRAFT_SEEDS], messages.Draft.decode)


class Beacons(ParserTarget):
    """Beacons, to a node: it knows no more strangers than it may."""

    name = "beacons"
    share = 30

    def __init__(self, chance: Random) -> None:
        self._node = Node(UUID(int=1))
        self._now = 0.0
        seeds = [Beacon(UUID(int=number << 64), 49152 + number).encode() for number in range(2, 9)]
        super().__init__(chance, [*seeds, Beacon(UUID(int=2 << 64), 0).encode()], self._receive)

    def _receive(self, octets: bytes) -> None:
        self._now += 0.001
        Beacon.decode(octets)
        self._node.engine.receive_beacon(octets, f"10.0.0.{self.mutator.below(200)}", self._now)
        self._node.advance(self._now)
        if len(self._node.engine.peers) > 110:
            raise AssertionError(f"{len(self._node.engine.peers)} peers")


class Gossip(FramesTarget):
    """The entries of gossip."""

    name = "gossip"
    share = 10

    def __init__(self, chance: Random) -> None:
        super().__init__(chance, [GOSSIP], lambda frames: list(read_gossip(frames)))


class Logs(ParserTarget):
    """ZRE/LOG: anything that is no log is discarded in silence."""

    name = "ZRE/LOG"
    share = 20

    def __init__(self, chance: Random) -> None:
        seeds = [
            Log(level, event, 7, 8, 1_700_000_000_000, "text").encode()[0]
            for level in (Level.ERROR, Level.INFO)
            for event in (What.JOIN, What.SEND)
        ]
        super().__init__(chance, seeds, self._read)

    def _read(self, octets: bytes) -> None:
        record = read_log(octets)
        if record is not None:
            assert record.key


class Node:
    """A node's engine, which acts at its deadlines."""

    def __init__(self, uuid: UUID, dialect: str = "stable", gossip: bool = False) -> None:
        self.engine = Engine(
            uuid,
            "node",
            lambda _: "tcp://127.0.0.1:5670",
            source_of=lambda _: "127.0.0.1",
            groups=["one"],
            dialect=dialect,
            gossip=gossip,
            max_peers=100,
            max_strangers=50,
        )
        self.engine.start(5670, 0.0)
        self.engine.take()

    def advance(self, now: float) -> list[object]:
        """Let the time pass, and return what the engine wants done."""
        if self.engine.deadline <= now:
            self.engine.tick(now)
        return list(self.engine.take())


class Peers(SessionTarget):
    """A node whose peers send anything: after each hostile session, another peer can greet it and whisper."""

    name = "ZRE node: stable"
    share = 40
    unchanged = 0.5
    dialect: Dialect = STABLE
    _messages = STABLE_SEEDS

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self.seeds = [message.encode() for message in self._messages]
        self.start()

    def start(self) -> None:
        self._node = Node(UUID(int=1), self.dialect.name, gossip=True)
        self._now = 0.0
        self._lawful = 0

    def begin(self) -> None:
        self._identity = b"\x01" + UUID(int=1000 + self.mutator.below(300)).bytes
        self._sequence = 0

    def receive(self, frames: Frames) -> None:
        self._now += 0.01
        if self.mutator.below(3):
            frames = self._numbered(frames)
        self._node.engine.receive(self._identity, list(frames), self._now)
        self._node.advance(self._now)
        if len(self._node.engine.peers) > 200:
            raise AssertionError(f"{len(self._node.engine.peers)} peers")

    def _numbered(self, frames: Frames) -> Frames:
        """Return a message with the next sequence, so that the node accepts it."""
        head, at = frames[0], self.dialect.sequence_at
        if len(head) < at + 2:
            return frames
        self._sequence = 1 if head[2] == 1 else self._sequence + 1
        return self.dialect.numbered(frames, self._sequence & 0xFFFF)

    def end(self) -> None:
        if self.mutator.below(2):
            self._node.engine.receive_beacon(Beacon(UUID(bytes=self._identity[1:]), 0).encode(), "10.0.0.1", self._now)
            self._node.advance(self._now)
        self._now += 40.0 * self.mutator.below(2)  # sometimes all of them expire
        self._node.advance(self._now)

    def check(self) -> None:
        self._now += 60.0
        self._node.advance(self._now)  # the hostile peers are silent, and expire
        self._lawful += 1
        uuid = UUID(int=(1 << 100) + self._lawful)
        identity = b"\x01" + uuid.bytes
        dialect = self.dialect
        hello = self._messages[0].encode()
        self._node.engine.receive(identity, list(dialect.numbered(hello, 1)), self._now)
        self._node.engine.receive(identity, list(dialect.whisper(2, [b"lawful"]).encode()), self._now)
        done = list(self._node.advance(self._now))
        for _ in range(20):  # a hostile peer may have claimed the same endpoint, and must be found silent first
            self._now += 1.0
            done += self._node.advance(self._now)
        assert any(isinstance(event, Enter) and event.peer == uuid for event in done)
        assert any(isinstance(event, Whisper) and event.peer == uuid for event in done)


class DraftPeers(Peers):
    name = "ZRE node: draft"
    share = 30
    dialect = DRAFT
    _messages = DRAFT_SEEDS


TARGETS = [Stable, Draft, Beacons, Gossip, Logs, Peers, DraftPeers]
