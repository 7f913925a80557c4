"""A client as the middleware knows it, and a topic with its subscribers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from zambezi.mcollective.archive import Kept
from zambezi.mcollective.messages import Frames
from zambezi.wire.text import as_bytes

if TYPE_CHECKING:
    from zambezi.mcollective.outputs import Deliver, Send
    from zambezi.mcollective.register import Record


THREAD: Final = b" #<Thread:"  # in the identities of the Ruby connector: name, process, thread


class State(Enum):
    """The state of a client, which decides the commands that the middleware accepts from it.

    NEW         it has never said CONNECT; its commands are accepted, without a TTL and heartbeats
    CONNECTED   it has said CONNECT, and keeps to its TTL
    FORGOTTEN   it was silent for longer than its TTL: its subscriptions are gone, and it must CONNECT again
    ENDED       it said DISCONNECT, and must CONNECT again
    """

    NEW = "new"
    CONNECTED = "connected"
    FORGOTTEN = "forgotten"
    ENDED = "ended"


class PendingAnswer:
    """The answer to a command with an ID, in its place among the answers. It has no frames until it is known."""

    __slots__ = ("frames", "id")

    def __init__(self, id: bytes) -> None:  # noqa: A002 - the header's own name
        self.id = id
        self.frames: Frames = ()


@dataclass(slots=True, eq=False)
class Replay:
    """The messages from the archive that a subscription with X-SINCE has still to receive."""

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
        "held_bytes",
        "identity",
        "missed",
        "open",
        "patience",
        "paused",
        "pending",
        "predecessor",
        "present",
        "record",
        "replaying",
        "replays",
        "returning",
        "said",
        "scheduled",
        "sequence",
        "settling",
        "state",
        "topics",
        "ttl",
        "user",
        "user_bytes",
    )

    def __init__(self, connection: object, identity: bytes, user: str, address: str, now: float) -> None:
        self.connection = connection
        self.identity = identity
        self.user = user
        self.user_bytes = as_bytes(user)
        self.address = address
        self.state = State.NEW
        self.present = True  # whether all its commands are accepted: it is NEW or CONNECTED
        self.open = True  # whether it has a connection
        self.delimited = True  # whether it sends, and gets, an empty frame first
        self.ttl: float | None = None  # seconds
        self.heard = now  # when its last message came,
        self.said = now  # and when the last one went out to it
        self.scheduled = float("inf")  # when the engine checks its silence next
        self.topics: dict[bytes, Topic] = {}  # its live subscriptions
        self.replays: dict[Replay, None] = {}  # in their order
        self.replaying: dict[bytes, Replay] = {}  # by topic
        self.paused = False  # whether we do not read from it, because another client must read first
        self.patience = 0.0  # seconds that its connection stays open after it was forgotten
        self.record: Record | None = None  # in the register
        self.returning: Record | None = (
            None  # after a new connection: of the session that goes on, unless the client says CONNECT
        )
        self.predecessor: Record | None = None  # after CONNECT: of the session that the client had before
        self.sequence = 0  # the last message of a kept topic that was queued for it
        self.pending: deque[PendingAnswer] = deque()
        self.settling = False  # whether it may subscribe to more topics at once, see `settling`
        self.held: list[Deliver | Send] = []  # messages that wait until `is_held` is False
        self.held_bytes = 0
        self.missed = 0  # messages, since it became slow
        self.denied = 0  # commands, by the rules

    @property
    def is_held(self) -> bool:
        """Whether messages to this client must wait: for pending answers, or until it has settled."""
        return bool(self.pending) or self.settling

    @property
    def is_ruby(self) -> bool:
        """Whether this is a client of the Ruby connector, by its identity and its form."""
        return self.delimited and THREAD in self.identity

    def drop_held(self) -> None:
        """Forget the messages that wait."""
        self.held = []
        self.held_bytes = 0

    def __repr__(self) -> str:
        return f"<Session {self.identity!r} {self.state.value}, {len(self.topics)} topics>"


class Topic:
    """A topic that has subscribers, or will have when their replays end."""

    __slots__ = ("deliveries", "kept", "messages", "name", "payer", "replayers", "subscribers")

    def __init__(self, name: bytes, kept: bool, payer: Session) -> None:
        self.name = name
        self.kept = kept
        self.payer = payer  # the client to whose user and address `Quota` charges it: one of those below
        self.subscribers: dict[Session, None] = {}
        self.replayers: dict[Session, None] = {}  # clients that subscribe to it when their replay ends
        self.messages = 0  # the number of PUTs since it has subscribers,
        self.deliveries = 0  # and of the MESSAGEs that went to subscribers
