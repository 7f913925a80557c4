"""Sending the live messages of a stream to its group: the feed with a clock and a socket.

Datagrams of one size, and a shorter one after them, go to the kernel in one call, and the kernel splits them
(UDP_SEGMENT, since Linux 4.18). On a network with an MTU of 1,500 bytes, and with messages of one size, one call sends
forty datagrams. If the kernel does not support it, or not for this network, they are sent one by one.
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
from zambezi.zeps.multicast.feed import MARKS, DatagramFeed, FeedCounters, Pieces
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of, mtu_of
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.reactor import Reactor

SEGMENTS: Final = 64  # datagrams of one call, at most
MOST: Final = 65_000  # bytes of one call, at most
_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103
_SIZE: Final = Struct("=H")


class DatagramSender(Protocol):
    """A socket for the datagrams of a group. It never waits."""

    def send(self, datagrams: Sequence[Pieces]) -> int:
        """Send datagrams, and return how many of them failed."""

    def close(self) -> None: ...


class GroupSender:
    """The sender of one stream's live messages to a group, at the rate of the group."""

    def __init__(self, reactor: Reactor, group: Group, incarnation: UUID, last: int, key: bytes = b"") -> None:
        self.group = str(group)
        self.sealed = bool(key)
        self._reactor = reactor
        self._datagram_sender: DatagramSender = libzmq.LibzmqSender(group) if group.by_libzmq else UdpSender(group)
        mtu = libzmq.DATAGRAM[group.scheme] if group.by_libzmq else mtu_of(group)
        self._feed = DatagramFeed(
            dataclasses.replace(group, mtu=mtu), incarnation, last, reactor.time(), key, os.urandom
        )
        self._alarm = Alarm(reactor, self._send_due)
        self._send_due()

    @property
    def counters(self) -> FeedCounters:
        return self._feed.counters

    def send(self, block: Block) -> None:
        """Send a block that was appended, now or when the rate allows it."""
        feed = self._feed
        now = self._reactor.time()
        datagram = feed.single_datagram(block, now)
        if datagram is None:
            feed.add(block, now)
            self._send_due()
            return
        feed.counters.failed += self._datagram_sender.send((datagram,))
        if now + MARKS[0] < self._alarm.at:
            self._alarm.set(feed.deadline)

    def _send_due(self) -> None:
        feed = self._feed
        datagrams = list(feed.due_datagrams(self._reactor.time()))
        if datagrams:
            # If the queue is full or the network is down, the datagrams are lost and repaired like any others.
            feed.counters.failed += self._datagram_sender.send(datagrams)
        self._alarm.set(feed.deadline)

    def close(self) -> None:
        self._alarm.end()
        self._datagram_sender.close()


class UdpSender:
    """A UDP socket that sends to a group."""

    def __init__(self, group: Group) -> None:
        self._target = group.endpoint
        self._sock = _open_socket(group)
        self._segments = SEGMENTS  # datagrams in one call

    def send(self, datagrams: Sequence[Pieces]) -> int:
        if len(datagrams) == 1:
            return self._sendmsg(datagrams, 0)
        failed = 0
        for run, size in runs(datagrams, self._segments):
            failed += self._sendmsg(run, size)
        return failed

    def _sendmsg(self, datagrams: Sequence[Pieces], size: int) -> int:
        """Send datagrams in one call, and return how many failed. All but the last have the size `size`."""
        try:
            if len(datagrams) == 1:
                self._sock.sendmsg(datagrams[0], (), 0, self._target)
            else:
                ancillary = [(_SOL_UDP, _UDP_SEGMENT, _SIZE.pack(size))]
                self._sock.sendmsg(list(chain.from_iterable(datagrams)), ancillary, 0, self._target)
        except OSError as error:
            if len(datagrams) > 1 and error.errno not in (EAGAIN, ENOBUFS, ENETUNREACH, ENETDOWN, EPERM):
                self._segments = 1  # UDP_SEGMENT is not supported here
                return sum(self._sendmsg([datagram], 0) for datagram in datagrams)
            return len(datagrams)
        return 0

    def close(self) -> None:
        self._sock.close()


def runs(datagrams: Sequence[Pieces], most: int) -> Iterator[tuple[Sequence[Pieces], int]]:
    """Yield runs of datagrams that can go in one call, in order, each with the size of all but its last one."""
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


def _open_socket(group: Group) -> socket.socket:
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
