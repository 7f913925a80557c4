"""The reading part of a group of shared readers: what is read for all members, and again for slots that lag.

`SharedGroup` adds the members' coming and going, and what becomes of the messages. The docstring of `group` has the
words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from zambezi.zeps.block import Block
from zambezi.zeps.broker.group_log import GroupLog
from zambezi.zeps.broker.group_member import LaneReader, Member, Share, Source, sequences_of, share_of
from zambezi.zeps.broker.group_state import GroupState
from zambezi.zeps.broker.slots import Slots, slots_of
from zambezi.zeps.errors import OutOfRange

SCANS: Final = 4  # blocks that are read for one member before other clients get their turn


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
        self._lagging = state.lagging
        self._closed: dict[int, int] = {}  # slots that have moved: the messages that are in flight at other members
        self._queued = 0  # bytes of all queues
        self._log = GroupLog(state)

    def _next_share(self, member: Member) -> Share | None:
        """Return the messages that a member gets next; None if there are none now. `_pass` follows."""
        share = self._next_behind(member) if self._lagging else None
        return share or self._next_in_queue(member)

    def _pass(self, member: Member, share: Share) -> None:
        """Forget a share if all of it is delivered."""
        if share.left:
            return
        if share is member.behind:
            self._settle(member)
        else:
            member.queue.popleft()
            self._queued -= share.octets

    # For all members

    def _next_in_queue(self, member: Member) -> Share | None:
        for _ in range(SCANS):
            if member.queue:
                break
            if member not in self._slots or not self._read_main():
                return None
        else:
            member.wake()  # nothing of what was read is for this member; other clients wait for their turn
            return None
        return member.queue[0]

    def _read_main(self) -> bool:
        """Read the next messages for all members; return False if there are none now."""
        if self._queued >= self.window:
            self._leave_behind(max(self.members, key=lambda one: one.queued))
        self._catch_up()
        block = self._read(self._main)
        if block is None:
            return False
        self._divide(block)
        return True

    def _catch_up(self) -> None:
        """Let slots that have reached the frontier lag no more."""
        if self._lagging:
            end, closed = self._main.position, self._closed
            self._lagging = {slot: at for slot, at in self._lagging.items() if at < end or slot in closed}

    def _read(self, lane: LaneReader) -> Block | None:
        try:
            return lane.read()
        except OutOfRange as error:
            self.missed += max(0, error.oldest - 1 - lane.position)
            lane.position = error.oldest - 1
            return lane.read()

    def _divide(self, block: Block) -> None:
        """Put the messages of a block into the queues of the members."""
        sequences = sequences_of(block)
        slots = slots_of(block, sequences)
        indices = self._wanted(block, sequences)
        lagging, owner = self._lagging, self._slots.owner
        shares: defaultdict[Member | None, list[int]] = defaultdict(list)
        if lagging:
            indices = [index for index in indices if slots[index] not in lagging]
        for index in indices:
            shares[owner[slots[index]]].append(index)
        for member, mine in shares.items():
            if member is not None:
                share = share_of(block, sequences, slots, mine)
                self._queued += share.octets
                member.queue.append(share)
                if member.has_room:
                    member.wake()

    def _wanted(self, block: Block, sequences: Sequence[int]) -> Iterable[int]:
        """Return the indices of the messages that the group wants, and that are not done."""
        indices: Iterable[int] = range(block.count)
        if self.options.pattern:
            wants = self._source.wants
            indices = [index for index, key in enumerate(block.keys) if wants(key)]
        skip = self._log.skip
        if skip:
            indices = [index for index in indices if sequences[index] not in skip]
        return indices

    # For slots that lag

    def _next_behind(self, member: Member) -> Share | None:
        for _ in range(SCANS):
            if member.behind is None and not self._read_behind(member):
                return None
            if member.behind is not None:
                break
        else:
            member.wake()
            return None
        return member.behind

    def _read_behind(self, member: Member) -> bool:
        """Read messages for the slots of a member that lag; return False if there are none now."""
        end = self._main.position
        lagging = self._lagging
        mine = [slot for slot in self._slots.of(member) if slot in lagging and slot not in self._closed]
        mine = [slot for slot in mine if lagging[slot] < end]
        if not mine:
            member.lane = None
            return False
        before = min(lagging[slot] for slot in mine)
        if member.lane is None:
            member.lane = self._source.reader(before)
        elif member.lane.position != before:
            member.lane.position = before
        block = self._read(member.lane)
        if block is None:
            return False
        sequences = sequences_of(block)
        slots = slots_of(block, sequences)
        reached = min(block.last, end)
        ready = {slot: lagging[slot] for slot in mine}
        indices = [
            index
            for index in self._wanted(block, sequences)
            if ready.get(slots[index], end) < sequences[index] <= reached
        ]
        if indices:
            member.behind = share_of(block, sequences, slots, indices)
            member.behind_slots = mine
            member.behind_until = reached
        else:
            self._advance_slots(mine, reached)
        return True

    def _leave_behind(self, member: Member) -> None:
        """Drop what a member has not been delivered yet: its slots lag."""
        self._settle(member)
        if member.queue:
            self._lagging |= member.frontiers_of_queue()
            self._queued -= member.queued
            member.queue.clear()

    def _settle(self, member: Member) -> None:
        """Drop the messages of slots that lag. They are read again."""
        share, member.behind = member.behind, None
        if share is not None:
            self._advance_slots(member.behind_slots, share.before if share.left else member.behind_until)

    def _advance_slots(self, slots: Iterable[int], reached: int) -> None:
        lagging = self._lagging
        for slot in slots:
            if slot in lagging and lagging[slot] < reached:
                lagging[slot] = reached
