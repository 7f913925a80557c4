"""A watch that logs troubles for the operator: each once when it begins, and once when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from zambezi.errors import described

_log: Final = logging.getLogger("zambezi.server")

EVERY: Final = 1.0  # seconds


class Watch:
    """A watch over troubles, each a text: it logs those that begin and those that end.

    >>> watch = Watch(list)
    >>> watch.compare(["no room"]), watch.compare(["no room"]), watch.compare([])
    ((['no room'], []), ([], []), ([], ['no room']))
    """

    def __init__(self, troubles: Callable[[], Iterable[str]]) -> None:
        self._troubles = troubles
        self._known: dict[str, None] = {}

    def compare(self, troubles: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the troubles that began since the last call, and those that ended."""
        now = dict.fromkeys(troubles)
        before, self._known = self._known, now
        return [one for one in now if one not in before], [one for one in before if one not in now]

    def look(self) -> None:
        """Log the changes since the last look. A look that fails is a trouble like the others: the watch goes on."""
        try:
            troubles = list(self._troubles())
        except Exception as error:
            troubles = [f"the server cannot look for troubles: {described(error)}"]
        begun, ended = self.compare(troubles)
        for trouble in begun:
            _log.warning("%s", trouble, extra={"problem": trouble, "state": "begun"})
        for trouble in ended:
            _log.info("resolved: %s", trouble, extra={"problem": trouble, "state": "resolved"})

    async def run(self) -> None:
        """Look once per second, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY)
