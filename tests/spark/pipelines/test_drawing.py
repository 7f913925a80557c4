"""Charts of tables: Spark computes what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as Xml

from tests.spark.pipelines.frames import NOON, at, messages, stream
from zambezi.spark.pipelines import traffic
from zambezi.spark.pipelines.drawing import distribution_figure, matrix_figure, timeline_figure
from zambezi.spark.pipelines.pipeline import Settings
from zambezi.spark.report.charts import MOST_LINES, MOST_SERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = "<b>"


def test_traffic_with_ten_thousand_keys_and_a_gap(spark: SparkSession) -> None:
    rows = stream([(0.0, f"{HOSTILE}{number}", b"") for number in range(10_000)])
    rows += stream([(600.0, "late.x", b"")], first=10_003)
    settings = Settings(window=60, read_up_to=NOON + 86400)
    reduced = traffic.reduce(messages(spark, rows), settings).persist()
    rates, heard = traffic.figures(reduced, settings)
    drawn = Xml.fromstring(rates.chart.svg)
    assert len([one for one in drawn.iter() if one.get("class") == "unknown"]) == 1
    assert len([one for one in drawn.iter() if one.get("class") == "plot"]) == MOST_SERIES
    assert any(note.endswith("smaller series are not drawn") for note in rates.chart.notes)
    assert f"{10_001 - MOST_LINES:,} more are not drawn" in heard.chart.notes
    assert HOSTILE not in rates.chart.svg + heard.chart.svg
    assert len(rates.chart.svg + heard.chart.svg) < 200_000
    # Silence up to the time of reading is not drawn if it is far longer than everything else.
    assert rates.notes == ("the newest message is of 2023-11-15 12:10:00, 23.8 h before the streams were read",)
    reduced.unpersist()


def test_a_distribution_leaves_out_what_is_too_short(spark: SparkSession) -> None:
    times = spark.createDataFrame([(0.0,), (0.01,), (0.011,), (None,)], "seconds double")
    figure = distribution_figure("t", times, "pairs")
    assert figure.notes == ("1 more pairs are shorter than 1 µs and not drawn",)
    assert figure.chart.notes[0].startswith("2 pairs")
    nothing = distribution_figure("t", times.where("seconds = 0"), "pairs")
    assert nothing.notes == ("all 1 pairs are shorter than 1 µs",)


def test_a_matrix_and_lines_of_time(spark: SparkSession) -> None:
    cells = spark.createDataFrame(
        [("a", "b", 3, True), ("b", None, 1, False)], "row string, column string, value long, marked boolean"
    )
    figure = matrix_figure("m", cells, "sender", "receiver", "lost", {"a": "ann"})
    assert "ann to b: 3 messages" in figure.chart.svg
    assert "framed: lost" in figure.chart.notes
    bars = spark.createDataFrame(
        [("n", at(0), at(60), "plot", ""), ("n", at(60), at(120), "plot", ""), ("n", at(300), at(360), "plot", "t")],
        "label string, began timestamp, ended timestamp, kind string, text string",
    )
    older = spark.createDataFrame([("z", at(0), at(60), "plot", ""), ("z", at(300), at(300), "bad", "")], bars.schema)
    lines = timeline_figure("t", bars.union(older), {}, Settings(), of=5)
    shown = [one for one in Xml.fromstring(lines.chart.svg).iter() if one.get("class") == "plot"]
    assert len(shown) == 3  # two that touch are one
    assert lines.chart.notes == ("3 more are not drawn",)
    # The line that was silent longest is the first: a bar without an answer is no sign of life.
    assert [(one["name"], one["text"]) for one in lines.chart.data["lines"]] == [("z", "silent 5 min"), ("n", "")]
    assert lines.chart.data["lines"][1]["bars"] == [(0.0, 120.0, "plot", ""), (300.0, 360.0, "plot", "t")]
