"""A client that is a bare TCP socket: it can stop reading, vanish, and send any bytes."""

from __future__ import annotations

import asyncio
import socket
import struct

from zambezi.zmtp.connection import Connection, Ready
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.security import Null, Security

READ = 1 << 16


class Raw:
    """A DEALER on a bare socket. `await Raw.join(endpoint)` makes one."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self.sock = sock
        self.connection = connection
        self.messages: list[list[bytes]] = []
        self.sending: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def join(
        cls, endpoint: str, identity: bytes = b"", buffer: int | None = None, security: Security | None = None
    ) -> Raw:
        loop = asyncio.get_running_loop()
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        sock = socket.socket()
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setblocking(False)
        await loop.sock_connect(sock, (host, int(port)))
        raw = cls(sock, Connection("DEALER", loop.time(), identity=identity, security=security or Null()))
        try:
            while not await raw._step():
                pass
        except BaseException:
            sock.close()
            raise
        return raw

    async def _step(self) -> bool:
        """Read once; return whether that completed the handshake."""
        loop = asyncio.get_running_loop()
        if self.connection.output:
            await loop.sock_sendall(self.sock, self.connection.take_output())
        data = await loop.sock_recv(self.sock, READ)
        if not data:
            raise ConnectionResetError("the middleware hung up")
        ready = False
        for event in self.connection.receive(data, loop.time()):
            ready = ready or isinstance(event, Ready)
            if isinstance(event, Batch):
                self.messages += event
        if self.connection.output:
            await loop.sock_sendall(self.sock, self.connection.take_output())
        return ready

    def encoded(self, *messages: tuple[bytes, ...]) -> bytes:
        return self.connection.encode(messages)

    async def send(self, *messages: tuple[bytes, ...]) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, self.encoded(*messages))

    async def recv(self) -> list[bytes]:
        while not self.messages:
            await self._step()
        return self.messages.pop(0)

    async def ask(self, *frames: bytes) -> list[bytes]:
        await self.send(frames)
        return await self.recv()

    def close(self) -> None:
        self.sock.close()

    def __del__(self) -> None:
        self.sock.close()

    def vanish(self) -> None:
        """End with a reset, like a machine that loses its power and comes back."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
