"""How long to wait before the next attempt: longer each time, and never in step with others."""

from __future__ import annotations

import random
from dataclasses import dataclass

from zambezi.zmtp.errors import ZmtpError


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, from `first` up to `longest` seconds, with up to half of it taken off at random.

    Peers that lost the same server do not come back all at once: that is what the jitter is for.
    """

    first: float = 0.1
    longest: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest:
            raise ZmtpError(f"a backoff goes from above zero up: {self.first} to {self.longest} s does not")

    def delay(self, attempt: int, chance: random.Random) -> float:
        """Seconds before attempt number `attempt` (1 is the first retry)."""
        full = min(self.longest, self.first * 2.0 ** min(attempt - 1, 63))
        return full * (1.0 - chance.random() / 2)
