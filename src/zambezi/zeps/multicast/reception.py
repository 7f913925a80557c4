"""The reception of a stream from two sources, its group and its broker, as one sequence. No I/O; time is an argument.

A subscriber is in one of two phases:

          the group has the next message
    BROKER  --------------------------->  GROUP
            <---------------------------
       a message is missing for longer than packets take to
       overtake each other, or the group is silent, or the
       program does not keep up

In phase BROKER the subscriber has a subscription to the broker, from its position on, and keeps a window of the
group's datagrams. In phase GROUP it has no subscription, and costs the broker nothing. Both sources give messages in
order and without gaps, and each begins where the other one stopped, so that the program sees one sequence.

If the group loses many datagrams, frequent changes of the phase would cost more than they save. So each fall from the
group delays the next return to it, and a time without loss ends the delay.

While the program does not keep up, the reception is held: it stays with the broker, which waits for credit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from zambezi.zeps.client.batch import check_deliveries
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.multicast.datagram import Fragment, Messages, decode, unseal
from zambezi.zmtp.frames import Batch, Decoder

WINDOW: Final = 4 << 20  # bytes of messages that are kept until the ones before them arrive
EACH: Final = 64  # bytes that each message or fragment needs in addition, about
PATIENCE: Final = 0.03  # seconds that a datagram may be late
SILENCE: Final = 3.5  # seconds without a datagram, after which the group counts as silent
FIRST_PENALTY: Final = 0.5  # seconds that a fall delays the return to the group; each further fall doubles it
MOST_PENALTY: Final = 60.0
FORGIVEN: Final = 10.0  # seconds without a fall, after which the next one counts as the first


class Phase(Enum):
    """The source that messages come from."""

    BROKER = "broker"
    GROUP = "group"


@dataclass(slots=True)
class ReceptionCounters:
    """Counters of a subscription with multicast."""

    from_group: int = 0  # messages
    from_broker: int = 0  # messages
    falls: int = 0  # changes from the group to the broker
    foreign: int = 0  # datagrams of other programs, of another incarnation, or not sealed with our key
    discarded: int = 0  # datagrams for which the window had no room


class _Run(NamedTuple):
    """Messages without a gap, up to sequence `last`; `body_at` is the result of `check_deliveries`."""

    last: int
    frames: list[bytes]
    body_at: int
    octets: int


class _Parts:
    """The received fragments of one message."""

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
        # Called with messages of the group, in order, and the offset of their bodies.
        self.on_messages: Callable[[list[bytes], int], object] = lambda _frames, _body_at: None
        self.on_phase: Callable[[Phase], object] = lambda _: None
        self._key = key
        self._window = window
        self._kept: dict[int, _Run] = {}  # by first sequence, in the order of arrival
        self._parts: dict[int, _Parts] = {}  # by sequence, in the order of arrival
        self._kept_bytes = 0
        self._last_known = position  # the last sequence that is known to exist
        self._missing_since: float | None = None  # when the next message was noticed to be missing
        self._heard_at = now - SILENCE  # no datagram yet
        self._fell_at = now - FORGIVEN
        self._penalty = 0.0
        self._return_at = now  # not before this time back to the group; 0 after a timer has seen it
        self._held = False

    # Messages of the group and of the broker

    def receive(self, datagrams: Sequence[bytes], now: float) -> None:
        """Handle datagrams of the group."""
        # Datagrams that arrive long before the return to the group are not kept: the broker sends their messages.
        keep = self.phase is Phase.GROUP or (now >= self._return_at and not self._held)
        for octets in datagrams:
            self._receive_one(octets, keep, now)
        self._advance(now)

    def _receive_one(self, octets: bytes, keep: bool, now: float) -> None:
        counters = self.counters
        if self._key:
            opened = unseal(octets, self._key)
            if opened is None:
                counters.foreign += 1
                return
            octets = opened
        datagram = decode(octets)
        if datagram is None or datagram.incarnation != self.incarnation:
            counters.foreign += 1
            return
        self._heard_at = now
        if isinstance(datagram, Messages):
            last = datagram.first + datagram.count - 1
            if last > self.position:
                run = self._run_of(datagram.octets, datagram.first, datagram.count) if keep else None
                if run is not None:
                    self._keep(datagram.first, run)
                if run is not None or not keep:
                    self._last_known = max(self._last_known, last)
        elif isinstance(datagram, Fragment):
            self._last_known = max(self._last_known, datagram.sequence)
            if keep:
                self._fragment(datagram)
        else:
            self._last_known = max(self._last_known, datagram.last)

    def _run_of(self, octets: bytes, first: int, count: int) -> _Run | None:
        """Return the messages in some bytes, or None unless they are the valid messages that the header promises."""
        found = Decoder(len(octets), len(octets), multipart=False).feed(octets)
        if len(found) == 1 and isinstance(batch := found[0], Batch) and batch.octets == len(octets):
            frames = batch.frames
            body_at = check_deliveries(frames) if len(frames) == count else None
            if (
                body_at is not None
                and sequence_of(frames[0]) == first
                and sequence_of(frames[-1]) == first + count - 1
                # They are sorted: if no two have the same sequence, none between the first and the last is missing.
                and len({frame[:11] for frame in frames}) == count
            ):
                return _Run(first + count - 1, frames, body_at, len(octets) + EACH * count)
        self.counters.foreign += 1
        return None

    def _fragment(self, datagram: Fragment) -> None:
        sequence = datagram.sequence
        if sequence <= self.position or sequence in self._kept:
            return
        size = len(datagram.octets)
        cost = size + EACH
        if datagram.total > self._window or datagram.offset + size > datagram.total:
            self.counters.discarded += 1
            return
        parts = self._parts.get(sequence)
        if parts is not None and datagram.offset in parts.pieces:
            return
        if not self._make_room(cost):
            return
        parts = self._parts.setdefault(sequence, _Parts())
        parts.pieces[datagram.offset] = datagram.octets
        parts.octets += size
        self._kept_bytes += cost
        if parts.octets >= datagram.total:
            self._forget_parts(sequence)
            message = b"".join(parts.pieces[offset] for offset in sorted(parts.pieces))
            run = self._run_of(message, sequence, 1)
            if run is not None:
                self._keep(sequence, run)

    def _keep(self, first: int, run: _Run) -> None:
        if first <= self.position:
            first, run = self.position + 1, _rest_of(run, self.position)
        before = self._kept.get(first)
        if (before is None or before.last < run.last) and self._make_room(run.octets):
            if before is not None and self._kept.get(first) is before:
                self._kept_bytes -= before.octets
            self._kept[first] = run
            self._kept_bytes += run.octets

    def _make_room(self, octets: int) -> bool:
        """Return whether the window has room. In phase BROKER, discard the oldest messages: the broker sends them."""
        while self._kept_bytes + octets > self._window and self.phase is Phase.BROKER:
            if self._kept:
                self._kept_bytes -= self._kept.pop(next(iter(self._kept))).octets
            elif self._parts:
                self._forget_parts(next(iter(self._parts)))
            else:
                break
            self.counters.discarded += 1
        if self._kept_bytes + octets <= self._window:
            return True
        self.counters.discarded += 1
        return False

    def _forget_parts(self, sequence: int) -> None:
        parts = self._parts.pop(sequence, None)
        if parts is not None:
            self._kept_bytes -= parts.octets + EACH * len(parts.pieces)

    def set_last_known(self, last: int) -> None:
        """Set the last sequence that exists. The broker's answer overrides the marks of the group."""
        self._last_known = max(self.position, last)

    def broker_delivered(self, position: int, messages: int, now: float) -> None:
        """Note that the broker has delivered messages up to the sequence `position`."""
        self.counters.from_broker += messages
        if position > self.position:
            self.position = position
            self._last_known = max(self._last_known, position)
            self._drop_old()
            self._advance(now)

    # Progress

    def _advance(self, now: float) -> None:
        """Return to the group if it has the next message, hand out messages, and note whether one is missing."""
        if self.phase is Phase.BROKER:
            if self._held or now < self._return_at or not self._group_continues(now):
                return
            self.phase = Phase.GROUP
            self._missing_since = None
            self.on_phase(self.phase)
        before = self.position
        if before + 1 in self._kept:
            self._hand_out()
        if self.position >= self._last_known:
            self._missing_since = None
            if self._kept or self._parts:
                self._forget()
        elif self._missing_since is None or self.position > before:
            # This is a new gap: the missing datagram gets the full time to arrive.
            self._missing_since = now

    def _hand_out(self) -> None:
        runs = []
        last = self.position
        while (run := self._kept.pop(last + 1, None)) is not None:
            self._kept_bytes -= run.octets
            last = run.last
            runs.append(run)
        alike = len({run.body_at for run in runs}) == 1
        frames = runs[0].frames if len(runs) == 1 else list(chain.from_iterable([run.frames for run in runs]))
        self.counters.from_group += last - self.position
        self.position = last
        self.on_messages(frames, runs[0].body_at if alike else 0)

    def _group_continues(self, now: float) -> bool:
        """Return whether the group has the next message, or is not silent and has no message that we lack."""
        return self.position + 1 in self._kept or (self.position >= self._last_known and now < self._heard_at + SILENCE)

    def _drop_old(self) -> None:
        """Discard kept messages up to the position. They are mostly in order, so only the first ones are checked."""
        kept = self._kept
        while kept and (first := next(iter(kept))) <= self.position:
            run = kept.pop(first)
            self._kept_bytes -= run.octets
            if run.last > self.position:
                self._keep(self.position + 1, _rest_of(run, self.position))
        while self._parts and (sequence := next(iter(self._parts))) <= self.position:
            self._forget_parts(sequence)

    def _forget(self) -> None:
        self._kept.clear()
        self._parts.clear()
        self._kept_bytes = 0

    # A program that does not keep up

    def hold(self, now: float) -> None:
        """Stay with the broker until `resume`: the program has not read its messages."""
        if not self._held:
            self._held = True
            self.fall_back(now)
            self._forget()

    def resume(self, now: float) -> None:
        """Allow the return to the group: the program has read messages."""
        if self._held:
            self._held = False
            self._advance(now)

    # Time

    @property
    def deadline(self) -> float | None:
        """The time when `tick` must be called; None if not at all."""
        if self.phase is Phase.BROKER:
            return None if self._held else self._return_at or None
        silent = self._heard_at + SILENCE
        return silent if self._missing_since is None else min(silent, self._missing_since + PATIENCE)

    def tick(self, now: float) -> None:
        """Check whether the group is silent or a message is missing for too long, or whether to return to the group."""
        if self.phase is Phase.BROKER:
            if self._return_at and now >= self._return_at:
                self._return_at = 0.0
                self._advance(now)
        elif now >= self._heard_at + SILENCE or (
            self._missing_since is not None and now >= self._missing_since + PATIENCE
        ):
            self.fall_back(now)

    def fall_back(self, now: float) -> None:
        """Change from the group to the broker."""
        if self.phase is Phase.BROKER:
            return
        self.phase = Phase.BROKER
        self.counters.falls += 1
        forgiven = now - self._fell_at > FORGIVEN + self._penalty
        self._penalty = FIRST_PENALTY if forgiven else min(2 * self._penalty, MOST_PENALTY)
        # The first fall in a while has no penalty: one packet was lost, and the broker has it.
        self._return_at = now if forgiven else now + self._penalty
        self._fell_at = now
        self._missing_since = None
        self.on_phase(self.phase)


def _rest_of(run: _Run, position: int) -> _Run:
    """Return the messages of a run that are after a sequence."""
    position -= sequence_of(run.frames[0]) - 1
    frames = run.frames[position:]
    return _Run(run.last, frames, run.body_at, sum(map(len, frames)) + EACH * len(frames))
