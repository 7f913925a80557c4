"""How a reader makes one sequence out of two: the group, and the broker. Without I/O.

A reader is in one of two phases:

             the group goes on where we stand
    BROKER  --------------------------------->  GROUP
            <---------------------------------
       something is missing for longer than packets take to
       overtake each other, or the group is silent

In the phase BROKER there is a subscription to the broker, from where we stand, and datagrams are kept for a while: a
window of them. In the phase GROUP there is none, and the broker spends nothing on us. Both give messages in order and
without gaps, and each begins where the other one stopped, so that the program sees one sequence.

Where the group loses much, to change phases all the time would cost more than it saves. So each fall from the group
makes the next return to it later, and a time without loss makes up for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from zambezi.zeps.block import measure, walk
from zambezi.zeps.multicast.datagram import Fragment, Messages, decode, unseal

WINDOW: Final = 4 << 20  # octets that are kept of what cannot be handed out yet
PATIENCE: Final = 0.03  # seconds that a datagram may be late
SILENCE: Final = 3.5  # seconds without any datagram
FIRST_PENALTY: Final = 0.5  # seconds that a fall from the group costs; it doubles
MOST_PENALTY: Final = 60.0
FORGIVEN: Final = 10.0  # seconds without a fall, after which the next one counts as the first


class Phase(Enum):
    BROKER = "broker"
    GROUP = "group"


@dataclass(slots=True)
class ReceptionCounters:
    """What came which way."""

    from_group: int = 0  # messages
    from_broker: int = 0
    falls: int = 0  # from the group to the broker
    foreign: int = 0  # datagrams of others, of another incarnation, or without our seal
    discarded: int = 0  # datagrams that the window had no room for


class Reception:
    """The reconciliation of a group and a broker into one sequence."""

    def __init__(self, position: int, incarnation: UUID, now: float, key: bytes = b"", window: int = WINDOW) -> None:
        self.phase = Phase.BROKER
        self.position = position  # the last sequence that was handed out
        self.incarnation = incarnation
        self.counters = ReceptionCounters()
        self.on_messages: Callable[[bytes], object] = lambda _: None  # octets with frame headers, in order
        self.on_phase: Callable[[Phase], object] = lambda _: None
        self._key = key
        self._window = window
        self._kept: dict[int, tuple[int, bytes]] = {}  # by first sequence: the last one, and the octets
        self._kept_octets = 0
        self._parts: dict[int, dict[int, bytes]] = {}  # fragments, by sequence and offset
        self._known = position  # the last sequence that we know there is
        self._missing_since = 0.0  # when something began to be missing; 0: nothing is
        self._heard = now - SILENCE  # not yet
        self._fell = now - FORGIVEN
        self._penalty = 0.0
        self._return_at = now

    # What comes

    def datagram(self, octets: bytes, now: float) -> None:
        """A datagram has come from the group."""
        if self._key:
            opened = unseal(octets, self._key)
            if opened is None:
                self.counters.foreign += 1
                return
            octets = opened
        said = decode(octets)
        if said is None or said.incarnation != self.incarnation:
            self.counters.foreign += 1
            return
        self._heard = now
        if isinstance(said, Messages):
            self._messages(said)
        elif isinstance(said, Fragment):
            self._fragment(said)
        else:
            self._known = max(self._known, said.last)
        self._advance(now)

    def delivered(self, octets: bytes, first: int, last: int, now: float) -> None:
        """Messages have come from the broker, in order, with frame headers."""
        self._known = max(self._known, last)
        if last > self.position:
            if first <= self.position:
                octets = _after(octets, self.position)
            self.counters.from_broker += last - max(first - 1, self.position)
            self.position = last
            self.on_messages(octets)
            self._advance(now)

    def _messages(self, said: Messages) -> None:
        last = said.first + said.count - 1
        self._known = max(self._known, last)
        if last > self.position and self._is_whole(said):
            self._keep(said.first, last, said.octets)

    def _is_whole(self, said: Messages) -> bool:
        """Whether the octets are what the head promises: they go to the program as they are."""
        expected = said.first
        stop = 0
        for place in walk(said.octets):
            if place.sequence != expected:
                break
            expected += 1
            stop = place.stop
        if stop == len(said.octets) and expected == said.first + said.count:
            return True
        self.counters.foreign += 1
        return False

    def _fragment(self, said: Fragment) -> None:
        self._known = max(self._known, said.sequence)
        if said.sequence <= self.position or said.sequence in self._kept:
            return
        if said.total > self._window or said.offset + len(said.octets) > said.total:
            self.counters.discarded += 1
            return
        parts = self._parts.setdefault(said.sequence, {})
        if said.offset in parts or not self._has_room(len(said.octets)):
            return
        parts[said.offset] = said.octets
        self._kept_octets += len(said.octets)
        if sum(map(len, parts.values())) == said.total:
            message = b"".join(parts[offset] for offset in sorted(parts))
            self._forget_parts(said.sequence)
            place = measure(message, 0, len(message))
            if place is not None and place.stop == len(message) and place.sequence == said.sequence:
                self._keep(said.sequence, said.sequence, message)
            else:
                self.counters.foreign += 1

    def _keep(self, first: int, last: int, octets: bytes) -> None:
        before = self._kept.get(first)
        if (before is None or before[0] < last) and self._has_room(len(octets)):
            if before is not None:
                self._kept_octets -= len(before[1])
            self._kept[first] = last, octets
            self._kept_octets += len(octets)

    def _has_room(self, octets: int) -> bool:
        """Make room, in the phase BROKER, by giving up what is oldest: the broker sends that."""
        while self._kept_octets + octets > self._window and self.phase is Phase.BROKER and (self._kept or self._parts):
            oldest = min([*self._kept, *self._parts])
            if oldest in self._kept:
                self._kept_octets -= len(self._kept.pop(oldest)[1])
            self._forget_parts(oldest)
            self.counters.discarded += 1
        if self._kept_octets + octets <= self._window:
            return True
        self.counters.discarded += 1
        return False

    def _forget_parts(self, sequence: int) -> None:
        for part in self._parts.pop(sequence, {}).values():
            self._kept_octets -= len(part)

    # What follows from it

    def _advance(self, now: float) -> None:
        self._drop_old()
        if self.phase is Phase.BROKER:
            if now < self._return_at or not self._goes_on_here(now):
                return
            self.phase = Phase.GROUP
            self._missing_since = 0.0
            self.on_phase(self.phase)
        while (found := self._kept.pop(self.position + 1, None)) is not None:
            last, octets = found
            self._kept_octets -= len(octets)
            self.counters.from_group += last - self.position
            self.position = last
            self.on_messages(octets)
        if self.position >= self._known:
            self._missing_since = 0.0
        elif not self._missing_since:
            self._missing_since = now

    def _goes_on_here(self, now: float) -> bool:
        """Whether the group has what comes next, or is heard and has nothing that we lack."""
        return self.position + 1 in self._kept or (self.position >= self._known and now < self._heard + SILENCE)

    def _drop_old(self) -> None:
        """What was handed out meanwhile, and what begins before where we stand, is cut or goes."""
        for first in [first for first in self._kept if first <= self.position]:
            last, octets = self._kept.pop(first)
            self._kept_octets -= len(octets)
            if last > self.position:
                self._keep(self.position + 1, last, _after(octets, self.position))
        for sequence in [sequence for sequence in self._parts if sequence <= self.position]:
            self._forget_parts(sequence)

    # Time

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self.phase is Phase.BROKER:
            return self._return_at or None
        silent = self._heard + SILENCE
        return min(silent, self._missing_since + PATIENCE) if self._missing_since else silent

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.phase is Phase.BROKER:
            if self._return_at and now >= self._return_at:
                self._return_at = 0.0
                if now < self._heard + SILENCE:
                    self._advance(now)
        elif now >= self._heard + SILENCE or (self._missing_since and now >= self._missing_since + PATIENCE):
            self.fall(now)

    def fall(self, now: float) -> None:
        """Leave the group for the broker: something is missing, or the program does not keep up."""
        if self.phase is Phase.BROKER:
            return
        self.phase = Phase.BROKER
        self.counters.falls += 1
        forgiven = now - self._fell > FORGIVEN + self._penalty
        self._penalty = FIRST_PENALTY if forgiven else min(2 * self._penalty, MOST_PENALTY)
        # The first fall in a while costs nothing: a packet was lost, and the broker has it.
        self._return_at = now if forgiven else now + self._penalty
        self._fell = now
        self._missing_since = 0.0
        self.on_phase(self.phase)


def _after(octets: bytes, position: int) -> bytes:
    """The messages after a sequence."""
    for place in walk(octets):
        if place.sequence > position:
            return octets[place.start :]
    return b""
