"""Filters: the patterns of a subscriber taken together, and the table that finds all filters that want a key.

Matching must cost by distinct patterns, not by subscribers, and a key that was seen before must cost one look-up. So
subscribers with the same patterns share a filter; a filter remembers what it said of a key; and the table remembers
which filters want a key. All that is remembered is bounded in octets, and forgotten as a whole: keys of a stream are
mostly few, and where they are not, nothing is gained by choosing what to forget.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from zambezi.zeps.matchers import Matchers, Test
from zambezi.zmtp.subscriptions import Subscriptions

_OF_FILTER: Final = 1 << 20  # octets that a filter remembers, about: there can be one for each SUBSCRIBE,
_OF_TABLE: Final = 1 << 24  # and a table
_EACH: Final = 150  # what a key takes besides its own octets
_MEMBER: Final = 8

G = TypeVar("G", bound=Hashable)
A = TypeVar("A")


class _Answers(dict[bytes, A]):
    """What was said of keys: as much as the bound allows."""

    __slots__ = ("_bound", "_octets")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._octets = 0

    def keep(self, key: bytes, answer: A, octets: int = 0) -> None:
        octets += len(key) + _EACH
        if self._octets + octets > self._bound:
            self.clear()
        self._octets += octets
        self[key] = answer

    def clear(self) -> None:
        super().clear()
        self._octets = 0


class Filter:
    """The union of patterns."""

    __slots__ = ("_seen", "_tests", "everything", "patterns")

    def __init__(self, patterns: Iterable[str], matchers: Matchers) -> None:
        self.patterns = frozenset(patterns)
        self.everything = any(matchers.split(pattern) == ("prefix", b"") for pattern in self.patterns)
        self._tests: list[Test] = [matchers.parse(pattern) for pattern in sorted(self.patterns)]
        self._seen: _Answers[bool] = _Answers(_OF_FILTER)

    def __call__(self, key: bytes) -> bool:
        seen = self._seen
        wanted = seen.get(key)
        if wanted is None:
            wanted = self.everything or any(test(key) for test in self._tests)
            seen.keep(key, wanted)
        return wanted


class Table(Generic[G]):
    """Who wants a key, among many with patterns of their own."""

    def __init__(self, matchers: Matchers) -> None:
        self._matchers = matchers
        self._prefixes: Subscriptions[G] = Subscriptions()
        self._exact: dict[bytes, list[G]] = {}
        self._others: dict[G, list[Test]] = {}
        self._seen: _Answers[tuple[G, ...]] = _Answers(_OF_TABLE)

    def add(self, member: G, patterns: Iterable[str]) -> None:
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
        """All who want the key, each once."""
        found = self._seen.get(key)
        if found is None:
            every = dict.fromkeys(self._prefixes.match(key))
            every.update(dict.fromkeys(self._exact.get(key, ())))
            every.update((member, None) for member, tests in self._others.items() if any(test(key) for test in tests))
            found = tuple(every)
            self._seen.keep(key, found, _MEMBER * len(found))
        return found
