"""The network interfaces that beacons go out on, and the address of ours that a peer can reach."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface

import psutil

from zambezi.zre.errors import ZreError


@dataclass(frozen=True, slots=True)
class Interface:
    """An IPv4 address of this machine, and the network that it is in.

    >>> Interface("lo", IPv4Interface("127.0.0.1/8")).broadcast
    '127.255.255.255'
    """

    name: str
    where: IPv4Interface

    @property
    def address(self) -> str:
        return str(self.where.ip)

    @property
    def broadcast(self) -> str:
        return str(self.where.network.broadcast_address)

    def reaches(self, address: str) -> bool:
        return _within(self.where, address)


def interfaces() -> list[Interface]:
    """Every IPv4 address of this machine that beacons can go out on: its interface is up, and it is not link-local."""
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        Interface(name, IPv4Interface(f"{entry.address}/{entry.netmask or 32}"))
        for name, entries in sorted(psutil.net_if_addrs().items())
        if name in up
        for entry in entries
        if entry.family == socket.AF_INET and not IPv4Address(entry.address).is_link_local
    ]


def choose(wanted: str | Sequence[str] | None) -> list[Interface]:
    """The interfaces by name or address. By default the first that is not the loopback; `"*"` is all of those."""
    found = interfaces()
    outside = [one for one in found if not one.where.is_loopback and one.where.network.prefixlen < 31]
    if wanted is None:
        return outside[:1] or found[:1]
    if wanted == "*":
        return outside
    chosen = []
    for name in [wanted] if isinstance(wanted, str) else wanted:
        matches = [one for one in found if name in (one.name, one.address)]
        if not matches:
            have = ", ".join(f"{one.name} ({one.address})" for one in found)
            raise ZreError(f"no interface {name!r} is up with an IPv4 address; there are: {have or 'none'}")
        chosen.append(matches[0])
    return chosen


@lru_cache(maxsize=4096)
def _within(where: IPv4Interface, address: str) -> bool:
    return IPv4Address(address) in where.network


@lru_cache(maxsize=4096)
def local_address_for(address: str) -> str:
    """The address of ours from which packets to `address` go out, as the routing table has it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])
