"""Messages that are octets already: for those who send the same to many, or send what lies in a file.

A link sends what is in its pipe's outbox. Besides, it can have a source, which it asks for more whenever the peer takes
more and the outbox is empty: so what a source has yet to send takes no memory. And it can be offered octets, which it
takes only if it can hand them to the kernel now.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

SLICE: Final = 256 * 1024  # how much of a file is sent at a time


class Framed(Protocol):
    """Single-frame messages that were framed once and go to many."""

    @property
    def octets(self) -> bytes:
        """The messages with their frame headers: what goes out as it is, where nothing is encrypted."""

    @property
    def bodies(self) -> list[bytes]:
        """The messages without headers: where each goes into a box, or to another socket of the process."""


class Stored:
    """Messages with their frame headers in a file, in `length` octets from `offset` on."""

    __slots__ = ("_fd", "_left", "_offset", "_read")

    def __init__(self, fd: int, offset: int, length: int, read: Callable[[], Framed]) -> None:
        self._fd = fd
        self._offset = offset
        self._left = length
        self._read = read  # it also keeps the file open

    def read(self) -> Framed:
        """The messages in memory."""
        return self._read()

    def send(self, sock: socket.socket) -> bool:
        """Hand the next slice to the kernel. True if the kernel took all of it."""
        asked = min(self._left, SLICE)
        sent = os.sendfile(sock.fileno(), self._fd, self._offset, asked)
        if not sent:
            raise OSError(0, "the file ends before the messages do")
        self._offset += sent
        self._left -= sent
        return sent == asked

    def __len__(self) -> int:
        """How much is still to be sent."""
        return self._left


class Source(Protocol):
    """What a link asks for more."""

    def pull(self) -> Framed | Stored | None:
        """The next messages to send; None if there are none now. Who has some later nudges the link."""
