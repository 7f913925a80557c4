"""The PEER socket for threads (51/P2P): blocking calls, each of which any thread may make at any time. (P2P-19)

>>> with PeerSocket() as ann, PeerSocket() as bob:
...     to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
...     ann.send(to_bob, b"hello bob")
...     to_ann, text = bob.recv()
...     bob.send(to_ann, b"hello ann")
...     routing_id, answer = ann.recv()
>>> text, answer, routing_id == to_bob
(b'hello bob', b'hello ann', True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Unpack

from zambezi.p2p.engine import PeerEngine
from zambezi.zmtp.core import Options
from zambezi.zmtp.errors import SocketClosed
from zambezi.zmtp.face import DEFAULT_LINGER, Frame, SocketArguments, as_frame
from zambezi.zmtp.sync import BaseSocket


class PeerSocket(BaseSocket):
    """A thread-safe socket to any number of peers, each known by a routing id.

    The options are those of the other sockets (`security`, `authenticator`, `send_bound`, `receive_bound`, `limits`,
    `heartbeat`, `backoff`); `on_full` is `"block"` (the default) or `"error"`.
    """

    _make: ClassVar[Callable[..., PeerEngine]] = PeerEngine
    _core: PeerEngine

    def __init__(self, *, linger: float | None = DEFAULT_LINGER, **options: Unpack[SocketArguments]) -> None:
        self._open(linger, Options(**options))

    def connect(self, endpoint: str) -> int:
        """Connect in the background, and again whenever the connection is lost; the peer's routing id.

        The peer's queues exist from now on: what is sent before the connection is there waits for it.
        """
        with self._lock:
            return self._checked().connect_peer(endpoint)

    def disconnect(self, routing_id: int) -> None:
        """End a peer's queues. What was queued for it still goes out, for `linger` seconds at most."""
        with self._lock:
            self._checked().disconnect_peer(routing_id, self._linger)

    def send(self, routing_id: int, data: Frame, timeout: float | None = None) -> None:
        """Queue a message for a peer; if its queue is full, wait, for `timeout` seconds at most.

        Raises `NoSuchPeer` if there is no such peer (any more), `TimedOut`, `QueueFull` (with `on_full="error"`) or
        `SocketClosed`. In all these cases the message was not queued.
        """
        frame = data if type(data) is bytes else as_frame(data)
        core = self._core
        if self._post(core.peers.get(routing_id), frame):
            return
        with self._lock:
            if core.closing or not core.try_send_to(routing_id, frame):
                self._wait_to_send(lambda: core.try_send_to(routing_id, frame) or None, timeout)

    def recv(self, timeout: float | None = None) -> tuple[int, bytes]:
        """The next message and the routing id of who sent it; fair between peers."""
        return self._receive(self._core.try_recv_from, timeout)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        try:
            while True:
                yield self.recv()
        except SocketClosed:
            return

    @property
    def peers(self) -> list[int]:
        """The routing ids that lead somewhere now."""
        with self._lock:
            return list(self._core.peers)

    def _checked(self) -> PeerEngine:
        super()._checked()
        return self._core
