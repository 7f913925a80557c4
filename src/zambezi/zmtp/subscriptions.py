"""Subscriptions by prefix: which subscribers want a message that begins like this?

A look-up tries one prefix for each length that a subscription has: a few dictionary look-ups, however many
subscriptions there are. To add or to remove a prefix costs the same, however many prefixes the table has.
Subscriptions count: a subscriber that subscribes twice must cancel twice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class Subscriptions(Generic[S]):
    """Prefixes, and their subscribers.

    >>> table = Subscriptions[str]()
    >>> table.add(b"temp.", "ann"), table.add(b"", "bob")
    (True, True)
    >>> sorted(table.match(b"temp.kitchen"))
    ['ann', 'bob']
    """

    def __init__(self) -> None:
        self.size = 0  # the number of pairs of a prefix and a subscriber
        self._counts: dict[bytes, dict[S, int]] = {}
        self._lengths: list[int] = []  # of the prefixes, each once, the shortest first
        self._of_length: dict[int, int] = {}  # how many prefixes have a length
        self._prefixes: dict[S, set[bytes]] = {}

    def add(self, prefix: bytes, subscriber: S) -> bool:
        """Add a subscription; return whether it is the first one to this prefix."""
        counts = self._counts.get(prefix)
        first = counts is None
        if counts is None:
            counts = self._counts[prefix] = {}
            self._add_length(len(prefix))
        count = counts.get(subscriber, 0)
        counts[subscriber] = count + 1
        if not count:
            self.size += 1
            self._prefixes.setdefault(subscriber, set()).add(prefix)
        return first

    def cancel(self, prefix: bytes, subscriber: S) -> bool:
        """Remove one subscription, if it exists; return whether the prefix has no subscriber left."""
        counts = self._counts.get(prefix)
        if counts is None or subscriber not in counts:
            return False
        counts[subscriber] -= 1
        if counts[subscriber]:
            return False
        theirs = self._prefixes[subscriber]
        theirs.discard(prefix)
        if not theirs:
            del self._prefixes[subscriber]
        return self._drop(prefix, subscriber)

    def remove(self, subscriber: S) -> list[bytes]:
        """Remove all subscriptions of a subscriber; return the prefixes that have no subscriber left."""
        return [prefix for prefix in sorted(self._prefixes.pop(subscriber, ())) if self._drop(prefix, subscriber)]

    def _drop(self, prefix: bytes, subscriber: S) -> bool:
        counts = self._counts[prefix]
        del counts[subscriber]
        self.size -= 1
        if counts:
            return False
        del self._counts[prefix]
        self._remove_length(len(prefix))
        return True

    def _add_length(self, length: int) -> None:
        count = self._of_length.get(length, 0)
        self._of_length[length] = count + 1
        if not count:
            insort(self._lengths, length)

    def _remove_length(self, length: int) -> None:
        self._of_length[length] -= 1
        if not self._of_length[length]:
            del self._of_length[length]
            del self._lengths[bisect_left(self._lengths, length)]

    def match(self, topic: bytes) -> list[S]:
        """Return the subscribers to any prefix of `topic`, each once."""
        found: dict[S, int] | None = None
        several = False
        size = len(topic)
        for length in self._lengths:
            if length > size:
                break
            counts = self._counts.get(topic[:length])
            if counts:
                if found is None:
                    found = counts
                elif several:
                    found.update(counts)
                else:
                    found = {**found, **counts}
                    several = True
        return list(found) if found is not None else []

    def count(self, subscriber: S) -> int:
        """Return how many prefixes a subscriber has."""
        return len(self._prefixes.get(subscriber, ()))

    def busiest(self) -> S | None:
        """Return the subscriber with the most prefixes, or None if no subscriber has any."""
        return max(self._prefixes, key=self.count, default=None)

    def __len__(self) -> int:
        return len(self._counts)
