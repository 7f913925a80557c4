"""The unfinished handshakes of a socket, and the one timer that ends those that take too long.

All handshakes have the same time limit, so they are due in the order in which they began. A timer for each would have
to be created and cancelled for every connection, and a mesh makes thousands of connections at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.zmtp.reactor import Reactor, Timer

if TYPE_CHECKING:
    from zambezi.zmtp.stream import StreamLink


class Handshakes:
    """The links whose handshake is not complete, with the time at which each is due."""

    __slots__ = ("_due", "_reactor", "_timer")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._due: dict[StreamLink, float] = {}
        self._timer: Timer | None = None

    def begin(self, link: StreamLink) -> None:
        """Limit the time of a link's handshake."""
        due = link.connection.deadline
        if due is None:
            return
        self._due[link] = due
        if self._timer is None:
            self._timer = self._reactor.call_at(due, self._tick)

    def end(self, link: StreamLink) -> None:
        """Forget a link: its handshake is complete, or its connection is gone."""
        self._due.pop(link, None)

    def _tick(self) -> None:
        now = self._reactor.time()
        try:
            for link in [link for link, due in self._due.items() if due <= now]:
                link.tick()
        finally:
            first = next(iter(self._due.values()), None)
            self._timer = None if first is None else self._reactor.call_at(first, self._tick)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
