"""What happens to a socket's connections, for those who want to know: read with `socket.events()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Listening:
    """The socket accepts connections here."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A peer is there: the handshake is complete. `address` is its IP address, or empty for ipc and inproc."""

    endpoint: str
    address: str
    identity: bytes
    user: str
    socket_type: str


@dataclass(frozen=True, slots=True)
class HandshakeFailed:
    """A peer came, or was reached, but did not get to be one. Where ZMTP allows, it was told."""

    endpoint: str
    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A peer is gone."""

    endpoint: str
    address: str
    identity: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """A connection could not be made, or was lost; attempt number `attempt` comes after `delay` seconds."""

    endpoint: str
    attempt: int
    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A connection was closed before a word was said: its address is not allowed, or there are too many."""

    endpoint: str
    address: str
    reason: str


SocketEvent: TypeAlias = Listening | Connected | HandshakeFailed | Disconnected | Retrying | Refused
