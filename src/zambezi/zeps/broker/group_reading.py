"""The reading part of a group of shared readers: what is read for all members, and again for slots that lag.

The messages after the frontier are read once for all members, as many at once as give each member some dozens. Slots
that lag are read again, all of them together: beginning with the one that is furthest behind, and each of them joins in
at its own frontier. A slot of a member whose queue is long does not count: it would only lag again.

`SharedGroup` adds the members' coming and going, and what becomes of the messages. The docstring of `group` has the
words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from zambezi.zeps.block import Block
from zambezi.zeps.broker.group_log import GroupLog
from zambezi.zeps.broker.group_member import LaneReader, Member, Share, Source, share_of
from zambezi.zeps.broker.group_state import GroupState
from zambezi.zeps.broker.slots import Slots, slots_of
from zambezi.zeps.errors import OutOfRange

SCANS: Final = 4  # blocks that are read for one member before other clients get their turn
READ_LEAST: Final = 1 << 17  # bytes that are read at once
READ_MOST: Final = 1 << 19
_READ_EACH: Final = 1 << 16  # for each member


class GroupReading:
    """The positions of a group in its stream, and the messages that wait for its members."""

    def __init__(self, state: GroupState, source: Source, window: int) -> None:
        self.options = state.options
        self.window = window
        self.members: dict[Member, None] = {}
        self.missed = 0  # messages that were removed from the stream before they were done
        self._source = source
        self._slots: Slots[Member] = Slots()
        self._main = source.reader(state.frontier)
        self._second = source.reader(state.frontier)  # for slots that lag
        self._lagging = state.lagging
        self._closed: dict[int, int] = {}  # slots that have moved: the messages that are in flight at other members
        self._queued = 0  # bytes of all queues
        self._log = GroupLog(state)

    def _next_share(self, member: Member) -> Share | None:
        """Return the messages that a member gets next; None if there are none now. `_pass` follows."""
        for _ in range(SCANS):
            if member.queue:
                return member.queue[0]
            if member not in self._slots or not self._read_some():
                return None
        if member.queue:
            return member.queue[0]
        member.wake()  # nothing of what was read is for this member; other clients wait for their turn
        return None

    def _pass(self, member: Member, share: Share) -> None:
        """Forget a share if all of it is delivered."""
        if not share.left:
            member.queue.popleft()
            member.queued -= share.octets
            self._queued -= share.octets

    def _read_some(self) -> bool:
        """Read messages, and put them into the queues of the members; return False if there are none now."""
        if self._queued >= 2 * self.window:
            self._drop_queue(max(self.members, key=_queued_by))
        return (bool(self._lagging) and self._read_behind()) or self._read_main()

    def _read_main(self) -> bool:
        """Read the next messages for all slots that do not lag."""
        self._catch_up()
        if self._queued >= self.window:
            self._leave_behind()
        block = self._read(self._main)
        if block is None:
            return False
        self._divide(block)
        return True

    def _leave_behind(self) -> None:
        """Let the slots of the member lag that has the longest queue of all members in step. It keeps its queue."""
        lagging = self._lagging
        in_step = dict.fromkeys([owner for slot, owner in enumerate(self._slots.owner) if slot not in lagging])
        longest = max([member for member in in_step if member is not None], key=_queued_by, default=None)
        if longest is not None and longest.queue:
            for slot in self._slots.of(longest):
                lagging.setdefault(slot, self._main.position)

    def _catch_up(self) -> None:
        """Let slots that have reached the frontier lag no more."""
        if self._lagging:
            end, closed = self._main.position, self._closed
            self._lagging = {slot: at for slot, at in self._lagging.items() if at < end or slot in closed}

    def _read_behind(self) -> bool:
        """Read messages for slots that lag; return False if there are none now."""
        ready = self._ready_slots()
        if not ready:
            return False
        lane, end = self._second, self._main.position
        lowest = min(ready.values())
        if lane.position != lowest:
            lane.position = lowest
        block = self._read(lane)
        if block is None:
            return False
        reached = min(block.last, end)
        sequences = block.sequences
        slots = slots_of(block, sequences)
        frontier = ready.get
        indices = [
            index
            for index in self._wanted(block, sequences)
            if frontier(slots[index], end) < sequences[index] <= reached
        ]
        self._put_into_queues(block, sequences, slots, indices)
        for slot, at in ready.items():
            if at < reached:
                self._lagging[slot] = reached
        return True

    def _ready_slots(self) -> dict[int, int]:
        """Return the slots that lag and can be read, with their frontiers."""
        end, closed, owner = self._main.position, self._closed, self._slots.owner
        most = self.window // (2 * max(1, len(self.members)))
        return {
            slot: at
            for slot, at in self._lagging.items()
            if at < end and slot not in closed and (holder := owner[slot]) is not None and holder.queued <= most
        }

    def _read(self, lane: LaneReader) -> Block | None:
        octets = max(READ_LEAST, min(READ_MOST, _READ_EACH * len(self._slots)))
        try:
            return lane.read(octets)
        except OutOfRange as error:
            self.missed += max(0, error.oldest - 1 - lane.position)
            lane.position = error.oldest - 1
            return lane.read(octets)

    def _divide(self, block: Block) -> None:
        """Put the messages of a block after the frontier into the queues of the members."""
        sequences = block.sequences
        slots = slots_of(block, sequences)
        indices = self._wanted(block, sequences)
        lagging = self._lagging
        if lagging:
            indices = [index for index in indices if slots[index] not in lagging]
        self._put_into_queues(block, sequences, slots, indices)

    def _wanted(self, block: Block, sequences: Sequence[int]) -> Iterable[int]:
        """Return the indices of the messages that the group wants, and that are not done."""
        indices: Iterable[int] = range(block.count)
        if self.options.pattern:
            indices = self._source.matching(block.keys)
        skip = self._log.skip
        if skip:
            indices = [index for index in indices if sequences[index] not in skip]
        return indices

    def _put_into_queues(
        self, block: Block, sequences: Sequence[int], slots: list[int], indices: Iterable[int]
    ) -> None:
        owner = self._slots.owner
        shares: defaultdict[Member | None, list[int]] = defaultdict(list)
        for index in indices:
            shares[owner[slots[index]]].append(index)
        for member, mine in shares.items():
            if member is not None:
                share = share_of(block, sequences, slots, mine)
                self._queued += share.octets
                member.queued += share.octets
                member.queue.append(share)
                if member.has_room:
                    member.wake()

    def _drop_queue(self, member: Member) -> None:
        """Drop what a member has not been delivered yet: its slots lag."""
        if member.queue:
            self._lagging |= member.frontiers_of_queue()
            self._queued -= member.queued
            member.queued = 0
            member.queue.clear()


def _queued_by(member: Member) -> int:
    return member.queued
