"""What happens to a socket's connections, for those who want to know: read with `socket.events()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SocketEvent:
    """The base of all events: where it happened, as the endpoint that was bound or connected."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Listening(SocketEvent):
    """The socket accepts connections here."""


@dataclass(frozen=True, slots=True)
class Connected(SocketEvent):
    """A peer is there: the handshake is complete. `address` is its IP address, or empty for ipc and inproc."""

    address: str
    identity: bytes
    user: str
    socket_type: str


@dataclass(frozen=True, slots=True)
class HandshakeFailed(SocketEvent):
    """A peer came, or was reached, but did not get to be one. Where ZMTP allows, it was told."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected(SocketEvent):
    """A peer is gone."""

    address: str
    identity: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Retrying(SocketEvent):
    """A connection could not be made, or was lost; attempt number `attempt` comes after `delay` seconds."""

    attempt: int
    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class Refused(SocketEvent):
    """A connection was closed before a word was said: its address is not allowed, or there are too many."""

    address: str
    reason: str
