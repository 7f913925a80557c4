"""Discovery: how beacons travel, by UDP broadcast or in memory. A node with seeds needs neither."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from zambezi.zmtp.reactor import Reactor
from zambezi.zre.errors import ZreError
from zambezi.zre.interfaces import Interface

PORT: Final = 5670  # assigned to ZRE-DISC by IANA (BCN-01)
Receive: TypeAlias = Callable[[bytes, str], object]


class Discovery(Protocol):
    """Sends beacons, and calls `receive` with each beacon that comes and the address that it came from."""

    def start(self, reactor: Reactor, receive: Receive) -> None: ...
    def send(self, octets: bytes) -> None: ...
    def close(self) -> None: ...


class Broadcast:
    """Beacons by UDP broadcast on one or more interfaces. Any number of nodes on a host can share the port."""

    def __init__(self, interfaces: Sequence[Interface], port: int = PORT) -> None:
        self._interfaces = list(interfaces)
        self._port = port
        self._senders: list[tuple[socket.socket, tuple[str, int]]] = []
        self._listener: socket.socket | None = None
        self._reactor: Reactor | None = None
        self._receive: Receive = lambda *_: None

    def start(self, reactor: Reactor, receive: Receive) -> None:
        self._reactor = reactor
        self._receive = receive
        listener = None
        try:
            listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(("", self._port))
            for interface in self._interfaces:
                self._senders.append((_sender(interface), (interface.broadcast, self._port)))
        except OSError as error:
            if listener is not None:
                listener.close()
            self.close()
            raise ZreError(f"cannot use UDP port {self._port} for beacons: {error.strerror}") from error
        self._listener = listener
        reactor.add_reader(listener, self._readable)

    def _readable(self) -> None:
        listener = self._listener
        if listener is None:
            return
        for _ in range(100):  # so that a flood of datagrams does not stop the event loop
            try:
                octets, (address, _port) = listener.recvfrom(64)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return
            if any(interface.reaches(address) for interface in self._interfaces):
                self._receive(octets, address)

    def send(self, octets: bytes) -> None:
        for sender, target in self._senders:
            # If the network is down or the kernel's queue is full, the beacon is lost. The next one follows soon.
            with contextlib.suppress(OSError):
                sender.sendto(octets, target)

    def close(self) -> None:
        for sender, _ in self._senders:
            sender.close()
        self._senders.clear()
        if self._listener is not None and self._reactor is not None:
            self._reactor.release(self._listener)
            self._listener = None


def _sender(interface: Interface) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sender.setblocking(False)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.bind((interface.address, 0))
    except OSError:
        sender.close()
        raise
    return sender


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
        self._members: dict[MemoryDiscovery, tuple[Reactor, Receive]] = {}
        self._addresses = itertools.count(1)

    def discovery(self) -> MemoryDiscovery:
        """Return the discovery of one more node, with an address of its own."""
        return MemoryDiscovery(self, next(self._addresses))

    def mailbox_at(self, address: str, port: int) -> str:
        """Return the endpoint of a mailbox by the address and the port of a beacon."""
        return f"inproc://{self.name}/{address}/{port}"

    def join(self, member: MemoryDiscovery, reactor: Reactor, receive: Receive) -> None:
        self._members[member] = reactor, receive

    def leave(self, member: MemoryDiscovery) -> None:
        self._members.pop(member, None)

    def broadcast(self, octets: bytes, address: str) -> None:
        """Give a beacon to every member, each in its own thread or event loop."""
        for reactor, receive in list(self._members.values()):
            reactor.call_soon(receive, octets, address)


class MemoryDiscovery:
    """The discovery of one node in a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, number: int) -> None:
        self.network = network
        self.address = str(number)

    def start(self, reactor: Reactor, receive: Receive) -> None:
        self.network.join(self, reactor, receive)

    def send(self, octets: bytes) -> None:
        self.network.broadcast(octets, self.address)

    def close(self) -> None:
        self.network.leave(self)
