"""An event loop whose clock is the processor time of this process: on a busy machine, its timers do not come too early.

A mesh of a thousand nodes sends beacons by the clock. If other programs take most of the processors, the mesh forms
slowly, and sends more beacons meanwhile, which make it still slower. With this loop, it does the same work on a busy
machine as on a quiet one. When nothing is left to do, the clock jumps to the next timer.

The kernel takes 0.65 us to tell the processor time, ten times as long as for an ordinary clock, and a link of a mesh
needs the time several times. So the loop asks the kernel once for several calls.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Final

_CALLS: Final = 16  # for which the kernel is asked once


class _Selector(selectors.EpollSelector):
    """A selector that never waits for a time: it lets the clock jump instead."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0 if timeout is not None else None)
        if not found and timeout is not None:
            self.jumped += max(0.0, timeout)
        return found


class ProcessorLoop(asyncio.SelectorEventLoop):
    """The loop. Use it for programs whose peers are all in this process."""

    def __init__(self) -> None:
        self._clock = _Selector()
        self._read = 0.0  # the processor time when the kernel was asked
        self._calls = 0  # that this answer is still for
        super().__init__(self._clock)

    def time(self) -> float:
        self._calls -= 1
        if self._calls < 0:
            self._calls = _CALLS - 1
            self._read = time.process_time()
        return self._read + self._clock.jumped
