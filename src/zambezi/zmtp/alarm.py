"""A timer for an engine that says when it wants to be called next.

To be called early does no harm to an engine: it looks at the time, and does what is due. So the timer is only ever
moved forward, and what the engine asks for after every message costs a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from zambezi.zmtp.reactor import Reactor, Timer


class Alarm:
    """Calls `ring` at the earliest of the times that it was set to since it last rang."""

    __slots__ = ("_at", "_reactor", "_ring", "_timer")

    def __init__(self, reactor: Reactor, ring: Callable[[], object]) -> None:
        self._reactor = reactor
        self._ring = ring
        self._at = math.inf
        self._timer: Timer | None = None

    def set(self, when: float) -> None:
        """Ring at a time, if not before."""
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
        """Never ring again, whatever it is set to."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at = -math.inf
