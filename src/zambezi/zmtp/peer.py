"""A peer: the other end of one connection, as a protocol sees it, with the queue of what goes to it.

Messages wait in the outbox until the link, which owns the kernel socket, takes them, many at a time. A peer that
`Transport.connect` made outlives its link: the link can be lost and made again, and what is queued waits.

Threads that send in a flood would spend their time on the socket's lock. So `post` queues a message without it: the
message goes into a mailbox, whose `append` is atomic, and whoever holds the lock moves the mailbox into the outbox.
Two rules make that safe. A thread posts only while the peer is attended (the link is sure to look into the mailbox),
and looks *again* after it has posted: the link clears that state *before* it empties the mailbox, so that a message is
either seen by the link, or the thread sees that it must take the lock. In the same way, whoever ends a peer clears
`open` before looking into the mailbox.

A process can have a million peers (a mesh of a thousand nodes in memory), so they are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from zambezi.wire.text import printable
from zambezi.zmtp.frames import Batch, Message, size_of
from zambezi.zmtp.source import Framed, Source

if TYPE_CHECKING:
    from zambezi.zmtp.transport import Transport

# How much is encoded and handed to the kernel at a time: large enough to make the system call cheap per message,
# small enough that little is lost track of when a connection breaks.
TAKE: Final = 256 * 1024

# At most so many messages, of so many bytes each, are posted without the lock.
POSTS: Final = 512
POST: Final = 1024


class Link(Protocol):
    """The carrier of a peer's messages, over a stream or in memory. Private to `zambezi.zmtp`."""

    source: Source | None
    address: str

    def offer(self, messages: Framed) -> bool:
        """Take messages now, past the outbox, or return False."""

    def wake(self) -> None:
        """Ask the source soon."""

    def nudge(self) -> None:
        """Look into the outbox."""

    def pause(self) -> None:
        """Stop reading. A second call does nothing."""

    def resume(self) -> None:
        """Read again."""

    def subscribe(self, prefix: bytes, cancel: bool) -> None:
        """Tell the peer what we subscribe to."""

    def finish(self) -> None:
        """Close in order, now that nothing is left to send."""

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
        """Whether all that the link took from the outbox has left this side."""


