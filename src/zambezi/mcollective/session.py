"""A client as the middleware knows it, and a topic with those who subscribed to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from zambezi.mcollective.archive import Kept
from zambezi.mcollective.messages import Frames


class State(Enum):
    """What the middleware holds of a client, and so what it takes from it.

    NEW         it has never said CONNECT, and is taken as it is: no TTL, no heartbeats
    CONNECTED   it has, and keeps to its TTL
    FORGOTTEN   it did not keep to it: its subscriptions are gone, and it must CONNECT again
    ENDED       it said DISCONNECT, and must CONNECT again
    """

    NEW = "new"
    CONNECTED = "connected"
    FORGOTTEN = "forgotten"
    ENDED = "ended"


class Owed:
    """The answer to a command with an ID, in its place among the answers; empty until it is known."""

    __slots__ = ("answer", "id")

    def __init__(self, id: bytes) -> None:  # noqa: A002 - the header's own name
        self.id = id
        self.answer: Frames = ()


@dataclass(slots=True, eq=False)
class Replay:
    """What a subscription with X-SINCE has still to be given from the archive."""

    topics: set[bytes]
    source: Iterator[Kept | None]


class Session:
    """One connection of one client. The connection itself is the shell's, and opaque here."""

    __slots__ = (
        "address",
        "connection",
        "delimited",
        "denied",
        "heard",
        "held",
        "held_octets",
        "identity",
        "missed",
        "open",
        "owed",
        "patience",
        "present",
        "replaying",
        "replays",
        "said",
        "scheduled",
        "state",
        "topics",
        "ttl",
        "user",
        "version",
    )

    def __init__(self, connection: object, identity: bytes, user: str, address: str, now: float) -> None:
        self.connection = connection
        self.identity = identity
        self.user = user
        self.address = address
        self.state = State.NEW
        self.present = True  # whether its commands are taken as they are: NEW or CONNECTED
        self.open = True  # whether there is a connection
        self.delimited = True  # whether it sends, and gets, an empty frame first
        self.version = b""
        self.ttl: float | None = None  # seconds
        self.heard = now  # when something came from it,
        self.said = now  # and when something went out to it
        self.scheduled = float("inf")  # when its silence is looked at next
        self.topics: dict[bytes, Topic] = {}  # that it subscribed to, and gets as they come
        self.replays: dict[Replay, None] = {}  # in their order
        self.replaying: dict[bytes, Replay] = {}  # by topic
        self.patience = 0.0  # seconds that its connection stays after it was forgotten
        self.owed: deque[Owed] = deque()
        self.held: list[Frames] = []  # what waits for an answer that is owed
        self.held_octets = 0
        self.missed = 0  # messages, since it became slow
        self.denied = 0  # commands, by the rules

    def __repr__(self) -> str:
        return f"<Session {self.identity!r} {self.state.value}, {len(self.topics)} topics>"


class Topic:
    """A topic that somebody subscribed to."""

    __slots__ = ("deliveries", "kept", "messages", "name", "subscribers")

    def __init__(self, name: bytes, kept: bool) -> None:
        self.name = name
        self.kept = kept
        self.subscribers: dict[Session, None] = {}
        self.messages = 0  # PUT since there are subscribers,
        self.deliveries = 0  # and what became of them
