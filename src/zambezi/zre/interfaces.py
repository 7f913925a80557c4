"""The network interfaces that beacons go out on, and the address of ours that a peer can reach.

Interfaces come and go while a node runs: a cable is plugged in, a lease ends, a laptop is carried to another room.
`follow` decides which ones a node uses, from those that exist now and those that it used before:

- If the program named none, the node uses one, and keeps it for as long as it is usable. An interface that is down, but
  still has its address, is likely to come back: the node leaves it only for one that is up.
- With `"*"` the node uses all that are usable, and those that are down but still have their address.
- The node never leaves an interface that the program named. If it is gone, the node waits for it.

The node uses the loopback if the program named it, or if there is nothing else.

A node uses addresses of IPv4, or with `ipv6` those of IPv6. An address that the program named is used whatever it is.
Of several addresses of an interface, a link-local one comes last: it means nothing outside its network.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_network
from typing import Final, TypeAlias

import psutil

from zambezi.zre.contact import is_link_local
from zambezi.zre.errors import ZreError

# The interfaces that a program asks for: names or addresses, "*" for all, None for one that is usable.
Wanted: TypeAlias = str | Sequence[str] | None

ALL_NODES: Final = "ff02::1"  # the multicast group that all nodes of a network are in, to which Zyre sends its beacons


@dataclass(frozen=True, slots=True)
class Interface:
    """An address of this machine, and the network that it is in.

    >>> Interface("lo", IPv4Interface("127.0.0.1/8")).broadcast
    '127.255.255.255'
    >>> Interface("eth0", IPv6Interface("fe80::1/64")).address
    'fe80::1%eth0'
    """

    name: str
    where: IPv4Interface | IPv6Interface
    up: bool = field(default=True, compare=False)
    # As text: hashing and comparing the library's addresses costs more than all other work on a beacon.
    _network: str = field(default="", init=False, compare=False, repr=False)
    _address: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_network", str(self.where.network))
        address = str(self.where.ip)
        object.__setattr__(self, "_address", f"{address}%{self.name}" if self.is_link_local else address)

    @property
    def address(self) -> str:
        """The address; a link-local one with the interface."""
        return self._address

    @property
    def is_ipv6(self) -> bool:
        return self.where.version == 6

    @property
    def is_link_local(self) -> bool:
        """Whether it is a link-local address of IPv6."""
        return self.is_ipv6 and self.where.is_link_local

    @property
    def broadcast(self) -> str:
        """The address to which beacons go: of IPv4 the broadcast address, of IPv6 the group of all nodes."""
        return ALL_NODES if self.is_ipv6 else str(self.where.network.broadcast_address)

    @property
    def outside(self) -> bool:
        """Whether it reaches other machines by broadcast."""
        return not self.where.is_loopback and (self.is_ipv6 or self.where.network.prefixlen < 31)

    def reaches(self, address: str) -> bool:
        """Return whether an address is in the network of this interface."""
        if self.is_ipv6 != (":" in address):
            return False
        scope = address.partition("%")[2]
        return scope == self.name if scope else _within(self._network, address)

    def __str__(self) -> str:
        return f"{self.name} ({_without_scope(self.address)})"


def interfaces() -> list[Interface]:
    """Return every address of this machine that beacons can go out on, if it is up. None of IPv4 is link-local."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        _interface(name, _without_scope(entry.address), entry.netmask, name in up)
        for name, entries in sorted(psutil.net_if_addrs().items())
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6) and _usable(entry.address)
    ]


@lru_cache(maxsize=256)  # every node of a process reads the list, again and again
def _interface(name: str, address: str, netmask: str | None, up: bool) -> Interface:
    return Interface(name, _where(address, netmask), up)


def _where(address: str, netmask: str | None) -> IPv4Interface | IPv6Interface:
    if ":" not in address:
        return IPv4Interface(f"{address}/{netmask or 32}")
    return IPv6Interface(f"{address}/{int(IPv6Address(netmask)).bit_count() if netmask else 128}")


def choose(wanted: Wanted, ipv6: bool = False) -> list[Interface]:
    """Return the interfaces to begin with; raise `ZreError` if there are none."""
    found = interfaces()
    for name in _names(wanted):
        if not any(one.up and _is_called(one, name, ipv6) for one in found):
            have = ", ".join(str(one) for one in found if one.up and (one.is_ipv6 == ipv6 or ":" in name))
            family = "IPv6" if ipv6 or ":" in name else "IPv4"
            raise ZreError(f"no interface {name!r} is up with an {family} address; there are: {have or 'none'}")
    chosen = follow(wanted, (), found, ipv6)
    if not chosen:
        raise ZreError("no network interface is up; name one, as in interface='lo'")
    return chosen


def follow(
    wanted: Wanted, before: Sequence[Interface], found: Sequence[Interface], ipv6: bool = False
) -> list[Interface]:
    """Return the interfaces to use now, of those found; `before` are those that were used so far."""
    family = [one for one in found if one.is_ipv6 == ipv6]
    if wanted is None:
        return _best(before, family)
    if wanted == "*":
        kept = [one for one in family if one.outside and (one.up or one in before)]
        return _one_of_each(kept) or _last_resort(family) or list(before)
    chosen = []
    for name in _names(wanted):
        matches = [one for one in found if _is_called(one, name, ipv6)]
        # One that is up comes first, and of these one that was used before.
        matches.sort(key=lambda one: (not one.up, one not in before, one.is_link_local))
        chosen += [one for one in matches[:1] if one not in chosen]
    return chosen or list(before)


def _is_called(one: Interface, name: str, ipv6: bool) -> bool:
    """Return whether a program means an address by a name: that of the interface, or the address itself."""
    if name == one.name:
        return one.is_ipv6 == ipv6
    return name in (one.address, _without_scope(one.address))


def _best(before: Sequence[Interface], found: Sequence[Interface]) -> list[Interface]:
    names = {one.name for one in before}
    good = [one for one in found if one.outside and (one.up or one in before)]
    # An address that was used before is best, then another one of its interface, then any other.
    good.sort(key=lambda one: (not one.up, one not in before, one.name not in names, one.is_link_local))
    return good[:1] or _last_resort(found) or list(before)


def _one_of_each(found: Sequence[Interface]) -> list[Interface]:
    """Return all addresses of IPv4, and one of IPv6 for each interface: a beacon to all nodes goes out once."""
    best: dict[str, Interface] = {}
    for one in sorted((one for one in found if one.is_ipv6), key=lambda one: one.is_link_local):
        best.setdefault(one.name, one)
    return [one for one in found if not one.is_ipv6 or best[one.name] is one]


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


@lru_cache(maxsize=256)
def _usable(address: str) -> bool:
    return is_link_local(address) or fit_to_tell(address)


def fit_to_tell(address: str) -> bool:
    """Return whether peers can use an address of ours: a wildcard and a link-local address mean nothing to them."""
    where = ip_address(_without_scope(address))
    return not (where.is_link_local or where.is_unspecified or where.is_multicast)


def _without_scope(address: str) -> str:
    """Return an address without the interface in it."""
    return address.partition("%")[0]


@lru_cache(maxsize=4096)
def _within(network: str, address: str) -> bool:
    return ip_address(address) in ip_network(network)


@lru_cache(maxsize=4096)
def local_address_for(address: str) -> str:
    """Return our address from which packets to `address` go out, by the routing table. Nothing is sent.

    The answer is cached until `routes_changed`.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def routes_changed() -> None:
    """Clear the cache of `local_address_for`: an interface came or went."""
    local_address_for.cache_clear()
