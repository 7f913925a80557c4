"""The connection of a client, as the broker's engine sees it: messages out, and control of the messages in."""

from __future__ import annotations

from typing import Final, Protocol

from zambezi.zeps.broker.cursor import Outlet


class Multipart(bytes):
    """The place of a message of several frames among those of one frame. ZEPS has none, so the frames do not matter."""

    __slots__ = ()


MULTIPART: Final = Multipart()


class Connection(Outlet, Protocol):
    """The connection of a client, as its session sees it: a `zambezi.zmtp.peer.Peer`."""

    @property
    def full(self) -> bool:
        """Whether the queue of answers to the client is full."""

    def send(self, message: bytes) -> None:
        """Queue a message to the client."""

    def pause(self) -> None:
        """Pass no more messages of the client to the session until `resume`."""

    def resume(self) -> None:
        """Pass the messages of the client to the session again."""

    def close(self, linger: float | None) -> None:
        """Close when all queued messages have gone out, or after `linger` seconds."""

    def abort(self, reason: str) -> None:
        """Close at once."""
