"""Charts: silence is zero, missing messages are marked, and the size is bounded."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

import pytest

from zambezi.spark.report.charts import (
    MOST_BARS,
    MOST_CELLS,
    MOST_LINES,
    MOST_SERIES,
    MOST_STEPS,
    Bar,
    Chart,
    Steps,
    distribution,
    matrix,
    nothing,
    steps_between,
    strips,
    timeline,
)

NOON = 1_700_049_600.0
HOSTILE = "</svg><script>alert(1)</script>"


def drawn(chart: Chart, kind: str) -> list[Xml.Element]:
    """Return the elements of a class. That this is XML at all shows that every element is closed."""
    return [one for one in Xml.fromstring(chart.svg).iter() if one.get("class") == kind]


def test_a_burst_is_as_long_as_it_was() -> None:
    """A burst of 6 s in an hour is one step of 6 s: no ramp leads to it."""
    steps = steps_between(NOON, NOON + 2394, 6)
    chart = strips({"readings": {100: 50.0}}, steps)
    (path,) = drawn(chart, "plot")
    (box,) = re.findall(r"M([\d.]+) [\d.]+v-[\d.]+h([\d.]+)V[\d.]+z", path.get("d") or "")
    assert float(box[1]) == pytest.approx(650 / steps.count, abs=0.01)
    assert float(box[0]) == pytest.approx(190 + 650 * 100 / steps.count, abs=0.01)
    assert "a step without messages is zero" in chart.notes[0]


def test_steps_are_whole_windows_and_few() -> None:
    year = steps_between(NOON, NOON + 365 * 86400, 60)
    assert year.count <= MOST_STEPS
    assert year.length % 60 == 0
    assert year.end >= NOON + 365 * 86400
    assert Steps(0.0, 10.0, 3).number(29.9) == 2
    assert Steps(0.0, 10.0, 3).number(30.0) is None
    assert Steps(0.0, 10.0, 3).number(-0.1) is None


def test_missing_sequences_are_marked() -> None:
    steps = Steps(NOON, 60.0, 10)
    chart = strips({"a": {1: 1.0}}, steps, unknown=[4, 4, 99])
    assert len(drawn(chart, "unknown")) == 1
    assert any("sequences are missing" in note for note in chart.notes)
    assert not drawn(strips({"a": {1: 1.0}}, steps), "unknown")


def test_ten_thousand_series_are_bounded_and_counted() -> None:
    steps = Steps(NOON, 60.0, 3)
    chart = strips({f"{HOSTILE}{number}": {0: float(number)} for number in range(10_000)}, steps, left_out=5)
    assert len(drawn(chart, "plot")) == MOST_SERIES
    assert f"{10_005 - MOST_SERIES:,} smaller series are not drawn" in chart.notes
    assert "<script" not in chart.svg
    assert len(chart.svg) < 50_000


def test_a_matrix_of_ten_thousand_names_is_bounded() -> None:
    cells = {(f"{HOSTILE}{number}", "b"): 1.0 for number in range(10_000)} | {("b", "c"): 9.0}
    chart = matrix(cells, "sender", "receiver", marked=[("b", "c"), ("b", "unknown")], marked_note="lost")
    assert len(drawn(chart, "framed")) == 1
    assert f"{10_001 - MOST_CELLS:,} rows and 0 columns with fewer messages are not drawn" in chart.notes
    assert "<script" not in chart.svg
    assert len(chart.svg) < 100_000


def test_a_matrix_tells_none_from_some() -> None:
    chart = matrix({("a", "b"): 3.0, ("b", "a"): 0.0}, "sender", "receiver", labels={"a": "ann"})
    (cell,) = drawn(chart, "plot")
    assert "".join(cell.itertext()) == "ann to b: 3 messages"


def test_a_distribution_has_its_counts_and_marks() -> None:
    chart = distribution({-8: 10, 0: 5, 3: 0}, 4, {"median": 0.012, "p99": 2.0}, "pairs")
    assert ["".join(one.itertext()) for one in drawn(chart, "plot")] == [
        "10 ms to 17.8 ms: 10 pairs",
        "1 s to 1.78 s: 5 pairs",
    ]
    assert "median 12 ms" in chart.svg
    assert chart.notes == ("15 pairs; a decade has 4 bars",)


def test_a_distribution_over_many_decades_has_few_labels() -> None:
    chart = distribution({-24: 1, 40: 1}, 4, {"median": 0.0})
    assert len([one for one in drawn(chart, "mark") if one.get("x1") == one.get("x2")]) <= 10


def test_lines_of_time_are_bounded() -> None:
    bars = [Bar(NOON + number, NOON + number + 0.5) for number in range(MOST_BARS + 7)]
    lines = [(f"{HOSTILE}{number}", bars if number == 0 else [], HOSTILE) for number in range(10_000)]
    chart = timeline(lines, NOON, NOON + 10_000, {"plot": "heard"})
    assert len(drawn(chart, "plot")) == MOST_BARS + 1  # and the legend
    assert len(drawn(chart, "track")) == MOST_LINES
    assert chart.notes == (f"{10_000 - MOST_LINES:,} more are not drawn", "7 bars are not drawn")
    assert "<script" not in chart.svg


def test_a_bar_outside_the_time_is_not_drawn_and_one_across_its_end_is_cut() -> None:
    chart = timeline([("a", [Bar(0, 1), Bar(NOON - 5, NOON + 5)], "")], NOON, NOON + 10, {"bad": "silent"})
    (bar,) = drawn(chart, "plot")
    assert (bar.get("x"), bar.get("width")) == ("190", "325")


def test_nothing_is_drawn_as_nothing() -> None:
    steps = Steps(NOON, 60.0, 3)
    assert strips({}, steps) == timeline([], 0, 1, {}) == distribution({}, 4, {}) == matrix({}, "a", "b") == nothing()
    assert "nothing to draw" in nothing().svg


def test_a_chart_can_be_a_file_of_its_own() -> None:
    chart = strips({"a": {1: 1.0}}, Steps(NOON, 60.0, 3))
    root = Xml.fromstring(chart.file())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in chart._repr_svg_()


def test_a_moment_has_a_line_of_time() -> None:
    assert "<svg" in timeline([("a", [Bar(NOON, NOON)], "")], NOON, NOON, {}).svg


def test_a_chart_has_its_values_as_data() -> None:
    """The console draws the same chart from them: a step without messages has no value, and silence no bar."""
    rates = strips({"a": {1: 5.0, 2: 0.0, 99: 1.0}, "": {0: 1.0}}, Steps(NOON, 60.0, 10), unknown=[4, 4, 99])
    assert rates.data["series"] == [{"name": "a", "values": [(1, 5.0)]}, {"name": "(empty)", "values": [(0, 1.0)]}]
    assert (rates.data["begin"], rates.data["count"], rates.data["unknown"]) == (NOON, 10, [4])
    heard = timeline([("n", [Bar(NOON + 60, NOON + 120, "bad", "t")], "silent")], NOON, NOON + 600, {"bad": "late"})
    assert heard.data["lines"] == [{"name": "n", "text": "silent", "bars": [(60.0, 120.0, "bad", "t")]}]
    assert distribution({3: 2, 1: 0, -4: 1}, 8, {"median": 0.5}).data["bins"] == [(-4, 1), (3, 2)]
    talk = matrix({("b", "a"): 2.0, ("a", "b"): 0.0}, "from", "to", [("b", "a")], "lost", {"a": "ann"})
    assert (talk.data["rows"], talk.data["columns"]) == (["ann", "b"], ["ann", "b"])
    assert (talk.data["cells"], talk.data["marked"]) == ([(1, 0, 2.0)], [(1, 0)])
    assert nothing().data == {}


def test_the_first_mark_of_an_axis_does_not_touch_the_date() -> None:
    chart = strips({"a": {0: 1.0}}, Steps(NOON, 60.0, 10))
    marks = [one for one in Xml.fromstring(chart.svg).iter("text") if re.fullmatch(r"\d\d:\d\d", one.text or "")]
    assert [one.get("text-anchor") for one in marks[:2]] == ["start", "middle"]
