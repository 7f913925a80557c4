"""The definition of a pipeline: a name, three functions from tables to tables, and a function that judges.

    messages --prepare--> events --reduce--> a table that grows with each batch --reports--> small tables for people
    small tables --judge--> a verdict

`prepare` decodes messages, row by row. `reduce` turns events into the rows of a Delta table: sums by window, or the
events themselves. It is applied to each batch separately, whether the batch is all messages, the messages since the
last run, or those of the last ten seconds. So its sums are partial: a reader adds up the rows with the same window and
key, until `zambezi.spark.lake.sums` has done so in the table. This is why pipelines work the same way in batch and
streaming: there is no state between batches that could be lost or grow, and a late event is added to its window.
Spark's own aggregation, which keeps sums until a watermark passes, gives each row once. But it does not show the newest
windows, never closes the last window of a stream that falls silent, and drops late events. Here the watermark only says
which windows can still grow; events that are later than it allows are counted, and kept all the same.

`reports` turns the table into small tables for people. It always runs as a batch query, over a table that is small
compared with the messages. It passes tables that several reports use through `cache`, so that they can be computed
once. `judge` reads the rows of the reports, and says whether they are healthy: see `verdict`. `figures` makes the
charts of a report in HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from zambezi.spark.lake.place import Place
from zambezi.spark.limits import Limits
from zambezi.spark.pipelines.body_profile import Declaration
from zambezi.spark.report.page import Figure

if TYPE_CHECKING:
    from zambezi.spark.pipelines.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a pipeline. Times are in seconds."""

    window: float = 60.0  # the length of a window
    depth: int = 1  # the number of parts of a key in its prefix
    top: int = 20  # the number of rows in a list of the largest
    delay: float = 600.0  # events can be this late; a clock can be wrong by half of it
    flaps: int = 3  # a peer that enters this many times within `flapping` seconds is flapping
    flapping: float = 600.0
    patience: float = 60.0  # a node that does not answer a request within this time is silent
    gap: float = 30.0  # a silence longer than this ends a session
    by: str = "key"  # the key of sessions and joins: an expression of SQL over the columns of messages
    left: str = ""  # the streams of a join
    right: str = ""
    within: float = 5.0  # a right message that comes later has no match
    declared: tuple[Declaration, ...] = ()  # the formats of bodies
    read_up_to: float = 0.0  # all messages before this time (since 1970) have been read; 0 if unknown
    is_partial: bool = False  # whether only some keys of the streams are read
    limits: Limits = field(default_factory=Limits)  # which results are healthy


@dataclass(frozen=True, slots=True)
class Report:
    """A small table for people. `notes` say what a reader must know to understand it correctly."""

    name: str
    title: str
    frame: DataFrame
    notes: tuple[str, ...] = ()


Cache: TypeAlias = Callable[[DataFrame], DataFrame]


def uncached(frame: DataFrame) -> DataFrame:
    """Return a table without caching it: each query computes it again."""
    return frame


class Reports(Protocol):
    """A function from the table of a pipeline to its reports."""

    def __call__(self, table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Report]: ...


