"""Which broker a connection dials: one endpoint, several in turn, or the one that a broker has sent the client to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from zambezi.zeps.errors import Moved
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.endpoint import parse
from zambezi.zmtp.errors import ZmtpError

Locate: TypeAlias = Callable[[], str | tuple[str, ...] | None]

LONGEST: Final = 0.5  # seconds between two brokers: a stream without an owner gets one within seconds
_SCHEMES: Final = ("tcp://", "ipc://")  # that a broker can send a client to


class Finder:
    """The search of one connection for its broker. It takes no time and does no I/O."""

    def __init__(self, locate: Locate, backoff: Backoff) -> None:
        self._locate = locate
        self._backoff = backoff
        self._chance = random.Random()
        self._known: str | tuple[str, ...] | None = None  # what `locate` has returned
        self._turn = 0  # of the endpoints that the program has given
        self._moved = ""  # the endpoint that a broker has sent us to
        self._attempts = 0  # since a broker has served the stream

    @property
    def endpoint(self) -> str | None:
        """The endpoint to dial; None if no broker is known."""
        found = self._known = self._locate()
        if self._moved:
            return self._moved
        if isinstance(found, tuple):
            return found[self._turn % len(found)] if found else None
        return found

    @property
    def has_choice(self) -> bool:
        """Whether there is another endpoint, if this one does not answer."""
        return bool(self._moved) or self._several > 1

    @property
    def _several(self) -> int:
        return len(self._known) if isinstance(self._known, tuple) else 1

    def succeed(self) -> None:
        """Note that the broker serves the stream."""
        self._attempts = 0

    def fail(self) -> float:
        """Choose another endpoint, if there is one, and return the seconds to wait before it is dialled."""
        if self._moved:
            self._moved = ""
        else:
            self._turn += 1
        return self._pause()

    def follow(self, reason: str) -> float:
        """Choose the endpoint that a broker has named, and return the seconds to wait before it is dialled.

        The first move takes no time. Brokers that send a client to and fro disagree for a moment only.
        """
        endpoint = reason.removeprefix(Moved.PREFIX).strip()
        is_first = not self._attempts
        if is_endpoint(endpoint):
            self._moved = endpoint
            pause = self._pause()
            return 0.0 if is_first else pause
        return self.fail()

    def _pause(self) -> float:
        self._attempts += 1
        return min(LONGEST, self._backoff.delay(1 + self._attempts // (self._several + 1), self._chance))


def is_endpoint(endpoint: str) -> bool:
    """Return whether a broker can send a client to an endpoint."""
    try:
        parse(endpoint)
    except ZmtpError:
        return False
    return endpoint.startswith(_SCHEMES)
