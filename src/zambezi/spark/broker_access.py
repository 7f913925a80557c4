"""Connections to a broker that may be down for a while: attempts are repeated for as long as `timeout` says."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from zambezi.spark.errors import ConnectionLost
from zambezi.spark.task_connection import TaskConnection
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.security import Security

_log: Final = logging.getLogger("zambezi.spark")

_BACKOFF: Final = Backoff(first=0.05, longest=2.0)
_QUIET: Final = 2.0  # seconds without an answer, after which the log says why

T = TypeVar("T")


class BrokerAccess:
    """A broker, and how long to try to reach it."""

    def __init__(
        self,
        endpoint: str,
        security: Security,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._security = security
        self._timeout = timeout
        self._clock = clock
        self._sleep = sleep
        self._deadline: float | None = None  # of the attempts that are being made
        self._tries = 0
        self._has_warned = False

    def connect(self, stream: str) -> TaskConnection:
        """Connect to the broker and attach to a stream. Wait for the broker if it is not reachable."""
        return self.retry(
            lambda: TaskConnection(self.endpoint, self._security, stream, self._timeout, first_timeout=self._time_left)
        )

    @property
    def _time_left(self) -> float:
        return max(0.0, (self._deadline or 0.0) - self._clock())

    def retry(self, attempt: Callable[[], T]) -> T:
        """Call a function again if it raises ConnectionLost, until `timeout` is over.

        A call inside of another one only calls the function: the outer one repeats.
        """
        if self._deadline is not None:
            return attempt()
        self.note_progress()
        try:
            while True:
                try:
                    return attempt()
                except ConnectionLost as error:
                    self._wait_after(error)
        finally:
            self._deadline = None

    def note_progress(self) -> None:
        """Let the time of the present attempts begin anew: the broker has answered."""
        self._deadline = self._clock() + self._timeout
        self._tries = 0
        self._has_warned = False

    def _wait_after(self, error: ConnectionLost) -> None:
        """Wait until the next attempt, or raise if the time is over."""
        self._tries += 1
        left = self._time_left
        if not left:
            raise type(error)(f"{error} (tried for {self._timeout:g} seconds: option 'timeout')") from None
        # The last attempt is at the end of the time, so that a caller which compares times does not begin again.
        delay = min(left, _BACKOFF.delay(self._tries, random.Random()))
        if not self._has_warned and self._timeout - left + delay >= _QUIET:
            self._has_warned = True
            _log.warning("%s; it is tried again for up to %.0f s", error, left)
        self._sleep(delay)
