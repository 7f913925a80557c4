"""A peer: the other end of one connection, as a protocol sees it, with the queue of messages to it.

Messages wait in the outbox until the link, which owns the kernel socket, takes them, many at a time. A peer that
`Transport.connect` made outlives its link: the link can be lost and made again, and queued messages wait.

Threads that send very many messages would spend their time on the socket's lock. So `post` queues a message without
the lock: the message goes into a mailbox, whose `append` is atomic, and the holder of the lock moves the mailbox into
the outbox. Two rules make that safe. A thread posts only while the link is `pending`, which means that the link will
look into the mailbox; and the thread checks that *again* after it has posted. The link clears that state *before* it
empties the mailbox, so either the link sees the message, or the thread sees that it must take the lock. In the same
way, the code that ends a peer clears `open` before it looks into the mailbox.

A process can have a million peers (a mesh of a thousand nodes in memory), so they are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from zambezi.wire.text import printable
from zambezi.zmtp.commands import NO_PROPERTIES
from zambezi.zmtp.frames import Batch, Message, size_of
from zambezi.zmtp.source import Framed, Source

if TYPE_CHECKING:
    from zambezi.zmtp.transport import Transport

# The most bytes that are encoded and passed to the kernel at a time: large enough to make the system call cheap per
# message, and small enough that few messages are in an uncertain state when a connection breaks.
TAKE: Final = 256 * 1024

# The most messages that can wait in a mailbox, and the most bytes of each.
POSTS: Final = 512
POST: Final = 1024
# The mailbox of peers in an event loop, to which no thread posts.
_NO_POSTS: Final[list[bytes]] = []


class Link(Protocol):
    """The carrier of a peer's messages, over a stream or in memory. Private to `zambezi.zmtp`."""

    source: Source | None
    address: str

    def offer(self, messages: Framed) -> bool:
        """Take messages now, past the outbox, or return False."""

    def wake(self) -> None:
        """Ask the source for messages soon."""

    def nudge(self) -> None:
        """Take messages from the outbox, now or soon."""

    def flush(self) -> None:
        """Take messages from the outbox now, as many as the other side accepts."""

    def pause(self) -> None:
        """Stop reading. A second call does nothing."""

    def resume(self) -> None:
        """Read again."""

    def subscribe(self, prefix: bytes, cancel: bool) -> None:
        """Send the peer a subscription, or its cancellation."""

    def finish(self) -> None:
        """Close in order: nothing is left to send."""

    def abort(self, reason: str) -> None:
        """Close at once."""

    @property
    def local(self) -> bool:
        """Whether the other end is in this process."""

    @property
    def pending(self) -> bool:
        """Whether the link will look into the outbox soon, without a nudge."""

    @property
    def idle(self) -> bool:
        """Whether all messages that the link took from the outbox have left this process."""

    @property
    def unsent(self) -> int:
        """The number of bytes that the link took from the outbox, and that the kernel has not accepted yet."""


