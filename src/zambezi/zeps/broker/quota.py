"""A quota: how much each user, or each address, can do in an hour. It is a bucket that drains at a constant rate.

Time is an argument. A quota remembers only the keys whose bucket is not empty, so its memory is bounded by what was
allowed in the last hour.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

HOUR: Final = 3600.0
_SITE: Final = 64  # bits of an IPv6 address that belong to one site: a host can have all addresses below them
_FEW: Final = 128  # keys that are remembered without a look at which of them have expired


class Quota:
    """Allow `limit` actions at once for each key, and as many again in the next hour.

    >>> quota = Quota(2)
    >>> [quota.take("ann", now=0.0) for _ in range(3)], quota.take("bob", now=0.0)
    ([True, True, False], True)
    >>> quota.take("ann", now=1800.0), quota.take("ann", now=1800.0)
    (True, False)
    """

    def __init__(self, limit: int, period: float = HOUR) -> None:
        self.limit = limit
        self._rate = limit / period
        self._taken: dict[str, tuple[float, float]] = {}  # the level of the bucket, and when it was so
        self._look = _FEW

    def allows(self, key: str, now: float) -> bool:
        """Return whether the key may do one more."""
        return self._level(key, now) + 1 <= self.limit

    def take(self, key: str, now: float) -> bool:
        """Count one action if the quota allows it; return whether it does."""
        level = self._level(key, now)
        if level + 1 > self.limit:
            return False
        self._taken[key] = level + 1, now
        if len(self._taken) > self._look:
            self._taken = {one: taken for one, taken in self._taken.items() if self._level(one, now) > 0}
            self._look = max(_FEW, 2 * len(self._taken))
        return True

    def _level(self, key: str, now: float) -> float:
        level, since = self._taken.get(key, (0.0, now))
        return max(0.0, level - max(0.0, now - since) * self._rate)

    def __len__(self) -> int:
        return len(self._taken)


def site_of(address: str) -> str:
    """Return the address that quotas count by: that of an IPv4 host, or the network of an IPv6 host.

    >>> site_of("10.0.0.1"), site_of("2001:db8:1:2:3::4"), site_of("")
    ('10.0.0.1', '2001:db8:1:2::', '')
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> _SITE << _SITE))
