"""Small tables to try pipelines on: messages as the source gives them, made here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from struct import pack
from typing import TYPE_CHECKING, Any

from zambezi.spark.pipelines.pipeline import Cache
from zambezi.spark.source import SCHEMA
from zambezi.zre.log import Level, Log, What

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = 1_700_049_600  # 2023-11-15 12:00 UTC, in seconds since 1970
Row = tuple[str, int, float, str, bytes, str]


def at(seconds: float) -> datetime:
    """A time, so many seconds after noon."""
    return datetime.fromtimestamp(NOON + seconds, UTC)


def messages(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """Messages; the time of a row is in seconds after noon."""
    made = [(stream, number, at(when), key, body, mark) for stream, number, when, key, body, mark in rows]
    return spark.createDataFrame(made, SCHEMA)


def stream(rows: Sequence[tuple[float, str, bytes]], name: str = "s", first: int = 1) -> list[Row]:
    """Rows of one stream, with consecutive sequences."""
    return [(name, first + place, when, key, body, "one") for place, (when, key, body) in enumerate(rows)]


def log(
    event: What, node: int, peer: int, when: float, text: str = "", level: Level = Level.INFO
) -> tuple[float, str, bytes]:
    """A log of a node, as it is in the journal."""
    body = Log(level, event, node, peer, round((NOON + when) * 1000), text).encode()[0]
    return when, f"{level.name}.{event.name}.{node:04x}", body


def fleet(
    topic: str, content: dict[str, Any] | bytes, when: float, sender: bytes = b"someone"
) -> tuple[float, str, bytes]:
    """A message of a fleet, as it is in the journal."""
    told = content if isinstance(content, bytes) else json.dumps({"zambezi": 1, **content}).encode()
    frames = (sender, b"MESSAGE", b"TOPIC", topic.encode(), b"", told)
    return when, topic, b"".join(pack(">I", len(frame)) + frame for frame in frames)


def table(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a frame, some columns of it, in its order."""
    return [tuple(row) for row in frame.select(*(columns or frame.columns)).collect()]


@contextmanager
def caching() -> Iterator[Cache]:
    """Give the function with which reports share tables, as a run gives it. The tables are freed at the end."""
    held: list[DataFrame] = []

    def cache(frame: DataFrame) -> DataFrame:
        held.append(frame.persist())
        return held[-1]

    yield cache
    for frame in held:
        frame.unpersist()
