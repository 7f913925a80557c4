"""What the two faces of a node have in common: how it is set up, and how messages are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypedDict
from uuid import UUID

from zambezi.zmtp.face import Sendable, as_message
from zambezi.zmtp.frames import parts_of
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound
from zambezi.zre.discovery import MemoryNetwork

DEFAULT_LINGER: Final = 1.0


class NodeArguments(TypedDict, total=False):
    """The options of a node, by keyword."""

    uuid: UUID  # who it is; a fresh one by default
    headers: Mapping[str, str]  # told to every peer
    groups: Iterable[str]  # to be in from the start
    dialect: str  # "stable" or "draft"
    interface: str | Sequence[str] | None  # where beacons go out: names, addresses, "*"
    beacon_port: int  # UDP, 5670
    port: int  # of the mailbox; 0: any of 49152 to 65535
    advertise: str  # the host or endpoint that peers shall connect to
    seeds: Sequence[str]  # mailboxes of peers to begin with; what they know is told on
    beacons: bool | None  # by default yes, unless there are seeds
    network: MemoryNetwork | None  # a network in memory, for simulations
    keys: KeyPair | None  # of the mesh: CURVE, and only for those who have them
    interval: float  # seconds between beacons
    evasive: float  # seconds of silence before a PING
    expired: float  # seconds of silence before a peer is gone
    bound: Bound  # of the queue to each peer, and from it
    max_peers: int  # that are there at once
    max_strangers: int  # that were found, and have not greeted us
    log: bool  # report to the log services of the mesh


def frames_of(data: Sendable) -> tuple[bytes, ...]:
    """The frames of a message."""
    return parts_of(as_message(data))
