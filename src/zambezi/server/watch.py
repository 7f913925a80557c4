"""What an operator must hear of: troubles as they come and go, in the log, once each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

_log: Final = logging.getLogger("zambezi.server")

EVERY: Final = 1.0  # seconds


class Watch:
    """Looks at troubles, each a text, and logs those that are new and those that are over.

    >>> watch = Watch(list)
    >>> watch.compare(["no room"]), watch.compare(["no room"]), watch.compare([])
    ((['no room'], []), ([], []), ([], ['no room']))
    """

    def __init__(self, troubles: Callable[[], Iterable[str]]) -> None:
        self._troubles = troubles
        self._known: dict[str, None] = {}

    def compare(self, troubles: Iterable[str]) -> tuple[list[str], list[str]]:
        """Those that have come since the last time, and those that are over."""
        now = dict.fromkeys(troubles)
        before, self._known = self._known, now
        return [one for one in now if one not in before], [one for one in before if one not in now]

    def look(self) -> None:
        come, over = self.compare(self._troubles())
        for trouble in come:
            _log.warning("%s", trouble)
        for trouble in over:
            _log.info("it is over: %s", trouble)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY)
