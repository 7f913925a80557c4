"""zambezi.spark.decoders: logs of a mesh, messages of a fleet and JSON; invalid bodies become null."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from struct import pack
from typing import TYPE_CHECKING

import pytest

from tests.interop.ruby_bodies import BODIES
from zambezi.spark.decoders import json_bodies, mcollective, ruby_envelopes, zrelog
from zambezi.spark.errors import SchemaError
from zambezi.zre.log import Level, Log, What

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
INVALID = (b"", b"\xaa", b"no log", bytes(40))


def fleet_body(sender: bytes, *frames: bytes) -> bytes:
    """Return a body of the stream `mcollective`."""
    return b"".join(pack(">I", len(part)) + part for part in (sender, *frames))


def messages(spark: SparkSession, bodies: Sequence[bytes | None], key: str = "k") -> DataFrame:
    rows = [(number, key, body) for number, body in enumerate(bodies)]
    return spark.createDataFrame(rows, "sequence long, key string, body binary")


def test_logs_of_a_mesh(spark: SparkSession) -> None:
    when = int(NOON.timestamp() * 1000) + 7
    logs = [
        Log(Level.INFO, What.JOIN, 0x00A7, 0, when, "grüße").encode()[0],
        Log(Level.ERROR, What.RECV, 0xFFFF, 0x0102, 0, "").encode()[0],
        Log(Level.INFO, What.JOIN, 1, 0, when, "x" * 255).encode()[0],
    ]
    invalid = [
        *INVALID,
        logs[0][:-1],
        logs[0] + b"x",
        logs[0][:3] + b"\4" + logs[0][4:],
        logs[0][:4] + b"\7" + logs[0][5:],
    ]
    frame = zrelog(messages(spark, [*logs, *invalid]))
    assert frame.columns == ["sequence", "key", "level", "event", "node", "peer", "time", "text"]
    found = [tuple(row)[2:] for row in frame.orderBy("sequence").collect()]
    assert found[0][:4] == ("INFO", "JOIN", "00a7", None)
    assert found[0][5] == "grüße"
    assert found[1][:4] == ("ERROR", "RECV", "ffff", "0102")
    assert found[2][5] == "x" * 255
    assert found[3:] == [(None,) * 6] * len(invalid)
    [(time,)] = frame.where("sequence = 0").selectExpr("unix_micros(time)").collect()
    assert time == when * 1000


def test_times_that_no_calendar_has_are_null(spark: SparkSession) -> None:
    times = (0, 253_402_300_799_999, 253_402_300_800_000, 1 << 62, (1 << 64) - 1)
    logs = [Log(Level.INFO, What.JOIN, 1, 0, time, "x").encode()[0] for time in times]
    found = zrelog(messages(spark, logs)).orderBy("sequence").selectExpr("unix_millis(time)", "text").collect()
    assert [tuple(row) for row in found] == [(0, "x"), (253_402_300_799_999, "x"), *[(None, "x")] * 3]


def test_requests_of_a_fleet(spark: SparkSession) -> None:
    body = fleet_body(b"ann", b"MESSAGE", b"TOPIC", b"jobs", b"X-REPLY-TO", b"reply ann", b"", b"paint")
    frame = mcollective(messages(spark, [body, b"none", None]))
    assert frame.columns == ["sequence", "key", "topic", "sender", "reply_to", "headers", "content"]
    first, *others = [tuple(row)[2:] for row in frame.orderBy("sequence").collect()]
    assert first == ("jobs", b"ann", "reply ann", {"TOPIC": "jobs", "X-REPLY-TO": "reply ann"}, [b"paint"])
    assert others == [(None,) * 5] * 2


def test_envelopes_of_ruby_programs(spark: SparkSession) -> None:
    contents = [BODIES["ssl marshal request"], b"\x04\x08no", b'{"zambezi": 1}', b"\xff"]
    bodies = [fleet_body(b"ann", b"MESSAGE", b"TOPIC", b"jobs", b"", each) for each in contents]
    bodies.append(fleet_body(b"ann", b"MESSAGE", b"TOPIC", b"jobs", b""))  # without content
    frame = ruby_envelopes(mcollective(messages(spark, [*bodies, None])))
    assert frame.columns[-2:] == ["content", "envelope"]
    first, *others = [row.envelope for row in frame.orderBy("sequence").collect()]
    assert (first.kind, first.caller, first.action) == ("request", "cert=ann", "get_fact")
    assert first.time.timestamp() == 1_700_049_600
    assert others == [None] * 5


def test_text_that_is_not_utf8_is_replaced(spark: SparkSession) -> None:
    log = Log(Level.INFO, What.JOIN, 1, 0, 0, "x?").encode()[0].replace(b"x?", b"x\xff")
    [(text,)] = zrelog(messages(spark, [log])).select("text").collect()
    assert text == "x\ufffd"
    [(value,)] = json_bodies(messages(spark, [b'{"b": "\xe9"}']), "b string").select("value.b").collect()
    assert value == "\ufffd"
    topic = fleet_body(b"ann\xff", b"MESSAGE", b"TOPIC", b"jobs\xff", b"\xfe", b"\xfd", b"", b"paint")
    [(found, headers)] = mcollective(messages(spark, [topic])).select("topic", "headers").collect()
    assert (found, headers) == ("jobs\ufffd", {"TOPIC": "jobs\ufffd", "\ufffd": "\ufffd"})


def test_json_bodies(spark: SparkSession) -> None:
    texts = messages(spark, [b'{"a": 1, "b": "x"}', b"no json"])
    [first, second] = json_bodies(texts, "a int, b string").orderBy("sequence").collect()
    assert (first.value.a, first.value.b) == (1, "x")
    assert second.value is None or second.value.a is None


def test_a_table_without_bodies(spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match="no column 'body' to decode"):
        zrelog(spark.range(3).toDF("key"))
    with pytest.raises(SchemaError, match="no column 'content' to read"):
        ruby_envelopes(spark.range(3).toDF("key"))
