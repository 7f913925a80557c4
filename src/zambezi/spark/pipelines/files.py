"""The reports of a pipeline as files for people and other programs: CSV, and one page of HTML."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError, explained
from zambezi.spark.report.page import Figure, Judgement, Table, page

if TYPE_CHECKING:
    from zambezi.spark.pipelines.pipeline import Report
    from zambezi.spark.pipelines.results import Result
    from zambezi.spark.pipelines.verdict import Verdict

_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"


def write_csv(reports: Sequence[Report], directory: str) -> list[Path]:
    """Write all rows of each report to a CSV file, and return the files. Times have microseconds and their zone.

    Rows come from Spark a part at a time, so a file can be larger than the memory. A reader sees the old file or the
    new one, never an incomplete one.
    """
    written = []
    with explained(directory):
        Path(directory).mkdir(parents=True, exist_ok=True)
    for one in reports:
        path = Path(directory) / f"{one.name}.csv"
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with explained(directory), partial.open("w", newline="", encoding="utf-8", errors="replace") as file:
                rows = csv.writer(file)
                rows.writerow(one.frame.columns)
                rows.writerows(as_texts(one.frame).toLocalIterator())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        written.append(path)
    return written


def as_texts(frame: DataFrame) -> DataFrame:
    """Return a frame whose times, lists and bytes are texts, and whose numbers are numbers."""
    return frame.select(
        *[_as_text(column.name, column.dataType.typeName()).alias(column.name) for column in frame.schema.fields]
    )


def _as_text(name: str, kind: str) -> Column:
    column = sql.col(f"`{name}`")
    if kind == "timestamp":
        return sql.date_format(column, _TIME)
    if kind == "binary":
        return sql.make_valid_utf8(column.cast("string"))
    return sql.to_json(column) if kind in ("array", "map", "struct") else column.cast("string")


def write_page(
    file: str,
    results: Sequence[Result],
    verdict: Verdict,
    figures: Sequence[Figure],
    about: Mapping[str, str],
    where: Mapping[str, str],
    store_options: Mapping[str, str] | None = None,
) -> None:
    """Write a report to an HTML file on a disk or in an object store. `where` has the file of all rows of a result."""
    reasons = [one.text for one in verdict.reasons]
    if verdict.more:
        reasons.append(f"and {verdict.more:,} more reasons")
    judgement = Judgement(verdict.is_healthy, tuple(reasons or filter(None, [verdict.judged])))
    tables = [
        Table(
            one.title,
            one.found.columns,
            one.found.rows,
            one.found.numbers,
            one.notes,
            one.found.more,
            where.get(one.name, ""),
        )
        for one in results
    ]
    text = page(f"zambezi {verdict.pipeline}", about, judgement, figures, tables)
    place, name = place_of_page(file, store_options)
    place.put(name, text.encode("utf-8", "replace"))


def place_of_page(file: str, store_options: Mapping[str, str] | None = None) -> tuple[Place, str]:
    """Return the place of a report, and its name there."""
    parent, slash, name = file.rpartition("/")
    place = Place((parent or slash) or ".", store_options)
    if not name or (place.local is not None and (place.local / name).is_dir()):
        raise TableError(f"{file} is a directory: give the name of a file for the report")
    return place, name
