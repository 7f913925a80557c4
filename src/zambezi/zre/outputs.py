"""The outputs of the engine, which the shell carries out in order: sockets, messages, beacons, and events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from zambezi.zre.dialect import Frames
from zambezi.zre.events import Event


class Connect(NamedTuple):
    """Connect a DEALER to a peer's mailbox. (MBX-03) A tuple, like `Send`, for speed: a large mesh makes very many."""

    peer: bytes
    endpoint: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Use the DEALER that was connected to a seed as the one to this peer."""

    seed: bytes
    peer: bytes


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the DEALER to a peer."""

    peer: bytes


class Send(NamedTuple):
    """Send a message by the DEALER to a peer. (A tuple, for speed: a SHOUT makes one for each peer of the group.)"""

    peer: bytes
    frames: Frames


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send a beacon."""

    octets: bytes


Output: TypeAlias = Connect | Adopt | Disconnect | Send | Broadcast | Event
