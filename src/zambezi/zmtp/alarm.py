"""A timer for an engine that says when it wants to be called next.

An early call does no harm to an engine: it looks at the time, and does what is due. So an alarm only ever moves its
timer to an earlier time, and a request for a later time, which an engine makes after every message, costs one
comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from zambezi.zmtp.reactor import Reactor, Timer


class Alarm:
    """A timer that calls `ring` at the earliest time that it was set to since it last rang."""

    __slots__ = ("_at", "_reactor", "_ring", "_timer")

    def __init__(self, reactor: Reactor, ring: Callable[[], object]) -> None:
        self._reactor = reactor
        self._ring = ring
        self._at = math.inf
        self._timer: Timer | None = None

    def set(self, when: float) -> None:
        """Ring at `when`, or earlier."""
        if when < self._at:
            if self._timer is not None:
                self._timer.cancel()
            self._at = when
            self._timer = self._reactor.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._at = math.inf
        self._ring()

    def end(self) -> None:
        """Never ring again, whatever time is set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at = -math.inf
