"""Sends what is appended to a stream to its group: the feed, with a clock and a socket."""

from __future__ import annotations

import dataclasses
import os
import socket
from typing import Protocol
from uuid import UUID

from zambezi.zeps.block import Block
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast import libzmq
from zambezi.zeps.multicast.feed import Feed, FeedCounters, Pieces
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of, mtu_of
from zambezi.zmtp.reactor import Reactor, Timer


class Outlet(Protocol):
    """What datagrams go out by. It never waits: what it cannot take is an OSError."""

    def send(self, datagram: Pieces) -> object: ...
    def close(self) -> None: ...


class Sender:
    """Sends what is appended to one stream to a group, as fast as the group's rate allows."""

    def __init__(self, reactor: Reactor, group: Group, incarnation: UUID, last: int, key: bytes = b"") -> None:
        self.group = str(group)
        self.sealed = bool(key)
        self._reactor = reactor
        self._outlet: Outlet = libzmq.Outlet(group) if group.by_libzmq else UdpOutlet(group)
        mtu = libzmq.DATAGRAM[group.scheme] if group.by_libzmq else mtu_of(group)
        self._feed = Feed(dataclasses.replace(group, mtu=mtu), incarnation, last, reactor.time(), key, os.urandom)
        self._timer: Timer | None = None
        self._armed = 0.0  # when the timer fires
        self._pump()

    @property
    def counters(self) -> FeedCounters:
        return self._feed.counters

    def send(self, block: Block) -> None:
        """A block was appended."""
        self._feed.add(block, self._reactor.time())
        self._pump()

    def _pump(self) -> None:
        feed = self._feed
        send = self._outlet.send
        for datagram in feed.due(self._reactor.time()):
            try:
                send(datagram)
            except OSError:
                # A full queue, a network that is down: lost like any other datagram, and repaired like it.
                feed.counters.failed += 1
        # A timer that fires too early does no harm, and is not moved for every block.
        deadline = feed.deadline
        if self._timer is None or deadline < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = deadline
            self._timer = self._reactor.call_at(deadline, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._pump()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outlet.close()


class UdpOutlet:
    """A socket of the system."""

    def __init__(self, group: Group) -> None:
        self._target = group.endpoint
        self._sock = _open(group)

    def send(self, datagram: Pieces) -> None:
        self._sock.sendmsg(datagram, (), 0, self._target)

    def close(self) -> None:
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
    except GroupError:
        sock.close()
        raise
    return sock
