"""The rules of the PEER socket (51/P2P), without waiting and without threads.

For each peer there is a double queue, a pipe, under a routing id that this socket alone chooses. The two kinds of pipe
live differently:

- One that `connect` made exists from the call on, connected or not, and through every loss of the connection, until
  it is disconnected or the socket is closed. What is queued in it waits. (P2P-05)
- One that a peer made by connecting to us exists while that connection does. When the connection ends, the pipe ends
  with all that is in it, and its routing id leads nowhere. (P2P-06)

A message is one frame. A peer that sends more than one has broken the pattern: the engine of the connection refuses
the first frame that says "more follow", so no part of such a message arrives, and the peer is disconnected. (P2P-13)
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from zambezi.p2p.errors import NoSuchPeer
from zambezi.p2p.events import PeerConnected, PeerDisconnected
from zambezi.zmtp.connection import Ready
from zambezi.zmtp.core import AnyLink, Core, Options
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.pipe import Pipe
from zambezi.zmtp.reactor import Reactor


class PeerEngine(Core):
    """PEER: messages to and from peers by routing id."""

    socket_type = "PEER"
    early = True
    multipart = False

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        if options.on_full == "drop":
            raise ZmtpError("a PEER socket never drops a message that it cannot queue: on_full is 'block' or 'error'")
        super().__init__(reactor, options, chance)
        self.peers: dict[int, Pipe] = {}
        # A random start: an id that a program kept from an earlier run does not lead to somebody else by accident.
        self._last_id = self.chance.getrandbits(32)

    # Routing ids

    def connect_peer(self, endpoint: str) -> int:
        """Make the double queue and its routing id, and begin to connect. (P2P-05, P2P-08)"""
        return self.connect(endpoint).routing_id

    def disconnect_peer(self, routing_id: int, linger: float | None) -> None:
        """End a peer's double queue. What was accepted for it still goes out, for `linger` seconds at most."""
        pipe = self._find(routing_id)
        self.leave(pipe, linger)
        self._discard_inbox(pipe)

    def identify(self, pipe: Pipe, ready: Ready) -> bool:
        """The peer's own idea of its identity is not looked at. (P2P-09)"""
        return True

    def attach(self, pipe: Pipe) -> None:
        pipe.routing_id = self._next_id()
        self.peers[pipe.routing_id] = pipe
        super().attach(pipe)

    def detach(self, pipe: Pipe) -> None:
        del self.peers[pipe.routing_id]
        super().detach(pipe)
        self.on_writable()  # who waits for room in this queue must learn that it is gone

    def left(self, pipe: Pipe) -> None:
        """An incoming connection ended: so do its queues, in both directions. (P2P-06)"""
        self._discard_inbox(pipe)

    def _discard_inbox(self, pipe: Pipe) -> None:
        self.counters.abandoned += pipe.clear_inbox()
        if pipe.queued:
            pipe.queued = False
            self.ready.remove(pipe)

    def _next_id(self) -> int:
        """A free id, the longest unused one: 32 bits, never zero. (P2P-07)"""
        while True:
            self._last_id = (self._last_id + 1) & 0xFFFFFFFF
            if self._last_id and self._last_id not in self.peers:
                return self._last_id

    def _find(self, routing_id: int) -> Pipe:
        pipe = self.peers.get(routing_id)
        if pipe is None:
            raise NoSuchPeer(f"no peer has the routing id {routing_id}: it disconnected, or never was")
        return pipe

    # Messages

    def arrived(self, pipe: Pipe) -> None:
        if pipe.attached:
            super().arrived(pipe)
        else:
            self._discard_inbox(pipe)  # disconnected by us, while the peer was still sending

    def try_send_to(self, routing_id: int, data: bytes) -> bool:
        """Queue a message for a peer; False if its queue is full and the policy is to wait. (P2P-15 to P2P-17)"""
        pipe = self.peers.get(routing_id)
        if pipe is None:
            pipe = self._find(routing_id)
        if pipe.mailbox:
            pipe.collect()
        if len(pipe.outbox) >= self.send_messages or pipe.out_octets >= self.send_octets:
            return self.full(f"the queue of peer {routing_id} is full")
        pipe.push(data)
        return True

    def try_recv_from(self) -> tuple[int, bytes] | None:
        """The next message with the routing id of its sender, one from each peer in turn. (P2P-11, P2P-12)"""
        return self.try_recv()  # type: ignore[return-value]

    def messages_of(self, pipe: Pipe, batch: Batch) -> Iterator[Any]:
        """What `try_recv` gives here: no lists of frames, as there is but one frame, but pairs."""
        return zip(repeat(pipe.routing_id), batch.frames)

    # Events

    def connected_event(self, link: AnyLink, ready: Ready) -> SocketEvent:
        return PeerConnected(link.endpoint, link.pipe.routing_id, link.address, ready.user)

    def disconnected_event(self, link: AnyLink, reason: str) -> SocketEvent:
        return PeerDisconnected(link.endpoint, link.pipe.routing_id, link.address, reason)
