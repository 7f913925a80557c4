"""The socket that listens to a group."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of
from zambezi.zmtp.reactor import Reactor

AT_ONCE: Final = 64  # datagrams, before others get their turn
BUFFER: Final = 8 << 20
_LARGEST: Final = 65_536


class Receiver:
    """Gives the datagrams of a group to whoever wants them."""

    def __init__(self, reactor: Reactor, group: Group, receive: Callable[[bytes, float], object]) -> None:
        self._reactor = reactor
        self._receive = receive
        self._sock = _join(group)
        self._closed = False
        reactor.add_reader(self._sock, self._readable)

    def _readable(self) -> None:
        recv = self._sock.recv
        now = self._reactor.time()
        for _ in range(AT_ONCE):
            if self._closed:
                return
            try:
                datagram = recv(_LARGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return  # an error that came back for something else: the next datagram may be fine
            self._receive(datagram, now)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reactor.release(self._sock)


def _join(group: Group) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # less will do
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        sock.bind(group.endpoint)  # to the group: what is sent to other groups on this port is not ours
        own = address_of(group.interface) if group.interface else "0.0.0.0"
        membership = socket.inet_aton(group.address) + socket.inet_aton(own)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        sock.close()
        raise GroupError(f"cannot listen to {group}: {error.strerror}") from error
    return sock
