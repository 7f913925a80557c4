"""The floor of a broker: only its system calls. It reads, writes to two files, and sends what it has read.

`python -m bench.brokers.relay DIRECTORY` is a program without a protocol and without an event loop of asyncio. It
neither checks nor counts messages, and computes no checksum. Before it confirms the last message, it syncs its files.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from pathlib import Path
from typing import Final

from bench.brokers.bare import DONE, FOLLOW, BareProgram
from bench.brokers.body import Case
from bench.brokers.drain import expect
from bench.brokers.zambezi import Zambezi

READ: Final = 256 * 1024  # bytes of one read, as a busy broker
ENTRY: Final = bytes(64)  # as long as an entry of the journal's index
CONFIRM: Final = b"confirm\n"


class BareRelay(BareProgram):
    name = "bare relay"

    def command(self, directory: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "bench.brokers.relay", str(directory)]

    def frame(self, key: str, body: bytes) -> bytes:
        return Zambezi().frame(key, body)

    def confirm(self, sock: socket.socket, case: Case) -> None:
        sock.sendall(CONFIRM)
        expect(sock, DONE)


class _Relay:
    def __init__(self, directory: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT
        self._log, self._index = (os.open(directory / name, flags, 0o600) for name in ("log", "index"))
        self._size = self._entries = 0
        self._followers: list[socket.socket] = []

    def pass_on(self, sock: socket.socket) -> bool:
        """Pass on what a publisher has sent; return False if it has sent nothing more, or has become a follower."""
        data = sock.recv(READ)
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


def _serve(directory: Path) -> None:
    relay = _Relay(directory)
    listener = socket.create_server(("127.0.0.1", 0))
    (directory / "port.new").write_text(str(listener.getsockname()[1]))
    (directory / "port.new").rename(directory / "port")
    socks: dict[int, socket.socket] = {}
    with select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        while True:
            for descriptor, _ in epoll.poll():
                if descriptor == listener.fileno():
                    sock = listener.accept()[0]
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    socks[sock.fileno()] = sock
                    epoll.register(sock, select.EPOLLIN)
                elif not relay.pass_on(socks[descriptor]):
                    epoll.unregister(descriptor)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
