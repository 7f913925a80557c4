"""zambezi.spark.decoders: logs of a mesh, messages of a fleet and JSON; invalid bodies become null."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from struct import pack
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.spark.decoders import json_bodies, mcollective, mcollective_column, zrelog
from zambezi.spark.errors import SchemaError
from zambezi.zre.log import Level, Log, What

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
INVALID = (b"", b"\xaa", b"no log", bytes(40))


def column(bodies: Sequence[bytes | None]) -> Any:
    return pa.array(bodies, pa.binary())


def fleet_body(sender: bytes, *frames: bytes) -> bytes:
    """Return a body of the stream `mcollective`."""
    return b"".join(pack(">I", len(part)) + part for part in (sender, *frames))


def headers(**pairs: bytes) -> list[bytes]:
    return [part for name, value in pairs.items() for part in (name.encode(), value)]


# MCollective


def test_a_request_is_decoded() -> None:
    body = fleet_body(b"ann\xff", b"MESSAGE", b"TOPIC", b"jobs", b"X-REPLY-TO", b"reply ann", b"", b"paint", b"twice")
    [found] = mcollective_column(column([body])).to_pylist()
    assert found == {
        "sender": b"ann\xff",
        "headers": [("TOPIC", "jobs"), ("X-REPLY-TO", "reply ann")],
        "content": [b"paint", b"twice"],
    }


frame = st.binary(min_size=1, max_size=20)
text = st.text(min_size=1, max_size=8).map(str.encode)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=20),
            st.lists(st.tuples(text, text), max_size=4, unique_by=lambda pair: pair[0]),
            st.lists(frame, max_size=3),
        ),
        max_size=20,
    ),
    st.data(),
)
def test_invalid_bodies_do_not_disturb_others(messages: list[Any], data: st.DataObject) -> None:
    bodies: list[bytes | None] = []
    expected: list[Any] = []
    for sender, pairs, content in messages:
        if data.draw(st.booleans()):
            bodies.append(
                data.draw(
                    st.sampled_from([None, *INVALID, fleet_body(b"a"), fleet_body(b"a", b"MESSAGE", b"TOPIC", b"t")])
                )
            )
            expected.append(None)
        bodies.append(fleet_body(sender, b"MESSAGE", *[part for pair in pairs for part in pair], b"", *content))
        expected.append(
            {
                "sender": sender,
                "headers": [(key.decode(), value.decode()) for key, value in pairs],
                "content": content,
            }
        )
    made = mcollective_column(column(bodies))
    made.validate(full=True)
    assert made.to_pylist() == expected


@given(st.binary(max_size=60))
def test_random_bytes_do_no_harm(body: bytes) -> None:
    mcollective_column(column([body, fleet_body(b"a", b"MESSAGE", b""), body])).validate(full=True)


def test_a_slice_of_bodies() -> None:
    bodies = column([fleet_body(b"a", b"MESSAGE", b"", b"1"), fleet_body(b"b", b"MESSAGE", b"", b"2"), b"x"]).slice(
        1, 1
    )
    assert [found["sender"] for found in mcollective_column(bodies).to_pylist()] == [b"b"]


# In Spark


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


def test_requests_of_a_fleet(spark: SparkSession) -> None:
    body = fleet_body(b"ann", b"MESSAGE", b"TOPIC", b"jobs", b"X-REPLY-TO", b"reply ann", b"", b"paint")
    frame = mcollective(messages(spark, [body, b"none", None]))
    assert frame.columns == ["sequence", "key", "topic", "sender", "reply_to", "headers", "content"]
    first, *others = [tuple(row)[2:] for row in frame.orderBy("sequence").collect()]
    assert first == ("jobs", b"ann", "reply ann", {"TOPIC": "jobs", "X-REPLY-TO": "reply ann"}, [b"paint"])
    assert others == [(None,) * 5] * 2


def test_json_bodies(spark: SparkSession) -> None:
    texts = messages(spark, [b'{"a": 1, "b": "x"}', b"no json"])
    [first, second] = json_bodies(texts, "a int, b string").orderBy("sequence").collect()
    assert (first.value.a, first.value.b) == (1, "x")
    assert second.value is None or second.value.a is None


def test_a_table_without_bodies(spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match="no column 'body' to decode"):
        zrelog(spark.range(3).toDF("key"))
