"""The groups of shared readers of a stream: their members, their timers, and their state in the file of positions.

A group is in memory while it has members, or dead letters to write. All changes of one turn of the event loop are one
write. A client that waits for its acknowledgements sends PING, and gets PING-OK when they are written; with
`sync = "always"`, when the disk has them; with `sync = "store"`, when the store has them. If the disk is full, changes
are kept in memory, and written when there is room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from zambezi.wire.text import printable
from zambezi.zeps.about import about
from zambezi.zeps.block import Block
from zambezi.zeps.broker.group import IN_FLIGHT, WINDOW, SharedGroup
from zambezi.zeps.broker.group_member import Member, Portion
from zambezi.zeps.broker.group_source import GroupSource
from zambezi.zeps.broker.group_state import BadState, Changes, GroupOptions, GroupState, dying_part, read_state
from zambezi.zeps.broker.letterbox import Letterbox
from zambezi.zeps.errors import BrokerError, JournalError
from zambezi.zeps.journal.positions import GROUP, Position

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream

_log: Final = logging.getLogger("zambezi.zeps")
_MICRO: Final = 1_000_000
_SHOWN: Final = 100  # members of a group that are described
_WINDOWS: Final = 32 << 20  # bytes of the queues of all groups of a stream; they can be twice as long for a moment
_LEAST_WINDOW: Final = 64 << 10
_ROOM: Final = 8 * IN_FLIGHT  # messages that the members of all groups of a stream have in flight
_LEAST_ROOM: Final = 16
_MOST_UNWRITTEN: Final = 1 << 20  # bytes of changes that are kept while the disk has no room
AT_ONCE: Final = 512  # messages that a member gives back in one turn of the loop
_LEAVE: Final = 100  # units of work of that, see `turns`
_LOOKED_AT: Final = 64  # messages of a group that are looked at or written when a member has left: one unit

CallLater = Callable[[float, Callable[[], object]], object]


class Wish(NamedTuple):
    """The options that a member wants for its group. With a zero, or an empty `dead`, the group keeps its own."""

    pattern: str
    wait: int
    limit: int
    dead: str

    def applied_to(self, options: GroupOptions) -> GroupOptions:
        """Return the options of a group that this member has joined."""
        return replace(
            options, wait=self.wait or options.wait, limit=self.limit or options.limit, dead=self.dead or options.dead
        )


class Groups:
    """The groups of a stream."""

    def __init__(
        self,
        stream: BrokerStream,
        call_soon: Callable[[Callable[[], object]], object],
        call_later: CallLater,
    ) -> None:
        self._stream = stream
        self._positions = stream.journal.positions
        self._call_soon = call_soon
        self._call_later = call_later
        self._active: dict[str, SharedGroup] = {}
        self._letterboxes: dict[str, Letterbox] = {}
        self._by_id: dict[tuple[str, bytes], Member] = {}
        self._ids: dict[Member, tuple[str, bytes]] = {}
        self._evict: dict[Member, Callable[[], object]] = {}
        self._shares = (WINDOW, IN_FLIGHT)  # the bounds of each group
        self._changed: dict[SharedGroup, None] = {}
        self._unwritten: dict[SharedGroup, Changes] = {}  # changes for which there was no room
        self._idle: dict[str, tuple[bytes, int, dict[str, object]]] = {}
        self._written: dict[SharedGroup, int] = {}  # the positions of the last snapshots
        self._users: dict[str, str] = {}  # to whom the groups in memory belong; empty: all
        self._woken: dict[Callable[[], object], None] | None = (
            None  # while a block is divided: the members with messages
        )
        self._scheduled = False
        self.problem = ""  # why changes cannot be written now
        self.is_closed = False
        self.find_stream: Callable[[str], BrokerStream | None] = lambda _: None
        self.make_stream: Callable[[BrokerStream, str], object] = lambda _stream, _name: None

    def __len__(self) -> int:
        return self._positions.count(GROUP)

    # For operators

    def names(self) -> tuple[str, ...]:
        """Return the names of all groups, in order."""
        self.flush()
        return self._positions.names(GROUP)

    def describe(self, name: str) -> dict[str, object] | None:
        """Return what there is to say about a group; None if there is none of that name."""
        state = self._positions.get(GROUP, name)
        return self._describe(state) if state is not None else None

    def _describe(self, state: Position) -> dict[str, object]:
        group = self._active.get(state.name)
        if group is not None:
            position = group.position
            details = describe_group(group) | {"problem": self._letterboxes[state.name].problem}
        else:
            position, details = self._describe_idle(state)
        row: dict[str, object] = {
            "reader": state.name,
            "shared": True,
            "position": position,
            "lag": self._stream.readers.lag_of(position),
            "time": state.time,
            "user": state.user,
        }
        return row | details

    def _describe_idle(self, state: Position) -> tuple[int, dict[str, object]]:
        """Return what the file says about a group without members: its position, and more. It is read once."""
        known = self._idle.get(state.name)
        if known is None or known[0] is not state.payload:
            found = self._state_of(state.name)
            assert found is not None
            row = asdict(found.options) | {"returned": len(found.unacknowledged), "letters": found.letters}
            known = self._idle[state.name] = state.payload, found.position, row
        return known[1:]

    def set(self, name: str, position: int) -> None:
        """Let a group without members begin again after a sequence. Raises `BrokerError` if it has members."""
        state = self._idle_state(name)
        fresh = GroupState(state.options, position, letters=state.letters)
        now = int(self._stream.clock() * _MICRO)
        last = self._stream.journal.last
        user = self._user_of(name)
        self._positions.write([Position(GROUP, name, position, last, now, user=user, payload=fresh.snapshot())])

    def remove(self, name: str) -> None:
        """Remove a group without members. Raises `BrokerError` if it has members."""
        self._idle_state(name)
        self._idle.pop(name, None)
        self._positions.remove([(GROUP, name)])

    def _idle_state(self, name: str) -> GroupState:
        group = self._active.get(name)
        if group is not None and group.members:
            raise BrokerError(f"the group {printable(name)} has {len(group.members)} members: stop them first")
        if group is not None:
            self._drop(group)
        state = self._state_of(name)
        if state is None:
            raise BrokerError(f"the stream {printable(self._stream.name)} has no group {printable(name)}")
        return state

    def patterns(self, prefix: str) -> list[str]:
        """Return the patterns of all groups whose names begin with a prefix."""
        names = [name for name in self._positions.names(GROUP) if name.startswith(prefix)]
        states = [self._active[name] if name in self._active else self._state_of(name) for name in names]
        return [state.options.pattern for state in states if state is not None]

    # Members

    def exists(self, name: str) -> bool:
        """Return whether there is a group of that name."""
        return name in self._active or self._positions.get(GROUP, name) is not None

    def join(
        self,
        name: str,
        identity: bytes,
        wish: Wish,
        after: int,
        in_flight: int,
        user: str,
        label: str,
        wake: Callable[[], object],
        send: Callable[[], object],
        offer: Callable[[Block], bool],
        evict: Callable[[], object],
    ) -> Member:
        """Add a member to a group, which begins after a sequence if it is new.

        A member with the same id on another connection is the same program: the older one is evicted. Raises
        `BrokerError` if the member wants another pattern than the group has, or the group belongs to another user.
        """
        owner = self._users.get(name) or self._user_of(name)
        if owner and owner != user:
            raise BrokerError(f"the group {printable(name)} belongs to another user: choose another name")
        group = self._active.get(name) or self._open(name, wish, after)
        self._users.setdefault(name, owner if self._positions.get(GROUP, name) is not None else user)
        if wish.pattern != group.options.pattern:
            self._drop_if_idle(group)
            raise BrokerError(
                f"the group {printable(name)} has the pattern {group.options.pattern!a}, not {wish.pattern!a}: all "
                "members have one pattern; choose another name, or remove the group first"
            )
        before = self._by_id.get((name, identity))
        if before is not None:
            evict_before = self._evict[before]
            self.leave(before, keep=True)
            evict_before()
        options = wish.applied_to(group.options)
        if options != group.options:
            group.options = options
            group.request_snapshot()
        member = group.join(label, in_flight, partial(self._wake, wake, send), self._stream.clock(), offer)
        self._by_id[name, identity] = member
        self._ids[member] = name, identity
        self._evict[member] = evict
        self._note_changed(group)
        return member

    def leave(self, member: Member, *, keep: bool = False) -> None:
        """Remove a member. The messages that it has are given back: many of them in several turns of the loop."""
        if self._evict.pop(member, None) is None:
            return
        del self._by_id[self._ids.pop(member)]
        if member.group.in_flight <= AT_ONCE:
            self._finish_leaving(member, keep)
        else:
            member.credit = min(0, member.credit)  # it gets nothing more
            self._stream.turns.wait(partial(self._leave_some, member, keep))

    def _leave_some(self, member: Member, keep: bool) -> int:
        """Give back some messages of a member that leaves; return the units of work."""
        if self.is_closed:
            return 1  # the file has them as messages in flight
        if member.group.give_back_some(member, AT_ONCE, self._stream.clock()):
            self._stream.turns.wait(partial(self._leave_some, member, keep))
            return _LEAVE
        self._finish_leaving(member, keep)
        return _LEAVE + (member.group.in_flight + member.group.returned) // _LOOKED_AT

    def _finish_leaving(self, member: Member, keep: bool) -> None:
        group = member.group
        group.leave(member, self._stream.clock())
        self._note_changed(group)
        if not keep:
            self._drop_if_idle(group)

    def _open(self, name: str, wish: Wish, after: int) -> SharedGroup:
        """Load a group into memory, or begin a new one."""
        limit = self._stream.journal.policy.readers
        if len(self) >= limit and not self.exists(name):
            raise BrokerError(
                f"the stream has {limit} groups of shared readers already, the limit: {printable(name)} was not added; "
                "remove others, or set readers in [zeps.journal]"
            )
        state = self._state_of(name) or GroupState(wish.applied_to(GroupOptions(wish.pattern)), after)
        source = GroupSource(self._stream, state.options.pattern)
        group = self._active[name] = SharedGroup(name, state, source)
        self._share_memory()
        self._bound(group)
        letterbox = self._letterboxes[name] = Letterbox(
            self._stream,
            group,
            source,
            announce=partial(self._announce_letters, group),
            on_buried=partial(self._note_changed, group),
        )
        source.on_loaded = partial(self._on_loaded, group, letterbox)
        group.on_dying = letterbox.wake
        group.on_timer = partial(self._set_timer, group)
        if state.dying[1]:
            letterbox.recover(*state.dying)
        letterbox.wake()
        return group

    def _on_loaded(self, group: SharedGroup, letterbox: Letterbox) -> None:
        group.wake_all()
        letterbox.wake()

    def _state_of(self, name: str) -> GroupState | None:
        """Return the state of a group in the file; None if it is new."""
        known = self._positions.get(GROUP, name)
        if known is None:
            return None
        try:
            return read_state(known.payload)
        except BadState as error:
            stream, group = printable(self._stream.name), printable(name)
            _log.error(
                "stream %s, group %s: %s; it begins again after %d",
                stream,
                group,
                error,
                known.position,
                extra={**about(stream, error), "group": group},
            )
            return GroupState(GroupOptions(), known.position)

    def _announce_letters(self, group: SharedGroup, letters: int, sequences: Sequence[int]) -> None:
        """Write which messages become dead letters next; raise `JournalError` if that is not possible."""
        self._changed[group] = None
        self.flush()
        if group in self._unwritten:
            raise JournalError(self.problem)
        self._positions.extend([self._position(group, Changes(dying_part(letters, sequences)))])

    def _drop_if_idle(self, group: SharedGroup) -> None:
        """Remove a group without members from memory."""
        if group.members or group.dying or self._active.get(group.name) is not group:
            return
        group.request_snapshot()
        self._note_changed(group)
        self.flush()
        if group not in self._unwritten and not self.is_closed:
            self._drop(group)

    def _drop(self, group: SharedGroup) -> None:
        del self._active[group.name]
        self._letterboxes.pop(group.name).close()
        self._users.pop(group.name, None)
        self._written.pop(group, None)
        self._changed.pop(group, None)
        self._unwritten.pop(group, None)
        self._share_memory()

    def _share_memory(self) -> None:
        """Bound the bytes that wait for the members of all groups, and their messages in flight.

        Groups without members count for the latter: their state has the messages that were in flight.
        """
        window = max(_LEAST_WINDOW, min(WINDOW, _share_of(_WINDOWS, len(self._active))))
        room = max(_LEAST_ROOM, min(IN_FLIGHT, _share_of(_ROOM, max(len(self), len(self._active)))))
        if (window, room) != self._shares:
            self._shares = window, room
            for group in self._active.values():
                self._bound(group)

    def _bound(self, group: SharedGroup) -> None:
        group.window = self._shares[0]
        group.set_room(self._shares[1])

    # Messages

    @property
    def is_active(self) -> bool:
        """Whether a group has members."""
        return bool(self._active)

    def on_append(self, block: Block, now: float) -> None:
        """Hand a block that was just appended to the groups that wait for it."""
        woken: dict[Callable[[], object], None] = {}
        self._woken = woken
        for group in tuple(self._active.values()):
            group.on_append(block, now)
        self._woken = None
        for send in woken:
            send()  # now, like live messages to other subscribers: a turn of the event loop would be lost

    def _wake(self, wake: Callable[[], object], send: Callable[[], object]) -> None:
        """Let a member ask for messages; while a block is divided, when all of it is."""
        if self._woken is None:
            wake()
        else:
            self._woken[send] = None

    def pull(self, member: Member) -> Portion | None:
        """Return the next messages of a member."""
        return member.group.pull(member, self._stream.clock())

    def acknowledge(self, member: Member, sequences: list[int]) -> None:
        """Note that a member has done with messages."""
        member.group.acknowledge(member, sequences, self._stream.clock())
        self._note_changed(member.group)

    def give_back(self, member: Member, sequences: list[int], delay: float, seen: bool) -> None:
        """Take messages back from a member."""
        member.group.give_back(member, sequences, self._stream.clock(), delay=delay, seen=seen)
        self._note_changed(member.group)

    def keep(self, member: Member, sequences: list[int]) -> None:
        """Let the time of messages begin again."""
        member.group.keep(member, sequences, self._stream.clock())

    # Time

    def _set_timer(self, group: SharedGroup, time: float) -> None:
        self._call_later(max(0.0, time - self._stream.clock()), partial(self._expire, group, time))

    def _expire(self, group: SharedGroup, time: float) -> None:
        is_current = group.timer == time  # else an earlier timer has replaced it
        if is_current and self._active.get(group.name) is group and not self.is_closed:
            group.expire(self._stream.clock())
            self._note_changed(group)

    def tick(self) -> None:
        """Do the periodic work: write what could not be written, and dead letters that wait for their stream."""
        self.flush()
        for letterbox in tuple(self._letterboxes.values()):
            letterbox.wake()
        for group in tuple(self._active.values()):
            self._drop_if_idle(group)

    # The file

    def _note_changed(self, group: SharedGroup) -> None:
        is_active = self._active.get(group.name) is group  # else it was set or removed
        if is_active and group.has_changes:
            self._changed[group] = None
            if not self._scheduled:
                self._scheduled = True
                self._call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write all changes; keep them if there is no room."""
        if self.is_closed or not (self._changed or self._unwritten):
            return
        changed, self._changed = self._changed, {}
        for group in changed:
            changes = group.take_changes()
            if changes.is_snapshot:  # it must not forget the letters that are being published
                changes = changes._replace(octets=changes.octets + self._letterboxes[group.name].announced)
            if changes.octets:
                self._add_unwritten(group, changes)
        self._write()

    def _add_unwritten(self, group: SharedGroup, changes: Changes) -> None:
        before = self._unwritten.get(group)
        if before is not None and not changes.is_snapshot:
            changes = before._replace(octets=before.octets + changes.octets)
        self._unwritten[group] = changes

    def _write(self) -> None:
        waiting = self._unwritten
        whole = [group for group, changes in waiting.items() if changes.is_snapshot]
        try:
            self._positions.write([self._position(group, waiting[group]) for group in whole])
            for group in whole:
                del waiting[group]
            self._positions.extend([self._position(group, changes) for group, changes in waiting.items()])
        except JournalError as error:
            self.problem = str(error)
            for group, changes in tuple(waiting.items()):
                if len(changes.octets) > _MOST_UNWRITTEN:  # a snapshot is shorter than many changes
                    del waiting[group]
                    group.request_snapshot()
                    self._changed[group] = None
            return
        waiting.clear()
        self.problem = ""
        self._stream.readers.confirm()

    def _position(self, group: SharedGroup, changes: Changes) -> Position:
        if changes.is_snapshot:
            self._written[group] = changes.position
        position = self._written[group]
        now = int(self._stream.clock() * _MICRO)
        user = self._users.get(group.name, "")
        return Position(GROUP, group.name, position, self._stream.journal.last, now, user=user, payload=changes.octets)

    def _user_of(self, name: str) -> str:
        known = self._positions.get(GROUP, name)
        return known.user if known is not None else ""

    @property
    def has_unwritten(self) -> bool:
        """Whether changes are not in the file."""
        return bool(self._changed or self._unwritten)

    def close(self) -> None:
        """Write everything, and nothing any more."""
        for group in self._active.values():
            group.request_snapshot()
            self._changed[group] = None
        self.flush()
        self.is_closed = True
        for letterbox in self._letterboxes.values():
            letterbox.close()


def _share_of(whole: int, parts: int) -> int:
    """Return the share of each part: a power of two, so that it changes seldom."""
    return 1 << max(1, whole // max(1, parts)).bit_length() - 1


def describe_group(group: SharedGroup) -> dict[str, object]:
    """Return what there is to say about a group that has members."""
    members = list(group.members)
    return {
        **asdict(group.options),
        "in_flight": group.in_flight,
        "returned": group.returned,
        "redelivered": group.redelivered,
        "missed": group.missed,
        "letters": group.letters,
        "unknown": group.unknown,
        "members": len(members),
        "shares": [
            {
                "member": member.label,
                "in_flight": len(member.in_flight),
                "delivered": member.delivered,
                "done": member.acknowledged,
                "late": member.is_late,
            }
            for member in members[:_SHOWN]
        ],
    }
