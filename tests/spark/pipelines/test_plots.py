"""Plots of results: silence is drawn as silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("matplotlib")

from zambezi.spark.pipelines.plots import rates, steps

WINDOW = timedelta(seconds=10)


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(seconds=seconds)


def test_a_burst_is_as_long_as_its_windows() -> None:
    moments, values = steps({at(300): 100.0}, WINDOW, at(0), at(600))
    assert list(zip(moments, values, strict=True)) == [
        (at(0), 0.0),
        (at(300), 100.0),
        (at(310), 0.0),
        (at(600), 0.0),
    ]


def test_windows_in_a_row_need_no_zero_between_them() -> None:
    moments, values = steps({at(0): 1.0, at(10): 2.0, at(20): 3.0}, WINDOW, at(0), at(30))
    assert (moments, values) == ([at(0), at(10), at(20), at(30)], [1.0, 2.0, 3.0, 3.0])


def test_the_lines_of_a_plot_are_steps() -> None:
    rows = [
        {"start": at(0), "stream": "steady", "per_s": 1.0},
        {"start": at(10), "stream": "steady", "per_s": 1.0},
        {"start": at(540), "stream": "burst", "per_s": 100.0},
    ]
    [axes] = rates(rows).axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert {line.get_drawstyle() for line in lines.values()} == {"steps-post"}
    assert list(lines["burst"].get_ydata()) == [0.0, 100.0, 100.0]  # type: ignore[arg-type]
    assert list(lines["steady"].get_ydata()) == [1.0, 1.0, 0.0, 0.0]  # type: ignore[arg-type]
    assert rates([]).axes
