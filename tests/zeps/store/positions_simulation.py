"""Named readers and groups of shared readers in the simulations: their positions are in the log, as records in chunks.

A broker that owns the log knows the positions that are stored, and those that it was told since. It delivers what is
not acknowledged; a reader acknowledges what it gets, and the broker confirms that when it is stored. `Violation` is
raised if

- the newest owner delivers a message again whose acknowledgement was confirmed;
- a position is stored that no reader has acknowledged;
- messages are not delivered and acknowledged when the faults have ended (`check`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from zambezi.zeps.journal.positions import GROUP, LAST, MORE, READER, Content, Position
from zambezi.zeps.store.chunk import piece_of_positions
from zambezi.zeps.store.stream_log import StreamLog

_SEQUENCE: Final = Struct(">Q")
Stored = Callable[[int, Callable[[], object]], object]  # call back when a ticket is stored


class Violation(AssertionError):
    """An invariant does not hold."""


class Acknowledged:
    """The messages of a stream that are acknowledged, as its owner knows them: by a reader, and by a group."""

    def __init__(self, log: StreamLog) -> None:
        self.log = log
        states = Content(log.positions.octets).states
        reader, group = states.get((READER, "reader")), states.get((GROUP, "group"))
        self.position = reader.position if reader is not None else 0
        self.done = {one[0] for one in _SEQUENCE.iter_unpack(group.payload)} if group is not None else set()
        self.has_group = group is not None

    def note_position(self, position: int) -> int:
        self.position = position
        return self.log.append(piece_of_positions(Position(READER, "reader", position).pack()))

    def note_done(self, sequences: list[int], is_whole: bool) -> int:
        """Append sequences to the state of the group, or all of its state anew."""
        self.done.update(sequences)
        is_whole = is_whole or not self.has_group
        self.has_group = True
        payload = b"".join([_SEQUENCE.pack(one) for one in (sorted(self.done) if is_whole else sequences)])
        return self.log.append(
            piece_of_positions(Position(GROUP, "group", 0, payload=payload).pack(LAST if is_whole else MORE))
        )


@dataclass
class Readers:
    """A named reader, and the members of a group."""

    chance: random.Random
    epoch: int = 0  # of the newest owner
    sent: int = 0  # the highest position of the reader that was ever acknowledged
    confirmed: int = 0
    tried: set[int] = field(default_factory=set)  # messages that a member has ever acknowledged
    kept: set[int] = field(default_factory=set)  # those whose acknowledgement was confirmed

    def note_owner(self, known: Acknowledged) -> None:
        """Compare what a new owner knows with what was confirmed. It is all stored: so that is confirmed now, too."""
        if known.log.epoch < self.epoch:
            return  # it was paused, and does not know that it is the owner no more
        self.epoch = known.log.epoch
        if not self.confirmed <= known.position <= self.sent:
            raise Violation(f"a reader is at {known.position}, and {self.confirmed} was confirmed, of {self.sent}")
        if not self.kept <= known.done <= self.tried:
            raise Violation(f"a group has lost {self.kept - known.done}, and invented {known.done - self.tried}")
        self.confirmed = known.position
        self.kept |= known.done

    def step(self, known: Acknowledged, when_stored: Stored) -> None:
        """Let the owner deliver some messages, and the readers acknowledge them."""
        last = known.log.last
        if known.position < last:
            self._read(known, last, when_stored)
        waiting = [one for one in range(1, last + 1) if one not in known.done]
        if waiting:
            chosen = self.chance.sample(waiting, max(self.chance.randint(1, len(waiting)), len(waiting) - 5))
            self._share(known, chosen, when_stored)

    def _read(self, known: Acknowledged, last: int, when_stored: Stored) -> None:
        if known.position < self.confirmed and known.log.epoch == self.epoch:
            raise Violation(f"{known.position + 1} comes again, and {self.confirmed} was confirmed")
        position = max(self.chance.randint(known.position + 1, last), last - 5)
        self.sent = max(self.sent, position)
        when_stored(known.note_position(position), lambda: self._confirm(position))

    def _confirm(self, position: int) -> None:
        self.confirmed = max(self.confirmed, position)

    def _share(self, known: Acknowledged, chosen: list[int], when_stored: Stored) -> None:
        if known.log.epoch == self.epoch and (again := self.kept.intersection(chosen)):
            raise Violation(f"{again} come again, and were confirmed")
        self.tried.update(chosen)
        is_whole = self.chance.random() < 0.2
        when_stored(known.note_done(chosen, is_whole), lambda: self.kept.update(chosen))

    def is_done(self, last: int) -> bool:
        """Return whether all messages of a stream are acknowledged."""
        return self.confirmed == last and len(self.kept) == last

    def check(self, last: int) -> None:
        """Check that all messages of a stream are read, when the faults have ended."""
        missing = set(range(1, last + 1)) - self.kept
        if missing or self.confirmed < last:
            raise Violation(f"{sorted(missing)} never came, and the reader is at {self.confirmed} of {last}")
