"""The network interfaces that beacons go out on, and the address of ours that a peer can reach.

Interfaces come and go while a node runs: a cable is plugged in, a lease ends, a laptop is carried to another room.
`follow` decides which ones a node uses, from those that exist now and those that it used before:

- If the program named none, the node uses one, and keeps it for as long as it is usable. An interface that is down, but
  still has its address, is likely to come back: the node leaves it only for one that is up.
- With `"*"` the node uses all that are usable, and those that are down but still have their address.
- The node never leaves an interface that the program named. If it is gone, the node waits for it.

The node uses the loopback if the program named it, or if there is nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import TypeAlias

import psutil

from zambezi.zre.errors import ZreError

# The interfaces that a program asks for: names or addresses, "*" for all, None for one that is usable.
Wanted: TypeAlias = str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Interface:
    """An IPv4 address of this machine, and the network that it is in.

    >>> Interface("lo", IPv4Interface("127.0.0.1/8")).broadcast
    '127.255.255.255'
    """

    name: str
    where: IPv4Interface
    up: bool = field(default=True, compare=False)
    # As text: hashing and comparing the library's addresses costs more than all other work on a beacon.
    _network: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_network", str(self.where.network))

    @property
    def address(self) -> str:
        return str(self.where.ip)

    @property
    def broadcast(self) -> str:
        return str(self.where.network.broadcast_address)

    @property
    def outside(self) -> bool:
        """Whether it reaches other machines by broadcast."""
        return not self.where.is_loopback and self.where.network.prefixlen < 31

    def reaches(self, address: str) -> bool:
        """Return whether an address is in the network of this interface."""
        return _within(self._network, address)

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def interfaces() -> list[Interface]:
    """Return every IPv4 address of this machine that beacons can go out on, if it is up. None is link-local."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        Interface(name, IPv4Interface(f"{entry.address}/{entry.netmask or 32}"), name in up)
        for name, entries in sorted(psutil.net_if_addrs().items())
        for entry in entries
        if entry.family == socket.AF_INET and fit_to_tell(entry.address)
    ]


def choose(wanted: Wanted) -> list[Interface]:
    """Return the interfaces to begin with; raise `ZreError` if there are none."""
    found = interfaces()
    for name in _names(wanted):
        if not any(one.up and name in (one.name, one.address) for one in found):
            have = ", ".join(str(one) for one in found if one.up)
            raise ZreError(f"no interface {name!r} is up with an IPv4 address; there are: {have or 'none'}")
    chosen = follow(wanted, (), found)
    if not chosen:
        raise ZreError("no network interface is up; name one, as in interface='lo'")
    return chosen


def follow(wanted: Wanted, before: Sequence[Interface], found: Sequence[Interface]) -> list[Interface]:
    """Return the interfaces to use now, of those found; `before` are those that were used so far."""
    if wanted is None:
        return _best(before, found)
    if wanted == "*":
        kept = [one for one in found if one.outside and (one.up or one in before)]
        return kept or _last_resort(found) or list(before)
    chosen = []
    for name in _names(wanted):
        matches = [one for one in found if name in (one.name, one.address)]
        # One that is up comes first, and of these one that was used before.
        matches.sort(key=lambda one: (not one.up, one not in before))
        chosen += [one for one in matches[:1] if one not in chosen]
    return chosen or list(before)


def _best(before: Sequence[Interface], found: Sequence[Interface]) -> list[Interface]:
    names = {one.name for one in before}
    good = [one for one in found if one.outside and (one.up or one in before)]
    # An address that was used before is best, then another one of its interface, then any other.
    good.sort(key=lambda one: (not one.up, one not in before, one.name not in names))
    return good[:1] or _last_resort(found) or list(before)


def _last_resort(found: Sequence[Interface]) -> list[Interface]:
    """Return a line to one other machine, or the loopback."""
    return sorted((one for one in found if one.up), key=lambda one: one.where.is_loopback)[:1]


def several(wanted: Wanted) -> bool:
    """Return whether a program asks for more than one interface."""
    return wanted == "*" or len(_names(wanted)) > 1


def _names(wanted: Wanted) -> Sequence[str]:
    if wanted is None or wanted == "*":
        return ()
    return [wanted] if isinstance(wanted, str) else wanted


def fit_to_tell(address: str) -> bool:
    """Return whether peers can use an address of ours: a wildcard and a link-local address mean nothing to them."""
    where = IPv4Address(address)
    return not (where.is_link_local or where.is_unspecified or where.is_multicast)


@lru_cache(maxsize=4096)
def _within(network: str, address: str) -> bool:
    return IPv4Address(address) in IPv4Network(network)


@lru_cache(maxsize=4096)
def local_address_for(address: str) -> str:
    """Return our address from which packets to `address` go out, by the routing table. Nothing is sent.

    The answer is cached until `routes_changed`.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def routes_changed() -> None:
    """Clear the cache of `local_address_for`: an interface came or went."""
    local_address_for.cache_clear()
