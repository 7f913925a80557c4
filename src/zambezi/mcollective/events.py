"""The events of a middleware about its clients, and of a connector about its session; `next_event()` returns them.

It also returns the events of all sockets about connections, such as a failed handshake or a key that is not allowed:
see `zambezi.zmtp.events`.
"""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp.events import SocketEvent


@dataclass(frozen=True, slots=True)
class ClientEvent(SocketEvent):
    """The base class of events about a client: the identity of its socket, and its user (empty if anonymous)."""

    identity: bytes
    user: str


@dataclass(frozen=True, slots=True)
class ClientConnected(ClientEvent):
    """A client has connected. `ttl` is in seconds; None if the client wants no heartbeats."""

    version: str
    ttl: float | None


@dataclass(frozen=True, slots=True)
class ClientReturned(ClientEvent):
    """A client has come back after a lost connection, or a restart of the middleware, and its session goes on."""

    ttl: float
    topics: int


@dataclass(frozen=True, slots=True)
class ClientGone(ClientEvent):
    """A client's session has ended: it disconnected, was silent for too long, or lost its connection.

    If it lost its connection, and comes back before its TTL is over, the session goes on.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CommandDenied(ClientEvent):
    """No rule allows a client's command. The client was told."""

    verb: str
    topic: bytes


@dataclass(frozen=True, slots=True)
class SlowSubscriber(ClientEvent):
    """A client does not read the messages of its topics: it misses some from now on. Others do not wait for it."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class CaughtUp(ClientEvent):
    """A slow subscriber reads again. It was told how many messages it missed."""

    missed: int


@dataclass(frozen=True, slots=True)
class SessionReady(SocketEvent):
    """The connector has a session, with all its subscriptions. `again` is False for the first session."""

    again: bool


@dataclass(frozen=True, slots=True)
class SessionLost(SocketEvent):
    """The middleware is gone or silent. The connector keeps trying to get a new session."""

    reason: str


@dataclass(frozen=True, slots=True)
class Complaint(SocketEvent):
    """The middleware sent an ERROR that answers no command."""

    text: str
