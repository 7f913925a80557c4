"""The files that a run leaves for the console. Other tests run the pipelines that make them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from zambezi.console.results import LARGEST, Results
from zambezi.spark.lake.place import Place
from zambezi.spark.pipelines.pipeline import Rows
from zambezi.spark.pipelines.results import MAX_BYTES, Result, save, save_plots
from zambezi.spark.pipelines.verdict import Reason, Verdict
from zambezi.spark.report.charts import Bar, timeline
from zambezi.spark.report.page import Figure

if TYPE_CHECKING:
    from pathlib import Path


def test_the_console_reads_what_a_run_saves(tmp_path: Path) -> None:
    rows = Rows(["key", "messages"], [["a", 1], [None, 2]], True, frozenset({"messages"}))
    verdict = Verdict.of("traffic", [Reason("a", "silent", "a was silent")], "1 stream")
    save([Result("traffic-keys", "Keys", rows)], verdict, Place(str(tmp_path)), 5.0)
    found = Results(str(tmp_path))
    found.read()
    told = found.describe()
    assert told["problems"] == []
    assert told["pipelines"] == [
        {"pipeline": "traffic", "time": 5.0, "healthy": False, "why": "a was silent", "reasons": 1}
    ]
    verdict_file, table = told["results"]
    assert verdict_file["reasons"][0]["about"] == "a"
    assert (table["columns"], table["rows"], table["more"]) == (["key", "messages#"], [["a", 1], ["", 2]], True)


def test_a_plot_that_is_too_large_for_the_console_leaves_its_title(tmp_path: Path) -> None:
    small = Figure("small", timeline([("a", [Bar(0, 1)], "")], 0, 1, {}))
    bars = [Bar(number, number + 1, "plot", "t" * 200) for number in range(2000)]
    large = Figure("large", timeline([(str(line), bars, "") for line in range(3)], 0, 2000, {}))
    save_plots([small, large, small], "traffic", Place(str(tmp_path)), 5.0)
    content = (tmp_path / "traffic-plots.json").read_bytes()
    assert len(content) < MAX_BYTES == LARGEST
    plots = json.loads(content)["plots"]
    assert [(one["title"], bool(one["data"])) for one in plots] == [("small", True), ("large", False), ("small", True)]
    assert "too large for the console" in plots[1]["notes"][0]
