"""Conditions of a query: what the source takes it does exactly, and the rest it gives back."""

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

from zambezi.spark.filters import BIGGEST, Narrowed, all_of, pattern_test

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
MICROS = 1769860800_000000


def narrowed(*filters: Filter) -> tuple[Narrowed, list[Filter]]:
    made = Narrowed()
    return made, made.take(filters)


@pytest.mark.parametrize(
    ("one", "low", "high"),
    [
        (EqualTo(("sequence",), 7), 7, 7),
        (EqualNullSafe(("sequence",), 7), 7, 7),
        (GreaterThan(("sequence",), 7), 8, BIGGEST),
        (GreaterThanOrEqual(("sequence",), 7), 7, BIGGEST),
        (LessThan(("sequence",), 7), 0, 6),
        (LessThanOrEqual(("sequence",), 7), 0, 7),
    ],
)
def test_ranges_of_sequences(one: Filter, low: int, high: int) -> None:
    made, rest = narrowed(one)
    assert (made.low, made.high, rest) == (low, high, [])


@pytest.mark.parametrize(
    ("one", "low", "high"),
    [
        (EqualTo(("timestamp",), WHEN), MICROS, MICROS),
        (GreaterThan(("timestamp",), WHEN), MICROS + 1, BIGGEST),
        (GreaterThanOrEqual(("timestamp",), WHEN), MICROS, BIGGEST),
        (LessThan(("timestamp",), WHEN), 0, MICROS - 1),
        (LessThanOrEqual(("timestamp",), WHEN), 0, MICROS),
    ],
)
def test_ranges_of_times(one: Filter, low: int, high: int) -> None:
    made, rest = narrowed(one)
    assert (made.time_low, made.time_high, rest) == (low, high, [])


def test_ranges_are_cut_together() -> None:
    made, rest = narrowed(GreaterThan(("sequence",), 3), LessThan(("sequence",), 9), GreaterThan(("sequence",), 5))
    assert (made.low, made.high, rest) == (6, 8, [])


def test_a_list_of_numbers_is_used_and_given_back() -> None:
    one = In(("sequence",), (5, 9, 7))
    made, rest = narrowed(one)
    assert (made.low, made.high, rest) == (5, 9, [one])


@pytest.mark.parametrize(
    "one",
    [
        IsNull(("key",)),
        Not(EqualTo(("key",), "k")),
        StringContains(("key",), "k"),
        EqualTo(("body",), b"x"),
        EqualTo(("a", "b"), 1),
        EqualTo(("sequence",), None),
        EqualTo(("timestamp",), datetime(2026, 1, 31, 12)),  # noqa: DTZ001 - no zone is what it is about
        EqualTo(("key",), None),
        EqualTo(("key",), b"octets"),
        StringStartsWith(("incarnation",), "a"),
    ],
)
def test_what_cannot_be_done_is_given_back(one: Filter) -> None:
    made, rest = narrowed(one)
    assert rest == [one]
    assert made == Narrowed()


def test_no_column_is_ever_null() -> None:
    assert narrowed(IsNotNull(("key",)))[1] == []


def outcome(made: Narrowed, *keys: Any) -> list[bool]:
    test = all_of(made.key_tests())
    assert test is not None
    return list(test(pa.array(keys, pa.binary())).to_pylist())


def test_conditions_on_keys() -> None:
    made, rest = narrowed(StringStartsWith(("key",), "a."), In(("key",), ("a.1", "b.1", "a.2")))
    assert rest == []
    assert outcome(made, b"a.1", b"a.2", b"a.3", b"b.1", b"\xff") == [True, True, False, False, False]
    assert outcome(narrowed(EqualTo(("key",), "é"))[0], "é".encode(), b"e") == [True, False]


def test_conditions_on_streams() -> None:
    made, rest = narrowed(StringStartsWith(("stream",), "a"), EqualTo(("incarnation",), "i"))
    assert rest == []
    assert [made.wants("ab", "i"), made.wants("ab", "j"), made.wants("b", "i")] == [True, False, False]
    assert not narrowed(EqualTo(("stream",), "a"))[0].wants("ab", "i")


def test_a_condition_on_keys_as_a_pattern() -> None:
    assert narrowed(EqualTo(("key",), "a"))[0].key_pattern() == "exact:a"
    assert narrowed(StringStartsWith(("key",), "a:"))[0].key_pattern() == "prefix:a:"
    assert narrowed(In(("key",), ("a", "b")))[0].key_pattern() == ""
    assert narrowed()[0].key_pattern() == ""


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


def test_a_pattern_for_everything_is_no_test() -> None:
    assert pattern_test("") is None
    assert all_of([]) is None
