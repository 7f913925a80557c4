"""`zambezi sql`: Spark SQL over streams, for one query or as a shell."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from zambezi.cli.client import ENDPOINT
from zambezi.cli.errors import OptionsError, error_line
from zambezi.cli.fitting import FittingTable
from zambezi.cli.formats import json_bytes
from zambezi.cli.quantity import endpoint, moment
from zambezi.cli.signals import away_from_signals
from zambezi.cli.spark import (
    add_key_options,
    add_source_option,
    add_spark_options,
    add_store_options,
    cancel_jobs,
    check_source,
    check_spark,
    check_times,
    fill_in_broker,
    given,
    more_options,
    source_place,
    spark_session,
    store_options,
    use_session,
)
from zambezi.cli.terminal import say, table_console
from zambezi.errors import ZambeziError
from zambezi.wire.text import printable

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SHOWN: Final = 100  # rows of a table
PROMPT: Final = "zambezi> "
CONTINUED: Final = "      -> "
_WORDS: Final = {"quit", "exit"}


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "sql",
        description=(
            "Query streams with Spark SQL. Each stream is a view of its name (`a.b` in backquotes if it has dots or "
            "hyphens), with the columns stream, incarnation, sequence, timestamp, key and body; the view `messages` "
            "has all streams. Without -e, statements come from standard input, each up to a semicolon."
        ),
    )
    parser.add_argument(
        "-e", "--execute", metavar="QUERY", action="append", help="run this query, and end (can be repeated)"
    )
    parser.add_argument(
        "--format",
        choices=list(FORMATS),
        help="the form of the output (default: table); csv and json have all rows",
        default="table",
    )
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    parser.add_argument(
        "--rows", metavar="COUNT", type=int, default=SHOWN, help=f"the rows shown of a table (default: {SHOWN})"
    )
    options = parser.add_argument_group("input")
    options.add_argument(
        "--endpoint",
        metavar="ENDPOINT",
        type=endpoint,
        help=f"the endpoint of a broker (default: $ZAMBEZI_ENDPOINT, or that of the context, or {ENDPOINT})",
    )
    options.add_argument("--path", metavar="DIR", help="the data directory of a broker, or the URL of a store")
    options.add_argument(
        "--archive",
        metavar="DIR",
        help="an archive, a directory or a URL: views have its messages, and those of --endpoint or --path after it",
    )
    add_store_options(options)
    options.add_argument("--since", metavar="TIME", type=moment, help="read messages from this time on (ISO 8601)")
    options.add_argument("--until", metavar="TIME", type=moment, help="read messages up to this time (ISO 8601)")
    add_source_option(options, "timeout=5s")
    add_key_options(options)
    add_spark_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.endpoint and arguments.path:
        raise OptionsError("--endpoint and --path contradict each other: give only one of them")
    check_times(arguments)
    check_spark("SQL needs")
    check_source(arguments, source_options(arguments))
    with spark_session(arguments, "zambezi sql") as spark:
        shell = _Shell(arguments, spark)
        if arguments.execute:
            for text in arguments.execute:
                shell.execute(text)
            return 0
        return shell.interact() if sys.stdin.isatty() else shell.read(sys.stdin)


class _Shell:
    """Runs statements, and prints their results."""

    def __init__(self, arguments: argparse.Namespace, spark: SparkSession) -> None:
        from zambezi.spark.views import StreamViews  # noqa: PLC0415 - needs Spark

        self._spark = spark
        self._print: Callable[[DataFrame, int], None] = FORMATS[arguments.format]
        self._rows: int = arguments.rows
        self._views = StreamViews(spark, source_options(arguments))

    def execute(self, text: str) -> None:
        """Run a statement. Ctrl-C ends it."""
        away_from_signals(lambda _: self._execute(text), partial(cancel_jobs, self._spark))

    def _execute(self, text: str) -> int:
        from zambezi.spark.pipelines.running import plain_errors  # noqa: PLC0415 - needs Spark

        use_session(self._spark)
        frame = self._views.query(text)
        if frame.columns:
            with plain_errors():
                self._print(frame, self._rows)
        return 0

    def read(self, lines: Iterator[str]) -> int:
        """Run the statements of a file or a program, until one fails."""
        for text in statements(lines):
            self.execute(text)
        return 0

    def interact(self) -> int:
        """Run the statements that a person types."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401, PLC0415 - gives `input` a history
        print("Each stream is a view; `messages` has all. A statement ends with a semicolon; Ctrl-D ends the shell.")
        lines = _Prompt()
        while True:
            try:
                for text in statements(lines):
                    self._try(text)
                print()
                return 0
            except KeyboardInterrupt:  # what was typed is forgotten
                lines = _Prompt()
                print()

    def _try(self, text: str) -> None:
        try:
            self.execute(text)
        except ZambeziError as error:
            print(error_line(str(error)), file=sys.stderr)


