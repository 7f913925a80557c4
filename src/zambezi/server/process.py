"""The process that a server runs in: its descriptors, its event loop and its disk."""

from __future__ import annotations

import asyncio
import resource
import shutil
from pathlib import Path
from typing import Final

from zambezi.server.config.quantity import in_bytes

BEAT: Final = 0.25  # seconds between measurements of the event loop
ENOUGH: Final = 1.1  # times the wanted space that must be free until a disk is no longer low
_DECAY: Final = 0.99  # factor of the worst value at each measurement


def raise_descriptor_limit() -> int:
    """Raise the process's limit of file descriptors as far as the system allows; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


class LoopLag:
    """The delay between the time when a callback is due and the time when the event loop runs it, in seconds.

    A late loop makes every client wait.
    """

    def __init__(self) -> None:
        self.lag = 0.0  # at the last measurement
        self.worst = 0.0  # of about the last minute

    async def run(self) -> None:
        """Measure several times per second, until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + BEAT
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            self.add(loop.time() - due)
            due = loop.time() + BEAT

    def add(self, late: float) -> None:
        """Add one measurement."""
        self.lag = max(0.0, late)
        self.worst = max(self.lag, self.worst * _DECAY)


class SyncLatency:
    """The mean time of the latest fsyncs, and the worst recent mean, in seconds.

    Both are computed from two counters that only grow: the number of fsyncs, and their total time.

    >>> latency = SyncLatency()
    >>> latency.update(2, 0.5)
    >>> latency.update(2, 0.5)  # no new fsync: the last value stays
    >>> latency.mean, latency.worst
    (0.25, 0.25)
    """

    def __init__(self) -> None:
        self.mean = 0.0
        self.worst = 0.0
        self._before = (0, 0.0)

    def update(self, count: int, seconds: float) -> None:
        """Update the means from the current values of the counters."""
        known, took = self._before
        if count > known:
            self.mean = (seconds - took) / (count - known)
            self.worst = max(self.mean, self.worst * _DECAY)
            self._before = count, seconds


class DiskSpace:
    """The free space of the disk with the data, and whether there is too little of it.

    A disk that was low needs a tenth more than wanted to be well again. So a size near the limit does not fill the log.
    """

    def __init__(self, data: str, wanted: int) -> None:
        self._data = Path(data)
        self._is_low = False
        self.wanted = wanted  # bytes; 0 is no limit
        self.free: int | None = None  # bytes; None if the server has no data, or the disk does not answer

    def measure(self) -> None:
        """Ask the system for the free space."""
        try:
            self.free = shutil.disk_usage(self._data).free
        except OSError:
            self.free = None
        else:
            self._is_low = self.free < self.wanted * (ENOUGH if self._is_low else 1)

    @property
    def problems(self) -> list[str]:
        """The reason why the server is not ready; empty if enough space is free. The text does not have the size."""
        if not self._is_low:
            return []
        wanted = in_bytes(self.wanted)
        danger = "when it is full, publishers wait; free some space, or keep fewer messages"
        return [f"the disk with {self._data} has less free space than min_free = {wanted}: {danger}"]
