"""What is in the bodies: functions from tables of messages to tables with typed columns.

    zrelog(frame)               the stream `zrelog`: what nodes of a mesh report
    mcollective(frame)          the stream `mcollective`: requests and replies of a fleet
    json_bodies(frame, schema)  bodies that are JSON
    avro_bodies(frame, schema)  bodies that are Avro

All work on whole columns, on batch and streaming tables alike. A body that is not what it should be gives nulls in the
columns that would have come out of it, and its row stays: what does not fit can be counted. What Spark can do by itself
is left to it, so that it computes only the columns that are used; the rest is numpy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from zambezi.mcollective.messages import MESSAGE
from zambezi.spark.avro import Avro
from zambezi.spark.columns import Array, Numbers, Octets, slices
from zambezi.spark.errors import SchemaError
from zambezi.zre.log import Level, What

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT: Final = 19  # where the text begins in a LOG, counted from 1 as SQL does
MCOLLECTIVE: Final = "struct<sender:binary,headers:map<string,string>,content:array<binary>>"


def zrelog(frame: DataFrame) -> DataFrame:
    """Logs of a mesh: `body` becomes level, event, node, peer, time and text.

    `node` and `peer` are the hashes of 2 octets that stand for UUIDs, in hex as in the routing key: different nodes may
    have the same. `peer` is null where there is none. `time` is the node's own clock.
    """
    body = _body(frame)
    is_log = (
        (sql.substring(body, 1, 3) == sql.lit(bytes.fromhex("aaa201")))
        & (sql.length(body) >= _TEXT - 1)
        & (sql.length(body) == _number(body, 18, 1) + (_TEXT - 1))
    )
    level, event = _name(_number(body, 4, 1), Level), _name(_number(body, 5, 1), What)
    is_log &= level.isNotNull() & event.isNotNull()
    peer = sql.lower(sql.hex(sql.substring(body, 8, 2)))
    return _instead_of_body(
        frame,
        {
            "level": sql.when(is_log, level),
            "event": sql.when(is_log, event),
            "node": sql.when(is_log, sql.lower(sql.hex(sql.substring(body, 6, 2)))),
            "peer": sql.when(is_log & (peer != "0000"), peer),
            "time": sql.when(is_log, sql.timestamp_millis(_number(body, 10, 8))),
            "text": sql.when(is_log, sql.decode(sql.substring(body, _TEXT, 255), "UTF-8")),
        },
    )


def mcollective(frame: DataFrame) -> DataFrame:
    """Requests and replies: `body` becomes topic, sender, reply_to, headers and content.

    `sender` is the identity of the connection that sent it; `content` is the list of frames after the headers, one as a
    rule, in whatever form the application has.
    """
    found = _column_function(mcollective_column, MCOLLECTIVE)(_body(frame))
    return _instead_of_body(
        frame.withColumn("_found", found),
        {
            "topic": sql.col("_found.headers").getItem("TOPIC"),
            "sender": sql.col("_found.sender"),
            "reply_to": sql.col("_found.headers").getItem("X-REPLY-TO"),
            "headers": sql.col("_found.headers"),
            "content": sql.col("_found.content"),
        },
        "_found",
    )


def json_bodies(frame: DataFrame, schema: StructType | str, into: str = "value") -> DataFrame:
    """Bodies that are JSON objects: a column `into`, a struct by the schema (StructType or DDL), instead of `body`."""
    text = sql.decode(_body(frame), "UTF-8")
    return _instead_of_body(frame, {into: sql.from_json(text, schema)})


def avro_bodies(frame: DataFrame, schema: str, into: str = "value", skip: int = 0, framing: str = "none") -> DataFrame:
    """Bodies that are Avro in its binary encoding: a column `into`, by the schema (JSON), instead of `body`.

    `framing` says what is before the value: "none", "confluent" (a zero, and the number of a schema in a registry, of
    which none is asked: the schema must be the right one) or "single-object" (a mark, and the fingerprint of the
    schema). A body that begins with something else, or has the fingerprint of another schema, gives null. `skip` octets
    before all this are left out, whatever they are.

    Records are structs. A union with null is what may be null; int and long in a union are one bigint, float and double
    one double, and other types in a union are a struct of member0, member1, ..., as in Spark's `from_avro`. The
    schema is the one that the bodies were written with; types that have themselves in them cannot be columns.
    """
    reader = Avro(schema, skip, framing)
    return _instead_of_body(frame, {into: _column_function(reader.column, reader.ddl)(_body(frame))})


def _body(frame: DataFrame) -> Column:
    if "body" not in frame.columns:
        raise SchemaError(f"there is no column 'body' to decode, only {', '.join(frame.columns)}")
    return sql.col("body")


def _instead_of_body(frame: DataFrame, columns: dict[str, Column], *left_out: str) -> DataFrame:
    kept = [sql.col(name) for name in frame.columns if name not in ("body", *left_out, *columns)]
    return frame.select(*kept, *[column.alias(name) for name, column in columns.items()])


def _column_function(decode: Callable[[Array], Array], kind: str) -> Callable[[Column], Column]:
    """A function on Arrow arrays as one on columns."""

    def on_arrays(bodies: pa.Array) -> pa.Array:  # Spark goes by these types
        return decode(bodies)

    return arrow_udf(on_arrays, kind)  # type: ignore[call-overload,no-any-return]


def _number(body: Column, place: int, size: int) -> Column:
    """A big-endian number in a body, at a place counted from 1."""
    return sql.conv(sql.hex(sql.substring(body, place, size)), 16, 10).cast("long")


def _name(number: Column, names: type[Level] | type[What]) -> Column:
    chosen = sql.when(sql.lit(False), sql.lit(""))
    for member in names:
        chosen = chosen.when(number == member.value, sql.lit(member.name))
    return chosen


# MCollective, without Spark


def mcollective_column(bodies: Array) -> Array:
    """Bodies of the stream `mcollective` as structs of sender, headers and content; null for what is none.

    A body is many long strings: the sender's identity and the frames of a message, which are the verb (MESSAGE), pairs
    of a header and its value, an empty one, and the content. All bodies are walked at once, frame by frame.
    """
    octets, bounds = _buffers(bodies)
    begins, ends, is_whole = _long_strings(octets, bounds)
    count = len(bodies)
    steps = len(begins)
    nothing = bounds[:-1]
    # The first empty frame where a header should begin ends the headers.
    delimiter = np.full(count, steps, np.int64)
    for step in range(steps - 1, 1, -1):
        if step % 2 == 0:
            delimiter[(begins[step] >= 0) & (begins[step] == ends[step])] = step
    is_message = is_whole & (delimiter < steps)
    if steps > 1:
        verbs = slices(octets, np.maximum(begins[1], nothing), np.maximum(ends[1], nothing), pa.binary())
        is_message &= pc.equal(verbs, MESSAGE).to_numpy(zero_copy_only=False)

    def column(step: int, kind: Any) -> Array:
        if step >= steps:
            return pa.nulls(count, kind)
        there = is_message & (begins[step] >= 0)
        return slices(octets, np.where(there, begins[step], nothing), np.where(there, ends[step], nothing), kind)

    pairs = list(range(2, steps - 1, 2))
    keys, key_rows = _gathered(octets, begins, ends, pairs, lambda step: is_message & (step < delimiter), pa.string())
    values, _ = _gathered(
        octets,
        begins,
        ends,
        [step + 1 for step in pairs],
        lambda step: is_message & (step - 1 < delimiter),
        pa.string(),
    )
    rest, rest_rows = _gathered(
        octets, begins, ends, list(range(3, steps)), lambda step: is_message & (step > delimiter), pa.binary()
    )
    headers = pa.MapArray.from_arrays(_offsets(key_rows, count), keys, values)
    content = pa.ListArray.from_arrays(_offsets(rest_rows, count), rest)
    return pa.StructArray.from_arrays(
        [column(0, pa.binary()), headers, content],
        names=["sender", "headers", "content"],
        mask=pa.array(~is_message),
    )


def _buffers(column: Array) -> tuple[Octets, Numbers]:
    """The octets of a binary column, and where each element begins (in the end, where the last ends)."""
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    octets = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
    return octets, bounds


def _long_strings(octets: Octets, bounds: Numbers) -> tuple[list[Numbers], list[Numbers], Any]:
    """Where the long strings of each element begin and end, step by step (-1 where there is none any more)."""
    count = len(bounds) - 1
    begins: list[Numbers] = []
    ends: list[Numbers] = []
    position = bounds[:-1].copy()
    stops = bounds[1:]
    is_whole = stops > position
    rows = np.flatnonzero(is_whole)
    lengths = np.ndarray((max(0, len(octets) - 3),), ">u4", octets, 0, (1,)) if len(octets) > 3 else None
    while len(rows) and lengths is not None:
        begin = np.full(count, -1, np.int64)
        end = np.full(count, -1, np.int64)
        fits = position[rows] + 4 <= stops[rows]
        is_whole[rows[~fits]] = False
        rows = rows[fits]
        starts = position[rows] + 4
        after = starts + lengths[position[rows]]
        fits = after <= stops[rows]
        is_whole[rows[~fits]] = False
        rows, starts, after = rows[fits], starts[fits], after[fits]
        begin[rows], end[rows] = starts, after
        begins.append(begin)
        ends.append(end)
        position[rows] = after
        rows = rows[after < stops[rows]]
    return begins, ends, is_whole if lengths is not None else np.zeros(count, np.bool_)


def _gathered(
    octets: Octets, begins: list[Numbers], ends: list[Numbers], steps: list[int], wanted: Any, kind: Any
) -> tuple[Array, Numbers]:
    """The long strings of some steps, in the order of the rows, and the row of each."""
    rows = [np.flatnonzero(wanted(step) & (begins[step] >= 0)) for step in steps]
    if not rows:
        return pa.array([], kind), np.empty(0, np.int64)
    row = np.concatenate(rows)
    begin = np.concatenate([begins[step][some] for step, some in zip(steps, rows, strict=True)])
    end = np.concatenate([ends[step][some] for step, some in zip(steps, rows, strict=True)])
    order = np.argsort(begin, kind="stable")  # they stand in the order of the rows, and of the steps in each
    return slices(octets, begin[order], end[order], kind), row[order]


def _offsets(rows: Numbers, count: int) -> Array:
    return pa.array(np.searchsorted(rows, np.arange(count + 1)).astype(np.int32))
