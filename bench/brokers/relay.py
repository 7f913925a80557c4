"""The floor of a broker: only its system calls. It reads, writes to two files, and sends what it has read.

`python -m bench.brokers.relay DIRECTORY LOOP` is a program without a protocol. It neither checks nor counts messages,
and computes no checksum. Before it confirms the last message, it syncs its files. LOOP is `epoll`, for a loop of a few
lines, or `asyncio`.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

from bench.brokers.bare import DONE, FOLLOW, BareProgram
from bench.brokers.body import KEY, Case, delays, paced
from bench.brokers.drain import expect
from bench.brokers.zambezi import Zambezi
from zambezi.memory import keep_memory

# Bytes of one read, as the broker has it: few while there is little to read, because a large buffer takes time.
READ: Final = 16 * 1024
READ_BUSY: Final = 256 * 1024
ENTRY: Final = bytes(64)  # as long as an entry of the journal's index
CONFIRM: Final = b"confirm\n"


class BareRelay(BareProgram):
    name = "bare relay"
    loop: ClassVar[str] = "epoll"

    def command(self, directory: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "bench.brokers.relay", str(directory), self.loop]

    def frame(self, key: str, body: bytes) -> bytes:
        return Zambezi().frame(key, body)

    def confirm(self, sock: socket.socket, case: Case) -> None:
        sock.sendall(CONFIRM)
        expect(sock, DONE)


class AsyncioRelay(BareRelay):
    """The same on asyncio, with clients that are tasks: the floor of brokers and clients on asyncio.

    Besides its system calls, a publisher copies each body once, to send many with one call, and a subscriber copies it
    once, out of what it has read.
    """

    name = "bare relay, asyncio"
    loop = "asyncio"
    client_weight = 30

    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        asyncio.run(self._publish(port, case, ready))

    async def _publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        with self.publisher(port) as sock:
            bodies = case.bodies()
            await asyncio.to_thread(ready)
            if case.rate:
                async for body in paced(case):
                    sock.sendall(self.frame(KEY, body))
            else:
                head = self.frame(KEY, bytes(case.size))[: -case.size]
                while part := list(islice(bodies, max(1, READ_BUSY // (len(head) + case.size)))):
                    pieces = [head] * (2 * len(part))
                    pieces[1::2] = part
                    sock.sendall(b"".join(pieces))
            self.confirm(sock, case)

    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        return asyncio.run(self._subscribe(port, case, ready))

    async def _subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        (feed,) = self.follow(port, case)
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bytes] = loop.create_future()
        size = READ if case.rate else READ_BUSY
        await asyncio.to_thread(ready)
        loop.add_reader(feed.sock, lambda: arrived.set_result(feed.sock.recv(size)))
        ages: list[float] = []
        stride, rest = len(self.frame(KEY, bytes(case.size))), 0  # the rest of a message that a read has begun
        while True:
            data = await arrived
            arrived = loop.create_future()
            if case.rate:
                ages += delays(data)
            else:
                bodies = [data[end - case.size : end] for end in range(rest or stride, len(data) + 1, stride)]
                rest = (rest - len(data)) % stride
                del bodies
            if feed.feed(memoryview(data)):
                return ages


class _Relay:
    def __init__(self, directory: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT
        self._log, self._index = (os.open(directory / name, flags, 0o600) for name in ("log", "index"))
        self._size = self._entries = 0
        self._read = READ
        self._followers: list[socket.socket] = []

    def pass_on(self, sock: socket.socket) -> bool:
        """Pass on what a publisher has sent; return False if it has sent nothing more, or has become a follower."""
        data = sock.recv(self._read)
        self._read = READ_BUSY if len(data) >= READ else READ
        if data == FOLLOW:
            self._followers.append(sock)
            sock.sendall(DONE)
            return False
        confirm = data.endswith(CONFIRM)
        if confirm:
            data = data.removesuffix(CONFIRM)
        self._size += os.pwrite(self._log, data, self._size)
        self._entries += os.pwrite(self._index, ENTRY, self._entries)
        for follower in self._followers:
            follower.sendall(data)
        if confirm:
            os.fdatasync(self._log)
            os.fdatasync(self._index)
            sock.sendall(DONE)
        return bool(data) or confirm


def listen(directory: Path) -> socket.socket:
    """Listen on a free port of loopback, and write it to a file."""
    listener = socket.create_server(("127.0.0.1", 0))
    (directory / "port.new").write_text(str(listener.getsockname()[1]))
    (directory / "port.new").rename(directory / "port")
    return listener


def accept_client(listener: socket.socket) -> socket.socket:
    """Accept a connection whose answers go out at once."""
    sock = listener.accept()[0]
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def admit(listener: socket.socket, epoll: select.epoll, socks: dict[int, socket.socket]) -> None:
    """Accept a client, and watch its socket."""
    sock = accept_client(listener)
    socks[sock.fileno()] = sock
    epoll.register(sock, select.EPOLLIN)


def _serve(directory: Path) -> None:
    relay, listener = _Relay(directory), listen(directory)
    socks: dict[int, socket.socket] = {}
    with select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        while True:
            for descriptor, _ in epoll.poll():
                if descriptor == listener.fileno():
                    admit(listener, epoll, socks)
                elif not relay.pass_on(socks[descriptor]):
                    epoll.unregister(descriptor)


async def _serve_asyncio(directory: Path) -> None:
    relay, listener = _Relay(directory), listen(directory)
    loop = asyncio.get_running_loop()

    def readable(sock: socket.socket) -> None:
        if not relay.pass_on(sock):
            loop.remove_reader(sock)

    def acceptable() -> None:
        sock = accept_client(listener)
        loop.add_reader(sock, readable, sock)

    loop.add_reader(listener, acceptable)
    await loop.create_future()


if __name__ == "__main__":
    keep_memory()  # as the broker does
    if sys.argv[2] == "asyncio":
        asyncio.run(_serve_asyncio(Path(sys.argv[1])))
    else:
        _serve(Path(sys.argv[1]))
