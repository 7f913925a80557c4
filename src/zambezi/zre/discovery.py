"""Discovery: how beacons travel, by UDP or in memory. A node with seeds or zgossip needs neither."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from zambezi.zmtp.reactor import Reactor
from zambezi.zre import datagrams
from zambezi.zre.errors import ZreError
from zambezi.zre.interfaces import Interface

PORT: Final = 5670  # assigned to ZRE-DISC by IANA (BCN-01)
_ADDRESSES: Final = 4096  # of senders that are kept
_AT_ONCE: Final = 100  # datagrams that are read before other sockets get their turn
Datagram: TypeAlias = tuple[bytes, str]  # its bytes, and the address that it came from
Receive: TypeAlias = Callable[[list[Datagram]], object]


class Discovery(Protocol):
    """Sends beacons, and calls `receive` with the beacons that come: all those of one read."""

    def start(self, reactor: Reactor, receive: Receive) -> None: ...
    def send(self, octets: bytes) -> None: ...
    def close(self) -> None: ...


class Broadcast:
    """Beacons on one or more interfaces. Any number of nodes on a host can share the port.

    Beacons go out by UDP broadcast on IPv4, and to the multicast group of all nodes on IPv6, as those of Zyre do.
    """

    def __init__(self, interfaces: Sequence[Interface], port: int = PORT) -> None:
        self._interfaces = list(interfaces)
        self._port = port
        self._senders: list[tuple[socket.socket, Any]] = []
        self._listeners: list[socket.socket] = []
        self._indexes: set[int] = set()  # the numbers of the interfaces with IPv6
        self._near: dict[str, bool] = {}  # addresses of senders: whether an interface reaches them
        self._reactor: Reactor | None = None
        self._receive: Receive = lambda _: None

    def start(self, reactor: Reactor, receive: Receive) -> None:
        self._reactor = reactor
        self._receive = receive
        chosen = self._interfaces
        try:
            self._indexes = {datagrams.index_of(one) for one in chosen if one.is_ipv6}
            if not all(one.is_ipv6 for one in chosen):
                self._listen(datagrams.listen_4(self._port), datagrams.receive_4)
            if self._indexes:
                self._listen(datagrams.listen_6(self._port, self._indexes), datagrams.receive_6)
            for one in chosen:
                self._senders.append((datagrams.sender(one), datagrams.target(one, self._port)))
        except OSError as error:
            self.close()
            raise ZreError(f"cannot use UDP port {self._port} for beacons: {error.strerror}") from error

    def _listen(self, listener: socket.socket, receive: Callable[[socket.socket], tuple[bytes, str, int]]) -> None:
        assert self._reactor is not None
        self._listeners.append(listener)
        self._reactor.add_reader(listener, partial(self._readable, partial(receive, listener)))

    def _readable(self, receive: Callable[[], tuple[bytes, str, int]]) -> None:
        found = []
        for _ in range(_AT_ONCE):
            try:
                octets, address, index = receive()
            except OSError:  # there is no other one
                break
            if index in self._indexes if index else self._is_near(address):
                found.append((octets, address))
        if found:
            self._receive(found)

    def _is_near(self, address: str) -> bool:
        """Return whether an address is in the network of one of the interfaces. The answers are kept."""
        found = self._near.get(address)
        if found is None:
            if len(self._near) >= _ADDRESSES:
                self._near.clear()
            found = self._near[address] = any(one.reaches(address) for one in self._interfaces)
        return found

    def send(self, octets: bytes) -> None:
        for sender, target in self._senders:
            # If the network is down or the kernel's queue is full, the beacon is lost. The next one follows soon.
            with contextlib.suppress(OSError):
                sender.sendto(octets, target)

    def close(self) -> None:
        for sender, _ in self._senders:
            sender.close()
        self._senders.clear()
        for listener in self._listeners:
            if self._reactor is not None:
                self._reactor.release(listener)
        self._listeners.clear()


class MemoryNetwork:
    """A network within a process, for simulations and tests. Beacons reach every node that joined it.

    >>> network = MemoryNetwork()
    >>> here, there = network.discovery(), network.discovery()
    >>> here.address, there.address
    ('1', '2')
    """

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.name = f"memory-{next(self._numbers)}"
        self._members: dict[MemoryDiscovery, None] = {}
        self._addresses = itertools.count(1)

    def discovery(self) -> MemoryDiscovery:
        """Return the discovery of one more node, with an address of its own."""
        return MemoryDiscovery(self, next(self._addresses))

    def mailbox_at(self, address: str, port: int) -> str:
        """Return the endpoint of a mailbox by the address and the port of a beacon."""
        return f"inproc://{self.name}/{address}/{port}"

    def join(self, member: MemoryDiscovery) -> None:
        self._members[member] = None

    def leave(self, member: MemoryDiscovery) -> None:
        self._members.pop(member, None)

    def broadcast(self, octets: bytes, address: str) -> None:
        """Give a beacon to every member."""
        beacon = octets, address
        for member in list(self._members):
            member.deliver(beacon)


class MemoryDiscovery:
    """The discovery of one node in a `MemoryNetwork`.

    Beacons wait in a queue, as the datagrams of a real network wait in the kernel. The node reads them in its own
    thread or event loop, many in one turn: in a large mesh, a turn of the loop costs more than most beacons.
    """

    def __init__(self, network: MemoryNetwork, number: int) -> None:
        self.network = network
        self.address = str(number)
        self._waiting: deque[Datagram] = deque()
        self._scheduled = False
        self._reactor: Reactor | None = None
        self._receive: Receive = lambda _: None

    def start(self, reactor: Reactor, receive: Receive) -> None:
        self._reactor = reactor
        self._receive = receive
        self.network.join(self)

    def deliver(self, beacon: Datagram) -> None:
        """Queue a beacon with the address of its sender. Any thread can call this."""
        self._waiting.append(beacon)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and self._reactor is not None:
            self._scheduled = True
            self._reactor.call_soon(self._read)

    def _read(self) -> None:
        # Cleared *before* the queue is read: a beacon that another thread adds later schedules another turn.
        self._scheduled = False
        waiting = self._waiting
        # Another thread can only add beacons, so those that are counted here are there.
        found = [waiting.popleft() for _ in range(min(len(waiting), _AT_ONCE))]
        if waiting:
            self._schedule()
        if found:
            self._receive(found)

    def send(self, octets: bytes) -> None:
        self.network.broadcast(octets, self.address)

    def close(self) -> None:
        self.network.leave(self)
        self._waiting.clear()
