"""What was said of keys before, so that it need not be found out again: as much as memory allows.

Keys come from strangers, and so do the patterns that they are tried on: whatever remembers keys must have a bound, and
as there can be one such memory for each SUBSCRIBE, all of them together must have one, too. What is over the bound is
forgotten as a whole: the keys of a stream are mostly few, and where they are not, nothing is gained by choosing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, TypeVar

TOGETHER: Final = 1 << 26  # octets, about
_EACH: Final = 150  # what a key takes besides its own octets

A = TypeVar("A")


class Memory:
    """The bound of many answers together. Who has learned nothing for the longest time forgets first."""

    def __init__(self, bound: int = TOGETHER) -> None:
        self.octets = 0
        self._bound = bound
        self._used: OrderedDict[int, Answers[Any]] = OrderedDict()  # by identity: a dictionary has no hash

    def took(self, answers: Answers[Any], octets: int) -> None:
        self.octets += octets
        self._used[id(answers)] = answers
        self._used.move_to_end(id(answers))
        while self.octets > self._bound:
            next(iter(self._used.values())).clear()

    def gave_back(self, answers: Answers[Any], octets: int) -> None:
        self.octets -= octets
        self._used.pop(id(answers), None)


class Answers(dict[bytes, A]):
    """What was said of keys."""

    __slots__ = ("_bound", "_memory", "_octets")

    def __init__(self, bound: int, memory: Memory) -> None:
        self._bound = bound
        self._memory = memory
        self._octets = 0

    def keep(self, key: bytes, answer: A, octets: int = 0) -> None:
        octets += len(key) + _EACH
        if self._octets + octets > self._bound:
            self.clear()
        self._octets += octets
        self[key] = answer
        self._memory.took(self, octets)

    def clear(self) -> None:
        super().clear()
        self._memory.gave_back(self, self._octets)
        self._octets = 0