class Peer:
    """The other end of one connection. A `Transport` makes peers, and tells the protocol about them.

    `endpoint` is the endpoint that we bound or connected to; `address` is the peer's IP address (empty for ipc and
    inproc). In the handshake the peer claimed its `identity`, and proved that it is `user`, and with CURVE that it has
    the secret key of the public `key`; `properties` are the properties of its application, by name in lower case.
    `queued` is the number of bytes that wait to go out.
    """

    __slots__ = (
        "_held",
        "_lead",
        "_link",
        "_mailbox",
        "_outbox",
        "_paused",
        "_singles",
        "_transport",
        "address",
        "endpoint",
        "identity",
        "key",
        "open",
        "properties",
        "queued",
        "user",
    )

    def __init__(self, transport: Transport, endpoint: str) -> None:
        self.endpoint = endpoint
        self.address = ""
        self.identity = b""
        self.user = ""
        self.properties = NO_PROPERTIES
        self.key = b""
        self.queued = 0
        self.open = True  # until the protocol closes the peer, or its connection ends for good
        self._transport = transport
        self._link: Link | None = None
        self._outbox: list[Message] = []
        self._lead = 0  # the number of messages at the head of the outbox that `send_first` put there
        # Posted by threads without the lock.
        self._mailbox: list[bytes] = [] if transport.threaded else _NO_POSTS
        self._singles = True  # whether the outbox holds single frames only
        self._paused = False
        self._held: list[Batch] | None = None  # batches that arrived after `pause`

    # State

    @property
    def connected(self) -> bool:
        """Whether the connection exists now."""
        return self._link is not None

    @property
    def handshaking(self) -> bool:
        """Whether a connection exists whose handshake is not complete."""
        return self._link is None and any(link.peer is self for link in self._transport.links)

    @property
    def local(self) -> bool:
        """Whether the other end is a socket of this process."""
        return self._link is not None and self._link.local

    @property
    def full(self) -> bool:
        """Whether the queue has reached its bound."""
        transport = self._transport
        return len(self._outbox) >= transport.send_messages or self.queued >= transport.send_bytes

    @property
    def drained(self) -> bool:
        """Whether all sent messages have left this process."""
        return not (self._outbox or self._mailbox) and (self._link is None or self._link.idle)

    @property
    def unsent(self) -> int:
        """The number of bytes that left the queue, and have not left this process: it changes while the peer reads."""
        return self._link.unsent if self._link is not None else 0

    @property
    def busy(self) -> bool:
        """Whether the link is about to write, or waits for the kernel: then it will ask its source by itself."""
        return self._link is not None and self._link.pending

    # Sending

    def send(self, message: Message) -> None:
        """Queue a message. The caller has checked that the peer is not `full`."""
        if self._mailbox:
            self._collect()
        self._outbox.append(message)
        if type(message) is bytes:
            self.queued += len(message)
        else:
            self.queued += size_of(message)
            self._singles = False
        link = self._link
        if link is not None:
            link.nudge()

    def try_send(self, message: Message) -> bool:
        """Queue a message if the queue has room; return whether it had."""
        transport = self._transport
        if self._mailbox:
            self._collect()
        if len(self._outbox) >= transport.send_messages or self.queued >= transport.send_bytes:
            return False
        # The same as `send`, without the cost of a call.
        self._outbox.append(message)
        if type(message) is bytes:
            self.queued += len(message)
        else:
            self.queued += size_of(message)
            self._singles = False
        link = self._link
        if link is not None:
            link.nudge()
        return True

    def squeeze(self, message: Message) -> bool:
        """Queue a message even if the queue is full; return False if it is twice as long as it should be."""
        transport = self._transport
        if len(self._outbox) >= 2 * transport.send_messages or self.queued >= 2 * transport.send_bytes:
            return False
        self.send(message)
        return True

    def send_first(self, message: Message) -> None:
        """Queue a message before the waiting messages of `send`, but after those of earlier `send_first` calls."""
        self._outbox.insert(self._lead, message)
        self._lead += 1
        self.queued += size_of(message)
        self._singles = self._singles and type(message) is bytes
        if self._link is not None:
            self._link.nudge()

    def send_many(self, messages: Sequence[bytes], start: int) -> int:
        """Queue as many single-frame messages from index `start` on as fit; return the index where it stopped."""
        if self._mailbox:
            self._collect()
        transport = self._transport
        most = transport.send_bytes
        # Messages that a broken link put back can exceed the bound.
        room = max(0, min(transport.send_messages - len(self._outbox), len(messages) - start))
        accepted = messages[start : start + room] if room < len(messages) else messages
        octets = sum(map(len, accepted))
        if self.queued + octets > most:
            # Close to the bound in bytes, accept messages one by one, until the bound is reached.
            count = 0
            octets = 0
            for message in accepted:
                if self.queued + octets >= most:
                    break
                octets += len(message)
                count += 1
            accepted = accepted[:count]
        self._outbox += accepted
        self.queued += octets
        link = self._link
        if link is not None and accepted:
            link.nudge()
        return start + len(accepted)

    def post(self, message: bytes) -> bool:
        """Queue a message without the lock, from any thread; return False if it was not queued."""
        link = self._link
        mailbox = self._mailbox
        transport = self._transport
        if (
            link is None
            or not link.pending
            or mailbox is _NO_POSTS
            or len(mailbox) >= POSTS
            or len(message) > POST
            or len(mailbox) + len(self._outbox) >= transport.send_messages
            or self.queued + POSTS * POST >= transport.send_bytes
        ):
            return False
        mailbox.append(message)
        link = self._link
        if link is not None and link.pending and self.open and not transport.closing:
            return True
        return transport.settle_post(self, message)

    def offer(self, messages: Framed) -> bool:
        """Pass messages to the kernel now, ahead of the queue; return False if the kernel accepts none of them."""
        link = self._link
        return link is not None and link.offer(messages)

    def feed_from(self, source: Source | None) -> None:
        """Ask `source` for messages whenever the queue is empty and the peer accepts more, on this connection only."""
        if self._link is not None:
            self._link.source = source

    def wake(self) -> None:
        """Have the link ask its source soon: the source may have messages."""
        link = self._link
        if link is not None:
            link.wake()

    def flush(self) -> None:
        """Write queued messages now, as far as the kernel accepts them, and not when the event loop turns."""
        if self._link is not None:
            self._link.flush()

    def take_queue(self) -> list[Message]:
        """Remove and return the queued messages that the link has not taken yet."""
        queue = self._outbox
        self._outbox = []
        self._lead = 0
        self.queued = 0
        self._singles = True
        return queue

    def subscribe(self, prefix: bytes) -> None:
        """Ask a publisher for the messages that begin with `prefix`."""
        if self._link is not None:
            self._link.subscribe(prefix, cancel=False)

    def unsubscribe(self, prefix: bytes) -> None:
        """Cancel one `subscribe` of this prefix."""
        if self._link is not None:
            self._link.subscribe(prefix, cancel=True)

    # Receiving

    def pause(self) -> None:
        """Receive nothing more until `resume`. The kernel's buffers fill, and TCP holds the peer back."""
        if not self._paused:
            self._paused = True
            self._pause_link()

    def resume(self) -> None:
        """Receive again, beginning with the batches that arrived meanwhile."""
        if not self._paused:
            return
        self._paused = False
        while self._held and not self._paused:
            self._transport.handler.received(self, self._held.pop(0))
        if not self._paused and self._link is not None:
            self._link.resume()

    @property
    def paused(self) -> bool:
        """Whether `pause` was called, and not yet `resume`."""
        return self._paused

    @property
    def held(self) -> bool:
        """Whether messages have arrived since `pause`."""
        return bool(self._held)

    # The end

    def close(self, linger: float | None = None) -> None:
        """Disconnect for good, when the queued messages have gone out, or after `linger` seconds."""
        self._transport.leave(self, linger)

    def hang_up(self) -> None:
        """End this connection in order, now. If `connect` made it, the transport connects again."""
        if self._link is not None:
            self._link.finish()

    def abort(self, reason: str) -> None:
        """End this connection at once. If `connect` made it, the transport connects again."""
        if self._link is not None:
            self._link.abort(reason)

    # For links and the transport, which hold the lock

    def _collect(self) -> None:
        """Move the mailbox into the outbox."""
        mailbox = self._mailbox
        count = len(mailbox)
        posted = mailbox[:count]
        self._outbox += posted
        self.queued += sum(map(len, posted))
        del mailbox[:count]  # messages that were posted meanwhile stay

    def _take_back(self, message: bytes) -> bool:
        """Remove a message from the mailbox; return False if it is not there any more.

        If the mailbox has the same object twice, remove the last: the thread was told that the first was sent.
        """
        mailbox = self._mailbox
        for index in range(len(mailbox) - 1, -1, -1):
            if mailbox[index] is message:
                del mailbox[index]
                return True
        return False

    def _take(self) -> tuple[list[Message], bool]:
        """Return the next messages to encode, and whether all are single frames."""
        singles = self._singles
        taken = self._outbox
        if self.queued <= TAKE:
            self._outbox = []
            self._lead = 0
            self.queued = 0
            self._singles = True
            return taken, singles
        octets = 0
        count = 0
        for message in taken:
            octets += size_of(message)
            count += 1
            if octets >= TAKE:
                break
        self._outbox = taken[count:]
        self._lead = max(0, self._lead - count)
        self.queued -= octets
        del taken[count:]
        return taken, singles

    def _put_back(self, messages: list[Message]) -> None:
        """Put messages that a broken link took, but did not send, back at the head of the outbox."""
        self._outbox = messages + self._outbox
        self._lead += len(messages)
        self.queued += sum(map(size_of, messages))
        self._singles = all(type(message) is bytes for message in self._outbox)

    def _abandon(self) -> int:
        """Discard the queued messages; return how many there were.

        The mailbox stays as it is: a thread that posted too late takes its message back, and must find it there. No
        other code looks into the mailbox of a peer that has ended.
        """
        count = len(self._mailbox)
        return count + len(self.take_queue())

    def _deliver(self, batch: Batch) -> None:
        """Pass a batch that the link has read to the protocol, or hold it while the peer is paused."""
        if self._paused:
            self._held = self._held or []
            self._held.append(batch)
            self._pause_link()
        else:
            self._transport.handler.received(self, batch)

    def _pause_link(self) -> None:
        if self._link is not None and sum(batch.octets for batch in self._held or ()) >= self._transport.slack:
            self._link.pause()

    def __repr__(self) -> str:
        who = printable(self.identity) or self.address
        return f"<Peer {who} at {self.endpoint}, {self.queued} bytes queued>"
