"""Filters: all patterns of a subscriber as one test, and the table that finds the subscribers that want a key.

The cost of matching must depend on the number of distinct patterns, not of subscribers, and a key that was seen before
must cost one look-up. So subscribers with the same patterns share a filter, a filter caches its answer for a key, and
the table caches which members want a key. Both caches are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from typing import Final, Generic, TypeVar

from zambezi.wire.text import as_text
from zambezi.zeps.answers import Answers, Memory
from zambezi.zeps.block import Block
from zambezi.zeps.errors import PatternError
from zambezi.zeps.matchers import Matchers, Pattern
from zambezi.zmtp.subscriptions import Subscriptions

_OF_FILTER: Final = 1 << 20  # bytes of a filter's cache, about: each SUBSCRIBE can have a filter
_OF_TABLE: Final = 1 << 24  # bytes of a table's cache
_COLUMNS: Final = 32  # bytes of keys that are compared as columns, and not key by key
_MEMBER: Final = 8  # bytes of a reference to a member
HEAVIEST: Final = 5000  # the weight of all patterns of a filter: under a millisecond for the longest key

G = TypeVar("G", bound=Hashable)


class _Seen(Answers[bool]):
    """The answers of a filter. A key that is asked for the first time is tried."""

    __slots__ = ("_try",)

    def __init__(self, attempt: Callable[[bytes], bool], memory: Memory) -> None:
        super().__init__(_OF_FILTER, memory)
        self._try = attempt

    def __missing__(self, key: bytes) -> bool:
        answer = self._try(key)
        self.remember(key, answer)
        return answer


class Filter:
    """A test of keys that matches if any of its patterns matches.

    `weight` is the work that a new key can be, as for a pattern. Prefixes and exact keys are kept as bytes alone: a
    client can have many, and each object of Python's own is work for the garbage collector.
    """

    __slots__ = ("_exact", "_is_short", "_others", "_prefixes", "_seen", "everything", "patterns", "weight")

    def __init__(self, patterns: Iterable[str], matchers: Matchers) -> None:
        self.patterns = frozenset(patterns)
        split = {pattern: matchers.split(pattern) for pattern in sorted(self.patterns)}
        self._prefixes = tuple([rest for name, rest in split.values() if name == "prefix"])
        self._exact = frozenset([rest for name, rest in split.values() if name == "exact"])
        self._others = [matchers.parse(text) for text, (name, _) in split.items() if name not in ("prefix", "exact")]
        self.everything = b"" in self._prefixes
        self.weight = 0 if self.everything else sum(pattern.weight for pattern in self._others)
        if self.weight > HEAVIEST:
            raise PatternError(
                f"the patterns of this connection are {self.weight} steps of a program together, and the limit is "
                f"{HEAVIEST}: use simpler patterns, or several connections"
            )
        short = sum(map(len, self._prefixes)) + sum(map(len, self._exact)) <= _COLUMNS
        self._is_short = short and not self._others  # the bytes of all keys are compared, a column at a time
        self._seen = _Seen(self._matches, matchers.memory)

    @property
    def only_key(self) -> str | None:
        """The only key that can match; None if there can be several."""
        if len(self._exact) == 1 and not self._prefixes and not self._others:
            return as_text(next(iter(self._exact)))
        return None

    def knows(self, key: bytes) -> bool:
        """Return whether the filter has the answer for a key already."""
        return key in self._seen

    def __call__(self, key: bytes) -> bool:
        return self._seen[key]

    def matching(self, keys: Sequence[bytes]) -> list[int]:
        """Return the indices of the keys that match. Much faster for each key than one call for each."""
        return list(compress(range(len(keys)), map(self._seen.__getitem__, keys)))

    def mask(self, block: Block) -> bytes:
        """Return a byte for each message of a block: 1 if its key matches, 0 if not."""
        rows = block.rows if self._is_short else None
        if rows is not None:
            return rows.mask(self._prefixes, self._exact)
        return bytes(map(self._seen.__getitem__, block.keys))

    def _matches(self, key: bytes) -> bool:
        return (
            key.startswith(self._prefixes) or key in self._exact or any(pattern.test(key) for pattern in self._others)
        )


class PatternTable(Generic[G]):
    """The members, each with its own patterns, among which those that want a key are found."""

    def __init__(self, matchers: Matchers) -> None:
        self._matchers = matchers
        self._prefixes: Subscriptions[G] = Subscriptions()
        self._exact: dict[bytes, list[G]] = {}
        self._others: dict[G, list[Pattern]] = {}
        self.weight = 0  # the work that a key can be that was not seen before
        self.slow = 0  # patterns that are tried one by one
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
                parsed = self._matchers.parse(pattern)
                self._others.setdefault(member, []).append(parsed)
                self.weight += parsed.weight
                self.slow += 1
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
        others = self._others.pop(member, [])
        self.weight -= sum(pattern.weight for pattern in others)
        self.slow -= len(others)
        self._seen.clear()

    def knows(self, key: bytes) -> bool:
        """Return whether `find` has the answer for a key already."""
        return key in self._seen

    def find(self, key: bytes) -> tuple[G, ...]:
        """Return all members that want the key, each once."""
        found = self._seen.get(key)
        if found is None:
            every = dict.fromkeys(self._prefixes.match(key))
            every.update(dict.fromkeys(self._exact.get(key, ())))
            for member, patterns in self._others.items():
                if any(pattern.test(key) for pattern in patterns):
                    every[member] = None
            found = tuple(every)
            self._seen.remember(key, found, _MEMBER * len(found))
        return found
