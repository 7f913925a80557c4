"""`zambezi sql`, and the views behind it."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from tests.spark.journal import numbered, write
from tests.spark.lake.archiving import archive
from tests.spark.started import use_for_commands
from zambezi.cli import main, sql
from zambezi.spark.errors import SparkError
from zambezi.spark.views import MESSAGES, StreamViews

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def data(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    write(tmp_path / "data", "readings", numbered(30))
    write(tmp_path / "data", "sensor.a", numbered(5))
    yield str(tmp_path / "data")
    for name in ("readings", "sensor.a", "nothing", MESSAGES):
        spark.catalog.dropTempView(name)


def test_a_stream_is_a_view_when_a_query_names_it(spark: SparkSession, data: str) -> None:
    views = StreamViews(spark, {"path": data})
    joined = "SELECT count(*) FROM readings JOIN `sensor.a` USING (sequence)"
    assert [row[0] for row in views.query(joined).collect()] == [5]
    by_stream = "SELECT stream, count(*) FROM messages GROUP BY stream ORDER BY stream"
    assert [tuple(row) for row in views.query(by_stream).collect()] == [("readings", 30), ("sensor.a", 5)]
    write(Path(data), "readings", numbered(60))
    assert views.query("SELECT count(*) FROM readings").collect() == [(90,)]
    with pytest.raises(SparkError, match=r"write the name of a stream with dots as `sensor\.a`"):
        views.query("SELECT * FROM sensor.a")
    with pytest.raises(SparkError, match="no_such_column"):
        views.query("SELECT no_such_column FROM readings")


@pytest.fixture
def given(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command uses the session of the tests, and leaves it running."""
    use_for_commands(spark, monkeypatch)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("given")
