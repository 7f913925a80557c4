"""How a reader makes one sequence out of two: the group, and the broker. Without I/O.

A reader is in one of two phases:

             the group goes on where we stand
    BROKER  --------------------------------->  GROUP
            <---------------------------------
       something is missing for longer than packets take to
       overtake each other, or the group is silent, or the
       program does not keep up

In the phase BROKER there is a subscription to the broker, from where we stand, and datagrams are kept for a while: a
window of them. In the phase GROUP there is none, and the broker spends nothing on us. Both give messages in order and
without gaps, and each begins where the other one stopped, so that the program sees one sequence.

Where the group loses much, to change phases all the time would cost more than it saves. So each fall from the group
makes the next return to it later, and a time without loss makes up for it.

While a reader is held, because the program has not taken what is there, it stays with the broker, which waits with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from zambezi.zeps.client.batch import examine
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.multicast.datagram import Fragment, Messages, decode, unseal
from zambezi.zmtp.frames import Batch, Decoder

WINDOW: Final = 4 << 20  # octets that are kept of what cannot be handed out yet
EACH: Final = 64  # what each message or fragment takes besides, about
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


class _Run(NamedTuple):
    """Messages without a gap, up to sequence `last`; `after` is what `examine` said of them."""

    last: int
    frames: list[bytes]
    after: int
    octets: int


class _Parts:
    """The fragments of one message that have come."""

    __slots__ = ("octets", "pieces")

    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}  # by offset
        self.octets = 0


class Reception:
    """The reconciliation of a group and a broker into one sequence."""

    def __init__(
        self,
        position: int,
        incarnation: UUID,
        now: float,
        key: bytes = b"",
        window: int = WINDOW,
        counters: ReceptionCounters | None = None,
    ) -> None:
        self.phase = Phase.BROKER
        self.position = position  # the last sequence that was handed out
        self.incarnation = incarnation
        self.counters = counters if counters is not None else ReceptionCounters()
        self.on_messages: Callable[[list[bytes], int], object] = lambda _frames, _after: None  # in order, of the group
        self.on_phase: Callable[[Phase], object] = lambda _: None
        self._key = key
        self._window = window
        self._kept: dict[int, _Run] = {}  # by first sequence, as they came
        self._parts: dict[int, _Parts] = {}  # by sequence, as they came
        self._kept_octets = 0
        self._known = position  # the last sequence that we know there is
        self._missing_since: float | None = None  # when what we wait for began to be missing
        self._heard = now - SILENCE  # not yet
        self._fell = now - FORGIVEN
        self._penalty = 0.0
        self._return_at = now
        self._held = False

    # What comes

    def datagram(self, octets: bytes, now: float) -> None:
        """A datagram has come from the group."""
        self.datagrams([octets], now)

    def datagrams(self, came: Sequence[bytes], now: float) -> None:
        """Datagrams have come from the group."""
        # What comes long before we may return is not kept: by then the broker has sent it.
        keep = self.phase is Phase.GROUP or (now >= self._return_at and not self._held)
        for octets in came:
            self._take(octets, keep, now)
        self._advance(now)

    def _take(self, octets: bytes, keep: bool, now: float) -> None:
        counters = self.counters
        if self._key:
            opened = unseal(octets, self._key)
            if opened is None:
                counters.foreign += 1
                return
            octets = opened
        said = decode(octets)
        if said is None or said.incarnation != self.incarnation:
            counters.foreign += 1
            return
        self._heard = now
        if isinstance(said, Messages):
            last = said.first + said.count - 1
            if last > self.position:
                run = self._run_of(said.octets, said.first, said.count) if keep else None
                if run is not None:
                    self._keep(said.first, run)
                if run is not None or not keep:
                    self._known = max(self._known, last)
        elif isinstance(said, Fragment):
            self._known = max(self._known, said.sequence)
            if keep:
                self._fragment(said)
        else:
            self._known = max(self._known, said.last)

    def _run_of(self, octets: bytes, first: int, count: int) -> _Run | None:
        """The messages in some octets, if they are all that is promised: they go to the program as they are."""
        found = Decoder(len(octets), len(octets), multipart=False).feed(octets)
        if len(found) == 1 and isinstance(batch := found[0], Batch) and batch.octets == len(octets):
            frames = batch.frames
            after = examine(frames) if len(frames) == count else None
            if (
                after is not None
                and sequence_of(frames[0]) == first
                and sequence_of(frames[-1]) == first + count - 1
                # They are sorted: so if no two are of one sequence, none between the first and the last is missing.
                and len({frame[:11] for frame in frames}) == count
            ):
                return _Run(first + count - 1, frames, after, len(octets) + EACH * count)
        self.counters.foreign += 1
        return None

    def _fragment(self, said: Fragment) -> None:
        sequence = said.sequence
        if sequence <= self.position or sequence in self._kept:
            return
        size = len(said.octets)
        cost = size + EACH
        if said.total > self._window or said.offset + size > said.total:
            self.counters.discarded += 1
            return
        parts = self._parts.get(sequence)
        if parts is not None and said.offset in parts.pieces:
            return
        if not self._has_room(cost):
            return
        parts = self._parts.setdefault(sequence, _Parts())
        parts.pieces[said.offset] = said.octets
        parts.octets += size
        self._kept_octets += cost
        if parts.octets >= said.total:
            self._forget_parts(sequence)
            message = b"".join(parts.pieces[offset] for offset in sorted(parts.pieces))
            run = self._run_of(message, sequence, 1)
            if run is not None:
                self._keep(sequence, run)

    def _keep(self, first: int, run: _Run) -> None:
        if first <= self.position:
            first, run = self.position + 1, _cut(run, self.position)
        before = self._kept.get(first)
        if (before is None or before.last < run.last) and self._has_room(run.octets):
            if before is not None and self._kept.get(first) is before:
                self._kept_octets -= before.octets
            self._kept[first] = run
            self._kept_octets += run.octets

    def _has_room(self, octets: int) -> bool:
        """Make room, in the phase BROKER, by giving up what came first: the broker sends that."""
        while self._kept_octets + octets > self._window and self.phase is Phase.BROKER:
            if self._kept:
                self._kept_octets -= self._kept.pop(next(iter(self._kept))).octets
            elif self._parts:
                self._forget_parts(next(iter(self._parts)))
            else:
                break
            self.counters.discarded += 1
        if self._kept_octets + octets <= self._window:
            return True
        self.counters.discarded += 1
        return False

    def _forget_parts(self, sequence: int) -> None:
        parts = self._parts.pop(sequence, None)
        if parts is not None:
            self._kept_octets -= parts.octets + EACH * len(parts.pieces)

    def told(self, last: int) -> None:
        """The broker says what the last sequence is: it knows better than whoever speaks in the group."""
        self._known = max(self.position, last)

    def reached(self, position: int, messages: int, now: float) -> None:
        """Messages have come from the broker, the last one of this sequence, and were handed out."""
        self.counters.from_broker += messages
        if position > self.position:
            self.position = position
            self._known = max(self._known, position)
            self._drop_old()
            self._advance(now)

    # What follows from it

    def _advance(self, now: float) -> None:
        if self.phase is Phase.BROKER:
            if self._held or now < self._return_at or not self._goes_on_here(now):
                return
            self.phase = Phase.GROUP
            self._missing_since = None
            self.on_phase(self.phase)
        before = self.position
        if before + 1 in self._kept:
            self._hand_out()
        if self.position >= self._known:
            self._missing_since = None
            if self._kept or self._parts:
                self._forget()
        elif self._missing_since is None or self.position > before:
            # Another gap than before, if there was one: what is late has its time anew.
            self._missing_since = now

    def _hand_out(self) -> None:
        runs = []
        last = self.position
        while (run := self._kept.pop(last + 1, None)) is not None:
            self._kept_octets -= run.octets
            last = run.last
            runs.append(run)
        alike = len({run.after for run in runs}) == 1
        frames = runs[0].frames if len(runs) == 1 else list(chain.from_iterable([run.frames for run in runs]))
        self.counters.from_group += last - self.position
        self.position = last
        self.on_messages(frames, runs[0].after if alike else 0)

    def _goes_on_here(self, now: float) -> bool:
        """Whether the group has what comes next, or is heard and has nothing that we lack."""
        return self.position + 1 in self._kept or (self.position >= self._known and now < self._heard + SILENCE)

    def _drop_old(self) -> None:
        """What begins where we were already is cut, or goes. They came in order, mostly: so only the first are seen."""
        kept = self._kept
        while kept and (first := next(iter(kept))) <= self.position:
            run = kept.pop(first)
            self._kept_octets -= run.octets
            if run.last > self.position:
                self._keep(self.position + 1, _cut(run, self.position))
        while self._parts and (sequence := next(iter(self._parts))) <= self.position:
            self._forget_parts(sequence)

    def _forget(self) -> None:
        self._kept.clear()
        self._parts.clear()
        self._kept_octets = 0

    # Whether the program keeps up

    def hold(self, now: float) -> None:
        """The program has enough: stay with the broker, who waits."""
        if not self._held:
            self._held = True
            self.fall(now)
            self._forget()

    def release(self, now: float) -> None:
        """The program has room again."""
        if self._held:
            self._held = False
            self._advance(now)

    # Time

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called."""
        if self.phase is Phase.BROKER:
            return None if self._held else self._return_at or None
        silent = self._heard + SILENCE
        return silent if self._missing_since is None else min(silent, self._missing_since + PATIENCE)

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.phase is Phase.BROKER:
            if self._return_at and now >= self._return_at:
                self._return_at = 0.0
                self._advance(now)
        elif now >= self._heard + SILENCE or (
            self._missing_since is not None and now >= self._missing_since + PATIENCE
        ):
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
        self._missing_since = None
        self.on_phase(self.phase)


def _cut(run: _Run, position: int) -> _Run:
    """What of a run is after a sequence."""
    position -= sequence_of(run.frames[0]) - 1
    frames = run.frames[position:]
    return _Run(run.last, frames, run.after, sum(map(len, frames)) + EACH * len(frames))
