"""One peer, as a node knows it. A process can have a million of these, so they are small."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Final
from uuid import UUID

from zambezi.zre.contact import port_of
from zambezi.zre.dialect import Dialect

_LONG_AGO: Final = float("-inf")
_NEVER: Final = float("inf")
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Voting(Enum):
    """How a peer takes part in elections, as far as it has shown that."""

    NOT = auto()  # it has not shown that it knows Zyre's commands; Pyre drops a node that sends them
    RELAYING = auto()  # it sent one of these commands, or a header of Zyre's
    DIRECT = auto()  # its HELLO says that it is a node like us


class Peer:
    """One peer, as the engine knows it."""

    __slots__ = (
        "address",
        "attempts",
        "beacon",
        "cost",
        "dialect",
        "doubtful",
        "due",
        "endpoint",
        "evasive",
        "expected",
        "farewell",
        "greeted",
        "groups",
        "headers",
        "heard",
        "key",
        "lost",
        "name",
        "near",
        "overdue",
        "pings",
        "port",
        "ready",
        "received",
        "renewals",
        "sent",
        "status",
        "tested",
        "voting",
        "waiting",
    )

    def __init__(self, key: bytes, endpoint: str, dialect: Dialect, now: float) -> None:
        self.key = key
        self.endpoint = endpoint  # a contact: with the public key of the peer, if it has keys of its own
        self.port = port_of(endpoint)
        self.beacon = b""  # the last one that came from the address of its mailbox, or else the first one,
        self.address = ""  # and the address that it came from
        self.dialect = dialect
        self.name = key.hex()[:6]
        self.headers: Mapping[str, str] = _NO_HEADERS
        self.groups = together(())
        self.status = 0
        self.cost = 0  # bytes of its headers and groups, as `bounds` counts them
        self.voting = Voting.NOT
        self.ready = False
        self.waiting = 0  # how many HELLOs of ours on this connection are unanswered
        self.attempts = 0  # how many connections we have made for HELLOs that it has not answered
        self.expected = 0.0  # until when a HELLO can be an answer, though `waiting` is zero: see `greetings`
        self.doubtful = False  # whether only the answer to a PING would show that it has our HELLO
        self.renewals = 0  # how often it began a new session in quick succession
        self.greeted = now  # the time of our last HELLO
        self.overdue = _NEVER  # when we greet it again, if it has not shown by then that it has our HELLO
        self.heard = now  # the time of its last sign of life
        self.lost = _LONG_AGO  # when our connection to it was lost, see `claims`
        self.tested = _LONG_AGO  # when it was tested because another node claimed its endpoint
        self.near = False  # whether its HELLO came from the address of its endpoint
        self.pings = 0  # how many PINGs it has not answered in this session
        self.evasive = 0  # how many PINGs it has left unanswered
        self.farewell = 0.0  # until when a lost connection means that it left: a beacon without proof said so
        self.due = now  # when the engine looks at it again
        self.sent = 0  # the sequence of our last message to it
        self.received = 0  # and of its last message to us

    @property
    def uuid(self) -> UUID:
        return _uuid(self.key)

    def move(self, endpoint: str) -> None:
        """Note another endpoint of its mailbox."""
        self.endpoint = endpoint
        self.port = port_of(endpoint)

    def hear(self, now: float) -> None:
        """Note a sign of life."""
        self.heard = now
        self.evasive = 0


@lru_cache(maxsize=4096)
def _uuid(key: bytes) -> UUID:
    return UUID(bytes=key)


@lru_cache(maxsize=1024)
def together(groups: tuple[str, ...]) -> frozenset[str]:
    """Return a set of groups. Peers in the same groups share it."""
    return frozenset(groups)
