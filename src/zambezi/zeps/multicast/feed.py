"""What a broker sends to a group, without I/O: blocks become datagrams, at a rate that a network bears.

The broker never waits for a group. What does not fit into the rate waits in a queue of blocks, which the journal has as
well; what does not fit into the queue is not sent, and those who miss it get it from the journal.

After the last message marks follow, soon and then ever more rarely: so whoever missed the end learns of it soon, and
whoever hears nothing at all for long knows that the group is silent.

A datagram is given as its pieces, which the system puts together as it sends them: what stands before the messages, and
a view of the block. So nothing is copied, and where messages are of one size, nothing is done for each of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from zambezi.zeps.block import Block
from zambezi.zeps.multicast.datagram import (
    FRAGMENT_HEAD,
    MESSAGES_HEAD,
    NONCE,
    SEAL,
    Mark,
    fragment_head,
    messages_head,
    seal,
)
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import USUAL

Pieces: TypeAlias = tuple[bytes, bytes | memoryview]

QUEUE: Final = 4 << 20  # octets that wait for the rate at most
BURST: Final = 0.01  # seconds' worth of the rate that may go at once: what the buffers of receivers bear
MARKS: Final = (0.02, 0.1, 0.5)  # seconds after the last message,
MARK_EVERY: Final = 1.0  # and from then on


@dataclass(slots=True)
class FeedCounters:
    """What went to the group."""

    messages: int = 0
    datagrams: int = 0
    octets: int = 0
    withheld: int = 0  # messages that were not sent: the rate did not allow it
    failed: int = 0  # datagrams that the system did not take


class Feed:
    """The datagrams of one stream."""

    def __init__(
        self,
        group: Group,
        incarnation: UUID,
        last: int,
        now: float,
        key: bytes = b"",
        random: Callable[[int], bytes] | None = None,
    ) -> None:
        self.counters = FeedCounters()
        self._rate = group.rate
        self._incarnation = incarnation
        self._last = last
        self._key = key
        self._random = random
        self._room = (group.mtu or USUAL) - (SEAL if key else 0)
        self._queue: deque[Block] = deque()
        self._queued = 0
        self._coming: Iterator[Pieces] = iter(())  # what is left of the block that is being sent,
        self._ahead: Pieces | None = None  # after this one
        self._budget = group.rate * BURST
        self._counted = now
        self._marks = 0
        self._quiet_since = now

    def add(self, block: Block, now: float) -> None:
        """A block was appended to the stream."""
        self._last = block.last
        self._marks = 0
        self._quiet_since = now
        if self._queued and self._queued + len(block.octets) > QUEUE:
            self.counters.withheld += block.count
            return
        self._queue.append(block)
        self._queued += len(block.octets)

    def straight(self, block: Block, now: float) -> Pieces | None:
        """What `add` and `due` would give, where a block is one datagram and nothing is before it: that is most often
        so. None if it is not, and nothing has happened."""
        octets = block.octets
        size = MESSAGES_HEAD + len(octets)
        if self._key or size > self._room or self._queue or self._ahead is not None:
            return None
        budget = self._budget + (now - self._counted) * self._rate
        if budget <= 0:
            return None
        self._budget = min(budget, self._rate * BURST) - size
        self._counted = self._quiet_since = now
        self._last = block.last
        self._marks = 0
        counters = self.counters
        counters.messages += block.count
        counters.datagrams += 1
        counters.octets += size
        return messages_head(self._incarnation.bytes, block.first, block.count), octets

    def due(self, now: float) -> Iterator[Pieces]:
        """The datagrams that may go now."""
        rate = self._rate
        counters = self.counters
        budget = min(self._budget + (now - self._counted) * rate, rate * BURST)
        self._counted = now
        try:
            while budget > 0:
                datagram = self._next()
                if datagram is None:
                    break
                size = len(datagram[0]) + len(datagram[1])
                budget -= size
                counters.datagrams += 1
                counters.octets += size
                yield datagram
        finally:
            self._budget = budget
        if not self._queue and self._ahead is None and now >= self._mark_at:
            # One mark for all that were due: a broker that was busy has no need to make up for them.
            while now >= self._mark_at:
                self._marks += 1
            yield self._sealed((Mark(self._incarnation, self._last).encode(), b""))

    @property
    def deadline(self) -> float:
        """When `due` has more to give."""
        if self._queue or self._ahead is not None:
            return self._counted + max(0.0, -self._budget) / self._rate + BURST / 10
        return self._mark_at

    @property
    def _mark_at(self) -> float:
        if self._marks < len(MARKS):
            return self._quiet_since + MARKS[self._marks]
        return self._quiet_since + MARKS[-1] + MARK_EVERY * (self._marks - len(MARKS) + 1)

    def _next(self) -> Pieces | None:
        if self._ahead is None:
            if not self._queue:
                return None
            block = self._queue.popleft()
            self._queued -= len(block.octets)
            self.counters.messages += block.count
            self._coming = self._cut(block)
            self._ahead = next(self._coming)
        datagram, self._ahead = self._ahead, next(self._coming, None)
        return self._sealed(datagram) if self._key else datagram

    def _cut(self, block: Block) -> Iterator[Pieces]:
        """As many whole messages in each datagram as fit; one that does not fit at all in fragments."""
        room = self._room - MESSAGES_HEAD
        octets = block.octets
        incarnation = self._incarnation.bytes
        if len(octets) <= room:
            yield messages_head(incarnation, block.first, block.count), octets
            return
        starts = block.starts
        view = memoryview(octets)
        if isinstance(starts, range) and room >= starts.step:
            each = room // starts.step
            size = each * starts.step
            for number, start in zip(range(0, block.count, each), range(0, len(octets), size), strict=True):
                count = min(each, block.count - number)
                yield messages_head(incarnation, block.first + number, count), view[start : start + size]
            return
        number = 0
        while number < block.count:
            start = starts[number]
            after = bisect_right(starts, start + room, number) - 1
            if after > number:
                head = messages_head(incarnation, block.first + number, after - number)
                yield head, view[start : starts[after]]
                number = after
            else:
                yield from self._fragments(block.first + number, view[start : starts[number + 1]])
                number += 1

    def _fragments(self, sequence: int, message: memoryview) -> Iterator[Pieces]:
        room = self._room - FRAGMENT_HEAD
        total = len(message)
        for offset in range(0, total, room):
            head = fragment_head(self._incarnation.bytes, sequence, total, offset)
            yield head, message[offset : offset + room]

    def _sealed(self, datagram: Pieces) -> Pieces:
        if not self._key:
            return datagram
        assert self._random is not None
        return seal(b"".join(datagram), self._key, self._random(NONCE)), b""
