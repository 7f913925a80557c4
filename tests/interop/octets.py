"""A peer made by hand, byte by byte: for versions and habits that current libraries do not have."""

import socket
from types import TracebackType
from typing import Self

from tests.interop.libzmq import PATIENCE

NULL_MECHANISM = b"NULL".ljust(20, b"\0")


def greeting(minor: int = 1) -> bytes:
    """Return the greeting of a ZMTP 3 peer with NULL security."""
    return b"\xff" + bytes(8) + b"\x7f\x03" + bytes([minor]) + NULL_MECHANISM + bytes(32)


def message(body: bytes) -> bytes:
    return bytes([0, len(body)]) + body


def command(name: bytes, data: bytes = b"") -> bytes:
    body = bytes([len(name)]) + name + data
    return bytes([4, len(body)]) + body


def ready(socket_type: bytes) -> bytes:
    return command(b"READY", b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type)


class ByHand:
    """One end of a TCP connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.settimeout(PATIENCE)

    @classmethod
    def connect(cls, endpoint: str) -> Self:
        return cls(socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2])), PATIENCE))

    def say(self, *octets: bytes) -> None:
        self._sock.sendall(b"".join(octets))

    def hear(self, count: int) -> bytes:
        """Read and return exactly `count` bytes."""
        heard = b""
        while len(heard) < count:
            data = self._sock.recv(count - len(heard))
            assert data, f"the connection ended after {heard!r}"
            heard += data
        return heard

    def expect(self, *octets: bytes) -> None:
        """Read exactly these bytes."""
        wanted = b"".join(octets)
        assert self.hear(len(wanted)) == wanted

    def hear_command(self) -> bytes:
        flags, size = self.hear(2)
        assert flags == 4
        return self.hear(size)

    def hear_the_end(self) -> bytes:
        """Return all bytes that arrive until the other side closes."""
        heard = b""
        while data := self._sock.recv(65536):
            heard += data
        return heard

    def hears_nothing(self) -> bool:
        """Return whether nothing can be read at this moment."""
        self._sock.setblocking(False)
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self._sock.settimeout(PATIENCE)
        return False

    def shake_hands(self, socket_type: bytes, minor: int = 1) -> bytes:
        """Do the handshake of NULL; return the READY of the other side."""
        self.say(greeting(minor), ready(socket_type))
        assert self.hear(64)[:12] == b"\xff" + bytes(7) + b"\x01\x7f\x03\x01"
        return self.hear_command()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()


class Listening:
    """A port that our sockets can connect to; the test accepts the connections."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.settimeout(PATIENCE)
        self.endpoint = f"tcp://127.0.0.1:{self._sock.getsockname()[1]}"

    def accept(self) -> ByHand:
        return ByHand(self._sock.accept()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()
