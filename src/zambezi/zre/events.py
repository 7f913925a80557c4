"""The events by which a node tells its program of its peers and their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of all events: the UUID and the name of the peer."""

    peer: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Enter(Event):
    """A peer has entered the mesh: the program can send messages to it."""

    endpoint: str
    headers: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Exit(Event):
    """A peer is gone. A message to it raises `NoSuchPeer`, until it enters again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Join(Event):
    """A peer joined a group, or was in the group when it entered."""

    group: str


@dataclass(frozen=True, slots=True)
class Leave(Event):
    """A peer left a group, and is still in the mesh."""

    group: str


@dataclass(frozen=True, slots=True)
class Whisper(Event):
    """A message to this node alone."""

    content: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """The content as one `bytes`; several frames are joined."""
        return b"".join(self.content)


@dataclass(frozen=True, slots=True)
class Shout(Event):
    """A message to a group that this node is in."""

    group: str
    content: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """The content as one `bytes`; several frames are joined."""
        return b"".join(self.content)


@dataclass(frozen=True, slots=True)
class Leader(Event):
    """A group has a new leader: a peer, or this node itself."""

    group: str
    is_self: bool


@dataclass(frozen=True, slots=True)
class Evasive(Event):
    """A peer was silent for a while, and was sent a PING."""


@dataclass(frozen=True, slots=True)
class Silent(Event):
    """A peer did not answer the PING either."""
