"""What the connections of a mesh cost by themselves: bare sockets in one asyncio loop, with no engine and no objects.

As many TCP connections are made as in a full ZRE mesh, and the same octets are exchanged in as few writes as the
protocols allow: the greeting, the listener's greeting with its READY, the caller's READY with its HELLO. Nothing is
parsed, checked, remembered or announced: what a node takes beyond this is the price of its rules. It is the floor of
sockets that are watched with `add_reader`; a loop of another kind would have another.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final
from uuid import uuid4

from zambezi.zmtp import commands
from zambezi.zmtp.frames import encode, encode_command
from zambezi.zmtp.greeting import Greeting
from zambezi.zre.messages import Hello

_GREETING: Final = Greeting("NULL").encode()
_READ: Final = 16 * 1024


def _ready(socket_type: str, identity: bytes) -> bytes:
    metadata = {commands.SOCKET_TYPE: socket_type.encode(), commands.IDENTITY: identity}
    return encode_command(commands.command(commands.READY, commands.encode_metadata(metadata)))


class Floor:
    """`count` listeners, and a connection from each of them to every other."""

    def __init__(self, count: int, host: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = count * (count - 1)
        self._done = self._loop.create_future()
        self._answer = _GREETING + _ready("ROUTER", b"")
        self._open: list[socket.socket] = []
        self._listeners = [self._listen(host) for _ in range(count)]

    def _listen(self, host: str) -> socket.socket:
        listener = socket.socket()
        listener.bind((host, 0))
        listener.listen(1024)
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._acceptable, listener)
        return listener

    async def form(self) -> None:
        for caller in self._listeners:
            where = "tcp://{}:{}".format(*caller.getsockname())
            word = _ready("DEALER", b"\x01" + uuid4().bytes) + encode(Hello(1, where, [], 0, "n").encode())
            for called in self._listeners:
                if called is not caller:
                    self._call(called.getsockname(), word)
            await asyncio.sleep(0)
        await self._done

    def _call(self, address: tuple[str, int], word: bytes) -> None:
        sock = socket.socket()
        _prepare(sock)
        sock.connect_ex(address)
        self._loop.add_reader(sock.fileno(), self._answered, sock, word)
        sock.send(_GREETING)
        self._open.append(sock)

    def _acceptable(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            _prepare(sock)
            self._loop.add_reader(sock.fileno(), self._heard, sock)
            with contextlib.suppress(BlockingIOError):
                sock.recv(_READ)
            sock.send(self._answer)
            self._open.append(sock)

    def _answered(self, sock: socket.socket, word: bytes) -> None:
        sock.recv(_READ)
        sock.send(word)

    def _heard(self, sock: socket.socket) -> None:
        if len(sock.recv(_READ)) > len(_GREETING):  # not the greeting, if it was late
            self._left -= 1
            if not self._left:
                self._done.set_result(None)


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
