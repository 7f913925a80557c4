"""The output of reports: JSON files for the console, rows for a terminal, messages for a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import functions as sql

from zambezi.spark.lake.place import Place
from zambezi.spark.pipelines.pipeline import Report, Rows, rows_of
from zambezi.spark.pipelines.verdict import Verdict
from zambezi.spark.report.page import Figure

MAX_ROWS: Final = 500  # of a file
MAX_BYTES: Final = 1 << 20  # of a file with plots: the console reads no larger ones


@dataclass(frozen=True, slots=True)
class Result:
    """A computed report."""

    name: str
    title: str
    found: Rows
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the report in the format of the console: the name of a column of numbers ends in #."""
        found = self.found
        return {
            "title": self.title,
            "columns": [f"{name}#" if name in found.numbers else name for name in found.columns],
            "rows": [["" if cell is None else cell for cell in row] for row in found.rows],
            "notes": [*self.notes, *self._limit()],
            "more": found.more,
        }

    def _limit(self) -> list[str]:
        return [f"only the first {len(self.found.rows):,} rows"] if self.found.more else []


def compute(reports: Sequence[Report], limit: int = MAX_ROWS) -> list[Result]:
    """Compute reports."""
    return [Result(one.name, one.title, rows_of(one.frame, limit), one.notes) for one in reports]


def save(results: Sequence[Result], verdict: Verdict, place: Place, now: float | None = None) -> None:
    """Write a JSON file for each result, and one for the verdict.

    A reader sees the old file or the new one, never an incomplete one.
    """
    about = {"pipeline": verdict.pipeline, "time": time.time() if now is None else now}
    for order, one in enumerate(results):
        _put(place, one.name, {**about, "kind": "table", "order": order, **one.document()})
    _put(place, f"{verdict.pipeline}-verdict", {**about, "kind": "verdict", **verdict.document()})


def save_plots(figures: Sequence[Figure], pipeline: str, place: Place, now: float | None = None) -> None:
    """Write the plots of a pipeline to a JSON file. A plot that makes the file too large only leaves its title."""
    document: dict[str, Any] = {"pipeline": pipeline, "time": time.time() if now is None else now, "kind": "plots"}
    plots: list[dict[str, Any]] = []
    room = MAX_BYTES - 10_000
    for one in figures:
        plot: dict[str, Any] = {
            "title": one.title,
            "notes": [*one.chart.notes, *one.notes],
            "data": dict(one.chart.data),
        }
        if len(json.dumps(plot)) > room:
            plot |= {"notes": ["this plot is too large for the console: --report FILE writes it, too"], "data": {}}
        room -= len(json.dumps(plot))
        plots.append(plot)
    _put(place, f"{pipeline}-plots", {**document, "plots": plots})


def _put(place: Place, name: str, document: Mapping[str, Any]) -> None:
    place.put(f"{name}.json", json.dumps(document, default=str).encode())


def publish_reports(reports: Sequence[Report], options: Mapping[str, str], now: datetime | None = None) -> None:
    """Publish the rows of reports to a stream. `options` are the options of the sink.

    The key of a message is the name of the report. The body is the row as JSON, with the time of the report in
    `reported`.
    """
    reported = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    for one in reports:
        row = sql.struct(sql.lit(reported).alias("reported"), *[sql.col(name) for name in one.frame.columns])
        rows = one.frame.select(sql.lit(one.name).alias("key"), sql.to_json(row).cast("binary").alias("body"))
        # One task publishes all rows of a report, so they stay together and in order.
        rows.coalesce(1).write.format("zeps").options(**options).mode("append").save()
