"""A group over libzmq's NORM or PGM: a PUB socket sends the datagrams, and a SUB socket receives them.

Both protocols repair most losses by themselves; any other loss is a gap like any other, and the journal repairs it.
Nothing else needs pyzmq, and its wheels support neither protocol. So it is imported only if a group needs it, and the
error says how to install one with support.

libzmq has its own threads. Sending never waits. A thread of ours waits for incoming datagrams, and stops while the
reactor has not handled the last ones, so that datagrams queue up only in libzmq, within its bound.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.feed import Pieces
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of
from zambezi.zmtp.reactor import Reactor

# Bytes of a datagram: libzmq splits it for the network. Its NORM does not deliver larger ones reliably.
DATAGRAM: Final = {"norm": 1200, "epgm": 16 << 10}
AT_ONCE: Final = 64  # datagrams that are passed to the reactor at once
_POLL: Final = 100  # milliseconds after which the thread checks whether it must end
_QUEUE: Final = 10_000  # datagrams that libzmq queues
_FEATURES: Final = {"norm": "norm", "epgm": "pgm"}


def library_for(group: Group) -> Any:
    """Return pyzmq if it supports the group's protocol; else raise `GroupError`, which says how to install it."""
    feature = _FEATURES[group.scheme]
    how = "apt-get install libzmq3-dev, and pip install --no-binary pyzmq pyzmq"
    try:
        zmq = importlib.import_module("zmq")
    except ImportError:
        raise GroupError(f"{group} needs pyzmq, which is not installed; {how}; or use udp://") from None
    if not zmq.has(feature):
        raise GroupError(
            f"{group} needs a libzmq with {feature.upper()}, and that of pyzmq {zmq.__version__} lacks it; {how}; "
            f"or use udp://"
        )
    return zmq


def _endpoint(group: Group) -> str:
    where = f"{group.address}:{group.port}"
    interface = group.interface
    if interface:
        address = address_of(interface)  # raises a better error than libzmq would
        where = f"{interface if group.scheme == 'norm' else address};{where}"
    elif group.scheme == "epgm":
        where = f";{where}"
    # Every NORM node needs its own number.
    return f"norm://{random.randrange(1, 1 << 31)},{where}" if group.scheme == "norm" else f"epgm://{where}"


def _open_socket(group: Group, kind: str) -> tuple[Any, Any]:
    zmq = library_for(group)
    endpoint = _endpoint(group)
    sock = zmq.Context.instance().socket(getattr(zmq, kind))
    try:
        sock.linger = 0
        sock.sndhwm = sock.rcvhwm = _QUEUE
        sock.rate = max(1, group.rate * 8 // 1000)  # kilobits per second; the feed limits the rate by itself
        sock.multicast_hops = max(1, group.ttl)
        if kind == "SUB":
            sock.subscribe(b"")
            sock.rcvtimeo = _POLL
        sock.connect(endpoint)
    except zmq.ZMQError as error:
        sock.close()
        raise GroupError(f"cannot use {group}: {error}") from error
    return zmq, sock


class LibzmqSender:
    """A PUB socket that sends to a group."""

    def __init__(self, group: Group) -> None:
        self._zmq, self._sock = _open_socket(group, "PUB")

    def send(self, datagrams: Sequence[Pieces]) -> int:
        sent = 0
        with contextlib.suppress(self._zmq.ZMQError):
            for datagram in datagrams:
                self._sock.send(b"".join(datagram), self._zmq.NOBLOCK)
                sent += 1
        return len(datagrams) - sent

    def close(self) -> None:
        self._sock.close()


class LibzmqReceiver:
    """A SUB socket that has joined a group, and the thread that reads it."""

    def __init__(self, reactor: Reactor, group: Group, receive: Callable[[list[bytes]], object]) -> None:
        self._zmq, self._sock = _open_socket(group, "SUB")
        self._reactor = reactor
        self._receive = receive
        self._over = threading.Event()
        self._taken = threading.Semaphore(1)
        self._paused = False
        self._thread = threading.Thread(target=self._listen, name="zambezi-multicast", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        zmq, sock = self._zmq, self._sock
        while not self._over.is_set():
            try:
                datagrams = [sock.recv()]
                while len(datagrams) < AT_ONCE and sock.poll(0):
                    datagrams.append(sock.recv())
            except zmq.Again:
                continue
            if not self._paused:
                while not self._taken.acquire(timeout=_POLL / 1000):
                    if self._over.is_set():
                        break
                self._reactor.call_soon(self._pass_on, datagrams)
        sock.close()

    def _pass_on(self, datagrams: list[bytes]) -> None:
        self._taken.release()
        if not self._over.is_set() and not self._paused:
            self._receive(datagrams)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        self._over.set()  # the thread then closes the socket: no other thread may
