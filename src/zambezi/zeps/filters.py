"""Filters: all patterns of a subscriber as one test, and the table that finds the subscribers that want a key.

The cost of matching must depend on the number of distinct patterns, not of subscribers, and a key that was seen before
must cost one look-up. So subscribers with the same patterns share a filter, a filter caches its answer for a key, and
the table caches which members want a key. Both caches are bounded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from zambezi.zeps.answers import Answers
from zambezi.zeps.matchers import KeyTest, Matchers
from zambezi.zmtp.subscriptions import Subscriptions

_OF_FILTER: Final = 1 << 20  # bytes of a filter's cache, about: each SUBSCRIBE can have a filter
_OF_TABLE: Final = 1 << 24  # bytes of a table's cache
_MEMBER: Final = 8  # bytes of a reference to a member

G = TypeVar("G", bound=Hashable)


class Filter:
    """A test of keys that matches if any of its patterns matches."""

    __slots__ = ("_seen", "_tests", "everything", "patterns")

    def __init__(self, patterns: Iterable[str], matchers: Matchers) -> None:
        self.patterns = frozenset(patterns)
        self.everything = any(matchers.split(pattern) == ("prefix", b"") for pattern in self.patterns)
        self._tests: list[KeyTest] = [matchers.parse(pattern) for pattern in sorted(self.patterns)]
        self._seen: Answers[bool] = Answers(_OF_FILTER, matchers.memory)

    def __call__(self, key: bytes) -> bool:
        seen = self._seen
        wanted = seen.get(key)
        if wanted is None:
            wanted = self.everything or any(test(key) for test in self._tests)
            seen.remember(key, wanted)
        return wanted


class PatternTable(Generic[G]):
    """The members, each with its own patterns, among which those that want a key are found."""

    def __init__(self, matchers: Matchers) -> None:
        self._matchers = matchers
        self._prefixes: Subscriptions[G] = Subscriptions()
        self._exact: dict[bytes, list[G]] = {}
        self._others: dict[G, list[KeyTest]] = {}
        self._seen: Answers[tuple[G, ...]] = Answers(_OF_TABLE, matchers.memory)

    def add(self, member: G, patterns: Iterable[str]) -> None:
        """Add a member with its patterns."""
        for pattern in patterns:
            name, rest = self._matchers.split(pattern)
            if name == "prefix":
                self._prefixes.add(rest, member)
            elif name == "exact":
                self._exact.setdefault(rest, []).append(member)
            else:
                self._others.setdefault(member, []).append(self._matchers.parse(pattern))
        self._seen.clear()

    def remove(self, member: G, patterns: Iterable[str]) -> None:
        """Remove a member. `patterns` are those that it was added with."""
        for pattern in patterns:
            name, rest = self._matchers.split(pattern)
            if name == "prefix":
                self._prefixes.cancel(rest, member)
            elif name == "exact":
                self._exact[rest].remove(member)
                if not self._exact[rest]:
                    del self._exact[rest]
        self._others.pop(member, None)
        self._seen.clear()

    def find(self, key: bytes) -> tuple[G, ...]:
        """Return all members that want the key, each once."""
        found = self._seen.get(key)
        if found is None:
            every = dict.fromkeys(self._prefixes.match(key))
            every.update(dict.fromkeys(self._exact.get(key, ())))
            every.update((member, None) for member, tests in self._others.items() if any(test(key) for test in tests))
            found = tuple(every)
            self._seen.remember(key, found, _MEMBER * len(found))
        return found
