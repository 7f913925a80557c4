"""Operators that trim the stream of the simulation, at random moments.

An order is confirmed when the beginning is put, and a chunk after it. `Violation` is raised if

- a broker that becomes the owner later serves messages before a beginning that was confirmed;
- so does a reader without a broker that begins later;
- the stream begins anywhere else than at the highest beginning that was put;
- objects stay that have only removed messages, when a broker has had the time to remove them (`check_tidy`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.zeps.store.positions_simulation import Stored, Violation
from zambezi.zeps.journal.positions import READER, Position
from zambezi.zeps.store.chunk import piece_of_positions
from zambezi.zeps.store.names import last_part, parse_beginning
from zambezi.zeps.store.stream_log import StreamLog
from zambezi.zeps.store.view import View


@dataclass
class Trims:
    """The orders of operators."""

    chance: random.Random
    clock: Callable[[], float]
    epoch: int = 0  # of the newest owner
    confirmed: list[tuple[float, int]] = field(default_factory=list)  # when, and the first sequence

    def step(self, log: StreamLog, when_stored: Stored) -> None:
        """Let an owner remove some messages."""
        first = self.chance.randint(1, max(1, log.last + self.chance.choice([-4, 0, 1])))
        log.trim(first, lambda problem: self._prove(log, first, problem, when_stored))

    def _prove(self, log: StreamLog, first: int, problem: str, when_stored: Stored) -> None:
        if not problem and log.is_owner:
            record = Position(READER, "operator", first).pack()
            when_stored(log.append(piece_of_positions(record)), lambda: self._confirm(log, first))

    def _confirm(self, log: StreamLog, first: int) -> None:
        self.confirmed.append((self.clock(), first))
        if log.epoch >= self.epoch:
            self._check_owner(log)

    def note_owner(self, log: StreamLog) -> None:
        """Check where the stream begins for a new owner."""
        if log.epoch >= self.epoch:  # otherwise it was paused, and does not know that it is the owner no more
            self.epoch = log.epoch
            self._check_owner(log)

    def _check_owner(self, log: StreamLog) -> None:
        begins = log.last + 1 if log.extents.first is None else log.extents.first
        wanted = max((first for _, first in self.confirmed), default=1)
        if begins < wanted:
            raise Violation(f"an owner serves messages from {begins} on, and the stream was trimmed before {wanted}")

    def note_read(self, sequences: Sequence[int], begun: float) -> None:
        """Check what a reader without a broker has read that began at a time."""
        wanted = max((first for time, first in self.confirmed if time < begun), default=1)
        if sequences and min(sequences) < wanted:
            raise Violation(f"a reader has read {min(sequences)}, and the stream was trimmed before {wanted}")


def highest_beginning(keys: Sequence[str]) -> int:
    """Return the first sequence of a stream, by the keys of all objects that were ever put."""
    found = [parse_beginning(last_part(key)) for key in keys]
    return max((one.first for one in found if one is not None), default=1)


def check_tidy(view: View, lasts: Sequence[int], first: int) -> None:
    """Check that no object has only messages before the beginning. `lasts` are the last sequences of the tail."""
    old = [str(one.name) for one in view.segments if one.name.first <= one.name.last < first]
    if old or view.leftovers or view.merged_chunks or view.beginnings[1:]:
        raise Violation(f"objects stay that are not needed: {old or [*view.leftovers, *view.merged_chunks]}")
    if any(last < first for last in lasts):
        raise Violation(f"a chunk stays with messages up to {min(lasts)}, and the stream begins at {first}")
