"""Thousands of connections to one server, idle and busy: the memory of each, and whether the server gives it back.

The clients come from many addresses of the loopback network, so that no bound by address applies.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bench.report import table
from tests.campaign.lawful import ATTACH_OK
from tests.campaign.raw import PING_OK, attach, close_all, plug, publish, subscribe
from tests.campaign.server import Server, Usage, wait_until
from tests.zmtp.stranger import hello
from zambezi.zeps.messages import Credit, Ping
from zambezi.zmtp.frames import encode

STREAMS: Final = 20
FILES: Final = 3 * STREAMS  # a stream has up to three open files: messages, index, and counts of publishers
ROUNDS: Final = 3  # the memory after the last round shows whether each costs more
AT_ONCE: Final = 200  # connections that are made before the answers are read
RESERVED: Final = 200  # descriptors that this process needs for other things
BUSY: Final = publish("key", b"x" * 100) + encode(Ping().encode())


def allow_descriptors() -> int:
    """Raise the limit of descriptors of this process as far as possible; return how many connections it allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - RESERVED


def source(number: int) -> str:
    return f"127.0.1.{1 + number % 200}"


def _connect(server: Server, count: int, more: bytes = b"") -> Iterator[socket.socket]:
    """Yield connections that are attached to streams."""
    for first in range(0, count, AT_ONCE):
        made = []
        for number in range(first, min(count, first + AT_ONCE)):
            sock = plug(server.ports["zeps"], source(number))
            sock.sendall(hello() + attach(f"stream-{number % STREAMS}") + more)
            made.append(sock)
        for sock in made:
            buffer = b""
            with contextlib.suppress(OSError):
                while ATTACH_OK not in buffer and (octets := sock.recv(1 << 16)):
                    buffer += octets
            if ATTACH_OK in buffer:
                yield sock
            else:
                sock.close()


@dataclass
class ConnectionsResult:
    """The figures of one kind of connections."""

    kind: str
    wanted: int
    accepted: int
    before: Usage
    most: Usage
    after: list[Usage] = field(default_factory=list)  # after each round, when all connections are closed
    confirmed: int = 0
    longest: float = 0.0  # seconds until a confirmation

    @property
    def each(self) -> float:
        """The memory of one connection, in bytes."""
        return (self.most.memory - self.before.memory) / max(1, self.accepted)

    @property
    def problems(self) -> list[str]:
        found = []
        if self.accepted < self.wanted:
            found.append(f"only {self.accepted} of {self.wanted} were accepted")
        if self.after[-1].descriptors > self.before.descriptors + FILES + 5:
            found.append(f"{self.after[-1].descriptors} descriptors are left open")
        # The allocator keeps pages for the next connections. If the rounds leak, each leaves more.
        if self.after[-1].memory > 1.2 * self.after[0].memory + (8 << 20):
            found.append(f"the memory grew from {self.after[0].memory >> 20} to {self.after[-1].memory >> 20} MiB")
        return found


def _closed(server: Server, sockets: list[socket.socket], descriptors: int) -> Usage:
    close_all(sockets)
    wait_until(lambda: server.usage().descriptors <= descriptors + FILES)
    return server.usage()


def _server() -> Server:
    return Server(
        "[zeps.journal]\nkeep_bytes = '64M'\nsegment = '16M'\n", resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    )


def idle(count: int) -> ConnectionsResult:
    """Keep idle connections, close them, and do that again."""
    with _server() as server:
        before = server.usage()
        result = ConnectionsResult("idle", count, 0, before, before)
        for number in range(ROUNDS):
            sockets = list(_connect(server, count))
            if not number:
                result.accepted, result.most = len(sockets), server.usage()
            result.after.append(_closed(server, sockets, before.descriptors))
    return result


class _Busy:
    """Connections that publish and wait for the confirmation, all the time."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self.confirmed = 0
        self.longest = 0.0
        self._selector = selectors.DefaultSelector()
        self._asked: dict[socket.socket, float] = {}
        for sock in sockets:
            self._selector.register(sock, selectors.EVENT_READ)
            self._ask(sock)

    def _ask(self, sock: socket.socket) -> None:
        self._asked[sock] = time.monotonic()
        sock.sendall(BUSY)

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for key, _ in self._selector.select(1.0):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                octets = sock.recv(1 << 18)
                if not octets:
                    raise ConnectionError("the server closed a busy connection")
                # An answer that is cut between two reads is rare, and counts with the next one.
                if octets.endswith(PING_OK) or PING_OK in octets:
                    self.longest = max(self.longest, time.monotonic() - self._asked[sock])
                    self.confirmed += 1
                    self._ask(sock)

    def close(self) -> None:
        self._selector.close()


def busy(count: int, seconds: float) -> ConnectionsResult:
    """Keep busy connections, of which one in ten also reads, close them, and do that again."""
    readers = encode(Credit(1 << 40).encode()) + subscribe("exact:key", (1 << 63) - 1)
    with _server() as server:
        before = server.usage()
        result = ConnectionsResult("busy", count, 0, before, before)
        for number in range(ROUNDS):
            sockets = [*_connect(server, count - count // 10), *_connect(server, count // 10, readers)]
            load = _Busy(sockets)
            load.run(seconds)
            load.close()
            result.confirmed += load.confirmed
            result.longest = max(result.longest, load.longest)
            if not number:
                result.accepted, result.most = len(sockets), server.usage()
            result.after.append(_closed(server, sockets, before.descriptors))
    return result


def report(results: list[ConnectionsResult]) -> str:
    """Return the figures as a table."""
    heads = ["connections", "accepted", "memory (MiB)", "each", "descriptors", "confirmed", "longest wait", "held"]
    rows = []
    for one in results:
        usages = (one.before, one.most, *one.after)
        rows.append(
            [
                f"{one.wanted:,} {one.kind}",
                f"{one.accepted:,}",
                " → ".join(str(usage.memory >> 20) for usage in usages),
                f"{one.each / 1024:.1f} KiB",
                " → ".join(str(usage.descriptors) for usage in usages),
                f"{one.confirmed:,}" if one.confirmed else "-",
                f"{one.longest * 1000:.0f} ms" if one.confirmed else "-",
                "; ".join(one.problems) or "yes",
            ]
        )
    return table(heads, rows)
