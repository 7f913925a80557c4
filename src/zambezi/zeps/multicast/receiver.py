"""Receiving from a group: a socket that passes many datagrams at a time to a callback."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast import libzmq
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of
from zambezi.zmtp.reactor import Reactor

Receive: TypeAlias = Callable[[list[bytes]], object]

AT_ONCE: Final = 64  # datagrams that are read before other callbacks get their turn
BUFFER: Final = 8 << 20  # bytes of the kernel's buffer, for datagrams that arrive while the program is busy
LARGEST: Final = 65_536
_ALL: Final = 49  # IP_MULTICAST_ALL
_FORCED: Final = 33  # SO_RCVBUFFORCE: ignores the system's limit, for privileged processes


class GroupReceiver(Protocol):
    """The membership in a group. While it is paused, datagrams are lost."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


def join_group(reactor: Reactor, group: Group, receive: Receive) -> GroupReceiver:
    """Join a group, or raise `GroupError`. `receive` is called with the datagrams."""
    return libzmq.LibzmqReceiver(reactor, group, receive) if group.by_libzmq else UdpReceiver(reactor, group, receive)


class UdpReceiver:
    """A UDP socket that has joined a group."""

    def __init__(self, reactor: Reactor, group: Group, receive: Receive) -> None:
        self._reactor = reactor
        self._receive = receive
        self._sock = _open_socket(group)
        self._closed = False
        reactor.add_reader(self._sock, self._readable)

    def _readable(self) -> None:
        if self._closed:
            return
        recv = self._sock.recv
        datagrams: list[bytes] = []
        # An error means that no datagram is left, or that this one failed: the next may be fine.
        with contextlib.suppress(OSError):
            while len(datagrams) < AT_ONCE:
                datagrams.append(recv(LARGEST))
        if datagrams:
            self._receive(datagrams)

    def pause(self) -> None:
        if not self._closed:
            self._reactor.remove_reader(self._sock)

    def resume(self) -> None:
        if not self._closed:
            self._reactor.add_reader(self._sock, self._readable)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reactor.release(self._sock)


def _open_socket(group: Group) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _enlarge(sock)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, _ALL, 0)  # no datagrams of groups that other sockets have joined
        sock.bind(group.endpoint)  # to the group's address, so that other groups on this port are filtered out
        own = address_of(group.interface) if group.interface else "0.0.0.0"
        membership = socket.inet_aton(group.address) + socket.inet_aton(own)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        sock.close()
        raise GroupError(
            f"cannot listen to {group}: {error.strerror}; give the network by its name or address, as in "
            f"interface='eth0'"
        ) from error
    except GroupError:
        sock.close()
        raise
    return sock


def _enlarge(sock: socket.socket) -> None:
    for option in (_FORCED, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):  # a smaller buffer works too
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER)
            return
