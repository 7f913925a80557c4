"""Reports on their way to people: small JSON files for the console, rows for a terminal, messages for a stream."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as sql

from zambezi.spark.pipelines.pipeline import Report, Rows, rows_of

MOST: Final = 500  # rows of a file; the console takes files of a megabyte at most


@dataclass(frozen=True, slots=True)
class Result:
    """A report that was computed."""

    name: str
    title: str
    found: Rows
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As the console takes it: a column of numbers has a name that ends in #, and stands right."""
        found = self.found
        return {
            "title": self.title,
            "columns": [f"{name}#" if name in found.numbers else name for name in found.columns],
            "rows": [["" if cell is None else cell for cell in row] for row in found.rows],
            "notes": list(self.notes),
            "more": found.more,
        }


def compute(reports: Sequence[Report], most: int = MOST) -> list[Result]:
    """Compute reports."""
    return [Result(one.name, one.title, rows_of(one.frame, most), one.notes) for one in reports]


def save(results: Sequence[Result], directory: Path) -> None:
    """Write a JSON file for each result. A reader sees the old one or the new one, never a part."""
    directory.mkdir(parents=True, exist_ok=True)
    for one in results:
        fresh = directory / f".{one.name}-{os.getpid()}"
        fresh.write_text(json.dumps(one.document(), default=str), encoding="utf-8")
        fresh.replace(directory / f"{one.name}.json")


def publish(reports: Sequence[Report], options: Mapping[str, str], now: datetime | None = None) -> None:
    """Publish the rows of reports to a stream: the key is the report's name, the body the row as JSON, with the time
    of the report as `at`. `options` are those of the sink."""
    when = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    for one in reports:
        whole = sql.struct(sql.lit(when).alias("reported"), *[sql.col(name) for name in one.frame.columns])
        rows = one.frame.select(sql.lit(one.name).alias("key"), sql.to_json(whole).cast("binary").alias("body"))
        # One task: the rows of a report stay together, and in order.
        rows.coalesce(1).write.format("zeps").options(**options).mode("append").save()