def as_they_are(messages: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `prepare`
    """Return messages that need no decoding."""
    return messages


class Judge(Protocol):
    """A function from the rows of the reports, by name, to the verdict."""

    def __call__(self, found: Mapping[str, Rows], settings: Settings) -> Verdict: ...


class Figures(Protocol):
    """A function from the table of a pipeline to the charts of its report."""

    def __call__(self, table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]: ...


def no_figures(table: DataFrame, settings: Settings, cache: Cache = uncached) -> Sequence[Figure]:  # noqa: ARG001 - the signature of `figures`
    """Return no charts."""
    return ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: how to turn messages into a table, and the table into reports."""

    name: str
    summary: str
    reduce: Callable[[DataFrame, Settings], DataFrame] | None  # None: the table has the messages as they are
    reports: Reports
    judge: Judge
    columns: str  # the schema of the table as DDL, without the column `date`, by which it is partitioned
    prepare: Callable[[DataFrame, Settings], DataFrame] = as_they_are
    figures: Figures = no_figures
    reported: tuple[str, ...] = ()  # the columns that reports need; empty: all
    table: str = ""  # the directory of the table within the output directory; empty: the output directory itself
    streams: Mapping[str, str] = field(default_factory=dict)  # source options that select streams, unless the user does
    time: str = "timestamp"  # the column of the events from which the watermark is computed
    fixed: tuple[str, ...] = ()  # the settings that all rows of the table must have in common
    sums: Mapping[str, str] = field(default_factory=dict)  # how to add up partial sums: sum, min or max of a column
    incremental: bool = False  # whether each run continues where the last one ended, even without --incremental
    live: bool = True  # whether the table is small enough for reports after every batch

    @property
    def schema(self) -> str:
        """The schema of the table."""
        return f"{self.columns}, date date"

    def fixed_settings(self, settings: Settings) -> dict[str, str]:
        """Return the settings that all rows of the table must have in common."""
        values = {name: getattr(settings, name) for name in self.fixed}
        return {name: f"{one:g}" if isinstance(one, float) else str(one) for name, one in values.items()}

    def place(self, out: str, store_options: Mapping[str, str] | None = None) -> Place:
        """Return the place of the table within an output directory, or a prefix of an object store."""
        return Place(f"{out.rstrip('/')}/{self.table}" if self.table else out, store_options)


def start_of(time: Column, seconds: float) -> Column:
    """Return the start of the window that contains a time."""
    length = max(1, round(seconds * 1_000_000))
    micros = sql.unix_micros(time)
    return sql.timestamp_micros(micros - sql.pmod(micros, sql.lit(length)))


def utc_date(time: Column | str) -> Column:
    """Return the date of a time in UTC, whatever the time zone of the session is."""
    day = 86_400_000_000
    micros = sql.unix_micros(time)
    return sql.date_from_unix_date(((micros - sql.pmod(micros, sql.lit(day))) / sql.lit(day)).cast("int"))


def now_or(newest: Column, settings: Settings) -> Column:
    """Return the time up to which messages were read. If it is not known, it is that of the newest message.

    A message can have a time in the future, if a clock was wrong: so the newest message is not always the present.
    """
    return sql.timestamp_micros(sql.lit(int(settings.read_up_to * 1e6))) if settings.read_up_to else newest


def seconds_between(start: Column, end: Column) -> Column:
    """Return the time from `start` to `end` in seconds."""
    return (sql.unix_micros(end) - sql.unix_micros(start)) / sql.lit(1e6)


def rate(count: Column, seconds: Column) -> Column:
    """Return a number for each second, with one decimal digit, or four of a rate below one."""
    exact = count / seconds
    return sql.when(exact < 1, sql.round(exact, 4)).otherwise(sql.round(exact, 1))


def percent(part: Column, whole: Column) -> Column:
    """Return a part of a whole in percent, with one decimal digit."""
    return sql.round(part * sql.lit(100.0) / whole, 1)


_SHOWN: Final[Mapping[str, Callable[[str], Column]]] = {
    # Python would convert a time to the time zone of the machine, without saying so.
    "timestamp": lambda name: sql.date_format(name, "yyyy-MM-dd HH:mm:ss"),
    "date": lambda name: sql.date_format(name, "yyyy-MM-dd"),
    "binary": lambda name: sql.decode(sql.col(name), "UTF-8"),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """The first rows of a table as texts and numbers."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool  # whether the table has more rows
    numbers: frozenset[str]  # the columns that are numbers

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def rows_of(frame: DataFrame, limit: int) -> Rows:
    """Compute the first rows of a frame."""
    kinds = {column.name: column.dataType.typeName() for column in frame.schema.fields}
    shown = [_SHOWN.get(kind, sql.col)(name).alias(name) for name, kind in kinds.items()]
    found = frame.select(*shown).limit(limit + 1).collect()
    numbers = frozenset(name for name, kind in kinds.items() if kind in ("long", "integer", "double", "float"))
    return Rows(list(kinds), [list(row) for row in found[:limit]], len(found) > limit, numbers)
