"""ZeroMQ's wire protocol, ZMTP 3.1: an engine without I/O, and sockets on it.

The sockets are in `zambezi.zmtp.asyncio` and, for scripts and threads, in `zambezi.zmtp.sync`, with the same names.
This package exports the types that both use: security, limits, bounds, events and errors.
"""

from __future__ import annotations

from zambezi.zmtp.authenticator import Authenticator, Claim, Verdict
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Connection, Heartbeat, Limits
from zambezi.zmtp.errors import (
    EndpointError,
    MessageError,
    ProtocolError,
    QueueFull,
    SocketClosed,
    TimedOut,
    Unroutable,
    ZmtpError,
)
from zambezi.zmtp.events import (
    Connected,
    Disconnected,
    HandshakeFailed,
    KeyRefused,
    Listening,
    Refused,
    Retrying,
    SocketEvent,
)
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair, read_pair, read_public, write_pair
from zambezi.zmtp.options import Bound
from zambezi.zmtp.security import CurveClient, CurveServer, Null, PlainClient, PlainServer

__all__ = [
    "Authenticator",
    "Backoff",
    "Batch",
    "Bound",
    "Claim",
    "Connected",
    "Connection",
    "CurveClient",
    "CurveServer",
    "Disconnected",
    "EndpointError",
    "HandshakeFailed",
    "Heartbeat",
    "KeyPair",
    "KeyRefused",
    "Keyring",
    "Limits",
    "Listening",
    "MessageError",
    "Null",
    "PlainClient",
    "PlainServer",
    "ProtocolError",
    "QueueFull",
    "Refused",
    "Retrying",
    "SocketClosed",
    "SocketEvent",
    "TimedOut",
    "Unroutable",
    "Verdict",
    "ZmtpError",
    "read_pair",
    "read_public",
    "write_pair",
]
