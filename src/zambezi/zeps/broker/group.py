"""A group of shared readers: each message of a stream goes to one member. No I/O, and time is an argument.

    slots       each key belongs to one of 1024 slots, and each slot to one member (`slots`)
    frontier    the messages up to here were read once for all members, and divided among them
    queue       the messages of a member that were read and not delivered yet: it had no room for them
    in flight   delivered to a member, and not acknowledged
    returned    given back: by the member, because it has left, or because its time was over. They go out first
    lagging     slots with a frontier of their own, before that of the group

The messages are read once, when a member has room and an empty queue. All queues together are bounded: if they are
full, the member with the longest one is left behind. Its slots lag: the messages after its queue are read again when
the queue is short. So a slow member costs little memory, and keeps no other member waiting. If the queues are twice as
long, the longest one is dropped. When a slot that lags has reached the frontier of the group, it lags no more.

A slot that moves to another member while messages of it are in flight is closed until they are acknowledged or given
back. It lags meanwhile. So the messages of a key are never at two members, and their order holds.

The time of a member runs from the moment when a message becomes the oldest that it has not acknowledged. If that one is
not acknowledged in time, the member is late: it gives it back, with all others that it has had for as long. A member
that has no message and gives no credit is late, too. A late member has no slots while other members can take them; it
gets slots again when it acknowledges something or gives credit, or after a while.

What survives the broker is a `GroupState`, and the changes since then (`take_changes`). `group_state` says what they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from zambezi.zeps.block import Block
from zambezi.zeps.broker.group_member import Member, Portion, Share, Source, join_blocks
from zambezi.zeps.broker.group_reading import GroupReading
from zambezi.zeps.broker.group_state import ONCE, Changes, Delivered, GroupState
from zambezi.zeps.broker.returned import Returned
from zambezi.zeps.broker.slots import MASK, SLOTS, slot_of
from zambezi.zeps.errors import OutOfRange

WINDOW: Final = 1 << 22  # bytes of all queues of a group together
IN_FLIGHT: Final = 65_536  # messages that all members together have in flight, at most
WAITING: Final = 65_536  # messages that were given back and wait, before no new ones are delivered, at most
RETURNED: Final = 64  # messages that are delivered again at once
_STRIKES: Final = (
    6  # a member that is late again and again gets its slots back after up to 2 ** (this - 1) times its time
)
_SHIFT: Final = SLOTS.bit_length() - 1
_UNKNOWN: Final = -1
NEVER: Final = float("inf")


class SharedGroup(GroupReading):
    """The members of a group, and what they have done."""

    def __init__(self, name: str, state: GroupState, source: Source, *, window: int = WINDOW) -> None:
        super().__init__(state, source, window)
        self.name = name
        self._room = IN_FLIGHT  # messages that all members together can have in flight
        self.most = IN_FLIGHT  # messages that one member can have in flight
        self.unknown = 0  # acknowledgements of messages that the member did not have
        self.redelivered = 0
        self.letters = state.letters
        self.on_timer: Callable[[float], object] = lambda _: None  # told a time at which `expire` must be called
        self.on_dying: Callable[[], object] = lambda: None  # told that `dying` has messages
        self._hungry: dict[Member, None] = {}  # members that had room when there was nothing for them
        self._returned = Returned()
        self._deliveries: dict[int, int] = {}  # of messages in flight, if there were several
        self.dying: dict[int, Delivered] = {}  # messages that have reached the limit
        self._in_flight = 0
        self._timer = NEVER
        for sequence, what in state.unacknowledged.items():
            self._take_over(sequence, what)

    def _take_over(self, sequence: int, what: Delivered) -> None:
        """Remember a message that was delivered in an earlier life of the broker.

        If it is after the frontier, it is delivered in its turn: before it come messages of its key whose delivery was
        not written.
        """
        if sequence <= self._lagging.get(what.slot, self._main.position):
            self._return(sequence, what, None, 0.0, 0.0)
        elif self.options.limit and what.deliveries >= self.options.limit:
            self._log.skip.add(sequence)
            self._return(sequence, what, None, 0.0, 0.0)
        else:
            self._log.past[sequence] = what

    # Members

    def join(
        self,
        label: str,
        most: int,
        wake: Callable[[], object],
        now: float,
        offer: Callable[[Block], bool] = lambda _: False,
    ) -> Member:
        """Add a member, and give it its share of the slots."""
        member = Member(self, label, max(1, most), wake, offer)
        member.head_since = now
        self.members[member] = None
        self._divide_room()
        self._gain_slots(member)
        self._set_timer(now + self.options.wait / 1000)
        return member

    def _divide_room(self) -> None:
        """Bound what all members together have in flight."""
        self.most = max(1, self._room // max(1, len(self.members)))

    def set_room(self, room: int) -> None:
        """Bound what all members together have in flight; what is in flight already stays."""
        self._room = min(IN_FLIGHT, room)
        self._divide_room()

    def leave(self, member: Member, now: float) -> None:
        """Remove a member. The messages that it has are given back."""
        if member not in self.members:
            return
        del self.members[member]
        self._divide_room()
        self._hungry.pop(member, None)
        self._lose_slots(member)
        self._returned.forget_holder(member)
        self._give_back(member, list(member.in_flight), now)
        if not len(self._slots):
            for other in self.members:
                self._gain_slots(other)
        self.wake_all()

    def give_back_some(self, member: Member, most: int, now: float) -> bool:
        """Take some messages back from a member that leaves, the oldest first; return whether it has more.

        The member keeps its slots until it has left. So no message overtakes those that it still has.
        """
        member.is_leaving = True
        self._hungry.pop(member, None)
        self._give_back(member, list(islice(member.in_flight, most)), now)
        return bool(member.in_flight)

    def _gain_slots(self, member: Member) -> None:
        """Give a member slots."""
        if member in self._slots:
            return
        for other in self.members:
            self._drop_queue(other)
        moved = self._slots.join(member)
        self._close_slots(moved)
        member.late_until = 0.0
        self.wake_all()

    def _lose_slots(self, member: Member) -> None:
        """Take the slots of a member away."""
        self._drop_queue(member)
        self._close_slots(self._slots.leave(member))

    def _close_slots(self, moved: list[int]) -> None:
        """Close slots that have moved to another member, as long as messages of them are in flight."""
        if not moved:
            return
        wanted = set(moved)
        for slot in moved:
            self._lagging.setdefault(slot, self._main.position)
            self._closed.pop(slot, None)
        for member in self.members:
            for value in member.in_flight.values():
                if (slot := value & MASK) in wanted and self._slots.owner[slot] is not member:
                    self._closed[slot] = self._closed.get(slot, 0) + 1

    def wake_all(self) -> None:
        """Let all members that have room ask for messages."""
        for member in tuple(self._hungry):
            member.wake()

    def add_credit(self, member: Member, octets: int, now: float) -> None:
        """Allow so many bytes more for a member. A member that was late is not late any more."""
        member.credit += octets
        if member.credit > 0:
            if member.strikes:
                self._note_progress(member, now)
            member.wake()

    # Messages out

    def on_append(self, block: Block, now: float) -> None:
        """Divide a block that was just appended, if all messages before it are divided and a member waits for it."""
        if block.count == 1 and self._hand_over(block, now):
            return
        if (
            self._hungry
            and self._main.position == block.first - 1
            and self._queued < self.window
            and not self._source.is_much_work(block)
        ):
            self._catch_up()
            self._main.position = block.last
            self._divide(block)
        else:
            self.wake_all()

    def _hand_over(self, block: Block, now: float) -> bool:
        """Send a message that was just appended to the member that waits for it; return False if it cannot go now.

        This is `_divide` and `pull` for the most frequent case of a group that has little to do: nothing else waits.
        """
        if self._main.position != block.first - 1 or self._lagging or self._log.skip or self._returned or self.dying:
            return False
        key = block.keys[0]
        slot = slot_of(key, block.first)
        member = self._slots.owner[slot]
        if member is None or member not in self._hungry or not self._source.wants(key):
            return False
        if not member.has_room:
            del self._hungry[member]
            return False
        member.is_offered = True  # the connection may ask for messages before it takes this one
        try:
            taken = member.offer(block)
        finally:
            member.is_offered = False
        if taken:
            self._main.position = block.last
            self._note_delivered(member, [block.first], [slot], block.credit, now)
        return taken

    def pull(self, member: Member, now: float) -> Portion | None:
        """Return the next messages for a member, and count them as delivered; None if there are none, or no room."""
        if not member.has_room or member not in self.members or member.is_offered:
            return None
        mine = self._returned_slots(member) if self._returned.has_due else []
        found = self._pull_returned(member, mine, now) if mine else None
        waits = self._returned.is_due(mine)  # if none was found, they must be loaded: newer ones must not overtake them
        if found is None and not waits and len(self._returned) + len(self.dying) < min(WAITING, self._room):
            share = self._next_share(member)
            if share is not None:
                found = self._deliver(member, share, now)
                self._pass(member, share)
        if found is None:
            self._hungry[member] = None
        else:
            self._hungry.pop(member, None)
        return found

    def _returned_slots(self, member: Member) -> list[int]:
        """Return the slots of a member that have messages which were given back."""
        owner = self._slots.owner
        return [slot for slot in self._returned.due_slots() if owner[slot] is member and slot not in self._closed]

    def _pull_returned(self, member: Member, slots: list[int], now: float) -> Portion | None:
        """Return messages that were given back: the oldest first."""
        returned = self._returned
        wanted = returned.first_due(slots, RETURNED)
        blocks: list[Block] = []
        deliveries = []
        in_order = bool(wanted) and wanted[0] > member.last_sent
        for sequence in wanted:
            if not member.has_room:
                break
            try:
                block = self._source.message(sequence)
            except OutOfRange:
                returned.take(sequence)
                self._log.note_done([sequence])
                self.missed += 1
                member.wake()  # there may be more messages than the first ones
                continue
            if block is None:
                break
            what = returned.take(sequence)
            assert what is not None
            if what.deliveries:
                deliveries.append((sequence, what.deliveries + 1))
                self._deliveries[sequence] = what.deliveries + 1
            blocks.append(block)
            self._note_delivered(member, [sequence], [what.slot], block.credit, now)
        if not blocks:
            return None
        self.redelivered += len(blocks)
        return Portion(join_blocks(blocks), deliveries, in_order)

    def _deliver(self, member: Member, share: Share, now: float) -> Portion:
        """Deliver as many messages of a share as the member can take."""
        count = member.affordable(share)
        start, stop = share.at, share.at + count
        block = share.block if count == len(share.sequences) else share.block.part(start, stop)
        sequences = share.sequences if count == len(share.sequences) else share.sequences[start:stop]
        in_order = sequences[0] > member.last_sent
        share.at = stop
        self._note_delivered(member, sequences, share.slots[start:stop], block.credit, now)
        deliveries = self._log.recall(sequences)
        self._deliveries.update(deliveries)
        return Portion(block, deliveries, in_order)

    def _note_delivered(self, member: Member, sequences: list[int], slots: list[int], credit: int, now: float) -> None:
        if not member.in_flight:
            member.head, member.head_since = sequences[0], now
            self._set_timer(now + self.options.wait / 1000)
        stamp = int(now * 1000) << _SHIFT
        member.in_flight.update(zip(sequences, [stamp | slot for slot in slots], strict=True))
        member.credit -= credit
        member.delivered += len(sequences)
        member.last_sent = sequences[-1]
        self._in_flight += len(sequences)

    # Messages back

    def acknowledge(self, member: Member, sequences: Sequence[int], now: float) -> None:
        """Note that a member has done with messages. Sequences that it does not have are counted, and ignored."""
        pop = member.in_flight.pop
        values = [pop(sequence, _UNKNOWN) for sequence in sequences]
        if _UNKNOWN in values:
            known = [sequence for sequence, value in zip(sequences, values, strict=True) if value != _UNKNOWN]
            values = [value for value in values if value != _UNKNOWN]
            late = self._acknowledge_late(member, set(sequences).difference(known))
            self.unknown += len(sequences) - len(known) - len(late)
            self._log.note_done(late)
            sequences = known
        self._log.note_done(sequences)
        self._in_flight -= len(sequences)
        member.acknowledged += len(sequences)
        if self._deliveries:
            for sequence in sequences:
                self._deliveries.pop(sequence, None)
        if self._closed:
            self._open_slots([value & MASK for value in values])
        self._note_progress(member, now)

    def _acknowledge_late(self, member: Member, sequences: set[int]) -> list[int]:
        """Accept acknowledgements of messages that were given back, and are not delivered to another member yet."""
        found = [sequence for sequence in sequences if self._returned.is_from(sequence, member)]
        for sequence in found:
            self._returned.take(sequence)
        return found

    def give_back(
        self, member: Member, sequences: Sequence[int], now: float, *, delay: float = 0.0, seen: bool = True
    ) -> None:
        """Take messages back from a member.

        If the program has not `seen` them, this delivery does not count; and the member leaves, so it has no credit.
        """
        if not seen:
            member.credit = min(0, member.credit)
        known = [sequence for sequence in sequences if sequence in member.in_flight]
        self.unknown += len(sequences) - len(known)
        self._give_back(member, known, now, delay, seen)
        self._note_progress(member, now)

    def keep(self, member: Member, sequences: Iterable[int], now: float) -> None:
        """Let the time of messages begin again: the member still works on them."""
        stamp = int(now * 1000) << _SHIFT
        for sequence in sequences:
            value = member.in_flight.get(sequence)
            if value is None:
                self.unknown += 1
                continue
            member.in_flight[sequence] = stamp | value & MASK
            if sequence == member.head:
                member.head_since = now

    def _give_back(
        self, member: Member, sequences: list[int], now: float, delay: float = 0.0, seen: bool = True
    ) -> None:
        slots = []
        holder = member if member in self.members and not member.is_leaving else None
        for sequence in sequences:
            value = member.in_flight.pop(sequence, _UNKNOWN)
            if value == _UNKNOWN:
                continue  # named twice
            slot = value & MASK
            slots.append(slot)
            self._in_flight -= 1
            count = self._deliveries.pop(sequence, 1)
            if not seen:
                count -= 1
            what = ONCE[slot] if count == 1 else Delivered(slot, count)
            self._log.note_given_back(sequence, what)
            self._return(sequence, what, holder, now, delay)
        if self._closed:
            self._open_slots(slots)

    def _return(self, sequence: int, what: Delivered, holder: Member | None, now: float, delay: float) -> None:
        if self.options.limit and what.deliveries >= self.options.limit:
            self.dying[sequence] = what
            self.on_dying()
            return
        self._returned.add(sequence, what, holder, now + delay if delay > 0 else 0.0)
        if delay > 0:
            self._set_timer(now + delay)
            return
        owner = self._slots.owner[what.slot]
        if owner is not None and owner.has_room:
            owner.wake()

    def _open_slots(self, slots: Iterable[int]) -> None:
        """Open closed slots when the last of their messages in flight has come back."""
        for slot in slots:
            left = self._closed.get(slot)
            if left is None:
                continue
            if left > 1:
                self._closed[slot] = left - 1
                continue
            del self._closed[slot]
            owner = self._slots.owner[slot]
            if owner is not None:
                owner.wake()

    def _note_progress(self, member: Member, now: float) -> None:
        """Note that a member has answered: its time begins again with the next message, and it is not late."""
        if member.strikes and member in self.members:
            member.strikes = 0
            if member not in self._slots:
                self._gain_slots(member)
        self._note_head(member, now)
        if member.has_room:
            member.wake()

    def _note_head(self, member: Member, now: float) -> None:
        head = next(iter(member.in_flight), 0)
        if head != member.head:
            member.head, member.head_since = head, now

    # Dead letters

    def bury(self, sequences: Iterable[int]) -> None:
        """Note that messages are in the stream of dead letters, or passed over."""
        for sequence in sequences:
            if self.dying.pop(sequence, None) is not None:
                self._log.note_done([sequence])
                self.letters += 1
        self.wake_all()

    # Time

    def _set_timer(self, time: float) -> None:
        if time < self._timer:
            self._timer = time
            self.on_timer(time)

    @property
    def timer(self) -> float:
        """The time of which `on_timer` was told last, and that has not come."""
        return self._timer

    def next_timer(self) -> float:
        """Return the time at which `expire` must be called next."""
        wait = self.options.wait / 1000
        times = [member.head_since + wait for member in self.members if self._can_expire(member)]
        times += [member.late_until for member in self.members if member.late_until]
        return min([*times, self._returned.next_time or NEVER])

    def expire(self, now: float) -> None:
        """Give back what is not acknowledged in time, and let messages and members come back that had to wait."""
        wait = self.options.wait / 1000
        for member in tuple(self.members):
            if self._can_expire(member) and member.head_since + wait <= now:
                self._expire_member(member, now, wait)
            elif member.late_until and member.late_until <= now:
                member.head_since = max(member.head_since, now) if not member.in_flight else member.head_since
                self._gain_slots(member)
        if self._returned.let_due(now):
            self.wake_all()
        self._timer = NEVER
        following = self.next_timer()
        if following < NEVER:
            self._set_timer(following)

    def _can_expire(self, member: Member) -> bool:
        """Return whether the time of a member runs: it has messages, or slots without credit for their messages."""
        return bool(member.in_flight) or (member.credit <= 0 and member in self._slots and len(self._slots) > 1)

    def _expire_member(self, member: Member, now: float, wait: float) -> None:
        oldest = int((now - wait) * 1000) << _SHIFT | MASK
        expired = [one for one, value in member.in_flight.items() if value <= oldest or one == member.head]
        member.strikes = min(_STRIKES, member.strikes + 1)
        if len(self._slots) > 1 and member in self._slots:
            self._lose_slots(member)
            member.late_until = now + wait * 2 ** (member.strikes - 1)
        self._give_back(member, expired, now)
        self._note_head(member, now)
        self.wake_all()

    # The state that survives

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return self._in_flight

    @property
    def returned(self) -> int:
        """The number of messages that were given back, and wait for their next delivery."""
        return len(self._returned)

    @property
    def position(self) -> int:
        """The sequence up to which all messages are done."""
        return self.state().position

    def state(self) -> GroupState:
        """Return the state of the group."""
        end = self._main.position
        lagging = {slot: at for slot, at in self._lagging.items() if at < end}
        unacknowledged = self._returned.items() | self.dying | self._log.past
        for member in self.members:
            lagging |= member.frontiers_of_queue()
            unacknowledged |= {sequence: ONCE[value & MASK] for sequence, value in member.in_flight.items()}
        for sequence, count in self._deliveries.items():
            unacknowledged[sequence] = unacknowledged[sequence]._replace(deliveries=count)
        done = self._log.done_after(min([self._main.position, *lagging.values()]))
        return GroupState(self.options, self._main.position, lagging, unacknowledged, done, self.letters)

    @property
    def has_changes(self) -> bool:
        """Whether `take_changes` has something to return."""
        return self._log.has_changes

    def take_changes(self) -> Changes:
        """Return what has changed since the last call."""
        if not self._log.needs_snapshot:
            return Changes(self._log.take())
        self._log.begin_snapshot()
        state = self.state()
        return Changes(state.snapshot(), is_snapshot=True, position=state.position)

    def request_snapshot(self) -> None:
        """Make the next change a snapshot."""
        self._log.request_snapshot()
