"""The datagrams that a broker sends to a group: blocks become datagrams, at a bounded rate.

This module does no I/O: time is an argument, and so is the source of random nonces.

The broker never waits for a group. Blocks that exceed the rate wait in a queue; blocks that do not fit into the queue
are not sent. The journal has them all, and subscribers get what they miss from there.

After the last message the feed sends marks, soon at first and then less often. So a subscriber that missed the last
message learns about it soon, and a subscriber that receives nothing for long knows that the group is silent.

A datagram is a pair of pieces, which the kernel joins as it sends them: a header, and a view of the block. So nothing
is copied, and if the messages have one size, there is no work per message.
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

QUEUE: Final = 4 << 20  # bytes that may wait for the rate
BURST: Final = 0.01  # seconds' worth of the rate that may go at once: the receivers' buffers hold so much
MARKS: Final = (0.02, 0.1, 0.5)  # seconds after the last message at which the first marks are sent
MARK_EVERY: Final = 1.0  # seconds between all later marks


@dataclass(slots=True)
class FeedCounters:
    """Counters of a multicast group."""

    messages: int = 0
    datagrams: int = 0
    octets: int = 0
    withheld: int = 0  # messages that were not sent because of the rate
    failed: int = 0  # datagrams that the kernel did not accept


class DatagramFeed:
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
        self._coming: Iterator[Pieces] = iter(())  # the datagrams of the current block that follow `_ahead`
        self._ahead: Pieces | None = None  # the next datagram of the current block
        self._budget = group.rate * BURST  # bytes that may go now
        self._counted = now  # when `_budget` was computed
        self._marks = 0  # sent since the last message
        self._quiet_since = now

    def add(self, block: Block, now: float) -> None:
        """Queue a block that was appended to the stream."""
        self._last = block.last
        self._marks = 0
        self._quiet_since = now
        if self._queued and self._queued + len(block.octets) > QUEUE:
            self.counters.withheld += block.count
            return
        self._queue.append(block)
        self._queued += len(block.octets)

    def single_datagram(self, block: Block, now: float) -> Pieces | None:
        """Return the datagram of a block that fits into one and need not wait: the usual case, and a faster one.

        Returns None otherwise, and changes nothing: call `add` and `due_datagrams` then.
        """
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

    def due_datagrams(self, now: float) -> Iterator[Pieces]:
        """Yield the datagrams that may go now."""
        rate = self._rate
        counters = self.counters
        budget = min(self._budget + (now - self._counted) * rate, rate * BURST)
        self._counted = now
        try:
            while budget > 0:
                datagram = self._next_datagram()
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
            # One mark for all that were due: a broker that was busy need not send the others.
            while now >= self._mark_at:
                self._marks += 1
            yield self._sealed((Mark(self._incarnation, self._last).encode(), b""))

    @property
    def deadline(self) -> float:
        """The time when `due_datagrams` has more to yield."""
        if self._queue or self._ahead is not None:
            return self._counted + max(0.0, -self._budget) / self._rate + BURST / 10
        return self._mark_at

    @property
    def _mark_at(self) -> float:
        if self._marks < len(MARKS):
            return self._quiet_since + MARKS[self._marks]
        return self._quiet_since + MARKS[-1] + MARK_EVERY * (self._marks - len(MARKS) + 1)

    def _next_datagram(self) -> Pieces | None:
        if self._ahead is None:
            if not self._queue:
                return None
            block = self._queue.popleft()
            self._queued -= len(block.octets)
            self.counters.messages += block.count
            self._coming = self._datagrams_of(block)
            self._ahead = next(self._coming)
        datagram, self._ahead = self._ahead, next(self._coming, None)
        return self._sealed(datagram) if self._key else datagram

    def _datagrams_of(self, block: Block) -> Iterator[Pieces]:
        """Yield the datagrams of a block: as many whole messages in each as fit; a larger message in fragments."""
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
