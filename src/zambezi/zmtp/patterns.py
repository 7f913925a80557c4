"""The rules of ZeroMQ's socket types: DEALER, ROUTER, PUB, SUB, XPUB, XSUB (28/REQREP and 29/PUBSUB, as in libzmq).

Each is a protocol on a `Transport`. None of them waits: `try_send` and `try_recv` return at once, and say whether they
succeeded; a pattern calls `on_readable` and `on_writable` when another try can succeed. The faces (`asyncio`, `sync`)
turn this into calls that wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

from zambezi.zmtp.errors import MessageError, Unroutable, ZmtpError
from zambezi.zmtp.events import SocketEvent
from zambezi.zmtp.frames import Batch, Frames, Message, Shared, parts_of
from zambezi.zmtp.identities import Identities
from zambezi.zmtp.inbox import FairInbox
from zambezi.zmtp.options import Options
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.subscriptions import Subscriptions
from zambezi.zmtp.transport import CHANCE, Counters, Transport

Unroutables: TypeAlias = Literal["drop", "error"]


class Pattern:
    """The base of the socket types: a transport, and an inbox that serves the peers in turn."""

    socket_type: ClassVar[str]

    def __init__(
        self, reactor: Reactor, options: Options | None = None, chance: random.Random | None = None, **hooks: Any
    ) -> None:
        self.transport = Transport(reactor, self.socket_type, self, options, chance=chance, **hooks)
        self.inbox: FairInbox[list[bytes]] = FairInbox(self.transport.options.receive_bound, self.unpack)
        # Returns the next message, one from each peer in turn, or None.
        self.try_recv: Callable[[], list[bytes] | None] = self.inbox.next
        self.on_readable: Callable[[], object] = _nothing
        self.on_writable: Callable[[], object] = _nothing

    # Passed on to the transport

    @property
    def counters(self) -> Counters:
        return self.transport.counters

    @property
    def closing(self) -> bool:
        return self.transport.closing

    @property
    def closed(self) -> bool:
        return self.transport.closed

    @property
    def on_event(self) -> Callable[[SocketEvent], object]:
        return self.transport.on_event

    @on_event.setter
    def on_event(self, watcher: Callable[[SocketEvent], object]) -> None:
        self.transport.on_event = watcher

    @property
    def on_closed(self) -> Callable[[], object]:
        return self.transport.on_closed

    @on_closed.setter
    def on_closed(self, watcher: Callable[[], object]) -> None:
        self.transport.on_closed = watcher

    def bind(self, endpoint: str) -> str:
        """Accept connections; return the endpoint with its wildcards filled in."""
        return self.transport.bind(endpoint)

    def unbind(self, endpoint: str) -> None:
        """Accept no more connections at an endpoint. Existing connections stay."""
        self.transport.unbind(endpoint)

    def connect(self, endpoint: str) -> Peer:
        """Connect in the background, and reconnect whenever the connection is lost."""
        return self.transport.connect(endpoint)

    def disconnect(self, endpoint: str, linger: float | None) -> None:
        """End a connection that `connect` made, when its queue is empty or after `linger` seconds."""
        peer = self.transport.connected_to(endpoint)
        self.forget(peer)
        peer.close(linger)

    def close(self, linger: float | None) -> None:
        """Begin to close. `on_closed` is called when the socket is closed."""
        self.transport.close(linger)

    # Called by the transport

    def attached(self, peer: Peer) -> None:
        self.on_writable()

    def received(self, peer: Peer, batch: Batch) -> None:
        self.inbox.add(peer, batch)
        self.on_readable()

    def writable(self, peer: Peer) -> None:
        self.on_writable()

    def lost(self, peer: Peer, reason: str) -> None:
        self.forget(peer)

    # Defined by each socket type

    def forget(self, peer: Peer) -> None:
        """Route no more messages to a peer."""

    def unpack(self, peer: Peer, batch: Batch) -> Iterator[list[bytes]]:
        """Yield the messages of a batch as `try_recv` returns them."""
        return iter(batch)

    def try_send(self, message: Frames) -> bool:
        """Queue a message; return False if it cannot be queued now."""
        raise ZmtpError(f"a {self.socket_type} socket does not send")

    def try_send_batch(self, messages: Sequence[Frames], start: int) -> int:
        """Queue messages from index `start` on; return the index where it stopped."""
        for index in range(start, len(messages)):
            if not self.try_send(messages[index]):
                return index
        return len(messages)

    def post(self, message: Frames) -> bool:
        """Send a message without the lock, from any thread; return False if that is not possible now."""
        return False

    @property
    def readable(self) -> bool:
        """Whether a message can be received."""
        return bool(self.inbox)

    def try_recv_batch(self) -> Batch | None:
        """Return the next batch, one from each peer in turn."""
        return self.inbox.next_batch()


class Dealer(Pattern):
    """DEALER: each message goes to one peer, in turn, among those with room.

    A peer that we connect to has its turn from the beginning: its messages wait until the connection exists.
    """

    socket_type = "DEALER"

    def __init__(self, reactor: Reactor, options: Options | None = None, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self._turn: list[Peer] = []

    def connect(self, endpoint: str) -> Peer:
        peer = super().connect(endpoint)
        self._turn.append(peer)
        self.on_writable()
        return peer

    def attached(self, peer: Peer) -> None:
        if peer not in self._turn:
            self._turn.append(peer)
        self.on_writable()

    def lost(self, peer: Peer, reason: str) -> None:
        if not self.transport.is_outgoing(peer):
            self.forget(peer)

    def forget(self, peer: Peer) -> None:
        if peer in self._turn:
            self._turn.remove(peer)

    def post(self, message: Frames) -> bool:
        turn = self._turn[:2]  # a copy: this runs without the lock
        return len(turn) == 1 and type(message) is bytes and turn[0].post(message)

    def try_send(self, message: Frames) -> bool:
        turn = self._turn
        for _ in range(len(turn)):
            peer = turn[0]
            if len(turn) > 1:
                turn.append(turn.pop(0))
            if peer.try_send(message):
                return True
        return self.transport.apply_policy("every peer's queue is full" if turn else "the socket has no peer")

    def try_send_batch(self, messages: Sequence[Frames], start: int) -> int:
        if len(self._turn) != 1 or any(type(message) is not bytes for message in messages):
            return super().try_send_batch(messages, start)
        peer = self._turn[0]
        while start < len(messages):
            # Queued messages can go out at once and make room, so a queue is full only if it accepts nothing.
            stop = peer.send_many(messages, start)  # type: ignore[arg-type]
            if stop == start:
                if not self.transport.apply_policy("the peer's queue is full"):
                    break
                stop += 1
            start = stop
        return start


class Router(Pattern):
    """ROUTER: the first frame of a message is the identity of the peer that it goes to, or comes from.

    `admits` returns whether a peer may have the identity that it claims.
    """

    socket_type = "ROUTER"

    def __init__(
        self,
        reactor: Reactor,
        options: Options | None = None,
        chance: random.Random | None = None,
        unroutable: Unroutables = "drop",
        handover: bool = False,
        admits: Callable[[Peer, bytes], bool] | None = None,
    ) -> None:
        if unroutable not in ("drop", "error"):
            raise ZmtpError(f"unroutable must be 'drop' or 'error', not {unroutable!r}")
        self._unroutable = unroutable
        self._admits = admits
        self._identities = Identities(chance or CHANCE, handover)
        self.peers = self._identities.peers
        super().__init__(reactor, options, chance, admit=self._identities.admit, identify=self._identify)

    def _identify(self, peer: Peer, claimed: bytes) -> bool:
        before = peer.identity
        if self._admits is not None and not self._admits(peer, claimed):
            return False
        if not self._identities.identify(peer, claimed):
            return False
        if before != peer.identity:
            # The peer at the other end is a new one: it must not get the messages for the old one.
            self.counters.abandoned += len(peer.take_queue())
        # Messages from an old connection of the peer that still wait are received before those of this connection.
        for old in [one for one in self.inbox.peers if one.identity == peer.identity and one is not peer]:
            for batch in self.inbox.take(old):
                self.inbox.add(peer, batch)
        return True

    def attached(self, peer: Peer) -> None:
        self._identities.add(peer)
        self.on_writable()

    def received(self, peer: Peer, batch: Batch) -> None:
        batch.sender = peer.identity
        super().received(peer, batch)

    def forget(self, peer: Peer) -> None:
        self._identities.remove(peer)
        self.on_writable()  # a caller that waits for room in this queue must learn that it is gone

    def unpack(self, peer: Peer, batch: Batch) -> Iterator[list[bytes]]:
        return batch.addressed()

    def _find(self, identity: bytes, messages: int) -> Peer | None:
        peer = self.peers.get(identity)
        if peer is None:
            self.counters.unroutable += messages
            if self._unroutable == "error":
                raise Unroutable(f"no peer has the identity {identity!r}")
        return peer

    def try_send(self, message: Frames) -> bool:
        parts = parts_of(message)
        if len(parts) < 2:
            raise MessageError("a ROUTER sends [identity, frame, ...]: a message needs a frame after the identity")
        peer = self._find(parts[0], 1)
        if peer is None or peer.try_send(parts[1] if len(parts) == 2 else parts[1:]):
            return True
        return self.transport.apply_policy(f"the queue of peer {parts[0]!r} is full")

    def try_send_to(self, identity: bytes, messages: Sequence[Frames], start: int) -> int:
        """Queue messages without their identity frame, all for one peer; return the index where it stopped."""
        peer = self._find(identity, len(messages) - start)
        if peer is None:
            return len(messages)
        singles = all(type(message) is bytes for message in messages)
        while start < len(messages):
            stop = start
            if singles:
                stop = peer.send_many(messages, start)  # type: ignore[arg-type]
            elif peer.try_send(messages[start]):
                stop += 1
            if stop == start:
                if not self.transport.apply_policy(f"the queue of peer {identity!r} is full"):
                    break
                stop += 1
            start = stop
        return start


class XPub(Pattern):
    """XPUB: messages go to the peers that subscribed to a prefix of their first frame; subscriptions can be received.

    `on_subscribed` is called with a peer and a prefix after each subscription. `on_unsubscribed` is called with a peer
    whose connection was lost, and its subscriptions with it.
    """

    socket_type = "XPUB"
    reports_subscriptions = True

    def __init__(self, reactor: Reactor, options: Options | None = None, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance, subscribed=self._subscribed)
        self.subscriptions: Subscriptions[Peer] = Subscriptions()
        self.on_subscribed: Callable[[Peer, bytes], object] = _nothing
        self.on_unsubscribed: Callable[[Peer], object] = _nothing

    def _subscribed(self, peer: Peer, prefix: bytes, cancel: bool) -> None:
        change = self.subscriptions.cancel if cancel else self.subscriptions.add
        # Only the first and the last subscription to a prefix are reported, so that XPUB to XSUB proxies stay small.
        if change(prefix, peer):
            self._report(peer, [(b"\x00" if cancel else b"\x01") + prefix])
        if not cancel:
            self._bound(peer, prefix)
            if peer.connected:
                self.on_subscribed(peer, prefix)

    def _bound(self, peer: Peer, prefix: bytes) -> None:
        """Cut off a peer with too many prefixes; if all peers together have too many, the one with the most.

        To ignore a subscription would be worse: the peer would miss messages, and not know that.
        """
        limits = self.transport.options.limits
        table = self.subscriptions
        if len(prefix) > limits.prefix:
            reason = f"it subscribed to a prefix of {len(prefix)} bytes; the limit is {limits.prefix}"
        elif table.count(peer) > limits.prefixes:
            reason = f"it subscribed to more than {limits.prefixes} prefixes, the limit of a peer"
        elif table.size > limits.all_prefixes:
            peer = table.busiest() or peer
            reason = (
                f"all peers together subscribed to more than {limits.all_prefixes} prefixes, the limit of the socket, "
                f"and this one to {table.count(peer)}, the most"
            )
        else:
            return
        self.transport.cut_off(peer, reason)

    def _report(self, peer: Peer, changes: list[bytes]) -> None:
        if changes and self.reports_subscriptions:
            self.inbox.add(peer, Batch(changes, None, sum(map(len, changes))))
            self.on_readable()

    def lost(self, peer: Peer, reason: str) -> None:
        # The peer subscribes again when it reconnects, and queued messages are stale by then.
        self.counters.abandoned += len(peer.take_queue())
        self.forget(peer)
        self.on_unsubscribed(peer)

    def forget(self, peer: Peer) -> None:
        self._report(peer, [b"\x00" + prefix for prefix in self.subscriptions.remove(peer)])
        self.on_writable()

    def try_send(self, message: Frames) -> bool:
        topic = message if type(message) is bytes else message[0]
        peers = self.subscriptions.match(topic)  # type: ignore[arg-type]
        if not peers:
            return True
        full = [peer for peer in peers if peer.full]
        if full:
            if not self.transport.apply_policy(f"the queues of {len(full)} subscribers are full"):
                return False
            peers = [peer for peer in peers if peer not in full]
        shared: Message = message
        if len(peers) > 1:
            shared = Shared([message])
        for peer in peers:
            peer.send(shared)
        return True


class Pub(XPub):
    """PUB: XPUB that keeps the subscriptions to itself."""

    socket_type = "PUB"
    reports_subscriptions = False

    def __init__(self, reactor: Reactor, options: Options | None = None, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self.try_recv = self.try_recv_batch

    def try_recv_batch(self) -> NoReturn:
        raise ZmtpError("a PUB socket does not receive; use XPub to see subscriptions")

    def received(self, peer: Peer, batch: Batch) -> None:
        """Discard messages that subscribers send upstream."""


class XSub(Pattern):
    """XSUB: a message that begins with 1 subscribes, one that begins with 0 cancels, and any other goes upstream."""

    socket_type = "XSUB"

    def __init__(self, reactor: Reactor, options: Options | None = None, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self._wanted: dict[bytes, int] = {}
        self._publishers: dict[Peer, None] = {}

    def subscribe(self, prefix: bytes) -> None:
        """Ask for messages that begin with `prefix`. Subscriptions count: two of these need two `unsubscribe`."""
        count = self._wanted.get(prefix, 0)
        self._wanted[prefix] = count + 1
        if not count:
            for peer in list(self._publishers):
                peer.subscribe(prefix)

    def unsubscribe(self, prefix: bytes) -> None:
        """Cancel one `subscribe` of this prefix."""
        count = self._wanted.get(prefix, 0)
        if not count:
            raise ZmtpError(f"{prefix!r} is not subscribed to")
        if count > 1:
            self._wanted[prefix] = count - 1
            return
        del self._wanted[prefix]
        for peer in list(self._publishers):
            peer.unsubscribe(prefix)

    def attached(self, peer: Peer) -> None:
        self._publishers[peer] = None
        for prefix in self._wanted:
            peer.subscribe(prefix)
        self.on_writable()

    def forget(self, peer: Peer) -> None:
        self._publishers.pop(peer, None)

    def try_send(self, message: Frames) -> bool:
        parts = parts_of(message)
        head = parts[0][:1]
        if len(parts) == 1 and head == b"\x01":
            self.subscribe(parts[0][1:])
        elif len(parts) == 1 and head == b"\x00":
            if parts[0][1:] in self._wanted:
                self.unsubscribe(parts[0][1:])
        else:
            for peer in self._publishers:
                if not peer.try_send(message):
                    self.counters.dropped += 1
        return True


class Sub(XSub):
    """SUB: XSUB with the methods `subscribe` and `unsubscribe` only; it does not send."""

    socket_type = "SUB"

    def try_send(self, message: Frames) -> bool:
        raise ZmtpError("a SUB socket does not send; call subscribe() or unsubscribe()")

    def received(self, peer: Peer, batch: Batch) -> None:
        kept = self._filter(batch)
        if kept is not None:
            super().received(peer, kept)

    def _filter(self, batch: Batch) -> Batch | None:
        """Discard messages whose subscription was cancelled: the publisher may not know of that yet."""
        wanted = self._wanted
        if b"" in wanted:
            return batch
        prefixes = tuple(wanted)
        if batch.ends is None:
            frames = [frame for frame in batch.frames if frame.startswith(prefixes)]
            if len(frames) == len(batch.frames):
                return batch
            return Batch(frames, None, batch.octets) if frames else None
        kept = [message for message in batch if message[0].startswith(prefixes)]
        if len(kept) == len(batch):
            return batch
        frames, ends = [], []
        for message in kept:
            frames += message
            ends.append(len(frames))
        return Batch(frames, ends, batch.octets) if kept else None


def _nothing(*_: object) -> None:
    pass
