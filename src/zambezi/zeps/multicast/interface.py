"""The network interface of a group, by name or by address, and the largest datagram that it takes."""

from __future__ import annotations

import socket
from typing import Final

import psutil

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.group import Group

USUAL: Final = 1400  # bytes of a datagram that passes almost every network
HEADERS: Final = 28  # bytes of the headers of IPv4 and UDP
MOST: Final = 65_507  # bytes that UDP can carry


def address_of(name: str) -> str:
    """Return the IPv4 address of an interface that is given by its name, or by that address."""
    found = _addresses()
    for address, interface in found.items():
        if name in (address, interface):
            return address
    have = ", ".join(f"{interface} ({address})" for address, interface in found.items())
    raise GroupError(f"there is no interface {name!r} with an IPv4 address; there are: {have or 'none'}")


def mtu_of(group: Group) -> int:
    """Return the largest datagram for a group: its own `mtu`, or what its interface sends without fragmentation.

    A datagram that passes routers may reach a network that takes less, so it is never larger than `USUAL`.
    """
    if group.mtu:
        return group.mtu
    try:
        address = address_of(group.interface) if group.interface else _by_route(group)
    except OSError:
        return USUAL  # there is no route to the group now; there may be one later
    name = _addresses().get(address, "")
    stats = psutil.net_if_stats().get(name)
    if stats is None or stats.mtu <= HEADERS:
        return USUAL
    fits = min(MOST, stats.mtu - HEADERS)
    return min(USUAL, fits) if group.ttl > 1 else fits


def _by_route(group: Group) -> str:
    """Return the address from which the kernel sends to the group. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(group.endpoint)
        return str(sock.getsockname()[0])


def _addresses() -> dict[str, str]:
    return {
        entry.address: interface
        for interface, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    }
