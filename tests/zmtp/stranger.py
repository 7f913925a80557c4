"""A peer made of a bare socket: it sends the bytes of a test, and reads only when the test reads."""

import socket
import time
from typing import Self

from zambezi.zmtp import commands
from zambezi.zmtp.frames import Batch, CommandFrame, Decoder, encode_command
from zambezi.zmtp.greeting import SIZE, Greeting

PATIENCE = 60.0


def hello(socket_type: str = "DEALER", identity: bytes = b"", version: tuple[int, int] = (3, 1)) -> bytes:
    """Return all bytes that a NULL client sends before its first message."""
    metadata = {commands.SOCKET_TYPE: socket_type.encode(), commands.IDENTITY: identity}
    return Greeting("NULL", version=version).encode() + encode_command(
        commands.command(commands.READY, commands.encode_metadata(metadata))
    )


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


class Stranger:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE)
        self.commands: list[bytes] = []
        self.messages: list[list[bytes]] = []
        self.ended = False
        self.octets = 0
        self._greeting = b""
        self._decoder = Decoder(1 << 30, 1 << 30)

    @classmethod
    def calling(cls, endpoint: str, small: bool = False) -> Self:
        """Connect to a TCP endpoint. With `small`, the kernel buffers only few bytes that are not read."""
        sock = socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.settimeout(PATIENCE)
        sock.connect(("127.0.0.1", port_of(endpoint)))
        return cls(sock)

    def say(self, octets: bytes) -> None:
        self.sock.sendall(octets)

    def listen(self, octets: int = 65536) -> bool:
        """Read once, without waiting; return whether anything had arrived."""
        self.sock.setblocking(False)
        try:
            data = self.sock.recv(octets)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        finally:
            self.sock.settimeout(PATIENCE)
        self._take(data)
        return bool(data)

    def heard_all(self) -> bool:
        """Read all bytes that have arrived, without waiting; return True."""
        while self.listen(1 << 20):
            pass
        return True

    def listen_to_the_end(self) -> None:
        """Read until the other side closes."""
        deadline = time.monotonic() + PATIENCE
        while not self.ended and time.monotonic() < deadline:
            try:
                self._take(self.sock.recv(65536))
            except ConnectionError:
                self.ended = True
        assert self.ended

    def _take(self, data: bytes) -> None:
        self.ended = self.ended or not data
        self.octets += len(data)
        missing = SIZE - len(self._greeting)
        self._greeting += data[:missing]
        for item in self._decoder.feed(data[missing:]):
            if isinstance(item, CommandFrame):
                self.commands.append(commands.split(item)[0])
            elif isinstance(item, Batch):
                self.messages += list(item)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
