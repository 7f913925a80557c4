"""A watch that logs troubles for the operator: each once when it begins, and once when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from zambezi.errors import described

_log: Final = logging.getLogger("zambezi.server")

EVERY: Final = 1.0  # seconds

Fields: TypeAlias = Mapping[str, str]


class Watch:
    """A watch over troubles: it logs those that begin and those that end.

    A trouble is a text, and fields for the log such as the stream.
    """

    def __init__(self, troubles: Callable[[], Mapping[str, Fields]]) -> None:
        self._troubles = troubles
        self._known: Mapping[str, Fields] = {}

    def look(self) -> None:
        """Log the changes since the last look. A look that fails is a trouble like the others: the watch goes on."""
        try:
            troubles = dict(self._troubles())
        except Exception as error:
            troubles = {f"the server cannot look for troubles: {described(error)}": {}}
        before, self._known = self._known, troubles
        for trouble, fields in troubles.items():
            if trouble not in before:
                _log.warning("%s", trouble, extra={"problem": trouble, "state": "begun", **fields})
        for trouble, fields in before.items():
            if trouble not in troubles:
                _log.info("resolved: %s", trouble, extra={"problem": trouble, "state": "resolved", **fields})

    async def run(self) -> None:
        """Look once per second, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY)
