"""Messages that are encoded already: for a protocol that sends the same messages to many peers, or from a file.

A link sends the messages in its peer's outbox. In addition, it can have a source, which it asks for messages whenever
the outbox is empty and the peer accepts more: so messages that a source has yet to send take no memory. And a protocol
can offer messages to a link, which accepts them only if it can pass them to the kernel now.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

SLICE: Final = 256 * 1024  # the most bytes of a file that are sent at a time


class Framed(Protocol):
    """Single-frame messages that are encoded once, and go to many peers."""

    @property
    def octets(self) -> bytes:
        """The messages with their frame headers, for connections without encryption."""

    @property
    def bodies(self) -> list[bytes]:
        """The messages without headers, for CURVE boxes and for inproc."""


class Stored:
    """Messages with their frame headers in a file: `length` bytes from `offset` on."""

    __slots__ = ("_fd", "_left", "_offset", "_read")

    def __init__(self, fd: int, offset: int, length: int, read: Callable[[], Framed]) -> None:
        self._fd = fd
        self._offset = offset
        self._left = length
        self._read = read  # this reference also keeps the file open

    def read(self) -> Framed:
        """Read the messages into memory, and return them."""
        return self._read()

    def send(self, sock: socket.socket) -> bool:
        """Pass the next slice to the kernel; return whether the kernel accepted all of it."""
        asked = min(self._left, SLICE)
        sent = os.sendfile(sock.fileno(), self._fd, self._offset, asked)
        if not sent:
            raise OSError(0, "the file ends before the messages do")
        self._offset += sent
        self._left -= sent
        return sent == asked

    def __len__(self) -> int:
        """Return the number of bytes that are still to be sent."""
        return self._left


class Source(Protocol):
    """A supplier of messages for one link."""

    def pull(self) -> Framed | Stored | None:
        """Return the next messages to send, or None. A source that has messages later must call `Peer.wake`."""
