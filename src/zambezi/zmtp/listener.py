"""Listeners on TCP ports and Unix sockets."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.zmtp.endpoint import Ipc, Tcp, host_in
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Timer
from zambezi.zmtp.stream import StreamLink

if TYPE_CHECKING:
    from zambezi.zmtp.transport import Transport

_BACKLOG: Final = 1024
_AT_ONCE: Final = 64
_PAUSE: Final = 0.2
_SCARCE: Final = "the process has few descriptors left, and keeps them in reserve"


class StreamListener:
    """A bound stream socket that accepts connections."""

    def __init__(self, transport: Transport, endpoint: Tcp | Ipc) -> None:
        self._transport = transport
        self._sock, self.endpoint, self._path = (
            _bind_tcp(transport, endpoint) if isinstance(endpoint, Tcp) else _bind_ipc(endpoint)
        )
        self._sock.setblocking(False)
        self._pause: Timer | None = None
        self._closed = False
        transport.reactor.add_reader(self._sock, self._acceptable)

    def _acceptable(self) -> None:
        usable = self._transport.handshakes.measure()
        for _ in range(_AT_ONCE):
            try:
                sock, name = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory: new connections wait in the backlog until others have ended.
                if self._closed:
                    return
                self._transport.refused(self.endpoint, "", f"cannot accept: {error.strerror}")
                self._rest()
                return
            self._accept(sock, host_in(name), usable)

    def _rest(self) -> None:
        reactor = self._transport.reactor
        reactor.remove_reader(self._sock)
        self._pause = reactor.call_at(reactor.time() + _PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        if self._closed:
            return
        try:
            self._transport.reactor.add_reader(self._sock, self._acceptable)
        except OSError:  # the kernel has no memory for it now
            self._rest()

    def _accept(self, sock: socket.socket, address: str, usable: int) -> None:
        transport = self._transport
        reason = ""
        if sock.fileno() >= usable and not transport.handshakes.sacrifice(_SCARCE):
            reason = _SCARCE
        elif len(transport.links) >= transport.options.limits.connections:
            reason = f"the socket has {len(transport.links)} connections, which is its limit"
        elif transport.options.authenticator is not None:
            verdict = transport.options.authenticator.judge_address(address)
            reason = "" if verdict.allowed else verdict.reason
        if reason:
            sock.close()
            transport.refused(self.endpoint, address, reason)
            return
        try:
            sock.setblocking(False)
        except OSError as error:  # the peer has gone already
            sock.close()
            transport.refused(self.endpoint, address, f"cannot use the connection: {error.strerror}")
            return
        connection = transport.connection(address, accepted=True)
        StreamLink(transport, sock, connection, self.endpoint, address, Peer(transport, self.endpoint)).answer()

    def close(self) -> None:
        """Stop listening, and remove the file of a Unix socket."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._transport.reactor.release(self._sock)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            if self._path.parent.name.startswith(_TEMPORARY):
                self._path.parent.rmdir()


_TEMPORARY: Final = "zambezi-ipc-"


def send_at_once(sock: socket.socket) -> None:
    """Have TCP send small messages at once. The connections that a listener accepts inherit that from it."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _bind_tcp(transport: Transport, endpoint: Tcp) -> tuple[socket.socket, str, Path | None]:
    try:
        found = socket.getaddrinfo(
            endpoint.host,
            None,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST if endpoint.numeric else 0,
        )
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "the host name is invalid"
        raise EndpointError(f"cannot bind {endpoint}: {why}; write an address of this machine") from error
    family, address = found[0][0], found[0][4]
    count = endpoint.last - endpoint.first + 1
    # The search starts at a random place of the range, so that sockets that start together do not race for one port.
    start = transport.chance.randrange(count)
    for attempt in range(count):
        port = endpoint.first + (start + attempt) % count
        sock = _new_socket(family, endpoint)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            send_at_once(sock)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address[0], port, *address[2:]))
            # Two sockets can be bound to one port while neither listens: the port is ours only after this.
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE and attempt + 1 < count:
                continue
            advice = "; is another program using it?" if error.errno == errno.EADDRINUSE else ""
            raise EndpointError(f"cannot bind {endpoint}: {error.strerror}{advice}") from error
        bound = sock.getsockname()
        return sock, str(Tcp(host_in(bound), int(bound[1]), int(bound[1]))), None
    raise EndpointError(f"cannot bind {endpoint}: every port of the range is in use")


def _new_socket(family: int, endpoint: Tcp | Ipc) -> socket.socket:
    try:
        return socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:  # out of descriptors
        raise EndpointError(f"cannot bind {endpoint}: {error.strerror}") from error


def _bind_ipc(endpoint: Ipc) -> tuple[socket.socket, str, Path | None]:
    if endpoint.path == "*":
        endpoint = Ipc(str(Path(tempfile.mkdtemp(prefix=_TEMPORARY)) / "socket"))
    path = None if endpoint.path.startswith("@") else Path(endpoint.path)
    if path is not None:
        _remove_stale(path)
    sock = _new_socket(socket.AF_UNIX, endpoint)
    try:
        sock.bind(endpoint.address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise EndpointError(f"cannot bind {endpoint}: {error.strerror}; does its directory exist?") from error
    return sock, str(endpoint), path


def _remove_stale(path: Path) -> None:
    """Remove a socket file that a dead process left behind; raise `EndpointError` for any other file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise EndpointError(f"cannot bind ipc://{path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise EndpointError(f"cannot bind ipc://{path}: a file of that name exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise EndpointError(f"cannot bind ipc://{path}: another program is using it")
    path.unlink(missing_ok=True)
