"""Publishers and subscribers that cost as little as possible: they move bytes, and look only for the last message.

So the broker is the bottleneck, and its processor time per delivery does not depend on a client library.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from bench.brokers.body import END, Case, delays, paced_blocking

PATIENCE: Final = 60.0  # seconds for one measurement
BUFFER: Final = 1 << 20
CHUNK: Final = 500  # messages of one send


class Amiss(Exception):
    """Data from a broker that is not as expected."""


class Feed(Protocol):
    """One subscribed connection."""

    sock: socket.socket

    def feed(self, data: memoryview) -> bool:
        """Take data that has arrived; return True if it contains the last message."""


class Tail:
    """A connection to which the broker pushes messages: it looks for the last one."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._tail = b""

    def feed(self, data: memoryview) -> bool:
        self._tail = (self._tail + bytes(data[-64:]))[-64:]
        return END in self._tail


class Counted:
    """A connection to which exactly `size` bytes must come."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self._left = size

    def feed(self, data: memoryview) -> bool:
        self._left -= len(data)
        if self._left < 0:
            raise Amiss(f"{-self._left} bytes more than expected arrived")
        return not self._left


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def expect(sock: socket.socket, wanted: bytes) -> bytes:
    """Read until the data ends with `wanted`, and return all of it."""
    found = b""
    while not found.endswith(wanted):
        data = sock.recv(65536)
        if not data:
            raise Amiss(f"the connection ended after {found[-200:]!r}")
        found += data
    return found


def drain(feeds: Sequence[Feed], timed: bool) -> list[float]:
    """Read until each connection has got the last message; return the ages of the messages if `timed`."""
    waiting = {one.sock.fileno(): one for one in feeds}
    ages: list[float] = []
    buffer = memoryview(bytearray(BUFFER))
    deadline = time.monotonic() + PATIENCE
    with select.epoll() as epoll:
        for fd in waiting:
            epoll.register(fd, select.EPOLLIN)
        while waiting:
            ready = epoll.poll(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Amiss(f"{len(waiting)} of {len(feeds)} subscribers did not get the last message")
            for fd, _ in ready:
                one = waiting[fd]
                got = one.sock.recv_into(buffer)
                if not got:
                    raise Amiss("the broker ended a subscriber's connection")
                data = buffer[:got]
                if timed:
                    ages += delays(data)
                if one.feed(data):
                    epoll.unregister(fd)
                    del waiting[fd]
    return ages


class Frames(Protocol):
    """A function that encodes one message for a publisher."""

    def __call__(self, key: str, body: bytes) -> bytes: ...


def chunks(case: Case, frame: Frames) -> Iterator[bytes]:
    for start in range(0, case.count, CHUNK):
        numbers = range(start, min(start + CHUNK, case.count))
        yield b"".join([frame(case.key(number), case.body(number)) for number in numbers])


def pour(sock: socket.socket, case: Case, chunks: Iterable[bytes], lines: int, window: int) -> None:
    """Send chunks. If the broker answers each message with some lines, at most `window` chunks wait for answers."""
    answered = 0
    for number, chunk in enumerate(chunks, 1):
        sock.sendall(chunk)
        while answered < lines * CHUNK * (number - window):
            answered += _answers(sock)
    while answered < lines * case.count:
        answered += _answers(sock)


def pace(sock: socket.socket, case: Case, frame: Frames, lines: int) -> None:
    """Send messages one by one at the rate of the case, and read the answers from time to time."""
    answered = 0
    for number, body in enumerate(paced_blocking(case)):
        sock.sendall(frame(case.key(number), body))
        while answered < lines * (number - CHUNK):
            answered += _answers(sock)
    while answered < lines * case.count:
        answered += _answers(sock)


def _answers(sock: socket.socket) -> int:
    data = sock.recv(65536)
    if not data:
        raise Amiss("the broker ended the publisher's connection")
    return data.count(b"\n")