class _Prompt:
    """The lines that a person types."""

    def __init__(self) -> None:
        self._prompt = PROMPT

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                line = input(self._prompt)
            except EOFError:
                return
            if line.strip().rstrip(";").lower() in _WORDS:
                return
            self._prompt = CONTINUED if line.strip() and not line.rstrip().endswith(";") else PROMPT
            yield line


def statements(lines: Iterator[str] | _Prompt) -> Iterator[str]:
    """Split lines into statements: each ends with a semicolon at the end of a line.

    >>> list(statements(iter(["SELECT 1;", "", "SELECT", "2 ; ", "SELECT 3"])))
    ['SELECT 1', 'SELECT\\n2', 'SELECT 3']
    """
    begun: list[str] = []
    for line in lines:
        text = line.rstrip()
        ends = text.endswith(";")
        begun.append(text.rstrip("; "))
        if ends:
            yield from _joined(begun)
            begun = []
    yield from _joined(begun)


def _joined(lines: Sequence[str]) -> Iterator[str]:
    text = "\n".join(lines).strip()
    if text:
        yield text


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the Spark source that the command line describes."""
    is_enough = arguments.path or (arguments.archive and not arguments.endpoint and not arguments.context)
    if not is_enough:
        fill_in_broker(arguments)
    options = given(source_place(arguments)) | more_options(arguments)
    if arguments.archive:
        stored = store_options(arguments)
        return options | {"archive": arguments.archive} | ({"storeOptions": json.dumps(stored)} if stored else {})
    return options if arguments.path else {"endpoint": ENDPOINT} | options


# Output


def _printable_times(frame: DataFrame) -> DataFrame:
    """Return the table with times as texts in UTC: Python would convert them to the time zone of the machine.

    Its columns have other names.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415 - needs Spark

    names = [f"c{number}" for number in range(len(frame.columns))]  # two columns can have the same name
    times = [
        sql.date_format(name, "yyyy-MM-dd HH:mm:ss.SSSSSS").alias(name)
        if field.dataType.typeName() == "timestamp"
        else sql.col(name)
        for name, field in zip(names, frame.schema.fields, strict=True)
    ]
    return frame.toDF(*names).select(*times)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes() | bytearray():
            return "".join(json_bytes("", bytes(value)).values())
        case str():
            return value
        case bool():
            return str(value).lower()
        case float() if not math.isfinite(value):
            return str(_plain(value))
        case _:
            return str(value) if isinstance(value, int | float | Decimal | date) else json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """Return a value of a row as JSON can have it."""
    match value:
        case bytes() | bytearray():
            return _text(value)
        case float() if not math.isfinite(value):
            return _NOT_FINITE[str(value)]  # as Spark writes them
        case date() | Decimal():
            return str(value)
        case dict():
            return {_text(name): _plain(one) for name, one in value.items()}
        case tuple() if hasattr(value, "asDict"):
            return {name: _plain(one) for name, one in value.asDict().items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _print_table(frame: DataFrame, most: int) -> None:
    rows = _printable_times(frame).limit(most + 1).collect()
    numbers = {index for index, field in enumerate(frame.schema.fields) if field.dataType.typeName() in _NUMBERS}
    names = [printable(name) for name in frame.columns]
    cells = [[printable(_text(one)) for one in row] for row in rows[:most]]
    table_console().print(FittingTable(names, numbers, cells, "--format csv shows all columns"))
    if len(rows) > most:
        print(f"only the first {most:,} rows are shown: see --rows, or --format csv for all", file=sys.stderr)


def _print_csv(frame: DataFrame, _most: int) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(frame.columns)
    for row in _printable_times(frame).toLocalIterator(prefetchPartitions=True):
        writer.writerow([_text(one) for one in row])


def distinct(names: Sequence[str]) -> list[str]:
    """Return names that differ from each other: columns of a join often have the same.

    >>> distinct(["a", "b", "a", "a_2", "a"])
    ['a', 'b', 'a_2', 'a_2_2', 'a_3']
    """
    found: list[str] = []
    for name in names:
        number, one = 1, name
        while one in found:
            number += 1
            one = f"{name}_{number}"
        found.append(one)
    return found


def _print_json(frame: DataFrame, _most: int) -> None:
    names = distinct(frame.columns)
    for row in _printable_times(frame).toLocalIterator(prefetchPartitions=True):
        document: dict[str, Any] = {}
        for name, value in zip(names, row, strict=True):
            document |= (
                json_bytes(name, bytes(value)) if isinstance(value, bytes | bytearray) else {name: _plain(value)}
            )
        say(json.dumps(document, ensure_ascii=False))


_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NUMBERS: Final = frozenset({"byte", "short", "integer", "long", "float", "double", "decimal"})
FORMATS: Final[Mapping[str, Callable[[DataFrame, int], None]]] = {
    "table": _print_table,
    "csv": _print_csv,
    "json": _print_json,
}
