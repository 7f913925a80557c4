"""The parts of a group of shared readers: its members, the messages that they get, and the stream that they read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from zambezi.zeps.block import Block
from zambezi.zeps.layout import LONG, SHORT

if TYPE_CHECKING:
    from zambezi.zeps.broker.group import SharedGroup


class LaneReader(Protocol):
    """A reader of the stream at one position."""

    position: int  # the last sequence that was passed

    def read(self, octets: int) -> Block | None:
        """Return the next messages, about `octets` at most, and pass them.

        Returns None if there are none, or if they must be loaded first. Raises `OutOfRange` if the messages are not
        kept any more.
        """


class Source(Protocol):
    """The stream, as a group sees it. It calls the group's `wake_all` when messages that were not loaded are."""

    def reader(self, after: int) -> LaneReader:
        """Return a reader after a sequence."""

    def message(self, sequence: int) -> Block | None:
        """Return one message; None if it must be loaded first. Raises `OutOfRange` if it is not kept any more."""

    def is_much_work(self, block: Block) -> bool:
        """Return whether it takes long to find the wanted messages of a block."""

    def wants(self, key: bytes) -> bool:
        """Return whether the group wants messages with a key."""

    def matching(self, keys: Sequence[bytes]) -> list[int]:
        """Return the indices of the keys whose messages the group wants."""


class Share:
    """Messages of one member: a block, their sequences and their slots. `at` is the number that was delivered."""

    __slots__ = ("at", "block", "sequences", "slots")

    def __init__(self, block: Block, sequences: list[int], slots: list[int]) -> None:
        self.block = block
        self.sequences = sequences
        self.slots = slots
        self.at = 0

    @property
    def octets(self) -> int:
        """The bytes of the block."""
        return len(self.block.octets)

    @property
    def left(self) -> int:
        """The number of messages that were not delivered."""
        return len(self.sequences) - self.at


class Portion:
    """Messages that go out to a member: a block, and the deliveries of those that were delivered before."""

    __slots__ = ("block", "deliveries", "in_order")

    def __init__(self, block: Block, deliveries: list[tuple[int, int]], in_order: bool) -> None:
        self.block = block
        self.deliveries = deliveries  # sequence and number of deliveries, with this one
        self.in_order = in_order  # whether all sequences are higher than those before on this connection


class Member:
    """A member of a group."""

    def __init__(
        self,
        group: SharedGroup,
        label: str,
        most: int,
        wake: Callable[[], object],
        offer: Callable[[Block], bool],
    ) -> None:
        self.group = group
        self.label = label
        self.wanted = most  # messages in flight, as the member asks for
        self.wake = wake  # let the connection call `pull` soon
        self.offer = offer  # let the connection send messages now, or return False
        self.is_offered = False  # whether `offer` is being called
        self.credit = 0
        # In flight: the time of the delivery in milliseconds, and the slot, in one number. The oldest comes first.
        self.in_flight: dict[int, int] = {}
        self.queue: deque[Share] = deque()
        self.queued = 0  # bytes in its queue
        self.head = 0  # the oldest message in flight
        self.head_since = 0.0
        self.last_sent = 0
        self.strikes = 0  # how often it was late without an acknowledgement
        self.late_until = 0.0
        self.is_leaving = False  # whether its connection has ended, and its messages are being given back
        self.delivered = 0
        self.acknowledged = 0

    @property
    def most(self) -> int:
        """The messages that it can have in flight: fewer than it wants in a large group."""
        return min(self.wanted, self.group.most)

    @property
    def has_room(self) -> bool:
        """Whether it can take a message."""
        return self.credit > 0 and len(self.in_flight) < self.most

    @property
    def is_late(self) -> bool:
        """Whether it has not acknowledged in time, and not acknowledged anything since."""
        return self.strikes > 0

    def frontiers_of_queue(self) -> dict[int, int]:
        """Return the frontiers of the slots that have messages in the queue: before the first of them."""
        found: dict[int, int] = {}
        for share in reversed(self.queue):
            found.update(zip(reversed(share.slots[share.at :]), reversed(share.sequences[share.at :]), strict=True))
        return {slot: first - 1 for slot, first in found.items()}

    def affordable(self, share: Share) -> int:
        """Return how many messages it can take: each while credit is above zero, so the last may overdraw it."""
        count = min(share.left, self.most - len(self.in_flight))
        credit = self.credit
        starts, octets = share.block.starts, share.block.octets
        if starts[share.at + count] - starts[share.at] <= credit:
            return count
        for number in range(count):
            if credit <= 0:
                return number
            place = share.at + number
            credit -= starts[place + 1] - starts[place] - (LONG if octets[starts[place]] else SHORT)
        return count


def share_of(block: Block, sequences: Sequence[int], slots: list[int], indices: Sequence[int]) -> Share:
    """Return the messages of a block with these indices."""
    chosen = block if len(indices) == block.count else block.select(indices)
    return Share(chosen, [sequences[index] for index in indices], [slots[index] for index in indices])


def join_blocks(blocks: list[Block]) -> Block:
    """Return the messages of several blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    octets = b"".join([block.octets for block in blocks])
    return Block(blocks[0].first, blocks[-1].last, len(blocks), octets, sum([block.credit for block in blocks]))
