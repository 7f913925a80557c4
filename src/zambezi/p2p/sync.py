# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.
"""The PEER socket for threads, in calls that block (51/P2P).

Names, arguments and meaning are those of `zambezi.p2p.asyncio`.

>>> def main() -> tuple[bytes, bytes, bool]:
...     with PeerSocket() as ann, PeerSocket() as bob:
...         to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
...         ann.send(to_bob, b"hello bob")
...         to_ann, text = bob.recv()
...         bob.send(to_ann, b"hello ann")
...         routing_id, answer = ann.recv()
...         return text, answer, routing_id == to_bob
>>> main()
(b'hello bob', b'hello ann', True)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Unpack

from zambezi.p2p.pattern import PeerPattern
from zambezi.zmtp.errors import SocketClosed
from zambezi.zmtp.face import (
    DEFAULT_LINGER,
    NO_MESSAGE,
    NO_ROOM,
    YIELD_AFTER,
    Frame,
    SocketArguments,
    as_frame,
)
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.sync import BaseSocket
from zambezi.zmtp.thread_waiter import Waiter


class PeerSocket(BaseSocket):
    """A socket to any number of peers, each with a routing id. Any thread may use it at any time.

    The options are those of the other sockets (`security`, `authenticator`, `send_bound`, `receive_bound`, `limits`,
    `heartbeat`, `backoff`); `on_full` is `"block"` (the default) or `"error"`. (P2P-19)

    When a peer that connected to this socket leaves, the socket discards the messages of the peer that the program has
    not received yet, as 51/P2P demands (P2P-06). With `keep_unread`, the program still receives them, as with libzmq;
    its value bounds the messages that are kept of all peers together.
    """

    _shell: PeerPattern

    def __init__(
        self,
        *,
        keep_unread: Bound | None = None,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        waiter = Waiter()
        pattern = PeerPattern(waiter.reactor, Options(**options), keep_unread=keep_unread)
        super().__init__(waiter, pattern, linger)
        self._try_recv = waiter.fast(pattern.try_recv, self._transport)
        self._try_send = waiter.fast(pattern.try_send, self._transport, pattern.post)
        self._attempt_recv = self._while_open(pattern.try_recv)

    def connect(self, endpoint: str) -> int:
        """Connect in the background, and reconnect whenever the connection is lost; return the peer's routing id.

        The peer's queues exist from now on: messages that are sent before the connection exists wait in them.
        """
        return self._waiter.call(self._while_open(partial(self._shell.connect, endpoint)))

    def disconnect(self, routing_id: int) -> None:
        """Disconnect from a peer. Messages that are queued for it still go out, for at most `linger` seconds."""
        self._waiter.call(self._while_open(partial(self._shell.disconnect, routing_id, self._linger)))

    def send(self, routing_id: int, data: Frame, timeout: float | None = None) -> None:
        """Queue a message for a peer; if its queue is full, wait for at most `timeout` seconds.

        Raises `NoSuchPeer` if no peer has this routing id (any more), `TimedOut`, `QueueFull` (with `on_full="error"`)
        or `SocketClosed`. In all these cases the message was not queued.
        """
        frame = data if type(data) is bytes else as_frame(data)
        if self._transport.closing or not self._try_send(routing_id, frame):
            attempt = self._while_open(lambda: self._shell.try_send(routing_id, frame) or None)
            self._writable.until(attempt, timeout, NO_ROOM)
        self._sent += 1
        if self._sent > YIELD_AFTER:
            self._breathe()

    def recv(self, timeout: float | None = None) -> tuple[int, bytes]:
        """Return the routing id of a sender and its message. The socket receives from its peers in turn."""
        message = None if self._transport.closing else self._try_recv()
        if message is None:
            return self._readable.until(self._attempt_recv, timeout, NO_MESSAGE)
        return message

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self._messages()

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        try:
            while True:
                yield self.recv()
        except SocketClosed:
            return

    @property
    def peers(self) -> list[int]:
        """The routing ids of all peers, connected or not."""
        return self._waiter.call(list, self._shell.peers)
