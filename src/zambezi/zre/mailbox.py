"""The sockets of a node: a ROUTER that all peers send to, and a DEALER to each of them.

The DEALERs live in one core, as its pipes: on the wire each is a DEALER with the node's identity, connected to one
peer alone (MBX-03), and in memory it costs little more than its queues. A mesh of a thousand nodes in one process has a
million of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from zambezi.zmtp.core import AnyLink, Core, Options
from zambezi.zmtp.pipe import Pipe
from zambezi.zmtp.reactor import Reactor
from zambezi.zre.dialect import Frames


class Dealers(Core):
    """A DEALER to each peer, by the engine's key for it."""

    socket_type = "DEALER"
    early = True
    eager = False  # a message to many peers is a write to each: several to each go out together

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self._pipes: dict[bytes, Pipe] = {}
        self.on_lost: Callable[[bytes], object] = lambda _: None  # the connection to a peer; it is made again

    def open(self, key: bytes, endpoint: str) -> None:
        """Connect to a peer's mailbox."""
        self._pipes[key] = self.connect(endpoint)

    def adopt(self, before: bytes, key: bytes) -> None:
        """The peer at the other end is known now."""
        self._pipes[key] = self._pipes.pop(before)

    def shut(self, key: bytes) -> None:
        """Part from a peer. What is queued for it is of no use any more."""
        pipe = self._pipes.pop(key, None)
        if pipe is not None:
            self.leave(pipe, 0)

    def send(self, key: bytes, frames: Frames) -> bool:
        """Queue a message; False if the peer's queue is full, which never makes anybody wait. (MBX-05)"""
        pipe = self._pipes.get(key)
        if pipe is None:
            return True
        if pipe.full:
            return False
        pipe.push(frames[0] if len(frames) == 1 else frames)
        return True

    def drained(self, key: bytes) -> bool:
        """Whether all that was sent to a peer has left this side."""
        pipe = self._pipes.get(key)
        return pipe is None or pipe.drained

    def link_lost(self, link: AnyLink, reason: str) -> None:
        pipe = link.pipe
        established = pipe.link is link
        super().link_lost(link, reason)
        if established and pipe in self.connectors:
            key = pipe.identity[1:]  # mailboxes of our nodes say whose they are
            if self._pipes.get(key) is not pipe:
                key = next((key for key, one in self._pipes.items() if one is pipe), b"")
            self.on_lost(key)

    def arrived(self, pipe: Pipe) -> None:
        """Nothing is received here. (MBX-04)"""
        pipe.clear_inbox()
