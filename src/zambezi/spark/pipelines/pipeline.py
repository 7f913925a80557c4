"""What a pipeline is: three functions from tables to tables, and a name.

    messages --prepare--> events --reduce--> a table, which grows by what each batch adds --reports--> tables for people

`prepare` decodes messages, row by row. `reduce` makes of events what is kept, as Parquet: sums by window, or the events
as they are. It is applied to each batch by itself, be that all there is, what came since the last run, or the last ten
seconds. So its sums are parts: whoever reads the table adds up what has the same window and key. That is the whole
secret of doing batch and streaming alike: there is no state between batches that could be lost, none that grows, and
what comes late is added to the window that it belongs to. Spark's own way, sums that it holds until a watermark passes,
gives each row once; but it shows nothing of the newest windows, never closes the last one of a stream that falls
silent, and drops what comes too late. Here the watermark says which windows may still grow, and what comes later than
it allows is counted, and kept all the same.

`reports` makes of the table what people look at. It is always a batch, over a table that is small beside the messages.
What several of its tables are made of goes through `share`, which may have it computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql


@dataclass(frozen=True, slots=True)
class Settings:
    """What people can choose. Times are in seconds."""

    window: float = 60.0  # how long a window is
    depth: int = 1  # parts of a key that make its prefix
    top: int = 20  # rows of a list of the greatest
    delay: float = 600.0  # how late events may come; and a clock may be wrong by half of it
    flaps: int = 3  # comings of a peer, within `flapping`, that make it a flapping one
    flapping: float = 600.0
    patience: float = 60.0  # a node that has not answered for so long has not answered
    read_up_to: float = 0.0  # all that was journalled before has been read, in seconds since 1970; 0: nobody knows


@dataclass(frozen=True, slots=True)
class Report:
    """A small table for people. `notes` are what a reader must know to read it right."""

    name: str
    title: str
    frame: DataFrame
    notes: tuple[str, ...] = ()


Share: TypeAlias = Callable[[DataFrame], DataFrame]


def unshared(frame: DataFrame) -> DataFrame:
    """Each who uses it computes it."""
    return frame


class Reports(Protocol):
    """Makes of a table what people look at."""

    def __call__(self, table: DataFrame, settings: Settings, share: Share = unshared) -> Sequence[Report]: ...


def as_they_are(messages: DataFrame, settings: Settings) -> DataFrame:  # noqa: ARG001 - the signature of `prepare`
    """Messages that need no decoding."""
    return messages


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline."""

    name: str
    summary: str
    reduce: Callable[[DataFrame, Settings], DataFrame]
    reports: Reports
    columns: str  # the schema of the table, as DDL, without what its directories are
    prepare: Callable[[DataFrame, Settings], DataFrame] = as_they_are
    directories: tuple[str, ...] = ("date",)
    table: str = ""  # where the table is, in the directory of results: there, if nothing is said
    streams: Mapping[str, str] = field(default_factory=dict)  # options that choose them, if the user does not
    time: str = "timestamp"  # the column of the events that the watermark is of
    windowed: bool = False  # whether its rows are sums by window
    incremental: bool = False  # whether a run goes on where the last one ended, without being told
    live: bool = True  # whether its table is small enough to report on after every batch

    @property
    def schema(self) -> str:
        """The schema of the table. It is given to whoever reads it: a stream called 42 is no number."""
        return f"{self.columns}, {', '.join(f'{name} {_KINDS[name]}' for name in self.directories)}"


_KINDS: Final = {"date": "date", "stream": "string"}


def start_of(time: Column, seconds: float) -> Column:
    """When the window begins that a time is in."""
    length = max(1, round(seconds * 1_000_000))
    micros = sql.unix_micros(time)
    return sql.timestamp_micros(micros - sql.pmod(micros, sql.lit(length)))


def seconds_between(start: Column, end: Column) -> Column:
    """How long it is from one time to another."""
    return (sql.unix_micros(end) - sql.unix_micros(start)) / sql.lit(1e6)


def share(part: Column, whole: Column) -> Column:
    """A part of a whole in percent, with one digit."""
    return sql.round(part * sql.lit(100.0) / whole, 1)


_SHOWN: Final[Mapping[str, Callable[[str], Column]]] = {
    # What Python makes of a time is in the zone of the machine, and does not say so.
    "timestamp": lambda name: sql.date_format(name, "yyyy-MM-dd HH:mm:ss"),
    "date": lambda name: sql.date_format(name, "yyyy-MM-dd"),
    "binary": lambda name: sql.decode(sql.col(name), "UTF-8"),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """The first rows of a table as texts and numbers."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool  # whether there are others
    numbers: frozenset[str]  # columns that are numbers


def rows_of(frame: DataFrame, most: int) -> Rows:
    """The first rows of a frame."""
    kinds = {column.name: column.dataType.typeName() for column in frame.schema.fields}
    shown = [_SHOWN.get(kind, sql.col)(name).alias(name) for name, kind in kinds.items()]
    found = frame.select(*shown).limit(most + 1).collect()
    numbers = frozenset(name for name, kind in kinds.items() if kind in ("long", "integer", "double", "float"))
    return Rows(list(kinds), [list(row) for row in found[:most]], len(found) > most, numbers)
