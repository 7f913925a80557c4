"""The options of a node, and the security of its sockets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound
from zambezi.zmtp.security import CurveServer, Null
from zambezi.zre import bounds
from zambezi.zre.discovery import PORT, MemoryNetwork
from zambezi.zre.errors import ZreError

# The limits of sockets that receive nothing, or only logs.
SMALL: Final = Limits(frame=1 << 16, message=1 << 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of a node, under the names of the arguments of `Node`."""

    uuid: UUID = field(default_factory=uuid4)
    headers: Mapping[str, str] = field(default_factory=dict)
    groups: Iterable[str] = ()
    dialect: str = "stable"
    interface: str | Sequence[str] | None = None
    beacon_port: int = PORT
    port: int = 0
    advertise: str = ""
    seeds: Sequence[str] = ()
    beacons: bool | None = None
    network: MemoryNetwork | None = None
    keys: KeyPair | None = None
    interval: float = 1.0
    evasive: float = 5.0
    expired: float = 30.0
    bound: Bound = field(default_factory=Bound)
    max_peers: int = 10_000
    max_strangers: int = 1_000
    max_message: int = bounds.MESSAGE
    log: bool = False

    def __post_init__(self) -> None:
        if self.seeds and self.network is not None:
            raise ZreError(
                "a node in a memory network finds its peers there: give it network=... or seeds=..., not both"
            )
        for name in ("interval", "evasive", "expired"):
            if getattr(self, name) <= 0:
                raise ZreError(f"{name} must be more than zero seconds, not {getattr(self, name)}")
        if self.max_message < bounds.LEAST_MESSAGE:
            raise ZreError(f"max_message must be at least {bounds.LEAST_MESSAGE} bytes, not {self.max_message}")


def security_of(keys: KeyPair | None) -> tuple[CurveServer | Null, Authenticator | None]:
    """Return the security of a server socket: with the keys of a mesh, only their holders can connect."""
    if keys is None:
        return Null(), None
    return CurveServer(keys), Authenticator(keys={"mesh": keys.public})
