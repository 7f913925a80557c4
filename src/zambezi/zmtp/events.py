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

    def __str__(self) -> str:
        return f"{self.endpoint} accepts connections"


@dataclass(frozen=True, slots=True)
class Connected(SocketEvent):
    """A peer connected, and the handshake is complete. `address` is its IP address, or empty for ipc and inproc."""

    address: str
    identity: bytes
    user: str
    socket_type: str

    def __str__(self) -> str:
        user = f", user {self.user}" if self.user else ""
        return f"{self.endpoint}: a {self.socket_type}{_of(self.address)} is connected{user}"


@dataclass(frozen=True, slots=True)
class HandshakeFailed(SocketEvent):
    """A connection was made, but its handshake failed. If ZMTP allows it, the peer was told the reason."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.endpoint}: the handshake with a peer{_of(self.address)} failed: {self.reason}"


@dataclass(frozen=True, slots=True)
class Disconnected(SocketEvent):
    """The connection to a peer ended."""

    address: str
    identity: bytes
    reason: str

    def __str__(self) -> str:
        return f"{self.endpoint}: the connection of a peer{_of(self.address)} ended: {self.reason}"


@dataclass(frozen=True, slots=True)
class Retrying(SocketEvent):
    """A connection could not be made, or was lost; attempt number `attempt` begins after `delay` seconds."""

    attempt: int
    delay: float
    reason: str

    def __str__(self) -> str:
        return f"{self.endpoint}: attempt {self.attempt} to connect follows in {self.delay:.1f} s: {self.reason}"


@dataclass(frozen=True, slots=True)
class KeyRefused(HandshakeFailed):
    """A peer proved that it has a CURVE key (in Z85), and that key is not allowed."""

    key: str


@dataclass(frozen=True, slots=True)
class Refused(SocketEvent):
    """A connection was closed before the handshake: its address is not allowed, or the limit is reached."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.endpoint}: a connection{_of(self.address)} was refused: {self.reason}"


def _of(address: str) -> str:
    return f" at {address}" if address else ""
