"""The socket that a stream's feed goes out by."""

from __future__ import annotations

import os
import socket
from uuid import UUID

from zambezi.zeps.block import Block
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.feed import Feed, FeedCounters
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of
from zambezi.zmtp.reactor import Reactor, Timer


class Sender:
    """Sends what is appended to one stream to a group, as fast as the group's rate allows."""

    def __init__(self, reactor: Reactor, group: Group, incarnation: UUID, last: int, key: bytes = b"") -> None:
        self._reactor = reactor
        self._feed = Feed(group, incarnation, last, reactor.time(), key, os.urandom)
        self._target = group.endpoint
        self._sock = _open(group)
        self._timer: Timer | None = None
        self._pump()

    @property
    def counters(self) -> FeedCounters:
        return self._feed.counters

    def send(self, block: Block) -> None:
        """A block was appended."""
        self._feed.add(block, self._reactor.time())
        self._pump()

    def _pump(self) -> None:
        send = self._sock.sendto
        for datagram in self._feed.due(self._reactor.time()):
            try:
                send(datagram, self._target)
            except OSError:
                # A full queue, a network that is down: lost like any other datagram, and repaired like it.
                self._feed.counters.failed += 1
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._reactor.call_at(self._feed.deadline, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._pump()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sock.close()


def _open(group: Group) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, group.ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(group.loop))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        if group.interface:
            own = socket.inet_aton(address_of(group.interface))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    except OSError as error:
        sock.close()
        raise GroupError(f"cannot send to {group}: {error.strerror}") from error
    return sock
