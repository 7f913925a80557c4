"""Connecting, and reconnecting when a connection is lost. The `Peer` object stays the same all the time."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from zambezi.zmtp import memory
from zambezi.zmtp.endpoint import Inproc, Ipc, Tcp, host_in
from zambezi.zmtp.listener import send_at_once
from zambezi.zmtp.memory import MemoryLink
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Addresses, Timer
from zambezi.zmtp.security import Security
from zambezi.zmtp.stream import StreamLink

if TYPE_CHECKING:
    from zambezi.zmtp.transport import Transport


class Connector:
    """The base of both kinds of connector: a peer, the number of attempts, and the timer of the next one."""

    __slots__ = ("_attempts", "_delay", "_since", "_timer", "closed", "endpoint", "peer", "transport")

    def __init__(self, transport: Transport, endpoint: str) -> None:
        self.transport = transport
        self.endpoint = endpoint
        self.peer = Peer(transport, endpoint)
        self.closed = False
        self._attempts = 0
        self._delay = 0.0  # before the last attempt
        self._since: float | None = None  # when the handshake was complete
        self._timer: Timer | None = None

    def attempt(self) -> None:
        """Begin an attempt to connect."""
        raise NotImplementedError

    def established(self) -> None:
        """Note that the handshake is complete."""
        self._since = self.transport.reactor.time()

    def again(self, reason: str) -> None:
        """Schedule another attempt."""
        if self.closed or self._timer is not None:
            return
        now = self.transport.reactor.time()
        # After a success the delay starts again at the shortest. A connection that the peer ended at once (for example,
        # because our identity is in use there) was no success.
        if self._since is not None and now - self._since >= self._delay:
            self._attempts = 0
        self._since = None
        self._attempts += 1
        delay = self._delay = self.transport.options.backoff.delay(self._attempts, self.transport.chance)
        self.transport.retrying(self.endpoint, self._attempts, delay, reason)
        self._timer = self.transport.reactor.call_at(now + delay, self._retry)

    def _retry(self) -> None:
        self._timer = None
        if not self.closed:
            self.attempt()

    def close(self) -> None:
        """Stop trying. The transport ends a link that exists."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class StreamConnector(Connector):
    """A connector for TCP ports and Unix sockets."""

    __slots__ = ("_candidates", "_security", "_sock", "_target", "_timeout")

    def __init__(self, transport: Transport, endpoint: Tcp | Ipc, security: Security | None = None) -> None:
        super().__init__(transport, str(endpoint))
        self._target = endpoint
        self._security = security
        self._sock: socket.socket | None = None
        self._timeout: Timer | None = None
        self._candidates: list[tuple[int, Any]] = []

    def attempt(self) -> None:
        target = self._target
        if isinstance(target, Ipc):
            self._candidates = [(socket.AF_UNIX, target.address)]
        elif target.numeric:
            try:
                self._candidates = [_numeric(target)]
            except OSError:
                self.again(f"this machine has no interface {target.host.partition('%')[2]}")
                return
        else:
            self.transport.reactor.resolve(target.host, target.first, self._resolved)
            return
        self._next("")

    def _resolved(self, found: Addresses | OSError) -> None:
        if self.closed:
            return
        if isinstance(found, OSError):
            self.again(f"cannot find {self.endpoint}: {found.strerror or found}")
            return
        self._candidates = [(entry[0], entry[4]) for entry in found]
        self._next("no address was found")

    def _next(self, reason: str) -> None:
        """Try the next address of the name."""
        if not self._candidates:
            self.again(reason)
            return
        family, address = self._candidates.pop(0)
        reactor = self.transport.reactor
        sock = None
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            if family != socket.AF_UNIX:
                send_at_once(sock)
            code = sock.connect_ex(address)
        except OSError as error:
            if sock is not None:
                sock.close()
            self._next(_text_of(error.errno or 0, str(error)))
            return
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            # EAGAIN means that the backlog of a Unix socket is full; the socket may never become writable.
            self._next(_text_of(code, ""))
            return
        self._sock = sock
        # A connection within this machine often exists at once, whatever the code says.
        name = _peer_name(sock)
        if name is not None:
            self._connected(name)
        else:
            self._timeout = reactor.call_at(
                reactor.time() + self.transport.options.limits.handshake_time, self._too_late
            )
            reactor.add_writer(sock, self._writable)

    def _writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._give_up(_text_of(code, ""))
        else:
            self.transport.reactor.remove_writer(sock)
            self._connected(_peer_name(sock))

    def _too_late(self) -> None:
        self._timeout = None
        self._give_up("no answer")

    def _give_up(self, reason: str) -> None:
        self._release()
        self._next(reason)

    def _release(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if self._sock is not None:
            self.transport.reactor.release(self._sock)
            self._sock = None

    def _connected(self, name: Any) -> None:
        sock, self._sock = self._sock, None
        assert sock is not None
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        # The kernel can give the socket, as its own port, the very port that it connects to, if no socket listens.
        if name is None or (name and name == sock.getsockname()):
            self.transport.reactor.release(sock)
            self._next("connection refused" if name else "the connection ended at once")
            return
        self._candidates = []
        address = host_in(name)
        connection = self.transport.connection(address, self._security)
        StreamLink(self.transport, sock, connection, self.endpoint, address, self.peer).call()

    def close(self) -> None:
        super().close()
        self._release()


class MemoryConnector(Connector):
    """A connector for a name in this process: it connects as soon as a socket binds the name."""

    __slots__ = ("_name",)

    def __init__(self, transport: Transport, endpoint: Inproc) -> None:
        super().__init__(transport, str(endpoint))
        self._name = endpoint.name

    def attempt(self) -> None:
        # Not at once: the socket does not know the peer yet, and can queue its first messages before the turn is over.
        self.transport.reactor.call_soon(self._call)

    def _call(self) -> None:
        listener = None if self.closed else memory.find(self._name, self)
        if listener is not None:
            link = MemoryLink(self.transport, self.peer, self.endpoint)
            if self.transport.reactor.shares_loop(listener.transport.reactor):
                listener.accept(link, at_once=True)
            else:
                listener.transport.reactor.call_soon(listener.accept, link)

    def close(self) -> None:
        super().close()
        memory.forget(self._name, self)


def _numeric(target: Tcp) -> tuple[int, Any]:
    """Return the family and the address of a host that is a number.

    A link-local address of IPv6 means nothing without its interface, as in fe80::1%eth0. Raise `OSError` if there is
    no such interface now.
    """
    host, _, scope = target.host.partition("%")
    if ":" not in host:
        return socket.AF_INET, (host, target.first)
    index = int(scope) if scope.isdecimal() else socket.if_nametoindex(scope) if scope else 0
    return socket.AF_INET6, (host, target.first, 0, index)


def _peer_name(sock: socket.socket) -> Any:
    """Return the address of the other end, or None if the socket is not connected."""
    try:
        return sock.getpeername()
    except OSError:
        return None


def _text_of(code: int, otherwise: str) -> str:
    return (os.strerror(code) if code else otherwise).lower()
