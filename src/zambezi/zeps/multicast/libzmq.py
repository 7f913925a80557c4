"""A group over libzmq's NORM or PGM: a PUB socket sends the datagrams, a SUB socket gets them.

Both protocols repair loss by themselves, as far as they can; what they cannot is a gap as any other, and the journal
repairs it. pyzmq is not needed for anything else, and its wheels have neither of the two: so it is looked for only
where a group asks for it, and the error says how to get one that has them.

libzmq has threads of its own. What it sends is handed over without waiting; what it gets is waited for by a thread,
which stops while the reactor has not taken what it was given, so that nothing piles up but in libzmq's own bound.
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

# Octets of a datagram: libzmq cuts them to what the network takes. Its NORM does not bring larger ones across, always.
DATAGRAM: Final = {"norm": 1200, "epgm": 16 << 10}
AT_ONCE: Final = 64
_POLL: Final = 100  # milliseconds between looks whether it is over
_QUEUE: Final = 10_000  # datagrams that libzmq keeps for whoever is slow
_FEATURES: Final = {"norm": "norm", "epgm": "pgm"}


def library_for(group: Group) -> Any:
    """pyzmq, if it is there and has what the group needs; else `GroupError` with how to get it."""
    feature = _FEATURES[group.scheme]
    how = "apt-get install libzmq3-dev, and pip install --no-binary pyzmq pyzmq"
    try:
        zmq = importlib.import_module("zmq")
    except ImportError:
        raise GroupError(f"{group} needs pyzmq, which is not installed; {how}; or use udp://") from None
    if not zmq.has(feature):
        raise GroupError(
            f"{group} needs a libzmq with {feature.upper()}, and that of pyzmq {zmq.__version__} has none; {how}; "
            f"or use udp://"
        )
    return zmq


def _endpoint(group: Group) -> str:
    where = f"{group.address}:{group.port}"
    interface = group.interface
    if interface:
        address = address_of(interface)  # a mistake is told before libzmq meets it
        where = f"{interface if group.scheme == 'norm' else address};{where}"
    elif group.scheme == "epgm":
        where = f";{where}"
    # Every node of NORM has a number of its own.
    return f"norm://{random.randrange(1, 1 << 31)},{where}" if group.scheme == "norm" else f"epgm://{where}"


def _open(group: Group, kind: str) -> tuple[Any, Any]:
    zmq = library_for(group)
    endpoint = _endpoint(group)
    sock = zmq.Context.instance().socket(getattr(zmq, kind))
    try:
        sock.linger = 0
        sock.sndhwm = sock.rcvhwm = _QUEUE
        sock.rate = max(1, group.rate * 8 // 1000)  # kilobits; the feed keeps to its rate by itself
        sock.multicast_hops = max(1, group.ttl)
        if kind == "SUB":
            sock.subscribe(b"")
            sock.rcvtimeo = _POLL
        sock.connect(endpoint)
    except zmq.ZMQError as error:
        sock.close()
        raise GroupError(f"cannot use {group}: {error}") from error
    return zmq, sock


class Outlet:
    """Where datagrams go out."""

    def __init__(self, group: Group) -> None:
        self._zmq, self._sock = _open(group, "PUB")

    def send(self, datagrams: Sequence[Pieces]) -> int:
        sent = 0
        with contextlib.suppress(self._zmq.ZMQError):
            for datagram in datagrams:
                self._sock.send(b"".join(datagram), self._zmq.NOBLOCK)
                sent += 1
        return len(datagrams) - sent

    def close(self) -> None:
        self._sock.close()


class Receiver:
    """Where they come in."""

    def __init__(self, reactor: Reactor, group: Group, receive: Callable[[list[bytes]], object]) -> None:
        self._zmq, self._sock = _open(group, "SUB")
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
                self._reactor.call_soon(self._give, datagrams)
        sock.close()

    def _give(self, datagrams: list[bytes]) -> None:
        self._taken.release()
        if not self._over.is_set() and not self._paused:
            self._receive(datagrams)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        self._over.set()  # the thread sees it, and closes the socket: no other may