class Peer:
    """The other end of one connection. A `Transport` makes these; see there for what a protocol is told.

    `endpoint` is where it connected to us, or we to it; `address` its IP address (empty for ipc and inproc);
    `identity` and `user` are what it said and proved in the handshake; `queued` counts the bytes that wait to go out.
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
        "open",
        "queued",
        "user",
    )

    def __init__(self, transport: Transport, endpoint: str) -> None:
        self.endpoint = endpoint
        self.address = ""
        self.identity = b""
        self.user = ""
        self.queued = 0
        self.open = True  # until the protocol closes it, or its connection ends and will not be made again
        self._transport = transport
        self._link: Link | None = None
        self._outbox: list[Message] = []
        self._lead = 0  # so many messages at the head of the outbox were sent by `send_first`
        self._mailbox: list[bytes] = []  # posted by threads without the lock
        self._singles = True  # whether the outbox holds single frames only
        self._paused = False
        self._held: list[Batch] = []  # came after `pause`

    # Who it is, and how it stands

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None

    @property
    def local(self) -> bool:
        """Whether the other end is a socket of this process."""
        return self._link is not None and self._link.local

    @property
    def full(self) -> bool:
        """Whether the queue has reached its bound."""
        transport = self._transport
        return len(self._outbox) >= transport.send_messages or self.queued >= transport.send_octets

    @property
    def drained(self) -> bool:
        """Whether everything that was sent has left this side."""
        return not (self._outbox or self._mailbox) and (self._link is None or self._link.idle)

    @property
    def busy(self) -> bool:
        """Whether the link is about to write, or waits for the kernel: then it asks its source by itself."""
        return self._link is not None and self._link.pending

    # Sending

    def send(self, message: Message) -> None:
        """Queue a message. The caller has looked whether the peer is `full`."""
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
        """Queue a message if there is room; return whether there was."""
        transport = self._transport
        if self._mailbox:
            self._collect()
        if len(self._outbox) >= transport.send_messages or self.queued >= transport.send_octets:
            return False
        # As in `send`, but for the cost of a call.
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

    def send_first(self, message: Message) -> None:
        """Queue a message before those of `send` that still wait, and after earlier ones of `send_first`."""
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
        most = transport.send_octets
        # What a broken link put back may have gone over the bound.
        room = max(0, min(transport.send_messages - len(self._outbox), len(messages) - start))
        accepted = messages[start : start + room] if room < len(messages) else messages
        octets = sum(map(len, accepted))
        if self.queued + octets > most:
            # Close to the bound in bytes it is one by one, until the bound is passed.
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
            or len(mailbox) >= POSTS
            or len(message) > POST
            or len(mailbox) + len(self._outbox) >= transport.send_messages
            or self.queued + POSTS * POST >= transport.send_octets
        ):
            return False
        mailbox.append(message)
        link = self._link
        if link is not None and link.pending and self.open and not transport.closing:
            return True
        return transport.settle_post(self, message)

    def offer(self, messages: Framed) -> bool:
        """Hand messages to the kernel now, past the queue; return False if it takes nothing now."""
        link = self._link
        return link is not None and link.offer(messages)

    def feed_from(self, source: Source | None) -> None:
        """Ask `source` for more whenever the peer takes more and the queue is empty, while this connection lasts."""
        if self._link is not None:
            self._link.source = source

    def wake(self) -> None:
        """Have the source asked soon: it has something, or may have."""
        link = self._link
        if link is not None:
            link.wake()

    def take_queue(self) -> list[Message]:
        """Remove and return all that is queued and has not begun to go out."""
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
        """Take one `subscribe` back."""
        if self._link is not None:
            self._link.subscribe(prefix, cancel=True)

    # Receiving

    def pause(self) -> None:
        """Receive nothing more until `resume`. The kernel's buffers fill, and TCP holds the peer back."""
        if not self._paused:
            self._paused = True
            self._pause_link()

    def resume(self) -> None:
        """Receive again, beginning with what came meanwhile."""
        if not self._paused:
            return
        self._paused = False
        while self._held and not self._paused:
            self._transport.handler.received(self, self._held.pop(0))
        if not self._paused and self._link is not None:
            self._link.resume()

    @property
    def paused(self) -> bool:
        """Whether `pause` was called, and `resume` not yet."""
        return self._paused

    @property
    def held(self) -> bool:
        """Whether something has come since `pause`."""
        return bool(self._held)

    # The end

    def close(self, linger: float | None = None) -> None:
        """Part from the peer for good, when what is queued has gone out, or after `linger` seconds."""
        self._transport.leave(self, linger)

    def hang_up(self) -> None:
        """End this connection in order, now. One that `connect` made is made again."""
        if self._link is not None:
            self._link.finish()

    def abort(self, reason: str) -> None:
        """End this connection at once. One that `connect` made is made again."""
        if self._link is not None:
            self._link.abort(reason)

    # For links and the transport, with the lock held

    def _collect(self) -> None:
        """Move the mailbox into the outbox."""
        mailbox = self._mailbox
        count = len(mailbox)
        posted = mailbox[:count]
        self._outbox += posted
        self.queued += sum(map(len, posted))
        del mailbox[:count]  # what was appended meanwhile stays

    def _take_back(self, message: bytes) -> bool:
        """Take a message out of the mailbox; return False if it is not there any more.

        The last of its kind: what the same thread posted before, and believes to be on its way, keeps its place.
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
        """Return what was taken but never left this side, to go out first when there is a link again."""
        self._outbox = messages + self._outbox
        self._lead += len(messages)
        self.queued += sum(map(size_of, messages))
        self._singles = all(type(message) is bytes for message in self._outbox)

    def _abandon(self) -> int:
        """Discard all that is queued; return how many messages that were.

        The mailbox is left as it is: a thread that has just posted, and sees that it came too late, takes its message
        back, and must find it there. Nobody else looks into the mailbox of a peer that is over.
        """
        count = len(self._mailbox)
        return count + len(self.take_queue())

    def _deliver(self, batch: Batch) -> None:
        """Pass on a batch that the link has read."""
        if self._paused:
            self._held.append(batch)
            self._pause_link()
        else:
            self._transport.handler.received(self, batch)

    def _pause_link(self) -> None:
        if self._link is not None and sum(batch.octets for batch in self._held) >= self._transport.slack:
            self._link.pause()

    def __repr__(self) -> str:
        who = printable(self.identity) or self.address
        return f"<Peer {who} at {self.endpoint}, {self.queued} bytes queued>"
