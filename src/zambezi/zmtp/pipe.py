"""A pipe: the double queue between a socket and one peer, bounded both ways in messages and in octets.

Outgoing messages wait in `outbox` until the link takes them, many at a time. Incoming batches wait in `inbox` as they
were read; when the inbox is full the link stops reading, and TCP carries the pressure to the sender. A pipe can
outlive its link: on the connecting side it stays while the link is lost and found again, with what is queued in it.

There may be a million of these in one process (a mesh of a thousand nodes in memory), so they are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.frames import Batch, Message, size_of
from zambezi.zmtp.source import Framed, Source

if TYPE_CHECKING:
    from zambezi.zmtp.core import Core

# How much is encoded and handed to the kernel at a time: large enough to make the system call cheap per message,
# small enough that what is lost track of when a connection breaks is little.
TAKE = 256 * 1024


# How many messages, of how many octets at most, are taken without the lock.
POSTS = 512
POST = 1024


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of a queue: whichever is reached first. One message always fits into an empty queue."""

    messages: int = 10_000
    octets: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.messages < 1 or self.octets < 1:
            raise ZmtpError(f"a queue holds at least one message of one octet, not {self}")


class Link(Protocol):
    """What carries a pipe's messages to its peer, over a stream or in memory."""

    source: Source | None
    address: str

    def offer(self, messages: Framed) -> bool:
        """Take messages now, past the outbox, or say that this cannot be."""

    def wake(self) -> None:
        """Ask the source soon."""

    def nudge(self) -> None:
        """There is something in the outbox."""

    def pause(self) -> None:
        """The inbox is full."""

    def resume(self) -> None:
        """The inbox has room again."""

    def finish(self) -> None:
        """Close, in order, now that nothing is left to send."""

    def abort(self, reason: str) -> None:
        """Close at once."""

    @property
    def pending(self) -> bool:
        """Whether the outbox will be looked at soon, without a nudge."""

    @property
    def idle(self) -> bool:
        """Whether nothing that was taken from the outbox is still on this side."""


