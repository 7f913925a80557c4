"""What happens to the clients of a middleware, and to the session of a connector; read with `next_event()`.

What happens to their connections (a failed handshake, a key that is not allowed) is told by the events of all sockets,
`zambezi.zmtp.events`, in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp.events import SocketEvent


@dataclass(frozen=True, slots=True)
class ClientEvent(SocketEvent):
    """The base of what is told of a client: the identity of its socket, and who it proved to be (or empty)."""

    identity: bytes
    user: str


@dataclass(frozen=True, slots=True)
class ClientConnected(ClientEvent):
    """A client said CONNECT. `ttl` is in seconds; None: it wants no heartbeats."""

    version: str
    ttl: float | None


@dataclass(frozen=True, slots=True)
class ClientGone(ClientEvent):
    """A client's session is over: it said DISCONNECT, was silent for too long, or its connection ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommandDenied(ClientEvent):
    """A rule does not allow what a client asked for, and it was told."""

    verb: str
    topic: bytes


@dataclass(frozen=True, slots=True)
class SlowSubscriber(ClientEvent):
    """A client does not read what it subscribed to: from now on it misses messages, and others do not wait for it."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class CaughtUp(ClientEvent):
    """A slow subscriber reads again. It missed so many messages, and was told so."""

    missed: int


@dataclass(frozen=True, slots=True)
class SessionReady(SocketEvent):
    """The middleware has taken our CONNECT and all our subscriptions. `again`: it is not the first time."""

    again: bool


@dataclass(frozen=True, slots=True)
class SessionLost(SocketEvent):
    """The middleware is gone, or silent; we come back by ourselves."""

    reason: str


@dataclass(frozen=True, slots=True)
class Complaint(SocketEvent):
    """The middleware said ERROR without being asked anything."""

    text: str
