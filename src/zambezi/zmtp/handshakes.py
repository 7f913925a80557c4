"""The handshakes that are under way on a socket, and the one timer that ends those that take too long.

All have the same time, so that they are due in the order in which they began. A timer for each would be made and
cancelled for every connection, and a mesh makes thousands at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.zmtp.reactor import Reactor, Timer

if TYPE_CHECKING:
    from zambezi.zmtp.stream import StreamLink


class Handshakes:
    """Links whose handshake is not complete, with the time when each is due."""

    __slots__ = ("_due", "_reactor", "_timer")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._due: dict[StreamLink, float] = {}
        self._timer: Timer | None = None

    def begin(self, link: StreamLink) -> None:
        due = link.connection.deadline
        if due is None:
            return
        self._due[link] = due
        if self._timer is None:
            self._timer = self._reactor.call_at(due, self._tick)

    def end(self, link: StreamLink) -> None:
        self._due.pop(link, None)

    def _tick(self) -> None:
        now = self._reactor.time()
        for link in [link for link, due in self._due.items() if due <= now]:
            link.tick()
        first = next(iter(self._due.values()), None)
        self._timer = None if first is None else self._reactor.call_at(first, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
