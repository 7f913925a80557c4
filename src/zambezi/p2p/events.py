"""What happens to the peers of a PEER socket. Failed handshakes and retries are told as for any socket."""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp.events import SocketEvent


@dataclass(frozen=True, slots=True)
class PeerConnected(SocketEvent):
    """A peer is there. `address` is its IP address, or empty for ipc and inproc; `user` is who it proved to be."""

    routing_id: int
    address: str
    user: str


@dataclass(frozen=True, slots=True)
class PeerDisconnected(SocketEvent):
    """The connection to a peer ended. If the peer had connected to us, its routing id is dead from now on."""

    routing_id: int
    address: str
    reason: str
