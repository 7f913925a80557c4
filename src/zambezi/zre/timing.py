"""The times of a node, which can change while it runs: between beacons, and of silence. All its parts share them."""

from __future__ import annotations

from zambezi.zre.errors import ZreError


class Timing:
    """Seconds between beacons, of silence before a PING, and of silence before a peer is gone."""

    def __init__(self, interval: float = 1.0, evasive: float = 5.0, expired: float = 30.0) -> None:
        self.set(interval, evasive, expired)

    def set(self, interval: float, evasive: float, expired: float) -> None:
        """Set all times; raise `ZreError` if they make no sense, and change nothing then."""
        for name, value in (("interval", interval), ("evasive", evasive), ("expired", expired)):
            if not value > 0:
                raise ZreError(f"{name} must be more than zero seconds, not {value}")
        if not evasive < expired:
            raise ZreError(f"evasive must be less than expired, but they are {evasive} s and {expired} s")
        self.interval = interval
        self.evasive = evasive
        self.expired = expired
