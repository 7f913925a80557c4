"""Scales: round marks, and not too many of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.spark.report.scales import moment, nice_top, time_marks

NOON = 1_700_049_600


@given(st.floats(0, 4e9), st.floats(0, 3e8))
def test_an_axis_of_time_has_few_marks_in_its_range(begin: float, length: float) -> None:
    marks = time_marks(begin, begin + length)
    assert len(marks) <= 9
    assert all(begin - 1 <= time <= begin + length + 1 for time, _ in marks)


@pytest.mark.parametrize(
    ("length", "labels"),
    [
        (0.004, ["12:00:00.000", "12:00:00.001", "12:00:00.002", "12:00:00.003", "12:00:00.004"]),
        (600, ["12:00", "12:02", "12:04", "12:06", "12:08", "12:10"]),
        (86400, ["11-15 12:00", "11-15 18:00", "11-16 00:00", "11-16 06:00", "11-16 12:00"]),
        (4 * 86400, ["2023-11-16", "2023-11-17", "2023-11-18", "2023-11-19"]),
    ],
)
def test_labels_have_what_differs(length: float, labels: list[str]) -> None:
    assert [label for _, label in time_marks(NOON, NOON + length)] == labels


@given(st.floats(1e-9, 1e18))
def test_the_top_of_a_scale_is_not_far_above_the_peak(most: float) -> None:
    assert most * (1 - 1e-6) <= nice_top(most) <= most * 1.6


def test_values_that_are_not_numbers_have_a_scale() -> None:
    assert [nice_top(one) for one in (0.0, -1.0, float("nan"), float("inf"))] == [1.0] * 4


def test_times_before_1970_and_far_ahead() -> None:
    assert moment(-1) == "1969-12-31 23:59:59"
    assert moment(253_402_300_799) == "9999-12-31 23:59:59"
