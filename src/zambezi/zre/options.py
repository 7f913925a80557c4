"""The options of a node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from zambezi.zmtp.connection import Limits
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound, Policy
from zambezi.zre import bounds
from zambezi.zre.discovery import PORT, MemoryNetwork
from zambezi.zre.errors import ZreError
from zambezi.zre.security import Allowed

# The limits of sockets that receive nothing, or only logs.
SMALL: Final = Limits(frame=1 << 16, message=1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of a node, under the names of the arguments of `Node`."""

    uuid: UUID = field(default_factory=uuid4)
    headers: Mapping[str, str] = field(default_factory=dict)
    groups: Iterable[str] = ()
    contest: Collection[str] = ()
    dialect: str = "stable"
    interface: str | Sequence[str] | None = None
    ipv6: bool = False
    beacon_port: int = PORT
    port: int = 0
    advertise: str = ""
    seeds: Sequence[str] = ()
    gossip_bind: str = ""
    gossip_connect: Sequence[str] = ()
    beacons: bool | None = None
    network: MemoryNetwork | None = None
    keys: KeyPair | None = None
    node_keys: KeyPair | None = None
    allowed: Allowed | None = None
    interval: float = 1.0
    evasive: float = 5.0
    expired: float = 30.0
    bound: Bound = field(default_factory=Bound)
    on_full: Policy = "block"
    linger: float = 5.0
    max_peers: int = 10_000
    max_strangers: int = 1_000
    max_message: int = bounds.MESSAGE
    all_elect: bool = False
    log: bool = False
    trace: bool = False

    def __post_init__(self) -> None:
        if self.seeds and self.network is not None:
            raise ZreError(
                "a node in a memory network finds its peers there: give it network=... or seeds=..., not both"
            )
        if self.network is not None and (self.uses_zgossip or self.node_keys is not None):
            raise ZreError("a memory network has no zgossip and no keys: give the node an interface=... instead")
        if self.on_full not in ("block", "error", "drop"):
            raise ZreError(f"on_full must be 'block', 'error' or 'drop', not {self.on_full!r}")
        if self.linger < 0:
            raise ZreError(f"linger must not be negative, but is {self.linger}")
        if self.max_message < bounds.LEAST_MESSAGE:
            raise ZreError(f"max_message must be at least {bounds.LEAST_MESSAGE} bytes, not {self.max_message}")

    @property
    def uses_zgossip(self) -> bool:
        """Whether the node is a hub of zgossip, or a client of one."""
        return bool(self.gossip_bind or self.gossip_connect)

    @property
    def sends_beacons(self) -> bool:
        """Whether the node sends beacons: with seeds or zgossip, which are for networks without, only if it must."""
        return self.beacons if self.beacons is not None else not (self.seeds or self.uses_zgossip)
