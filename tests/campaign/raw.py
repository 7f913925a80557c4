"""Raw sockets of attackers: the bytes of lawful and unlawful messages, without the client's own rules."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Sequence

from tests.zmtp.stranger import hello
from zambezi.zeps.messages import Attach, PingOk, Publish, Subscribe
from zambezi.zmtp.frames import encode

ATTACKER = "127.0.0.2"  # the address of attackers, so that a quota by address is not shared with lawful clients
PATIENCE = 60.0


def attach(stream: str) -> bytes:
    return encode(Attach(stream).encode())


def subscribe(pattern: str, latest: int = 0) -> bytes:
    return encode(Subscribe(pattern, latest).encode())


def publish(key: str, body: bytes) -> bytes:
    return encode(Publish(key, body).encode())


PING_OK = encode(PingOk().encode())


def plug(port: int, source: str = ATTACKER) -> socket.socket:
    """Connect, and say nothing."""
    sock = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(source, 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def connect(port: int, octets: bytes = b"", identity: bytes = b"", kind: str = "DEALER") -> socket.socket:
    """Connect, send the handshake of a NULL client, and then some bytes."""
    sock = plug(port)
    sock.sendall(hello(kind, identity) + octets)
    return sock


def send(sock: socket.socket, octets: bytes) -> bool:
    """Send everything; return False if the server closed the connection, or does not read."""
    try:
        sock.sendall(octets)
    except OSError:
        return False
    return True


def read_until(sock: socket.socket, wanted: bytes, count: int = 1, seconds: float = PATIENCE) -> int:
    """Read until some bytes have come `count` times, or the connection ends; return how often they came."""
    sock.settimeout(seconds)
    buffer = b""
    found = 0
    with contextlib.suppress(OSError):
        while found < count and (octets := sock.recv(1 << 16)):
            buffer += octets
            found += buffer.count(wanted)
            buffer = buffer[max(buffer.rfind(wanted) + len(wanted), len(buffer) - len(wanted) + 1) :]
    return found


def close_all(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def command(*frames: bytes) -> bytes:
    """Return a message of MCollective, with the first empty frame."""
    message: Sequence[bytes] = (b"", *frames)
    return encode([tuple(message)])
