"""What the engine wants done, in order: something with the mailbox of a peer, a beacon, or an event for the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from zambezi.zre.dialect import Frames
from zambezi.zre.events import Event


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect a DEALER to a peer's mailbox. (MBX-03)"""

    peer: bytes
    endpoint: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """The DEALER that was connected to a seed is the one to this peer."""

    seed: bytes
    peer: bytes


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the DEALER to a peer."""

    peer: bytes


class Send(NamedTuple):
    """Send a message by the DEALER to a peer. (A tuple: there is one for each peer that hears a SHOUT.)"""

    peer: bytes
    frames: Frames


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send a beacon."""

    octets: bytes


Output: TypeAlias = Connect | Adopt | Disconnect | Send | Broadcast | Event
