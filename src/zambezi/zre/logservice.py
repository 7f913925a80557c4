"""The shell of a log service: a SUB socket on an ephemeral port, to which the nodes of a mesh connect. (LOG-01)"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Sub
from zambezi.zmtp.reactor import Reactor
from zambezi.zre.log import SERVICE, Record, read
from zambezi.zre.node import NodeShell
from zambezi.zre.options import SMALL
from zambezi.zre.whereabouts import EPHEMERAL


class LogShell:
    """Collects the logs of a mesh for a node that announces the service."""

    def __init__(self, reactor: Reactor, node: NodeShell) -> None:
        security, guard = node.security.server, node.security.authenticator
        self.records: deque[Record] = deque()
        self.discarded = 0
        self._reactor = reactor
        self.on_record: Callable[[], object] = lambda: None
        self.on_closed: Callable[[], object] = lambda: None
        self._sub = Sub(reactor, Options(security=security, authenticator=guard, limits=SMALL))
        self._sub.on_readable = self._readable
        self._sub.on_closed = self._closed
        self._sub.subscribe(b"")
        self.endpoint = self._sub.bind(node.service_endpoint("log", EPHEMERAL))
        self._node = node
        node.on_moved.append(self._node_moved)

    def _node_moved(self) -> None:
        """Follow the node to another address. Service and node can be in different threads; each acts in its own."""
        self._reactor.call_soon(self._follow, self._node.service_endpoint("log", EPHEMERAL))

    def _follow(self, where: str) -> None:
        if self.closing or where.rpartition(":")[0] == self.endpoint.rpartition(":")[0]:
            return
        try:
            endpoint = self._sub.bind(where)
        except EndpointError:
            return  # that address is gone too, and the node will move again
        self._sub.unbind(self.endpoint)
        before, self.endpoint = self.endpoint, endpoint
        self._node.reactor.call_soon(self._announce, before, endpoint)

    def _announce(self, before: str, endpoint: str) -> None:
        node = self._node
        if not node.stopping and node.engine.profile.headers.get(SERVICE) == before:
            node.announce(SERVICE, endpoint)

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._sub.closing

    @property
    def closed(self) -> bool:
        """Whether everything is closed."""
        return self._sub.closed

    def _readable(self) -> None:
        if self.records:
            return  # further messages wait in the socket, which is bounded
        self._fill()
        if self.records:
            self.on_record()

    def _fill(self) -> None:
        batch = self._sub.try_recv_batch()
        while batch is not None and not self.records:
            for message in batch:
                record = read(message[0]) if len(message) == 1 else None
                if record is None:
                    self.discarded += 1  # LOG-03
                else:
                    self.records.append(record)
            if not self.records:
                batch = self._sub.try_recv_batch()

    def next_record(self) -> Record | None:
        """Return the next log, or None."""
        if not self.records:
            self._fill()
        return self.records.popleft() if self.records else None

    def close(self) -> None:
        """Begin to close."""
        if self._node_moved in self._node.on_moved:
            self._node.on_moved.remove(self._node_moved)
        self._sub.close(0)

    def _closed(self) -> None:
        self.on_closed()
