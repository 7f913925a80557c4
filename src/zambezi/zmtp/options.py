"""The options of a socket: bounds of its queues, limits on its peers, security, heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.commands import is_application_property
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.security import Null, Security

# The action of a send when the queue is full: wait, raise `QueueFull`, or drop the message.
Policy: TypeAlias = Literal["block", "error", "drop"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a queue, in messages and in bytes (`octets`): a queue that has reached either is full.

    An empty queue accepts a message of any size.
    """

    messages: int = 10_000
    octets: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.messages < 1 or self.octets < 1:
            raise ZmtpError(f"a queue must hold at least one message of one byte, not {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a socket. The names are those of the sockets' keyword arguments."""

    identity: bytes = b""
    security: Security = field(default_factory=Null)
    authenticator: Authenticator | None = None
    send_bound: Bound = field(default_factory=Bound)
    receive_bound: Bound = field(default_factory=Bound)
    on_full: Policy = "block"
    limits: Limits = field(default_factory=Limits)
    heartbeat: Heartbeat | None = None
    backoff: Backoff = field(default_factory=Backoff)
    properties: Mapping[str, bytes] = field(default_factory=dict)  # for the metadata of our READY; names begin with X-

    def __post_init__(self) -> None:
        if len(self.identity) > 255 or self.identity[:1] == b"\0":
            raise ZmtpError("an identity has at most 255 bytes and must not begin with a zero byte")
        for name in self.properties:
            if not is_application_property(name):
                raise ZmtpError(f"{name!r} is no property that an application can set: its name must begin with X-")
        if self.on_full not in ("block", "error", "drop"):
            raise ZmtpError(f"on_full must be 'block', 'error' or 'drop', not {self.on_full!r}")
