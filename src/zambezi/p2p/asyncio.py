"""The PEER socket for asyncio (51/P2P): the names of `zambezi.p2p.PeerSocket`, to be awaited.

>>> import asyncio
>>> async def main() -> bytes:
...     async with PeerSocket() as ann, PeerSocket() as bob:
...         to_bob = ann.connect(bob.bind("inproc://bob"))
...         await ann.send(to_bob, b"hello bob")
...         to_ann, text = await bob.recv()
...         return text
>>> asyncio.run(main())
b'hello bob'
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import ClassVar, Unpack

from zambezi.p2p.engine import PeerEngine
from zambezi.zmtp.asyncio import YIELD_AFTER, BaseSocket
from zambezi.zmtp.core import Options
from zambezi.zmtp.errors import SocketClosed
from zambezi.zmtp.face import DEFAULT_LINGER, Frame, SocketArguments, as_frame


class PeerSocket(BaseSocket):
    """A socket to any number of peers, each known by a routing id.

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
        return self._checked().connect_peer(endpoint)

    def disconnect(self, routing_id: int) -> None:
        """End a peer's queues. What was queued for it still goes out, for `linger` seconds at most."""
        self._checked().disconnect_peer(routing_id, self._linger)

    async def send(self, routing_id: int, data: Frame, timeout: float | None = None) -> None:
        """Queue a message for a peer; if its queue is full, wait, for `timeout` seconds at most.

        Raises `NoSuchPeer` if there is no such peer (any more), `TimedOut`, `QueueFull` (with `on_full="error"`) or
        `SocketClosed`. In all these cases the message was not queued.
        """
        frame = data if type(data) is bytes else as_frame(data)
        core = self._core
        if core.closing or not core.try_send_to(routing_id, frame):
            await self._wait(self._senders, lambda: core.try_send_to(routing_id, frame) or None, timeout)
        self._sent += 1
        if self._sent > YIELD_AFTER:
            await self._give_way()

    async def recv(self, timeout: float | None = None) -> tuple[int, bytes]:
        """The next message and the routing id of who sent it; fair between peers."""
        core = self._core
        message = core.try_recv_from() if not core.closing else None
        if message is None:
            return await self._wait(self._receivers, core.try_recv_from, timeout)
        return message

    def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[tuple[int, bytes]]:
        try:
            while True:
                yield await self.recv()
        except SocketClosed:
            return

    @property
    def peers(self) -> list[int]:
        """The routing ids that lead somewhere now."""
        return list(self._core.peers)

    def _checked(self) -> PeerEngine:
        super()._checked()
        return self._core
