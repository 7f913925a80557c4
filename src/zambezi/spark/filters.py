"""Filters of a query that the source applies itself, to leave out whole partitions or single messages.

Spark offers the filters of a query (`WHERE`) to the source, and does not apply a filter again if the source takes it.
So the source takes a filter only if it applies it exactly. It uses other filters as far as it can, and returns them to
Spark.
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

NO_LIMIT: Final = (1 << 63) - 1


@dataclass(slots=True)
class PushedFilters:
    """The filters that the source has taken from Spark. The limits of sequences and times are inclusive."""

    min_sequence: int = 0
    max_sequence: int = NO_LIMIT
    min_time: int = 0  # microseconds since 1970
    max_time: int = NO_LIMIT
    keys: list[tuple[str, Any]] = field(default_factory=list)  # ("in", set of keys) or ("prefix", beginning of a key)
    streams: list[tuple[str, Any]] = field(default_factory=list)
    incarnations: list[frozenset[str]] = field(default_factory=list)

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take filters, and return those that Spark must still apply."""
        return [one for one in filters if not self._push_one(one)]

    def _push_one(self, one: Filter) -> bool:
        """Take a filter. Return whether the source applies it exactly."""
        if isinstance(one, IsNotNull):
            return True  # no column of the source is ever null
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1:
            return False
        name = column[0].lower()
        if name in ("sequence", "timestamp"):
            return self._push_comparison(one, name)
        if name in ("key", "stream", "incarnation"):
            return self._push_text(one, name)
        return False

    def _push_comparison(self, one: Filter, name: str) -> bool:
        is_time = name == "timestamp"
        if isinstance(one, In):
            values = [_number(value, is_time) for value in one.value]
            numbers = [number for number in values if number is not None]
            if numbers:
                self._limit(is_time, min(numbers), max(numbers))
            return False  # the source only reads the range that contains them: Spark selects the numbers
        if not isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return False
        value = _number(one.value, is_time)
        if value is None:
            return False
        if isinstance(one, EqualTo | EqualNullSafe):
            self._limit(is_time, value, value)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual):
            self._limit(is_time, value + isinstance(one, GreaterThan), NO_LIMIT)
        else:
            self._limit(is_time, 0, value - isinstance(one, LessThan))
        return True

    def _limit(self, is_time: bool, low: int, high: int) -> None:
        if is_time:
            self.min_time, self.max_time = max(self.min_time, low), min(self.max_time, high)
        else:
            self.min_sequence, self.max_sequence = max(self.min_sequence, low), min(self.max_sequence, high)

    def _push_text(self, one: Filter, name: str) -> bool:
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

    def allow_stream(self, stream: str, incarnation: str) -> bool:
        """Return whether the filters on `stream` and `incarnation` let the messages of a stream through."""
        return self.allow_name(stream) and all(incarnation in allowed for allowed in self.incarnations)

    def allow_name(self, stream: str) -> bool:
        """Return whether the filters on `stream` let the messages of a stream through."""
        return all(stream in value if kind == "in" else stream.startswith(value) for kind, value in self.streams)

    def key_pattern(self) -> str:
        """Return the filters on keys as the pattern of a subscription; empty if one pattern cannot express them."""
        if len(self.keys) != 1:
            return ""
        kind, value = self.keys[0]
        if kind == "prefix":
            return f"prefix:{value}"
        return f"exact:{next(iter(value))}" if len(value) == 1 else ""

    def key_tests(self) -> list[KeyTest]:
        """Return the filters on keys as tests of whole columns."""
        return [_is_in(value) if kind == "in" else _starts_with(value.encode()) for kind, value in self.keys]


def _number(value: Any, is_time: bool) -> int | None:
    if is_time:
        return microseconds_of(value) if isinstance(value, datetime) and value.tzinfo is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_in(values: frozenset[str]) -> KeyTest:
    encoded = [value.encode() for value in values]
    if len(encoded) == 1:
        return lambda keys: pc.equal(keys, pa.scalar(encoded[0], pa.binary()))
    return lambda keys: pc.is_in(keys, pa.array(encoded, pa.binary()))


def _starts_with(prefix: bytes) -> KeyTest:
    return lambda keys: pc.starts_with(keys, pattern=prefix)


def pattern_test(pattern: str) -> KeyTest | None:
    """Return the pattern of a subscription as a test of whole columns; None if it matches every key."""
    matchers = Matchers()
    name, rest = matchers.split(pattern)
    if name == "prefix":
        return _starts_with(rest) if rest else None
    if name == "exact":
        return lambda keys: pc.equal(keys, pa.scalar(rest, pa.binary()))
    test = matchers.parse(pattern)

    def by_distinct_key(keys: Array) -> Array:
        # Each distinct key is tested once.
        encoded = keys.dictionary_encode()
        answers = pa.array([bool(test(key)) for key in encoded.dictionary.to_pylist()], pa.bool_())
        return answers.take(encoded.indices)

    return by_distinct_key


def all_of(tests: Sequence[KeyTest]) -> KeyTest | None:
    """Return one test that a key passes if it passes all of these; None if there are none."""
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]

    def test_all(keys: Array) -> Array:
        answer = tests[0](keys)
        for test in tests[1:]:
            answer = pc.and_(answer, test(keys))
        return answer

    return test_all
