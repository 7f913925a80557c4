"""The state of a group of shared readers that survives the broker, as bytes.

The state is a snapshot, and what has happened since then:

    S  snapshot       options and counts, the frontier, the slots that lag, the unacknowledged messages, the done ones
    A  acknowledged   sequences
    R  returned       unacknowledged messages: their sequences, slots and deliveries so far
    D  dying          the messages that go to the stream of dead letters next, and the number of letters before them
    C  cut            the stream has lost the messages after a sequence (`zambezi.zeps.journal.positions` adds it)

A message is done if it is at or below the frontier of its slot and not among the unacknowledged, or if it is among the
done ones. All parts are bounded by the messages that are in flight and by the bytes between two snapshots: none grows
with the lag of the group, nor with the number of messages that other members have done meanwhile.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

from zambezi.zeps.broker.slots import SLOTS
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.sequences import BadSequences, pack_sequences, unpack_sequences

WAIT: Final = 30_000  # milliseconds that a member has to acknowledge a message

_PART: Final = Struct(">cI")  # kind and length of a part
_FRONTIER: Final = Struct(">Q")
_COUNTS: Final = Struct(">HIII")  # of slots that lag, unacknowledged and done messages; the length of the options
_LAGGING: Final = Struct(">HQ")
_UNACKNOWLEDGED: Final = 8 + 2 + 4  # bytes: a sequence, a slot and a number of deliveries; each is a column
_NUMBER: Final = Struct(">Q")
_SWAPPED: Final = sys.byteorder == "little"


class BadState(ZepsError):
    """The bytes are not the state of a group."""


class Delivered(NamedTuple):
    """A message that was delivered, and is not acknowledged: its slot, and its deliveries so far."""

    slot: int
    deliveries: int


ONCE: Final = [Delivered(slot, 1) for slot in range(SLOTS)]  # most messages are delivered once


class Changes(NamedTuple):
    """The changes of a group as bytes: empty if there are none."""

    octets: bytes
    is_snapshot: bool = False  # whether it begins with a snapshot: everything before is old
    position: int = 0  # with a snapshot


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options that all members of a group share."""

    pattern: str = ""
    wait: int = WAIT  # milliseconds
    limit: int = 0  # deliveries of a message; 0: no limit
    dead: str = ""  # the stream for messages that have reached the limit; without it they are passed over


@dataclass(slots=True)
class GroupState:
    """The state of a group."""

    options: GroupOptions
    frontier: int  # every message up to here was delivered, except those of the slots that lag
    lagging: dict[int, int] = field(default_factory=dict)  # the frontiers of other slots
    unacknowledged: dict[int, Delivered] = field(default_factory=dict)  # delivered, by sequence
    done: set[int] = field(default_factory=set)  # acknowledged, after the frontier of their slot
    letters: int = 0  # dead letters, including messages that were passed over
    dying: tuple[int, tuple[int, ...]] = (0, ())  # letters before, and the sequences that follow

    @property
    def position(self) -> int:
        """The sequence up to which all messages are done."""
        first = min(self.unacknowledged, default=self.frontier + 1)
        found = min(first - 1, self.frontier, *self.lagging.values())
        while found + 1 in self.done:
            found += 1
        return found

    @property
    def highest(self) -> int:
        """The highest sequence in the state."""
        known = (self.frontier, *self.unacknowledged, *self.done, *self.dying[1])
        return max(*known, *self.lagging.values())

    def cut_after(self, last: int) -> None:
        """Forget all messages after a sequence: the stream has lost them."""
        self.frontier = min(self.frontier, last)
        self.lagging = {slot: min(after, last) for slot, after in self.lagging.items()}
        self.unacknowledged = {one: what for one, what in self.unacknowledged.items() if one <= last}
        self.done = {one for one in self.done if one <= last}
        self.dying = self.dying[0], tuple(one for one in self.dying[1] if one <= last)

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        options = json.dumps({**asdict(self.options), "letters": self.letters}).encode()
        counts = _COUNTS.pack(len(self.lagging), len(self.unacknowledged), len(self.done), len(options))
        pieces = [_FRONTIER.pack(self.frontier), counts, options]
        pieces += [_LAGGING.pack(slot, after) for slot, after in self.lagging.items()]
        pieces += [_pack_unacknowledged(self.unacknowledged), pack_sequences(self.done)]
        found = _part(b"S", b"".join(pieces))
        return found + (dying_part(*self.dying) if self.dying[1] else b"")


def _part(kind: bytes, content: bytes) -> bytes:
    return _PART.pack(kind, len(content)) + content


def acknowledged_part(sequences: Iterable[int]) -> bytes:
    """Return the bytes that say that messages were acknowledged."""
    return _part(b"A", pack_sequences(sequences))


