"""zambezi.spark.filters: the source applies exactly the filters that it takes, and returns the others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from zambezi.spark.filters import NO_LIMIT, PushedFilters, all_of, pattern_test

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
MICROS = 1769860800_000000


def pushed(*filters: Filter) -> tuple[PushedFilters, list[Filter]]:
    made = PushedFilters()
    return made, made.push(filters)


@pytest.mark.parametrize(
    ("one", "low", "high"),
    [
        (EqualTo(("sequence",), 7), 7, 7),
        (EqualNullSafe(("sequence",), 7), 7, 7),
        (GreaterThan(("sequence",), 7), 8, NO_LIMIT),
        (GreaterThanOrEqual(("sequence",), 7), 7, NO_LIMIT),
        (LessThan(("sequence",), 7), 0, 6),
        (LessThanOrEqual(("sequence",), 7), 0, 7),
    ],
)
def test_ranges_of_sequences(one: Filter, low: int, high: int) -> None:
    made, rest = pushed(one)
    assert (made.min_sequence, made.max_sequence, rest) == (low, high, [])


@pytest.mark.parametrize(
    ("one", "low", "high"),
    [
        (EqualTo(("timestamp",), WHEN), MICROS, MICROS),
        (GreaterThan(("timestamp",), WHEN), MICROS + 1, NO_LIMIT),
        (GreaterThanOrEqual(("timestamp",), WHEN), MICROS, NO_LIMIT),
        (LessThan(("timestamp",), WHEN), 0, MICROS - 1),
        (LessThanOrEqual(("timestamp",), WHEN), 0, MICROS),
    ],
)
def test_ranges_of_times(one: Filter, low: int, high: int) -> None:
    made, rest = pushed(one)
    assert (made.min_time, made.max_time, rest) == (low, high, [])


def test_ranges_are_combined() -> None:
    made, rest = pushed(GreaterThan(("sequence",), 3), LessThan(("sequence",), 9), GreaterThan(("sequence",), 5))
    assert (made.min_sequence, made.max_sequence, rest) == (6, 8, [])


def test_a_list_of_numbers_is_used_and_returned() -> None:
    one = In(("sequence",), (5, 9, 7))
    made, rest = pushed(one)
    assert (made.min_sequence, made.max_sequence, rest) == (5, 9, [one])


@pytest.mark.parametrize(
    "one",
    [
        IsNull(("key",)),
        Not(EqualTo(("key",), "k")),
        StringContains(("key",), "k"),
        EqualTo(("body",), b"x"),
        EqualTo(("a", "b"), 1),
        EqualTo(("sequence",), None),
        EqualTo(("timestamp",), datetime(2026, 1, 31, 12)),  # noqa: DTZ001 - the test is about a time without a zone
        EqualTo(("key",), None),
        EqualTo(("key",), b"bytes"),
        StringStartsWith(("incarnation",), "a"),
    ],
)
def test_other_filters_are_returned(one: Filter) -> None:
    made, rest = pushed(one)
    assert rest == [one]
    assert made == PushedFilters()


def test_no_column_is_ever_null() -> None:
    assert pushed(IsNotNull(("key",)))[1] == []


def outcome(made: PushedFilters, *keys: Any) -> list[bool]:
    test = all_of(made.key_tests())
    assert test is not None
    return list(test(pa.array(keys, pa.binary())).to_pylist())


def test_filters_on_keys() -> None:
    made, rest = pushed(StringStartsWith(("key",), "a."), In(("key",), ("a.1", "b.1", "a.2")))
    assert rest == []
    assert outcome(made, b"a.1", b"a.2", b"a.3", b"b.1", b"\xff") == [True, True, False, False, False]
    assert outcome(pushed(EqualTo(("key",), "é"))[0], "é".encode(), b"e") == [True, False]


def test_filters_on_streams() -> None:
    made, rest = pushed(StringStartsWith(("stream",), "a"), EqualTo(("incarnation",), "i"))
    assert rest == []
    assert [made.allow_stream("ab", "i"), made.allow_stream("ab", "j"), made.allow_stream("b", "i")] == [
        True,
        False,
        False,
    ]
    assert not pushed(EqualTo(("stream",), "a"))[0].allow_stream("ab", "i")


def test_a_filter_on_keys_as_a_pattern() -> None:
    assert pushed(EqualTo(("key",), "a"))[0].key_pattern() == "exact:a"
    assert pushed(StringStartsWith(("key",), "a:"))[0].key_pattern() == "prefix:a:"
    assert pushed(In(("key",), ("a", "b")))[0].key_pattern() == ""
    assert pushed()[0].key_pattern() == ""


@pytest.mark.parametrize(
    ("pattern", "answers"),
    [
        ("k1", [True, True, False]),
        ("exact:k1", [True, False, False]),
        ("glob:*2", [False, True, False]),
        ("regex:^[jk].$", [True, False, True]),
    ],
)
def test_patterns_on_columns(pattern: str, answers: list[bool]) -> None:
    test = pattern_test(pattern)
    assert test is not None
    assert test(pa.array([b"k1", b"k12", b"j7"], pa.binary())).to_pylist() == answers


def test_a_pattern_that_matches_every_key_needs_no_test() -> None:
    assert pattern_test("") is None
    assert all_of([]) is None
