"""The UDP sockets of beacons: broadcasts on IPv4, and multicasts to all nodes of a network on IPv6.

A listener hears the datagrams of all networks of the machine. Of IPv4, the address of the sender tells on which network
a datagram came. Of IPv6 it does not, so the kernel is asked for the number of the interface.

On IPv6 a listener must be bound to all addresses, or it hears no multicasts, and then the kernel would send from any of
our addresses. But the address of the sender is where its mailbox is. So each interface has a socket of its own that
sends, and is bound to the address of the interface.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from zambezi.zmtp.endpoint import host_in
from zambezi.zre.interfaces import ALL_NODES, Interface

_Option: TypeAlias = tuple[int, int, int | bytes]  # the level, the name and the value

_BEACON: Final = 64  # bytes: longer than any beacon
_SHARED: Final = ((socket.SOL_SOCKET, socket.SO_REUSEADDR, 1), (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1))
_GROUP: Final = socket.inet_pton(socket.AF_INET6, ALL_NODES)
_PACKET_INFO: Final = struct.Struct("@16sI")  # the address to which a datagram went, and the number of the interface


def listen_4(port: int) -> socket.socket:
    """Return a socket that hears broadcasts to a port."""
    return _open(socket.AF_INET, _SHARED, ("", port))


def listen_6(port: int, indexes: Iterable[int]) -> socket.socket:
    """Return a socket that hears multicasts to all nodes, on the interfaces with these numbers."""
    options: list[_Option] = [
        *_SHARED,
        (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1),
        (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1),
        *((socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _GROUP + struct.pack("@I", index)) for index in indexes),
    ]
    return _open(socket.AF_INET6, options, ("::", port))


def sender(interface: Interface) -> socket.socket:
    """Return a socket that sends beacons on an interface, from its address."""
    if not interface.is_ipv6:
        return _open(socket.AF_INET, [(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)], (interface.address, 0))
    index = index_of(interface)
    options: list[_Option] = [(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)]
    return _open(socket.AF_INET6, options, (interface.address.partition("%")[0], 0, 0, index))


def target(interface: Interface, port: int) -> Any:
    """Return the address to which beacons go on an interface."""
    return (ALL_NODES, port, 0, index_of(interface)) if interface.is_ipv6 else (interface.broadcast, port)


def index_of(interface: Interface) -> int:
    """Return the number of an interface; raise `OSError` if it is gone."""
    return socket.if_nametoindex(interface.name)


def receive_4(listener: socket.socket) -> tuple[bytes, str, int]:
    """Return the next datagram, the address of its sender, and 0; raise `OSError` if there is none."""
    octets, (address, _) = listener.recvfrom(_BEACON)
    return octets, address, 0


def receive_6(listener: socket.socket) -> tuple[bytes, str, int]:
    """Return the next datagram, the address of its sender, and the number of the interface.

    The number is 0 if the datagram was not sent to all nodes: such a datagram can come from anywhere. Raise `OSError`
    if there is none.
    """
    octets, ancillary, _, address = listener.recvmsg(_BEACON, socket.CMSG_SPACE(_PACKET_INFO.size))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) and len(data) >= _PACKET_INFO.size:
            group, index = _PACKET_INFO.unpack(data[: _PACKET_INFO.size])
            return octets, host_in(address), index if group == _GROUP else 0
    return octets, host_in(address), 0


def _open(family: int, options: Iterable[_Option], address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        for level, option, value in options:
            sock.setsockopt(level, option, value)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
