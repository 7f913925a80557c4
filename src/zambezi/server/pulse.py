"""The pulse of the event loop: how late it comes to what is due. A loop that is late makes everybody wait."""

from __future__ import annotations

import asyncio
from typing import Final

BEAT: Final = 0.25  # seconds


class Pulse:
    """Measures how late the loop is, several times in a second."""

    def __init__(self) -> None:
        self.lag = 0.0  # seconds, at the last beat
        self.worst = 0.0  # of the last minute or so
        self._decay = 0.99

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + BEAT
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            self.beat(loop.time() - due)
            due = loop.time() + BEAT

    def beat(self, late: float) -> None:
        self.lag = max(0.0, late)
        self.worst = max(self.lag, self.worst * self._decay)
