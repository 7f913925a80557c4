"""The network interface of a group, by name or by address."""

from __future__ import annotations

import socket

import psutil

from zambezi.zeps.errors import GroupError


def address_of(name: str) -> str:
    """The IPv4 address of an interface that is told by its name, or by that address."""
    found = {
        entry.address: interface
        for interface, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET
    }
    for address, interface in found.items():
        if name in (address, interface):
            return address
    have = ", ".join(f"{interface} ({address})" for address, interface in found.items())
    raise GroupError(f"there is no interface {name!r} with an IPv4 address; there are: {have or 'none'}")
