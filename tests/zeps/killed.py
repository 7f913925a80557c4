"""Brokers that are killed: what a journal had at each kill, and the order of messages around the kills."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zambezi.zeps.block import walk_messages
from zambezi.zeps.journal import Store
from zambezi.zeps.journal.segment import LOG


@dataclass
class Kill:
    """The state when the broker was killed."""

    last: int  # the last sequence in the journal
    confirmed: list[int]  # of each publisher: how many messages


def written(data: Path, stream: str = "s") -> int:
    """Return the last complete message of a killed broker, which may not be indexed yet."""
    with Store(data, write=False) as store:
        journal = store.open(stream)
        segment = journal.segments[-1]
        tail = Path(segment.path + LOG).read_bytes()[segment.size :]
        return journal.last + sum(1 for _ in walk_messages(tail))


class Lost(AssertionError):
    """Something that must hold did not."""


class Order:
    """The order of one publisher's numbered messages.

    Only messages that were not confirmed when the broker was killed may be repeated, and once for each kill. Without
    `kills`, because the broker failed in another way, every message may be repeated.
    """

    def __init__(self, publisher: int, kills: Sequence[Kill] | None) -> None:
        self.following = 0  # the next number
        self._publisher = publisher
        self._kills = kills
        self._lasts = [kill.last for kill in kills or ()]
        self._repeated_after: set[int] = set()

    def take(self, sequence: int, number: int) -> None:
        """Check the next message of the publisher, and its sequence in the journal."""
        if number > self.following:
            raise Lost(f"p{self._publisher}: {self.following} is missing before {number}")
        if number < self.following and self._kills is not None:
            kill = bisect_left(self._lasts, sequence) - 1  # the last kill before it
            if kill < 0 or number < self._kills[kill].confirmed[self._publisher] or kill in self._repeated_after:
                raise Lost(f"p{self._publisher}: {number} came again after {self.following - 1}")
            self._repeated_after.add(kill)
        self.following = number + 1
