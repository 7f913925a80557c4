"""A bounded cache of answers about routing keys: does a key match, and which filters want it?

Keys and patterns come from clients, so every cache of keys must be bounded. As each SUBSCRIBE can have a cache of its
own, all caches together must be bounded too. A cache that exceeds its bound is cleared as a whole: most streams have
few keys, and for one that has many, an eviction policy would gain nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, TypeVar

TOGETHER: Final = 1 << 26  # bytes of all caches, about
_EACH: Final = 150  # bytes that an entry needs in addition to its key

A = TypeVar("A")


class Memory:
    """The bound on many caches together. The cache that has not grown for the longest time is cleared first."""

    def __init__(self, bound: int = TOGETHER) -> None:
        self.octets = 0
        self._bound = bound
        self._used: OrderedDict[int, Answers[Any]] = OrderedDict()  # by identity: a dictionary is not hashable

    def add(self, answers: Answers[Any], octets: int) -> None:
        """Count bytes that a cache has grown by, and clear other caches if that exceeds the bound."""
        self.octets += octets
        self._used[id(answers)] = answers
        self._used.move_to_end(id(answers))
        while self.octets > self._bound:
            next(iter(self._used.values())).clear()

    def remove(self, answers: Answers[Any], octets: int) -> None:
        """Subtract the bytes of a cache that was cleared."""
        self.octets -= octets
        self._used.pop(id(answers), None)


class Answers(dict[bytes, A]):
    """A cache of answers, by key."""

    __slots__ = ("_bound", "_memory", "octets")

    def __init__(self, bound: int, memory: Memory) -> None:
        self._bound = bound
        self._memory = memory
        self.octets = 0

    def remember(self, key: bytes, answer: A, octets: int = 0) -> None:
        """Add an answer that needs `octets` bytes; clear the cache first if it would exceed its bound."""
        octets += len(key) + _EACH
        if self.octets + octets > self._bound:
            self.clear()
        self.octets += octets
        self[key] = answer
        self._memory.add(self, octets)

    def clear(self) -> None:
        super().clear()
        self._memory.remove(self, self.octets)
        self.octets = 0
