"""What Spark asks to leave out, and what of it the source can do by itself: whole partitions, or whole messages.

Spark hands over the conditions of a query (`WHERE`), and believes what the source takes: it does not look again. So a
condition is taken only where the source is exact, and otherwise used as far as it goes and given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from zambezi.spark.columns import Array, KeyTest
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.matchers import Matchers

BIGGEST: Final = (1 << 63) - 1


@dataclass(slots=True)
class Narrowed:
    """What is left of all messages: sequences and times from `low` to `high`, and keys and streams of some kind."""

    low: int = 0
    high: int = BIGGEST
    time_low: int = 0
    time_high: int = BIGGEST
    keys: list[tuple[str, Any]] = field(default_factory=list)  # ("in", octets) or ("prefix", octets)
    streams: list[tuple[str, Any]] = field(default_factory=list)
    incarnations: list[frozenset[str]] = field(default_factory=list)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take what can be done; what Spark must look at itself is returned."""
        return [one for one in filters if not self._take(one)]

    def _take(self, one: Filter) -> bool:
        if isinstance(one, IsNotNull):
            return True  # no column of ours is ever null
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1:
            return False
        name = column[0].lower()
        if name in ("sequence", "timestamp"):
            return self._range(one, name)
        if name in ("key", "stream", "incarnation"):
            return self._text(one, name)
        return False

    def _range(self, one: Filter, name: str) -> bool:
        is_time = name == "timestamp"
        if isinstance(one, In):
            values = [_number(value, is_time) for value in one.value]
            numbers = [number for number in values if number is not None]
            if numbers:
                self._bound(is_time, min(numbers), max(numbers))
            return False  # a range only: Spark picks out of it
        if not isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return False
        value = _number(one.value, is_time)
        if value is None:
            return False
        if isinstance(one, EqualTo | EqualNullSafe):
            self._bound(is_time, value, value)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual):
            self._bound(is_time, value + isinstance(one, GreaterThan), BIGGEST)
        else:
            self._bound(is_time, 0, value - isinstance(one, LessThan))
        return True

    def _bound(self, is_time: bool, low: int, high: int) -> None:
        if is_time:
            self.time_low, self.time_high = max(self.time_low, low), min(self.time_high, high)
        else:
            self.low, self.high = max(self.low, low), min(self.high, high)

    def _text(self, one: Filter, name: str) -> bool:
        if isinstance(one, EqualTo | EqualNullSafe):
            values: tuple[Any, ...] = (one.value,)
        elif isinstance(one, In):
            values = tuple(one.value)
        elif isinstance(one, StringStartsWith) and name != "incarnation" and isinstance(one.value, str):
            (self.keys if name == "key" else self.streams).append(("prefix", one.value))
            return True
        else:
            return False
        if not all(isinstance(value, str) for value in values):
            return False
        if name == "incarnation":
            self.incarnations.append(frozenset(values))
        else:
            (self.keys if name == "key" else self.streams).append(("in", frozenset(values)))
        return True

    def wants(self, stream: str, incarnation: str) -> bool:
        """Whether anything of a stream is wanted."""
        return all(incarnation in some for some in self.incarnations) and all(
            stream in value if kind == "in" else stream.startswith(value) for kind, value in self.streams
        )

    def key_pattern(self) -> str:
        """The condition on keys as the pattern of a subscription, if it is a single and simple one."""
        if len(self.keys) != 1:
            return ""
        kind, value = self.keys[0]
        if kind == "prefix":
            return f"prefix:{value}"
        return f"exact:{next(iter(value))}" if len(value) == 1 else ""

    def key_tests(self) -> list[KeyTest]:
        """The conditions on keys as tests of whole columns."""
        return [_is_in(value) if kind == "in" else _begins(value.encode()) for kind, value in self.keys]


def _number(value: Any, is_time: bool) -> int | None:
    if is_time:
        return microseconds_of(value) if isinstance(value, datetime) and value.tzinfo is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_in(values: frozenset[str]) -> KeyTest:
    octets = [value.encode() for value in values]
    if len(octets) == 1:
        return lambda keys: pc.equal(keys, pa.scalar(octets[0], pa.binary()))
    return lambda keys: pc.is_in(keys, pa.array(octets, pa.binary()))


def _begins(prefix: bytes) -> KeyTest:
    return lambda keys: pc.starts_with(keys, pattern=prefix)


def pattern_test(pattern: str) -> KeyTest | None:
    """The pattern of a subscription as a test of whole columns; None if it lets all through."""
    matchers = Matchers()
    name, rest = matchers.split(pattern)
    if name == "prefix":
        return _begins(rest) if rest else None
    if name == "exact":
        return lambda keys: pc.equal(keys, pa.scalar(rest, pa.binary()))
    test = matchers.parse(pattern)

    def by_distinct_key(keys: Array) -> Array:
        # Each key is tried once, however often it comes.
        found = keys.dictionary_encode()
        answers = pa.array([bool(test(key)) for key in found.dictionary.to_pylist()], pa.bool_())
        return answers.take(found.indices)

    return by_distinct_key


def all_of(tests: Sequence[KeyTest]) -> KeyTest | None:
    """One test out of several; None if there is none."""
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]

    def both(keys: Array) -> Array:
        answer = tests[0](keys)
        for test in tests[1:]:
            answer = pc.and_(answer, test(keys))
        return answer

    return both