def test_queries_of_a_command_line(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "sequence, timestamp, body, sequence > 1 AS later, array(body) AS bodies"
    query = f"SELECT {columns} FROM readings WHERE sequence < 3"
    command = ["sql", "--path", data, "-e", query]
    assert main([*command, "--format", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["sequence"], line["body"], line["later"], line["bodies"]) for line in lines] == [
        (1, "1", False, ["1"]),
        (2, "2", True, ["2"]),
    ]
    assert lines[0]["timestamp"] == "2023-11-14 22:13:20.000000"
    assert main([*command, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "sequence,timestamp,body,later,bodies",
        '1,2023-11-14 22:13:20.000000,1,false,"[""1""]"',
    ]
    assert main([*command, "--rows", "1"]) == 0
    shown = capsys.readouterr()
    assert "2023-11-14 22:13:20.000000" in shown.out
    assert shown.err == "only the first 1 rows are shown: see --rows, or --format csv for all\n"


@pytest.mark.usefixtures("given")
def test_views_over_an_archive_and_the_messages_after_it(
    spark: SparkSession, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(Path(data), tmp_path / "archive")
    write(Path(data), "readings", numbered(12))

    def count(*arguments: str) -> str:
        query = "SELECT count(*) AS n, max(sequence) AS last, count(DISTINCT sequence) AS different FROM readings"
        assert main(["sql", "--archive", str(tmp_path / "archive"), *arguments, "-e", query, "--format", "csv"]) == 0
        spark.catalog.dropTempView("readings")  # a command has a session of its own
        return capsys.readouterr().out

    assert count() == "n,last,different\n30,30,30\n"
    assert count("--path", data) == "n,last,different\n42,42,42\n"


@pytest.mark.usefixtures("given")
def test_statements_from_standard_input_up_to_one_that_fails(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("SELECT count(*) AS n\nFROM readings;\nSELECT * FROM nothing;\nSELECT 7;\n")
    )
    assert main(["sql", "--path", data, "--format", "csv"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "n\n30\nstream,sequence,timestamp,key,body,incarnation\n"
    assert shown.err == "zambezi: there is no stream 'nothing': there are 'readings', 'sensor.a'\n"


@pytest.mark.usefixtures("given")
def test_the_shell_goes_on_after_an_error(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["SELEC 1;", "SELECT 7 AS seven", ";", "SELECT 1 / 0;", "SELECT 8 AS eight;", "quit"])
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return next(typed)

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin", Terminal())
    assert main(["sql", "--path", data, "--format", "csv"]) == 0
    shown = capsys.readouterr()
    assert "seven\n7\n" in shown.out
    assert "eight\n8\n" in shown.out
    assert [line[:24] for line in shown.err.splitlines()] == ["zambezi: [PARSE_SYNTAX_E", "zambezi: [DIVIDE_BY_ZERO"]
    assert prompts == [sql.PROMPT, sql.PROMPT, sql.CONTINUED, sql.PROMPT, sql.PROMPT, sql.PROMPT]


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("json", '{"a": 1, "a_2": "NaN", "b": ["-Infinity"]}\n'),
        ("csv", 'a,a,b\n1,NaN,"[""-Infinity""]"\n'),
        ("table", 'a    a  b\n1  NaN  ["-Infinity"]\n'),
    ],
)
def test_columns_of_one_name_and_numbers_that_are_none(
    data: str, capsys: pytest.CaptureFixture[str], form: str, expected: str
) -> None:
    query = "SELECT 1 AS a, double('NaN') AS a, array(double('-Infinity')) AS b"
    assert main(["sql", "--path", data, "--format", form, "-e", query]) == 0
    assert "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n" == expected


def test_options_of_a_view_in_a_query(spark: SparkSession, data: str) -> None:
    views = StreamViews(spark, {"path": data})
    at = "readings WITH ('startingSequence' = '26')"
    assert views.query(f"SELECT count(*) FROM {at}").collect() == [(5,)]
    assert views.query(f"SELECT count(*) FROM {at} AS a JOIN {at} AS b USING (sequence)").collect() == [(5,)]
    assert views.query("SELECT count(*), 'WITH ' FROM readings").collect() == [(30, "WITH ")]
    with pytest.raises(SparkError, match="all mentions of readings in a query must have the same options"):
        views.query(f"SELECT * FROM {at} UNION SELECT * FROM readings")
    with pytest.raises(SparkError, match="work in the FROM of the outermost query only"):
        views.query(f"SELECT (SELECT count(*) FROM {at})")
    with pytest.raises(AnalysisException, match="there is no option 'startingseqence'"):
        views.query("SELECT * FROM readings WITH ('startingSeqence' = '26')").collect()
    spark.range(3).createOrReplaceTempView("nothing")
    with pytest.raises(SparkError, match="do not reach the view nothing: give them to the view"):
        views.query("SELECT * FROM nothing WITH ('startingSequence' = '2')")


def test_the_broker_is_asked_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(_arguments: Any, _name: str) -> None:
        raise AssertionError("Spark was started")

    options = sql.source_options
    monkeypatch.setattr(sql, "spark_session", started)
    monkeypatch.setattr(sql, "source_options", lambda arguments: {**options(arguments), "timeout": "100ms"})
    with socket.create_server(("127.0.0.1", 0)) as probe:
        endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    assert main(["sql", "--endpoint", endpoint, "-e", "SELECT 1"]) == 1
    error = capsys.readouterr().err
    told = f"zambezi: {endpoint}: Connection refused (tried for 0.1 seconds: option 'timeout')"
    assert error == f"{told} (nothing listens there: is zambezi serve running?)\n"


def test_wrong_options_are_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, status, told in (
        (["--endpoint", "nowhere"], 2, "argument --endpoint: 'nowhere' is no endpoint"),
        (["--endpoint", "inproc://x"], 2, "option 'endpoint' is 'inproc://x'"),
        (["--path", "data", "--store-option", "x", "--archive", "a"], 2, "--store-option x: write NAME=VALUE"),
        (["--path", "missing"], 1, "missing is no data directory: there is no such directory"),
        (["--archive", "missing"], 1, "missing: there is no archive"),
    ):
        assert main(["sql", *options]) == status
        assert told in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_two_places_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--path", "data", "--endpoint", "tcp://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == "zambezi: --endpoint and --path contradict each other: give only one of them\n"