def returned_part(returned: Mapping[int, Delivered]) -> bytes:
    """Return the bytes that say that messages were given back."""
    return _part(b"R", _pack_unacknowledged(returned))


def dying_part(letters: int, sequences: Iterable[int]) -> bytes:
    """Return the bytes that say which messages go to the stream of dead letters next."""
    return _part(b"D", _NUMBER.pack(letters) + pack_sequences(sequences))


def _pack_unacknowledged(messages: Mapping[int, Delivered]) -> bytes:
    """Return unacknowledged messages as bytes: all sequences, then all slots, then all numbers of deliveries."""
    slots = array("H", [what.slot for what in messages.values()])
    deliveries = array("I", [what.deliveries for what in messages.values()])
    if _SWAPPED:
        slots.byteswap()
        deliveries.byteswap()
    return pack_sequences(messages) + slots.tobytes() + deliveries.tobytes()


def _unpack_unacknowledged(octets: bytes) -> dict[int, Delivered]:
    count = len(octets) // _UNACKNOWLEDGED
    slots, deliveries = array("H", octets[8 * count : 10 * count]), array("I", octets[10 * count :])
    if _SWAPPED:
        slots.byteswap()
        deliveries.byteswap()
    return dict(zip(unpack_sequences(octets[: 8 * count]), map(Delivered, slots, deliveries), strict=True))


def read_state(octets: bytes) -> GroupState:
    """Return the state that a snapshot and the parts after it describe; raise `BadState` if they are not valid."""
    try:
        state = _read(octets)
    except BadSequences as error:
        raise BadState(str(error)) from None
    slots = [*state.lagging, *[what.slot for what in state.unacknowledged.values()]]
    if any(slot >= SLOTS for slot in slots):
        raise BadState(f"there is no slot {max(slots)}")
    return state


def _read(octets: bytes) -> GroupState:
    parts = _parts(octets)
    kind, content = next(parts, (b"", b""))
    if kind != b"S":
        raise BadState("the state of a group begins with a snapshot")
    state = _read_snapshot(content)
    for kind, content in parts:
        if kind == b"A":
            sequences = unpack_sequences(content)
            for sequence in sequences:
                state.unacknowledged.pop(sequence, None)
                state.done.add(sequence)
            if state.dying[1] and set(state.dying[1]) <= set(sequences):
                state.letters, state.dying = state.dying[0] + len(state.dying[1]), (0, ())
        elif kind == b"R":
            if len(content) % _UNACKNOWLEDGED:
                raise BadState("a list of messages that were given back is not complete")
            state.unacknowledged |= _unpack_unacknowledged(content)
        elif kind == b"D" and len(content) >= _NUMBER.size:
            state.dying = _NUMBER.unpack_from(content)[0], tuple(unpack_sequences(content[_NUMBER.size :]))
        elif kind == b"C" and len(content) == _NUMBER.size:
            state.cut_after(_NUMBER.unpack(content)[0])
        else:
            raise BadState(f"the state of a group has no part {kind!r}")
    return state


def _parts(octets: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    while position < len(octets):
        if position + _PART.size > len(octets):
            raise BadState("a part of a group's state is not complete")
        kind, length = _PART.unpack_from(octets, position)
        position += _PART.size
        if position + length > len(octets):
            raise BadState("a part of a group's state is not complete")
        yield kind, octets[position : position + length]
        position += length


def _read_snapshot(content: bytes) -> GroupState:
    head = _FRONTIER.size + _COUNTS.size
    if len(content) < head:
        raise BadState("the snapshot of a group is not complete")
    frontier = _FRONTIER.unpack_from(content)[0]
    lagging, unacknowledged, done, length = _COUNTS.unpack_from(content, _FRONTIER.size)
    after = head + length
    middle = after + lagging * _LAGGING.size
    end = middle + unacknowledged * _UNACKNOWLEDGED
    if len(content) != end + 8 * done:
        raise BadState("the snapshot of a group has another length than it says")
    options, letters = _read_options(content[head:after])
    return GroupState(
        options,
        frontier,
        dict(_LAGGING.iter_unpack(content[after:middle])),
        _unpack_unacknowledged(content[middle:end]),
        set(unpack_sequences(content[end:])),
        letters,
    )


def _read_options(octets: bytes) -> tuple[GroupOptions, int]:
    try:
        found: Any = json.loads(octets)
        letters = int(found.pop("letters"))
        options = GroupOptions(str(found["pattern"]), int(found["wait"]), int(found["limit"]), str(found["dead"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadState("the options of a group are not valid") from None
    return options, letters
