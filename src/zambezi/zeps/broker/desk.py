"""A reserved stream to which clients publish, and which has no journal: orders, requests and replies, ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.zeps.errors import BrokerError
from zambezi.zmtp.source import Framed

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream


class Desk:
    """The other end of one connection to such a stream. Subclasses handle the messages."""

    is_busy = False  # whether the next message must wait
    used: BrokerStream | None = None  # the stream to which it publishes for the client

    def order(self, key: bytes, body: bytes) -> None:
        """Handle a PUBLISH."""
        raise NotImplementedError

    def subscribe(self, pattern: str) -> None:
        """Handle a SUBSCRIBE; raise `ZepsError` if there is nothing to read."""
        raise BrokerError("this stream takes orders: it has no messages")

    def add_credit(self, octets: int) -> None:
        """Allow so many bytes more."""

    def pull(self) -> Framed | None:
        """Return the next messages for the client, or None."""
        return None

    def apply_rules(self) -> None:
        """Note that the permissions may have changed."""

    def close(self) -> None:
        """Note that the connection has ended."""