class Pipe:
    """The double queue of one peer."""

    __slots__ = (
        "attached",
        "core",
        "current",
        "endpoint",
        "identity",
        "in_messages",
        "in_octets",
        "inbox",
        "link",
        "mailbox",
        "out_octets",
        "outbox",
        "paused",
        "queued",
        "routing_id",
        "singles",
        "user",
    )

    def __init__(self, core: Core, endpoint: str) -> None:
        self.core = core
        self.endpoint = endpoint
        self.link: Link | None = None
        self.identity = b""
        self.routing_id = 0  # where the socket type gives its peers numbers
        self.user = ""
        self.outbox: list[Message] = []
        self.mailbox: list[bytes] = []  # what threads sent without the lock, to be collected
        self.out_octets = 0
        self.singles = True  # whether all of the outbox are single frames
        self.inbox: list[Batch] = []
        self.in_messages = 0
        self.in_octets = 0
        self.current: Iterator[list[bytes]] | None = None  # what is left of inbox[0]
        self.paused = False
        self.queued = False  # whether the core knows that there is something to read
        self.attached = False  # whether the core routes messages to it

    # Out

    def post(self, message: bytes) -> bool:
        """Queue a message without holding the socket's lock; False if it was not queued.

        Threads that send in a flood would spend their time on the lock. So a message may go into the mailbox, whose
        `append` is atomic, and which is emptied into the outbox under the lock. The caller must look *afterwards*
        whether the pipe is `looked_after`, and if it is not, take the lock and collect: who looks after it says so
        no more *before* it empties the mailbox, so that no message is ever left behind. In the same way it must look
        whether the pipe is still `attached`: who ends a pipe says so before it looks into the mailbox.
        """
        mailbox = self.mailbox
        core = self.core
        if (
            not self.looked_after
            or len(mailbox) >= POSTS
            or len(message) > POST
            or len(mailbox) + len(self.outbox) >= core.send_messages
            or self.out_octets + POSTS * POST >= core.send_octets
        ):
            return False
        mailbox.append(message)
        return True

    @property
    def looked_after(self) -> bool:
        """Whether it is certain that somebody with the lock will come and send what is queued."""
        link = self.link
        return link is not None and link.pending

    def collect(self) -> None:
        """With the lock held: empty the mailbox into the outbox."""
        mailbox = self.mailbox
        count = len(mailbox)
        posted = mailbox[:count]
        self.outbox += posted
        self.out_octets += sum(map(len, posted))
        del mailbox[:count]  # what was appended meanwhile stays

    def take_back(self, message: bytes) -> bool:
        """With the lock held: take a message out of the mailbox; False if it is not there any more.

        The last of its kind: what the same thread posted before, and believes to be on its way, keeps its place.
        """
        mailbox = self.mailbox
        for index in range(len(mailbox) - 1, -1, -1):
            if mailbox[index] is message:
                del mailbox[index]
                return True
        return False

    @property
    def full(self) -> bool:
        bound = self.core.options.send_bound
        return len(self.outbox) >= bound.messages or self.out_octets >= bound.octets

    def push(self, message: Message) -> None:
        """Queue one message; the caller has looked whether the pipe is full."""
        if self.mailbox:
            self.collect()
        self.outbox.append(message)
        if type(message) is bytes:
            self.out_octets += len(message)
        else:
            self.out_octets += size_of(message)
            self.singles = False
        link = self.link
        if link is not None:
            link.nudge()

    def push_many(self, messages: Sequence[bytes], start: int) -> int:
        """Queue as many single-frame messages from `start` on as fit; where it stopped."""
        if self.mailbox:
            self.collect()
        bound = self.core.options.send_bound
        # What a broken link put back may have gone over the bound.
        room = max(0, min(bound.messages - len(self.outbox), len(messages) - start))
        accepted = messages[start : start + room] if room < len(messages) else messages
        octets = sum(map(len, accepted))
        if self.out_octets + octets > bound.octets:
            # Close to the bound in octets it is one by one, until the bound is passed.
            count = 0
            octets = 0
            for message in accepted:
                if self.out_octets + octets >= bound.octets:
                    break
                octets += len(message)
                count += 1
            accepted = accepted[:count]
        self.outbox += accepted
        self.out_octets += octets
        link = self.link
        if link is not None and accepted:
            link.nudge()
        return start + len(accepted)

    def take(self) -> tuple[list[Message], bool]:
        """The next messages to encode, and whether all are single frames."""
        singles = self.singles
        taken = self.outbox
        if self.out_octets <= TAKE:
            self.outbox = []
            self.out_octets = 0
            self.singles = True
            return taken, singles
        octets = 0
        count = 0
        for message in taken:
            octets += size_of(message)
            count += 1
            if octets >= TAKE:
                break
        self.outbox = taken[count:]
        self.out_octets -= octets
        del taken[count:]
        return taken, singles

    def put_back(self, messages: list[Message]) -> None:
        """Return what was taken but never left this side, to go out first when there is a link again."""
        self.outbox = messages + self.outbox
        self.out_octets += sum(map(size_of, messages))
        self.singles = all(type(message) is bytes for message in self.outbox)

    def clear_outbox(self) -> int:
        """Discard what is queued to go out; how many messages that were.

        The mailbox is left as it is: a thread that has just posted, and sees that it came too late, takes its message
        back, and must find it there. Nobody else looks into the mailbox of a pipe that is over.
        """
        count = len(self.outbox) + len(self.mailbox)
        self.outbox = []
        self.out_octets = 0
        self.singles = True
        return count

    def clear_inbox(self) -> int:
        """Discard what has come and was not received; how many messages that were."""
        count = self.in_messages
        if self.current is not None:
            count += sum(1 for _ in self.current) - len(self.inbox[0])
        self.inbox = []
        self.current = None
        self.in_messages = 0
        self.in_octets = 0
        if self.paused:
            self.paused = False
            if self.link is not None:
                self.link.resume()
        return count

    @property
    def drained(self) -> bool:
        """Whether everything has left this side."""
        return not (self.outbox or self.mailbox) and (self.link is None or self.link.idle)

    # In

    def deliver(self, batch: Batch) -> None:
        """A batch has come."""
        batch.sender = self.identity
        self.inbox.append(batch)
        self.in_messages += len(batch)
        self.in_octets += batch.octets
        bound = self.core.options.receive_bound
        if (self.in_messages >= bound.messages or self.in_octets >= bound.octets) and not self.paused:
            self.paused = True
            if self.link is not None:
                self.link.pause()
        self.core.arrived(self)

    def advance(self) -> Batch | None:
        """Done with inbox[0], if it was begun; the batch after it."""
        if self.current is not None:
            self.current = None
            self._done(self.inbox.pop(0))
        return self.inbox[0] if self.inbox else None

    def pop_batch(self) -> Batch | None:
        """The next batch as a whole, or what is left of it."""
        if not self.inbox:
            return None
        batch = self.inbox.pop(0)
        self._done(batch)
        if self.current is not None:
            rest = list(self.current)
            self.current = None
            skip = 1 if self.core.addressed else 0
            frames: list[bytes] = []
            ends: list[int] = []
            for message in rest:
                frames += message[skip:]
                ends.append(len(frames))
            if not frames:
                return self.pop_batch()
            batch = Batch(frames, ends, batch.octets, batch.sender)
        return batch

    def replace_last(self, batch: Batch | None) -> None:
        """Put a batch, or nothing, in the place of the one that came last."""
        last = self.inbox.pop()
        if batch is not None:
            self.inbox.append(batch)
            self.in_messages += len(batch)
            self.in_octets += batch.octets
        self._done(last)

    def _done(self, batch: Batch) -> None:
        self.in_messages -= len(batch)
        self.in_octets -= batch.octets
        if self.paused:
            bound = self.core.options.receive_bound
            if self.in_messages <= bound.messages // 2 and self.in_octets <= bound.octets // 2:
                self.paused = False
                if self.link is not None:
                    self.link.resume()
