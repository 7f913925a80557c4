"""The cost of the connections of a mesh alone: bare sockets in one asyncio loop, without ZRE nodes.

The benchmark opens as many TCP connections as a full ZRE mesh has, and exchanges the same bytes in as few writes as the
protocols allow: the greeting, the listener's greeting with its READY, the caller's READY with its HELLO. It does not
parse, check, store or announce anything, so any time that a node needs beyond this is the cost of its rules. It watches
the sockets as Zambezi does (`zambezi.zmtp.poller`); another kind of event loop would have another floor.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from typing import Final
from uuid import uuid4

from zambezi.zmtp import commands
from zambezi.zmtp.frames import encode, encode_command
from zambezi.zmtp.greeting import Greeting
from zambezi.zmtp.poller import poller_of
from zambezi.zre.messages import Hello

_GREETING: Final = Greeting("NULL").encode()
_READ: Final = 16 * 1024


def _ready(socket_type: str, identity: bytes) -> bytes:
    metadata = {commands.SOCKET_TYPE: socket_type.encode(), commands.IDENTITY: identity}
    return encode_command(commands.command(commands.READY, commands.encode_metadata(metadata)))


class Floor:
    """`count` listeners, and a connection from each of them to every other."""

    def __init__(self, count: int, host: str) -> None:
        loop = asyncio.get_running_loop()
        self._poller = poller_of(loop)
        self._left = count * (count - 1)
        self._done = loop.create_future()
        self._answer = _GREETING + _ready("ROUTER", b"")
        self._open: list[socket.socket] = []
        self._listeners = [self._listen(host) for _ in range(count)]

    def _listen(self, host: str) -> socket.socket:
        listener = _new_socket()
        listener.bind((host, 0))
        listener.listen(1024)
        self._poller.add_reader(listener.fileno(), partial(self._acceptable, listener))
        return listener

    async def form(self) -> None:
        """Connect each listener to every other, and wait until all have got a HELLO."""
        for caller in self._listeners:
            where = "tcp://{}:{}".format(*caller.getsockname())
            hello = _ready("DEALER", b"\x01" + uuid4().bytes) + encode(Hello(1, where, [], 0, "n").encode())
            for called in self._listeners:
                if called is not caller:
                    self._call(called.getsockname(), hello)
            await asyncio.sleep(0)
        await self._done

    def _call(self, address: tuple[str, int], hello: bytes) -> None:
        sock = _new_socket()
        sock.connect_ex(address)
        self._poller.add_reader(sock.fileno(), partial(self._answered, sock, hello))
        sock.send(_GREETING)
        self._open.append(sock)

    def _acceptable(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            self._poller.add_reader(sock.fileno(), partial(self._received, sock))
            with contextlib.suppress(BlockingIOError):
                sock.recv(_READ)
            sock.send(self._answer)
            self._open.append(sock)

    def _answered(self, sock: socket.socket, hello: bytes) -> None:
        sock.recv(_READ)
        sock.send(hello)

    def _received(self, sock: socket.socket) -> None:
        if len(sock.recv(_READ)) > len(_GREETING):  # the HELLO, and not a late greeting
            self._left -= 1
            if not self._left:
                self._done.set_result(None)


def _new_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the sockets that a listener accepts inherit it
    return sock
