"""Listens to a group, and gives what comes to whoever wants it: many datagrams at a time."""

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

AT_ONCE: Final = 64  # datagrams, before others get their turn
BUFFER: Final = 8 << 20  # of the system: what comes while the program is busy
LARGEST: Final = 65_536
_ALL: Final = 49  # IP_MULTICAST_ALL
_FORCED: Final = 33  # SO_RCVBUFFORCE: past what the system allows to everybody, for those who may


class Receiver(Protocol):
    """The membership of a group. While it is paused, what comes is lost."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


def receiver_of(reactor: Reactor, group: Group, receive: Receive) -> Receiver:
    """Join a group; `GroupError` if that is not possible here."""
    return libzmq.Receiver(reactor, group, receive) if group.by_libzmq else UdpReceiver(reactor, group, receive)


class UdpReceiver:
    """A socket of the system."""

    def __init__(self, reactor: Reactor, group: Group, receive: Receive) -> None:
        self._reactor = reactor
        self._receive = receive
        self._sock = _join(group)
        self._closed = False
        reactor.add_reader(self._sock, self._readable)

    def _readable(self) -> None:
        if self._closed:
            return
        recv = self._sock.recv
        datagrams: list[bytes] = []
        # An error says that there are no more now; or it came back for something else, and the next may be fine.
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


def _join(group: Group) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _enlarge(sock)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, _ALL, 0)  # not what others on this host have joined elsewhere
        sock.bind(group.endpoint)  # to the group: what is sent to other groups on this port is not ours
        own = address_of(group.interface) if group.interface else "0.0.0.0"
        membership = socket.inet_aton(group.address) + socket.inet_aton(own)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        sock.close()
        raise GroupError(
            f"cannot listen to {group}: {error.strerror}; say the network by its name or address, as in "
            f"interface='eth0'"
        ) from error
    except GroupError:
        sock.close()
        raise
    return sock


def _enlarge(sock: socket.socket) -> None:
    for option in (_FORCED, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):  # less will do
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER)
            return
