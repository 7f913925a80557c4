"""The doorstep: connections of peers whose key is not allowed, and may be allowed later.

A client of libzmq that gets ERROR in the handshake never comes back (37/ZMTP, "Error Handling"): a daemon that started
before its key was allowed would be stranded for ever. So such a client gets no answer. But libzmq waits only a tenth of
a second before it connects again, and each handshake costs a millisecond of cryptography. So this side keeps the
connection, silent, and closes it after `STAY` seconds, or as soon as the rules change: then the peer comes back at
once, and is admitted if its key is allowed now. The number of such connections is bounded; above the bound the oldest
one is closed.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from zambezi.zmtp import descriptors
from zambezi.zmtp.alarm import Alarm

if TYPE_CHECKING:
    from zambezi.zmtp.transport import Transport

STAY: Final = 10.0  # seconds
_SHARE: Final = 8  # refused peers take at most one eighth of the descriptors


class Doorstep:
    """The sockets of refused peers, with the time at which each is closed."""

    __slots__ = ("_alarm", "_due", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._due: dict[socket.socket, float] = {}
        self._alarm = Alarm(transport.reactor, self._tick)

    def __len__(self) -> int:
        return len(self._due)

    def add(self, sock: socket.socket) -> None:
        """Keep the socket of a refused peer open for `STAY` seconds, and send nothing."""
        reactor = self._transport.reactor
        most = min(self._transport.options.limits.half_open, max(1, descriptors.usable() // _SHARE))
        if len(self._due) >= most:
            self._close(next(iter(self._due)))
        due = self._due[sock] = reactor.time() + STAY
        # The peer must wait for our answer. If it sends anything, or closes the connection, close our side too.
        reactor.add_reader(sock, lambda: self._close(sock))
        self._alarm.set(due)

    def clear(self) -> None:
        """Close all sockets, because the rules have changed or this side closes."""
        for sock in list(self._due):
            self._close(sock)

    def close(self) -> None:
        """Close all sockets, and stop the timer."""
        self.clear()
        self._alarm.end()

    def _close(self, sock: socket.socket) -> None:
        if self._due.pop(sock, None) is not None:
            self._transport.reactor.remove_reader(sock)
            self._transport.reactor.release(sock)

    def _tick(self) -> None:
        now = self._transport.reactor.time()
        for sock, due in list(self._due.items()):
            if due > now:
                self._alarm.set(due)
                break
            self._close(sock)
