"""Decoders for bodies: functions from tables of messages to tables with typed columns.

    zrelog(frame)               the stream `zrelog`: the logs of the nodes of a mesh
    mcollective(frame)          the stream `mcollective`: requests and replies of a fleet
    ruby_envelopes(frame)       its content, if Ruby programs wrote it
    json_bodies(frame, schema)  bodies that are JSON
    avro_bodies(frame, schema)  bodies that are Avro

All decoders work on whole columns, for batch and streaming tables. A body that is not valid gives nulls in its columns,
and its row stays, so that invalid bodies can be counted. Text that is not UTF-8 gets replacement characters: Spark's
`decode` would end the query. Spark's own functions decode where they can, because Spark then computes only the columns
that a query uses; numpy does the rest, and Python reads the envelopes of Ruby programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]  # noqa: TC002 - Spark reads annotations at run time
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from zambezi.mcollective.ruby.marshal import VERSION
from zambezi.mcollective.ruby.yaml import START
from zambezi.spark.avro import Avro
from zambezi.spark.columns import Array
from zambezi.spark.errors import SchemaError
from zambezi.spark.fleet_columns import ENVELOPES, MESSAGES, envelope_column, message_column
from zambezi.zre.log import Level, What

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LAST_MILLIS: Final = 253_402_300_799_999  # the end of the year 9999, in milliseconds since 1970
_TEXT: Final = 19  # the position of the text in a LOG, counted from 1 as in SQL


def zrelog(frame: DataFrame) -> DataFrame:
    """Decode logs of a mesh: replace `body` by level, event, node, peer, time and text.

    `node` and `peer` are hashes of UUIDs, 2 bytes in hex as in the routing key; different nodes can have the same hash.
    `peer` is null if the event has no peer. `time` is from the node's own clock; it is null after the year 9999.
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
    millis = _number(body, 10, 8)
    return _replace_body(
        frame,
        {
            "level": sql.when(is_log, level),
            "event": sql.when(is_log, event),
            "node": sql.when(is_log, sql.lower(sql.hex(sql.substring(body, 6, 2)))),
            "peer": sql.when(is_log & (peer != "0000"), peer),
            "time": sql.when(is_log, sql.timestamp_millis(sql.when(millis <= _LAST_MILLIS, millis))),
            "text": sql.when(is_log, text_of(sql.substring(body, _TEXT, 255))),
        },
    )


def mcollective(frame: DataFrame) -> DataFrame:
    """Decode requests and replies: replace `body` by topic, sender, reply_to, headers and content.

    `sender` is the identity of the connection that sent the message. `content` is the list of frames after the headers,
    usually one; its format is up to the application.
    """
    decoded = _column_function(message_column, MESSAGES)(_body(frame))
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


def ruby_envelopes(frame: DataFrame, into: str = "envelope") -> DataFrame:
    """Read the content of messages that Ruby programs wrote: add a column `into` to the columns of `mcollective`.

    It is a struct of format ("marshal" or "yaml"), kind ("request" or "reply"), id, agent, sender, time, is_encrypted,
    caller, collective, ttl, filter, action, wants_reply, status and error. It is null for other content. The standard
    security plugins are known: psk, ssl, and of aes_security the envelope. No signature is checked: the fields are what
    the message says.
    """
    if "content" not in frame.columns:
        raise SchemaError(f"there is no column 'content' to read: the columns are {', '.join(frame.columns)}")
    content = sql.get("content", sql.lit(0))
    is_ruby = sql.startswith(content, sql.lit(VERSION)) | sql.startswith(content, sql.lit(START))
    # Only content that begins like Ruby's goes to Python.
    return frame.withColumn(into, _column_function(envelope_column, ENVELOPES)(sql.when(is_ruby, content)))


def json_bodies(frame: DataFrame, schema: StructType | str, into: str = "value") -> DataFrame:
    """Decode JSON objects: replace `body` by a column `into`, a struct with the schema (StructType or DDL)."""
    return _replace_body(frame, {into: sql.from_json(text_of(_body(frame)), schema)})


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


def text_of(octets: Column) -> Column:
    """Return bytes, or text that was not checked, as text: with a replacement character where it is not UTF-8."""
    return sql.make_valid_utf8(octets.cast("string"))


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
    """Return a big-endian number in a body, at a position counted from 1; null from 2**63 on."""
    return sql.conv(sql.hex(sql.substring(body, position, size)), 16, 10).try_cast("long")


def _name(number: Column, names: type[Level] | type[What]) -> Column:
    name = sql.when(sql.lit(False), sql.lit(""))
    for member in names:
        name = name.when(number == member.value, sql.lit(member.name))
    return name
