"""The output of reports: JSON files for the console, rows for a terminal, messages for a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import functions as sql

from zambezi.spark.lake.place import Place
from zambezi.spark.pipelines.pipeline import Report, Rows, rows_of
from zambezi.spark.pipelines.verdict import Verdict

MAX_ROWS: Final = 500  # of a file; the console reads files of at most a megabyte


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


def with_verdict(results: Sequence[Result], verdict: Verdict) -> list[Result]:
    """Return the results, and the verdict as one of them, the first."""
    title = f"{verdict.pipeline}: {verdict.lines(1)[0]}"
    return [Result(f"{verdict.pipeline}-verdict", title, verdict.rows(), tuple(verdict.lines()[1:])), *results]


def save(results: Sequence[Result], place: Place) -> None:
    """Write a JSON file for each result. A reader sees the old file or the new one, never an incomplete one."""
    for one in results:
        place.put(f"{one.name}.json", json.dumps(one.document(), default=str).encode())


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
