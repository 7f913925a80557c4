"""The delay before the next attempt to connect: longer each time, and random, so that peers do not retry together."""

from __future__ import annotations

import random
from dataclasses import dataclass

from zambezi.zmtp.errors import ZmtpError


@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential delay from `first` up to `longest` seconds, shortened at random by up to a half.

    The jitter keeps peers that lost the same server from reconnecting all at once.
    """

    first: float = 0.1
    longest: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest:
            raise ZmtpError(f"a backoff needs 0 < first <= longest, not first={self.first} and longest={self.longest}")

    def delay(self, attempt: int, chance: random.Random) -> float:
        """Return the seconds to wait before attempt number `attempt` (1 is the first retry)."""
        full = min(self.longest, self.first * 2.0 ** min(attempt - 1, 63))
        return full * (1.0 - chance.random() / 2)
