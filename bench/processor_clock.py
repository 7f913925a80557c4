"""An event loop whose clock is the processor time of this process: on a busy machine, its timers do not come too early.

A mesh of a thousand nodes sends beacons by the clock. If other programs take most of the processors, the mesh forms
slowly, and sends more beacons meanwhile, which make it still slower. With this loop, it does the same work on a busy
machine as on a quiet one. When nothing is left to do, the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import selectors
import time


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
        super().__init__(self._clock)

    def time(self) -> float:
        return time.process_time() + self._clock.jumped
