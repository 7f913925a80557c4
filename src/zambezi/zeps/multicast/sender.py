"""Sends what is appended to a stream to its group: the feed, with a clock and a socket.

Datagrams of one size, and one that is shorter after them, go to the system in one call, and it is the system that makes
datagrams of them (UDP_SEGMENT, since Linux 4.18): where networks take 1,500 octets, and messages are of one size, there
is a call for forty datagrams. A system that does not know that, or cannot for the network in question, gets them one by
one.
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator, Sequence
from errno import EAGAIN, ENETDOWN, ENETUNREACH, ENOBUFS, EPERM
from itertools import chain
from struct import Struct
from typing import Final, Protocol
from uuid import UUID

from zambezi.zeps.block import Block
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast import libzmq
from zambezi.zeps.multicast.feed import MARKS, Feed, FeedCounters, Pieces
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of, mtu_of
from zambezi.zmtp.reactor import Reactor, Timer

SEGMENTS: Final = 64  # datagrams that the system makes of one call, at most,
MOST: Final = 65_000  # of so many octets
_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103
_SIZE: Final = Struct("=H")


class Outlet(Protocol):
    """What datagrams go out by. It never waits."""

    def send(self, datagrams: Sequence[Pieces]) -> int:
        """Send, and say how many could not be."""

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
        feed = self._feed
        now = self._reactor.time()
        datagram = feed.straight(block, now)
        if datagram is None:
            feed.add(block, now)
            self._pump()
            return
        feed.counters.failed += self._outlet.send((datagram,))
        if now + MARKS[0] < self._armed:
            self._arm()

    def _pump(self) -> None:
        feed = self._feed
        datagrams = list(feed.due(self._reactor.time()))
        if datagrams:
            # A full queue, a network that is down: lost like any other datagram, and repaired like it.
            feed.counters.failed += self._outlet.send(datagrams)
        self._arm()

    def _arm(self) -> None:
        """Be called when there is more to send. A timer that fires early does no harm: it is not moved for a block."""
        deadline = self._feed.deadline
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
        self._segments = SEGMENTS  # datagrams in a call

    def send(self, datagrams: Sequence[Pieces]) -> int:
        if len(datagrams) == 1:
            return self._call(datagrams, 0)
        failed = 0
        for run, size in runs(datagrams, self._segments):
            failed += self._call(run, size)
        return failed

    def _call(self, datagrams: Sequence[Pieces], size: int) -> int:
        """Hand datagrams to the system; all but the last are of one size."""
        try:
            if len(datagrams) == 1:
                self._sock.sendmsg(datagrams[0], (), 0, self._target)
            else:
                ancillary = [(_SOL_UDP, _UDP_SEGMENT, _SIZE.pack(size))]
                self._sock.sendmsg(list(chain.from_iterable(datagrams)), ancillary, 0, self._target)
        except OSError as error:
            if len(datagrams) > 1 and error.errno not in (EAGAIN, ENOBUFS, ENETUNREACH, ENETDOWN, EPERM):
                self._segments = 1  # this system cannot, or not on this network
                return sum(self._call([one], 0) for one in datagrams)
            return len(datagrams)
        return 0

    def close(self) -> None:
        self._sock.close()


def runs(datagrams: Sequence[Pieces], most: int) -> Iterator[tuple[Sequence[Pieces], int]]:
    """Datagrams in their order, as many together as can go in one call, with the size of each but the last."""
    start = 0
    while start < len(datagrams):
        size = sum(map(len, datagrams[start]))
        stop = start + 1
        limit = min(len(datagrams), start + max(1, min(most, MOST // size)))
        while stop < limit:
            next_size = sum(map(len, datagrams[stop]))
            if next_size <= size:
                stop += 1
            if next_size != size:
                break
        yield datagrams[start:stop], size
        start = stop


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
