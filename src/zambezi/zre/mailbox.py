"""The sockets of a node: a ROUTER that all peers send to (the mailbox), and a DEALER to each of them.

The DEALERs share one transport: on the wire each is a DEALER with the node's identity, connected to one peer alone
(MBX-03), and in memory it costs little more than its queue. A mesh of a thousand nodes in one process has a million.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import Security
from zambezi.zmtp.transport import Transport
from zambezi.zre.contact import endpoint_of
from zambezi.zre.dialect import Frames
from zambezi.zre.options import SMALL, NodeOptions
from zambezi.zre.security import NodeSecurity
from zambezi.zre.stalls import Stalls
from zambezi.zre.timing import Timing

_HEADING: Final = 512  # bytes of a WHISPER or SHOUT before its content, with the name of a group, and of encryption


class Mailbox(Router):
    """The ROUTER to which all peers send, each on a connection with the identity of its node. (MBX-03)

    It gives its own identity in the handshake: a node that has us as a seed then knows which node it found. A new
    connection of a node replaces the one that it had, if `admits` says that it may have the identity.

    `read` is called with a batch that came, and returns False if the batch must wait. If others wait, it waits behind
    them, and `on_readable` is called.
    """

    def __init__(
        self,
        reactor: Reactor,
        node: NodeOptions,
        security: NodeSecurity,
        chance: random.Random | None,
        admits: Callable[[Peer, bytes], bool],
    ) -> None:
        size = node.max_message + _HEADING
        options = Options(
            identity=_identity_of(node.uuid.bytes),
            security=security.server,
            authenticator=security.authenticator,
            receive_bound=node.bound,
            limits=Limits(frame=size, message=size),
        )
        super().__init__(reactor, options, chance, handover=True, admits=admits)
        self.read: Callable[[Batch], bool] = lambda _: False

    def received(self, peer: Peer, batch: Batch) -> None:
        batch.sender = peer.identity
        if self.inbox or not self.read(batch):
            super().received(peer, batch)

    def is_connected(self, key: bytes) -> bool:
        """Return whether a peer is connected to the mailbox."""
        return _identity_of(key) in self.peers

    def source_of(self, key: bytes) -> str:
        """Return the address from which a peer is connected; empty if it is not connected."""
        peer = self.peers.get(_identity_of(key))
        return peer.address if peer is not None else ""

    def key_of(self, key: bytes) -> bytes:
        """Return the public key that a peer has proved; empty if it is not connected."""
        peer = self.peers.get(_identity_of(key))
        return peer.key if peer is not None else b""

    def has_unread(self, key: bytes) -> bool:
        """Return whether messages of a peer wait in the mailbox."""
        return any(peer.identity == _identity_of(key) for peer in self.inbox.peers)


def dealer_options(node: NodeOptions) -> Options:
    """Return the options of the DEALERs of a node."""
    # A seed that was down for a while is met soon after it is back.
    backoff = Backoff(longest=max(0.1, min(10.0, node.evasive)))
    return Options(identity=_identity_of(node.uuid.bytes), send_bound=node.bound, limits=SMALL, backoff=backoff)


def _identity_of(key: bytes) -> bytes:
    return b"\x01" + key  # MBX-03


class Dealers:
    """A DEALER to each peer, by the engine's key for it. `security_for` returns the security of one to a contact."""

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        security_for: Callable[[str], Security],
        chance: random.Random | None = None,
    ) -> None:
        # A message to many peers is a write to each: several messages to one peer go out together.
        self.transport = Transport(reactor, "DEALER", self, options, chance=chance, eager=False)
        self._security_for = security_for
        self._peers: dict[bytes, Peer] = {}
        self.stalls = Stalls(Timing())
        self.on_room: Callable[[], object] = lambda: None
        self._lost: set[Peer] = set()  # whose connections were lost
        self.on_attached: Callable[[Peer], object] = lambda _: None
        # With the key of a peer and the identity that its mailbox gave: a connection that was lost is made again, or
        # the mailbox is not that peer's.
        self.on_reached: Callable[[bytes, bytes], object] = lambda *_: None
        self.on_lost: Callable[[bytes], object] = lambda _: None  # with the key of a peer to which it connects again

    def open(self, key: bytes, contact: str) -> None:
        """Connect to a peer's mailbox."""
        self._peers[key] = self.transport.connect(endpoint_of(contact), self._security_for(contact))

    def adopt(self, before: bytes, key: bytes) -> None:
        """Give a DEALER the key of the peer at its other end, now that it is known."""
        self._peers[key] = self._peers.pop(before)

    def shut(self, key: bytes) -> None:
        """Close the DEALER to a peer, and discard its queue."""
        peer = self._peers.pop(key, None)
        if peer is not None:
            self._lost.discard(peer)
            self.stalls.end(peer)
            peer.close(0)

    def give_up(self, key: bytes) -> None:
        """Discard the queue to a peer while the DEALERs close, so that they do not wait for it."""
        peer = self._peers.get(key)
        if peer is not None:
            peer.take_queue()
            self.transport.settle(peer)

    def send(self, key: bytes, frames: Frames) -> bool:
        """Queue a message; return False if the peer's queue is full. This never waits. (MBX-05)

        The program's messages are sent only to a queue that has room. The messages of the node itself, which are
        small, can exceed the bound.
        """
        peer = self._peers.get(key)
        if peer is None:
            return True
        message = frames[0] if len(frames) == 1 else frames
        return peer.try_send(message) or peer.squeeze(message)

    def has_room(self, key: bytes) -> bool:
        """Return whether the queue to a peer has room; if it has none, `on_room` is called when it may have some."""
        peer = self._peers.get(key)
        if peer is None or not peer.full:
            return True
        self.stalls.begin(peer, self.transport.reactor.time())
        return False

    def unresponsive(self, now: float) -> list[bytes]:
        """Return the peers whose queues were full for their time, and that read nothing."""
        return [self._key_of(peer) for peer in self.stalls.due(now)]

    def drained(self, key: bytes) -> bool:
        """Return whether all that was sent to a peer has left this side."""
        peer = self._peers.get(key)
        return peer is None or peer.drained

    def reached(self, key: bytes) -> bool:
        """Return whether the DEALER to a peer is connected, and the mailbox at the other end is that peer's."""
        peer = self._peers.get(key)
        return peer is not None and peer.connected and peer.identity[1:] == key

    def is_connected(self, key: bytes) -> bool:
        """Return whether the DEALER to a peer is connected."""
        peer = self._peers.get(key)
        return peer is not None and peer.connected

    def is_lost(self, key: bytes) -> bool:
        """Return whether the DEALER to a peer has lost its connection; False while it connects for the first time."""
        peer = self._peers.get(key)
        return peer is None or peer in self._lost

    def proved_key(self, key: bytes) -> bytes:
        """Return the public key that the mailbox at the other end of a DEALER has proved; empty if it has none."""
        peer = self._peers.get(key)
        return peer.key if peer is not None and peer.connected else b""

    # Called by the transport

    def attached(self, peer: Peer) -> None:
        self.on_attached(peer)
        was_lost = peer in self._lost
        self._lost.discard(peer)
        if was_lost or (peer.identity and self._peers.get(peer.identity[1:]) is not peer):
            self.on_reached(self._key_of(peer), peer.identity)

    def received(self, peer: Peer, batch: Batch) -> None:
        """Drop messages: a DEALER of a node receives nothing. (MBX-04)"""

    def writable(self, peer: Peer) -> None:
        if self.stalls and self.stalls.moved(peer, self.transport.reactor.time()):
            self.on_room()

    def lost(self, peer: Peer, reason: str) -> None:
        if self.transport.is_outgoing(peer):
            key = self._key_of(peer)
            self._lost.add(peer)
            self.on_lost(key)

    def _key_of(self, peer: Peer) -> bytes:
        """Return the key of the peer to which a DEALER is connected; empty if there is none any more."""
        key = peer.identity[1:]  # mailboxes of our nodes give their identity
        if self._peers.get(key) is peer:
            return key
        return next((key for key, one in self._peers.items() if one is peer), b"")
