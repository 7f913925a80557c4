"""Reports as CSV files and as a page of HTML."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.pipelines.frames import at
from zambezi.spark.lake.problems import TableError
from zambezi.spark.pipelines.files import write_csv, write_page
from zambezi.spark.pipelines.pipeline import Report, Rows
from zambezi.spark.pipelines.results import Result
from zambezi.spark.pipelines.verdict import Reason, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = '<img src=x>","\n'


def test_a_csv_file_has_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(HOSTILE, 1, at(0.25), b"\xff", ["a"]), (None, None, None, None, None)],
        "`a key` string, count long, time timestamp, body binary, tags array<string>",
    )
    many = spark.range(3_000).toDF("n")
    written = write_csv([Report("one", "One", frame), Report("two", "Two", many)], str(tmp_path / "made" / "here"))
    assert [path.name for path in written] == ["one.csv", "two.csv"]
    with written[0].open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["a key", "count", "time", "body", "tags"],
            [HOSTILE, "1", "2023-11-15T12:00:00.250000Z", "\ufffd", '["a"]'],
            ["", "", "", "", ""],
        ]
    assert len(written[1].read_text().splitlines()) == 3_001
    assert {path.name for path in written[0].parent.iterdir()} == {"one.csv", "two.csv"}


def test_a_directory_that_cannot_be_made_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="file"):
        write_csv([], str(tmp_path / "file" / "below"))


def test_a_page_has_the_verdict_and_says_where_all_rows_are(tmp_path: Path) -> None:
    reasons = tuple(Reason("a", "silent", f"{HOSTILE}{number} was silent") for number in range(2))
    results = [Result("r", "Rows", Rows(["n"], [[1]] * 120, True, frozenset({"n"})))]
    file = tmp_path / "report.html"
    write_page(str(file), results, Verdict("traffic", reasons, 7), [], {"read from": HOSTILE}, {"r": "csv/r.csv"})
    text = file.read_text()
    assert "healthy: no" in text
    assert "and 7 more reasons" in text
    assert "at least 21 more rows in csv/r.csv" in text
    assert "<img" not in text
    write_page(str(file), [], Verdict("traffic", judged="3 streams"), [], {}, {})
    assert "healthy: yes" in file.read_text()
