"""The events of a socket's connections. A program reads them with `socket.events()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SocketEvent:
    """The base of all events. `endpoint` is the endpoint that this socket bound or connected to."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Listening(SocketEvent):
    """The socket accepts connections here."""


@dataclass(frozen=True, slots=True)
class Connected(SocketEvent):
    """A peer connected, and the handshake is complete. `address` is its IP address, or empty for ipc and inproc."""

    address: str
    identity: bytes
    user: str
    socket_type: str


@dataclass(frozen=True, slots=True)
class HandshakeFailed(SocketEvent):
    """A connection was made, but its handshake failed. If ZMTP allows it, the peer was told the reason."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected(SocketEvent):
    """The connection to a peer ended."""

    address: str
    identity: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Retrying(SocketEvent):
    """A connection could not be made, or was lost; attempt number `attempt` begins after `delay` seconds."""

    attempt: int
    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class KeyRefused(HandshakeFailed):
    """A peer proved that it has a CURVE key (in Z85), and that key is not allowed."""

    key: str


@dataclass(frozen=True, slots=True)
class Refused(SocketEvent):
    """A connection was closed before the handshake: its address is not allowed, or the limit is reached."""

    address: str
    reason: str
