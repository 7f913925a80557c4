"""The rules of the PEER socket (51/P2P), without waiting and without threads.

Each peer has a double queue (one in each direction), and a routing id that this socket alone chooses. How long a
double queue exists depends on which side connected:

- If this side called `connect`, the queue exists from the call until `disconnect` or the end of the socket, connected
  or not. Its messages wait while the connection is lost. (P2P-05)
- If the peer connected to us, the queue exists as long as that connection. When the connection ends, the socket
  discards the queue and its messages, and the routing id becomes invalid. (P2P-06) With `keep_unread`, the program can
  still receive the messages that have arrived; see `unread`.

A message is one frame. A peer that sends several breaks the pattern: the engine of the connection refuses the first
frame that says "more follow", so no part of such a message arrives, and the peer is disconnected. (P2P-13)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import repeat

from zambezi.p2p.errors import NoSuchPeer
from zambezi.p2p.events import PeerConnected, PeerDisconnected
from zambezi.p2p.unread import Unread
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.events import Connected, Disconnected, SocketEvent
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.inbox import FairInbox
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.transport import Transport


class PeerPattern:
    """PEER: messages to and from peers by routing id.

    `keep_unread` bounds the messages of all peers together that have left before the program received them. Without
    it, the socket discards these messages.
    """

    def __init__(
        self,
        reactor: Reactor,
        options: Options | None = None,
        chance: random.Random | None = None,
        keep_unread: Bound | None = None,
    ) -> None:
        if options is not None and options.on_full == "drop":
            raise ZmtpError("a PEER socket never drops a message that it cannot queue: use on_full='block' or 'error'")
        self.transport = Transport(reactor, "PEER", self, options, chance=chance, multipart=False, identify=_accept_any)
        self.transport.on_event = self._translate
        self.on_readable: Callable[[], object] = _nothing
        self.on_writable: Callable[[], object] = _nothing
        self.on_event: Callable[[SocketEvent], object] = _nothing
        self.peers: dict[int, Peer] = {}
        self._ids: dict[Peer, int] = {}  # also of peers after `disconnect`, until their connection ends
        self._unread = None if keep_unread is None else Unread(keep_unread)
        emptied = None if keep_unread is None else self._emptied
        self._inbox = FairInbox(self.transport.options.receive_bound, self._unpack, emptied)
        # Returns the next message with the routing id of its sender, one from each peer in turn, or None.
        # (P2P-11, P2P-12)
        self.try_recv: Callable[[], tuple[int, bytes] | None] = self._inbox.next
        # A random start: an id that a program kept from an earlier run is hardly ever the id of another peer.
        self._last_id = self.transport.chance.getrandbits(32)

    # Endpoints and routing ids

    def bind(self, endpoint: str) -> str:
        """Accept connections; return the endpoint with its wildcards filled in."""
        return self.transport.bind(endpoint)

    def connect(self, endpoint: str) -> int:
        """Create the double queue and its routing id, and begin to connect. (P2P-05, P2P-08)"""
        return self._add(self.transport.connect(endpoint))

    def disconnect(self, routing_id: int, linger: float | None) -> None:
        """Remove a peer's double queue. Messages to the peer still go out, for at most `linger` seconds."""
        peer = self._find(routing_id)
        self._remove(peer)
        if not peer.connected:
            del self._ids[peer]
        peer.close(linger)

    def close(self, linger: float | None) -> None:
        """Begin to close the socket."""
        self.transport.close(linger)

    def _add(self, peer: Peer) -> int:
        routing_id = self._next_id()
        self.peers[routing_id] = peer
        self._ids[peer] = routing_id
        self.on_writable()
        return routing_id

    def _remove(self, peer: Peer) -> None:
        """End a double queue, and discard the messages that have arrived."""
        self._discard(peer)
        self._end_sending(peer)

    def _discard(self, peer: Peer) -> None:
        self.transport.counters.unread += self._inbox.discard(peer)

    def _end_sending(self, peer: Peer) -> None:
        self.peers.pop(self._ids.get(peer, 0), None)
        self.on_writable()  # a caller that waits for room in this queue must learn that it is gone

    def _next_id(self) -> int:
        """Return the free id that was unused for the longest time: 32 bits, never zero. (P2P-07)"""
        while True:
            self._last_id = (self._last_id + 1) & 0xFFFFFFFF
            used = self._last_id in self.peers or (self._unread is not None and self._last_id in self._unread)
            if self._last_id and not used:
                return self._last_id

    def _find(self, routing_id: int) -> Peer:
        peer = self.peers.get(routing_id)
        if peer is None:
            raise NoSuchPeer(f"no peer has the routing id {routing_id}: the peer disconnected, or never existed")
        return peer

    # Called by the transport

    def attached(self, peer: Peer) -> None:
        routing_id = self._ids.get(peer) or self._add(peer)
        self.transport.tell(PeerConnected(peer.endpoint, routing_id, peer.address, peer.user))

    def received(self, peer: Peer, batch: Batch) -> None:
        if peer.open or self._keeps(peer):
            self._inbox.add(peer, batch)
            self.on_readable()
        else:
            self.transport.counters.unread += len(batch)  # the peer was still sending when we disconnected it

    def writable(self, peer: Peer) -> None:
        self.on_writable()

    def lost(self, peer: Peer, reason: str) -> None:
        """Remove the double queue of a peer that connected to us. (P2P-06)"""
        self.transport.tell(PeerDisconnected(peer.endpoint, self._ids.get(peer, 0), peer.address, reason))
        if self.transport.is_outgoing(peer):
            return
        if self._keeps(peer):
            self._keep(peer)
        else:
            self._remove(peer)
            self._ids.pop(peer, None)

    # Messages of peers that have left

    def _keeps(self, peer: Peer) -> bool:
        """Return whether the messages of a peer that leaves are kept: not those of a peer that we disconnected."""
        return self._unread is not None and self._ids.get(peer) in self.peers

    def _keep(self, peer: Peer) -> None:
        assert self._unread is not None
        while peer.held:
            peer.resume()  # batches that arrived while the queue was full: nothing else will ask for them
        routing_id = self._ids[peer]
        self._end_sending(peer)
        messages = self._inbox.waiting(peer)
        if not messages:
            del self._ids[peer]
            return
        for longest in self._unread.keep(peer, routing_id, messages, self._inbox.octets_of(peer)):
            self._discard(longest)
            del self._ids[longest]

    def _emptied(self, peer: Peer) -> None:
        """Forget a peer that has left, after its last message was received."""
        assert self._unread is not None
        if not peer.open and self._ids.get(peer, 0) in self._unread:
            self._unread.forget(peer)
            del self._ids[peer]

    def _translate(self, event: SocketEvent) -> None:
        """Pass on the events of the transport, except those that have a twin with a routing id."""
        if not isinstance(event, Connected | Disconnected):
            self.on_event(event)

    # Messages

    def post(self, routing_id: int, data: bytes) -> bool:
        """Send a message without the lock, from any thread; return False if that is not possible now."""
        peer = self.peers.get(routing_id)
        return peer is not None and peer.post(data)

    def try_send(self, routing_id: int, data: bytes) -> bool:
        """Queue a message; return False if the peer's queue is full and the caller must wait. (P2P-15 to P2P-17)"""
        peer = self.peers.get(routing_id)
        if peer is None:
            peer = self._find(routing_id)
        return peer.try_send(data) or self.transport.apply_policy(f"the queue of peer {routing_id} is full")

    @property
    def readable(self) -> bool:
        """Whether a message can be received."""
        return bool(self._inbox)

    def _unpack(self, peer: Peer, batch: Batch) -> Iterator[tuple[int, bytes]]:
        return zip(repeat(self._ids[peer]), batch.frames)


def _accept_any(_peer: Peer, _claimed: bytes) -> bool:
    """Accept the peer whatever identity it claims: PEER ignores identities. (P2P-09)"""
    return True


def _nothing(*_: object) -> None:
    pass
