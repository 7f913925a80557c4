"""What a broker sends to a group, without I/O: blocks become datagrams, at a rate that a network bears.

The broker never waits for a group. What does not fit into the rate waits in a queue of blocks, which the journal has as
well; what does not fit into the queue is not sent, and those who miss it get it from the journal.

After the last message marks follow, soon and then ever more rarely: so whoever missed the end learns of it soon, and
whoever hears nothing at all for long knows that the group is silent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from zambezi.zeps.block import Block
from zambezi.zeps.multicast.datagram import FRAGMENT_HEAD, MESSAGES_HEAD, NONCE, SEAL, Fragment, Mark, Messages, seal
from zambezi.zeps.multicast.group import Group

QUEUE: Final = 4 << 20  # octets that wait for the rate at most
BURST: Final = 0.05  # seconds' worth of the rate that may go at once
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
        self._group = group
        self._incarnation = incarnation
        self._last = last
        self._key = key
        self._random = random
        self._room = group.mtu - (SEAL if key else 0)
        self._queue: deque[Block] = deque()
        self._queued = 0
        self._coming: Iterator[bytes] = iter(())
        self._waiting = b""  # a datagram that was made and has to wait
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

    def due(self, now: float) -> Iterator[bytes]:
        """The datagrams that may go now."""
        rate = self._group.rate
        self._budget = min(self._budget + (now - self._counted) * rate, rate * BURST)
        self._counted = now
        while self._budget > 0:
            datagram = self._waiting or self._next()
            if not datagram:
                break
            self._waiting = b""
            self._budget -= len(datagram)
            self.counters.datagrams += 1
            self.counters.octets += len(datagram)
            yield datagram
        if not self._queue and not self._waiting and now >= self._mark_at:
            self._marks += 1
            yield self._sealed(Mark(self._incarnation, self._last).encode())

    @property
    def deadline(self) -> float:
        """When `due` has more to give."""
        if self._queue or self._waiting:
            return self._counted + max(0.0, 1 - self._budget) / self._group.rate + BURST / 10
        return self._mark_at

    @property
    def _mark_at(self) -> float:
        if self._marks < len(MARKS):
            return self._quiet_since + MARKS[self._marks]
        return self._quiet_since + MARKS[-1] + MARK_EVERY * (self._marks - len(MARKS) + 1)

    def _next(self) -> bytes:
        while True:
            datagram = next(self._coming, b"")
            if datagram:
                return self._sealed(datagram)
            if not self._queue:
                return b""
            block = self._queue.popleft()
            self._queued -= len(block.octets)
            self.counters.messages += block.count
            self._coming = self._cut(block)

    def _cut(self, block: Block) -> Iterator[bytes]:
        """As many whole messages in each datagram as fit; one that does not fit at all in fragments."""
        starts = block.starts
        octets = block.octets
        room = self._room - MESSAGES_HEAD
        number = 0
        while number < block.count:
            start = starts[number]
            after = bisect_right(starts, start + room) - 1
            if after > number:
                yield Messages(
                    self._incarnation, block.first + number, after - number, octets[start : starts[after]]
                ).encode()
                number = after
            else:
                yield from self._fragments(block.first + number, octets[start : starts[number + 1]])
                number += 1

    def _fragments(self, sequence: int, message: bytes) -> Iterator[bytes]:
        room = self._room - FRAGMENT_HEAD
        for offset in range(0, len(message), room):
            part = message[offset : offset + room]
            yield Fragment(self._incarnation, sequence, len(message), offset, part).encode()

    def _sealed(self, datagram: bytes) -> bytes:
        if not self._key:
            return datagram
        assert self._random is not None
        return seal(datagram, self._key, self._random(NONCE))
