"""Decoders for bodies: functions from tables of messages to tables with typed columns.

    zrelog(frame)               the stream `zrelog`: the logs of the nodes of a mesh
    mcollective(frame)          the stream `mcollective`: requests and replies of a fleet
    json_bodies(frame, schema)  bodies that are JSON
    avro_bodies(frame, schema)  bodies that are Avro

All decoders work on whole columns, for batch and streaming tables. A body that is not valid gives nulls in its columns,
and its row stays, so that invalid bodies can be counted. Spark's own functions decode where they can, because Spark
then computes only the columns that a query uses; numpy does the rest.
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
from zambezi.spark.columns import Array, Numbers, Octets, spans_to_array
from zambezi.spark.errors import SchemaError
from zambezi.zre.log import Level, What

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TEXT: Final = 19  # the position of the text in a LOG, counted from 1 as in SQL
MCOLLECTIVE: Final = "struct<sender:binary,headers:map<string,string>,content:array<binary>>"


def zrelog(frame: DataFrame) -> DataFrame:
    """Decode logs of a mesh: replace `body` by level, event, node, peer, time and text.

    `node` and `peer` are hashes of UUIDs, 2 bytes in hex as in the routing key; different nodes can have the same hash.
    `peer` is null if the event has no peer. `time` is from the node's own clock.
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
    return _replace_body(
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
    """Decode requests and replies: replace `body` by topic, sender, reply_to, headers and content.

    `sender` is the identity of the connection that sent the message. `content` is the list of frames after the headers,
    usually one; its format is up to the application.
    """
    decoded = _column_function(mcollective_column, MCOLLECTIVE)(_body(frame))
    return _replace_body(
        frame.withColumn("_decoded", decoded),
        {
            "topic": sql.col("_decoded.headers").getItem("TOPIC"),
            "sender": sql.col("_decoded.sender"),
            "reply_to": sql.col("_decoded.headers").getItem("X-REPLY-TO"),
            "headers": sql.col("_decoded.headers"),
            "content": sql.col("_decoded.content"),
        },
        "_decoded",
    )


def json_bodies(frame: DataFrame, schema: StructType | str, into: str = "value") -> DataFrame:
    """Decode JSON objects: replace `body` by a column `into`, a struct with the schema (StructType or DDL)."""
    text = sql.decode(_body(frame), "UTF-8")
    return _replace_body(frame, {into: sql.from_json(text, schema)})


def avro_bodies(frame: DataFrame, schema: str, into: str = "value", skip: int = 0, framing: str = "none") -> DataFrame:
    """Decode the binary encoding of Avro: replace `body` by a column `into` with the schema (JSON).

    `framing` says what is before the value: "none", "confluent" (a zero byte, and the number of a schema in a registry,
    which is not looked up) or "single-object" (a marker, and the fingerprint of the schema). A body that begins
    differently, or has the fingerprint of another schema, gives null. The first `skip` bytes of each body, before the
    framing, are ignored.

    Records become structs. A union with null becomes a nullable type. In a union, int and long become one bigint, float
    and double one double; other unions become a struct of member0, member1, ..., as in Spark's `from_avro`. The schema
    must be the one that the bodies were written with. Recursive types cannot be columns.
    """
    reader = Avro(schema, skip, framing)
    return _replace_body(frame, {into: _column_function(reader.column, reader.ddl)(_body(frame))})


def _body(frame: DataFrame) -> Column:
    if "body" not in frame.columns:
        raise SchemaError(f"there is no column 'body' to decode: the columns are {', '.join(frame.columns)}")
    return sql.col("body")


def _replace_body(frame: DataFrame, columns: dict[str, Column], *dropped: str) -> DataFrame:
    kept = [sql.col(name) for name in frame.columns if name not in ("body", *dropped, *columns)]
    return frame.select(*kept, *[column.alias(name) for name, column in columns.items()])


def _column_function(decode: Callable[[Array], Array], kind: str) -> Callable[[Column], Column]:
    """Return a function on Spark columns from a function on Arrow arrays."""

    def on_arrays(bodies: pa.Array) -> pa.Array:  # Spark reads these types
        return decode(bodies)

    return arrow_udf(on_arrays, kind)  # type: ignore[call-overload,no-any-return]


def _number(body: Column, position: int, size: int) -> Column:
    """Return a big-endian number in a body, at a position counted from 1."""
    return sql.conv(sql.hex(sql.substring(body, position, size)), 16, 10).cast("long")


def _name(number: Column, names: type[Level] | type[What]) -> Column:
    name = sql.when(sql.lit(False), sql.lit(""))
    for member in names:
        name = name.when(number == member.value, sql.lit(member.name))
    return name


# MCollective, without Spark


def mcollective_column(bodies: Array) -> Array:
    """Decode bodies of the stream `mcollective` into structs of sender, headers and content; null if invalid.

    A body is a list of strings with 4-byte lengths: the sender's identity, then the frames of a message. These are the
    verb (MESSAGE), pairs of a header and its value, an empty frame, and the content. All bodies are decoded at once,
    string by string: step 0 is the first string of every body, and so on.
    """
    octets, bounds = _buffers(bodies)
    begins, ends, is_whole = _long_strings(octets, bounds)
    count = len(bodies)
    steps = len(begins)
    empty = bounds[:-1]  # an empty span for each body
    # The first empty frame in the position of a header name ends the headers.
    delimiter = np.full(count, steps, np.int64)
    for step in range(steps - 1, 1, -1):
        if step % 2 == 0:
            delimiter[(begins[step] >= 0) & (begins[step] == ends[step])] = step
    is_message = is_whole & (delimiter < steps)
    if steps > 1:
        verbs = spans_to_array(octets, np.maximum(begins[1], empty), np.maximum(ends[1], empty), pa.binary())
        is_message &= pc.equal(verbs, MESSAGE).to_numpy(zero_copy_only=False)

    def column(step: int, kind: Any) -> Array:
        if step >= steps:
            return pa.nulls(count, kind)
        is_present = is_message & (begins[step] >= 0)
        return spans_to_array(
            octets, np.where(is_present, begins[step], empty), np.where(is_present, ends[step], empty), kind
        )

    pairs = list(range(2, steps - 1, 2))
    keys, key_rows = _gather(octets, begins, ends, pairs, lambda step: is_message & (step < delimiter), pa.string())
    values, _ = _gather(
        octets,
        begins,
        ends,
        [step + 1 for step in pairs],
        lambda step: is_message & (step - 1 < delimiter),
        pa.string(),
    )
    contents, content_rows = _gather(
        octets, begins, ends, list(range(3, steps)), lambda step: is_message & (step > delimiter), pa.binary()
    )
    headers = pa.MapArray.from_arrays(_offsets(key_rows, count), keys, values)
    content = pa.ListArray.from_arrays(_offsets(content_rows, count), contents)
    return pa.StructArray.from_arrays(
        [column(0, pa.binary()), headers, content],
        names=["sender", "headers", "content"],
        mask=pa.array(~is_message),
    )


def _buffers(column: Array) -> tuple[Octets, Numbers]:
    """Return the bytes of a binary column, and where each element begins, and finally where the last one ends."""
    _, offsets, values = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    octets = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
    return octets, bounds


def _long_strings(octets: Octets, bounds: Numbers) -> tuple[list[Numbers], list[Numbers], Any]:
    """Return where the strings of each element begin and end, step by step (-1 after the last string), and which
    elements consist of complete strings."""
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


def _gather(
    octets: Octets, begins: list[Numbers], ends: list[Numbers], steps: list[int], is_wanted: Any, kind: Any
) -> tuple[Array, Numbers]:
    """Return the strings of some steps, in the order of the rows, and the row of each."""
    rows = [np.flatnonzero(is_wanted(step) & (begins[step] >= 0)) for step in steps]
    if not rows:
        return pa.array([], kind), np.empty(0, np.int64)
    row = np.concatenate(rows)
    begin = np.concatenate([begins[step][some] for step, some in zip(steps, rows, strict=True)])
    end = np.concatenate([ends[step][some] for step, some in zip(steps, rows, strict=True)])
    order = np.argsort(begin, kind="stable")  # by row, and by step within a row
    return spans_to_array(octets, begin[order], end[order], kind), row[order]


def _offsets(rows: Numbers, count: int) -> Array:
    return pa.array(np.searchsorted(rows, np.arange(count + 1)).astype(np.int32))
