"""A timer for an engine that says when it wants to be called next.

An early call does no harm to an engine: it looks at the time, and does what is due. So an alarm only ever moves its
timer to an earlier time, and a request for a later time, which an engine makes after every message, costs one
comparison.

An engine that raises does not say when it wants to be called next. It must be called nevertheless: a process that is
out of descriptors for five seconds must go on afterwards. So the alarm then rings again after `RETRY` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from zambezi.zmtp.reactor import Reactor, Timer

RETRY: Final = 1.0  # seconds


class Alarm:
    """A timer that calls `ring` at the earliest time that it was set to since it last rang.

    `at` is the time at which it will ring. If `ring` raises, the alarm calls it again soon, and the event loop logs the
    exception.
    """

    __slots__ = ("_reactor", "_ring", "_timer", "at")

    def __init__(self, reactor: Reactor, ring: Callable[[], object]) -> None:
        self._reactor = reactor
        self._ring = ring
        self.at = math.inf
        self._timer: Timer | None = None

    def set(self, when: float) -> None:
        """Ring at `when`, or earlier."""
        if when < self.at:
            if self._timer is not None:
                self._timer.cancel()
            self.at = when
            self._timer = self._reactor.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.at = math.inf
        try:
            self._ring()
        except BaseException:
            self.set(self._reactor.time() + RETRY)
            raise

    def end(self) -> None:
        """Never ring again, whatever time is set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.at = -math.inf
