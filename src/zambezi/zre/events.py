"""What a node tells its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all events: which peer it is about."""

    peer: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Enter(Event):
    """A peer is there, and can be talked to."""

    endpoint: str
    headers: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Exit(Event):
    """A peer is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Join(Event):
    """A peer joined a group, or was in it when it came."""

    group: str


@dataclass(frozen=True, slots=True)
class Leave(Event):
    """A peer left a group, but is still there."""

    group: str


@dataclass(frozen=True, slots=True)
class Whisper(Event):
    """A message to this node alone."""

    content: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """The content, where it is one frame; otherwise its frames joined."""
        return b"".join(self.content)


@dataclass(frozen=True, slots=True)
class Shout(Event):
    """A message to a group that this node is in."""

    group: str
    content: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """The content, where it is one frame; otherwise its frames joined."""
        return b"".join(self.content)


@dataclass(frozen=True, slots=True)
class Evasive(Event):
    """Nothing was heard from the peer for a while, and it was sent a PING."""


@dataclass(frozen=True, slots=True)
class Silent(Event):
    """The peer did not answer a PING either."""
