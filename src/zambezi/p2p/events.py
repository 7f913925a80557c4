"""The events of a PEER socket's peers. Failed handshakes and retries have the same events as on other sockets."""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp.events import SocketEvent


@dataclass(frozen=True, slots=True)
class PeerConnected(SocketEvent):
    """A peer connected. `address` is its IP address, or empty for ipc and inproc; `user` is its proven name."""

    routing_id: int
    address: str
    user: str


@dataclass(frozen=True, slots=True)
class PeerDisconnected(SocketEvent):
    """The connection to a peer ended. If the peer had connected to us, its routing id is invalid from now on."""

    routing_id: int
    address: str
    reason: str
