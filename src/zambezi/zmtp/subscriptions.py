"""Subscriptions by prefix: which subscribers want a message that begins like this?

A look-up tries one prefix for each length that a subscription has: a few dictionary look-ups, however many
subscriptions there are. Subscriptions count: a subscriber that subscribes twice must cancel twice.
"""

from __future__ import annotations

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
        self._counts: dict[bytes, dict[S, int]] = {}
        self._lengths: list[int] = []
        self._prefixes: dict[S, set[bytes]] = {}

    def add(self, prefix: bytes, subscriber: S) -> bool:
        """Add a subscription; return whether it is the first one to this prefix."""
        counts = self._counts.get(prefix)
        first = counts is None
        if counts is None:
            counts = self._counts[prefix] = {}
            if len(prefix) not in self._lengths:
                self._lengths = sorted([*self._lengths, len(prefix)])
        counts[subscriber] = counts.get(subscriber, 0) + 1
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
        return self._drop(prefix, subscriber)

    def remove(self, subscriber: S) -> list[bytes]:
        """Remove all subscriptions of a subscriber; return the prefixes that have no subscriber left."""
        prefixes = self._prefixes.get(subscriber, set())
        return [prefix for prefix in sorted(prefixes) if self._drop(prefix, subscriber)]

    def _drop(self, prefix: bytes, subscriber: S) -> bool:
        counts = self._counts[prefix]
        del counts[subscriber]
        theirs = self._prefixes[subscriber]
        theirs.discard(prefix)
        if not theirs:
            del self._prefixes[subscriber]
        if counts:
            return False
        del self._counts[prefix]
        self._lengths = sorted({len(left) for left in self._counts})
        return True

    def match(self, topic: bytes) -> list[S]:
        """Return the subscribers to any prefix of `topic`, each once."""
        found: list[S] = []
        size = len(topic)
        for length in self._lengths:
            if length > size:
                break
            counts = self._counts.get(topic[:length])
            if counts:
                if found:
                    found += [subscriber for subscriber in counts if subscriber not in found]
                else:
                    found = list(counts)
        return found

    def __len__(self) -> int:
        return len(self._counts)
