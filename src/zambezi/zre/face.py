"""The part that both faces of a node share: its options, and the forms in which messages are given."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypedDict
from uuid import UUID

from zambezi.zmtp.face import Sendable, as_message
from zambezi.zmtp.frames import parts_of
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound, Policy
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.security import Allowed


class NodeArguments(TypedDict, total=False):
    """The options of a node, by keyword."""

    uuid: UUID  # of this node; a random one by default
    headers: Mapping[str, str]  # that every peer is told
    groups: Iterable[str]  # to join at the start
    contest: Collection[str]  # groups to join at the start, and to claim the lead of
    dialect: str  # "stable" or "draft"
    interface: str | Sequence[str] | None  # that beacons go out on: names, addresses, "*"
    ipv6: bool  # whether to use addresses of IPv6
    beacon_port: int  # UDP, 5670
    port: int  # of the mailbox; 0: any of 49152 to 65535
    advertise: str  # the host or endpoint to which peers connect
    seeds: Sequence[str]  # mailboxes of peers to begin with, which tell us of the others
    gossip_bind: str  # the endpoint at which this node is a hub of zgossip
    gossip_connect: Sequence[str]  # hubs of zgossip
    beacons: bool | None  # whether to send beacons; by default yes, unless there are seeds or zgossip
    network: MemoryNetwork | None  # a network in memory, for simulations
    keys: KeyPair | None  # of the mesh: CURVE, and only holders of these keys can join
    node_keys: KeyPair | None  # of this node alone: CURVE, as in Zyre
    allowed: Allowed | None  # the public keys of other nodes that may join, with `node_keys`; or "any"
    interval: float  # seconds between beacons
    evasive: float  # seconds of silence before a PING
    expired: float  # seconds of silence before a peer is gone
    bound: Bound  # of the queue to each peer, and from it
    linger: float  # seconds in which peers can read the last messages of a node that stops
    on_full: Policy  # when the queue to a peer is full: "block" (wait for room), "error" or "drop"
    max_peers: int  # that have greeted us
    max_strangers: int  # that we found, and that have not greeted us
    max_message: int  # bytes of a WHISPER or SHOUT, and 64 for each of its frames
    all_elect: bool  # whether all peers know Zyre's elections: true where there is no Pyre
    log: bool  # whether to report to the log services of the mesh
    trace: bool  # whether to write each message and event to the logger `zambezi.zre.trace`


def frames_of(data: Sendable | str) -> tuple[bytes, ...]:
    """Return the frames of a message; text is encoded as UTF-8."""
    return parts_of(as_message(data.encode() if isinstance(data, str) else data))
