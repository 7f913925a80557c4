"""Profiles of bodies, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from zambezi.spark.pipelines.body_profile import (
    MAX_BODY,
    MAX_FIELDS,
    MAX_VISITED,
    OTHER_FIELDS,
    Declaration,
    Profile,
    declaration_of,
    fields_of,
    mismatch,
    read_json,
)

JSON = Declaration("readings", "json")
AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "at", "type": "long"}]})
NAMES = ("start", "stream", "declared", "field", "kind", "good", "messages", "low", "high", "first", "last")
READING = StructType(
    [
        StructField("celsius", DoubleType(), False),
        StructField("room", StringType()),
        StructField("floor", IntegerType()),
        StructField("at", TimestampType()),
        StructField("tags", ArrayType(StringType())),
        StructField("more", MapType(StringType(), DoubleType())),
    ]
)


def batch(bodies: Sequence[bytes], stream: str = "readings", seconds: int = 0) -> Any:
    count = len(bodies)
    return pa.RecordBatch.from_pydict(
        {
            "stream": [stream] * count,
            "timestamp": pa.array([seconds * 1_000_000] * count, pa.timestamp("us", "UTC")),
            "sequence": range(1, count + 1),
            "key": ["k"] * count,
            "body": pa.array(bodies, pa.binary()),
        }
    )


def profiled(bodies: Sequence[bytes], *declared: Declaration, schema: StructType | None = None) -> list[dict[str, Any]]:
    profile = Profile(60_000_000, declared, {"s": schema} if schema else {})
    profile.add(batch(bodies))
    columns = (*NAMES, "sequence", "key", "example")
    return [dict(zip(columns, row, strict=True)) for row in profile.take()]


def kinds(rows: list[dict[str, Any]]) -> dict[str, tuple[bool | None, int]]:
    return {row["kind"]: (row["good"], row["messages"]) for row in rows if row["field"] == ""}


def test_bodies_that_are_not_as_declared_have_a_reason_and_an_example() -> None:
    rows = profiled([b'{"a": 1}', b"{oops", b"\xff", b"", b"NaN", b'{"a": 2}'], JSON)
    assert kinds(rows) == {"ok": (True, 2), "not JSON": (False, 2), "not UTF-8": (False, 1), "empty": (False, 1)}
    bad = next(row for row in rows if row["kind"] == "not JSON")
    assert (bad["sequence"], bad["key"], bad["example"]) == (2, "k", "{oops")


def test_bodies_without_a_declaration_are_described_and_not_judged() -> None:
    rows = profiled([b'{"a": 1}', b"hello", b"\xff", b""])
    assert kinds(rows) == {"json": (None, 1), "text": (None, 1), "binary": (None, 1), "empty": (None, 1)}


def test_fields_have_types_ranges_and_nulls() -> None:
    rows = profiled([b'{"a": 1, "b": null}', b'{"a": 2.5, "b": "y"}', b'{"a": -3, "b": "x", "c": [1, 2]}'], JSON)
    found = {(row["field"], row["kind"]): row for row in rows if row["field"]}
    assert (found["a", "integer"]["low"], found["a", "integer"]["high"]) == (-3, 1)
    assert found["a", "number"]["low"] == 2.5
    assert found["b", "null"]["messages"] == 1
    assert (found["b", "string"]["first"], found["b", "string"]["last"]) == ("x", "y")
    assert found["c", "array"]["high"] == 2
    assert found["c[]", "integer"]["messages"] == 2


def test_windows_are_apart() -> None:
    profile = Profile(60_000_000, (JSON,))
    profile.add(batch([b"1"], seconds=59))
    profile.add(batch([b"1"], seconds=60))
    assert sorted({row[0] for row in profile.take()}) == [0, 60_000_000]
    assert profile.take() == []


def test_avro_is_read_with_its_schema() -> None:
    rows = profiled([b"\x02", b"\x02\x02", b""], Declaration("*", "avro", AVRO))
    assert kinds(rows) == {"ok": (True, 1), "not Avro of this schema": (False, 2)}
    assert [(row["field"], row["high"]) for row in rows if row["field"]] == [("$", 1), ("at", 1)]


def test_a_time_beyond_the_last_year_ends_no_job() -> None:
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}],
        }
    )
    rows = profiled([b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"], Declaration("*", "avro", schema))
    assert kinds(rows) == {"ok": (True, 1)}


def test_text() -> None:
    assert kinds(profiled([b"a", b"\xff"], Declaration("*", "text"))) == {"ok": (True, 1), "not UTF-8": (False, 1)}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"celsius": 1}, ""),
        (
            {"celsius": 1.5, "room": "hall", "floor": 2, "at": "2026-01-01T00:00:00Z", "tags": ["a"], "more": {"x": 1}},
            "",
        ),
        ({"celsius": None}, "celsius is missing"),
        ({}, "celsius is missing"),
        ([], "the body is not an object"),
        ({"celsius": "1"}, "celsius is not a double"),
        ({"celsius": True}, "celsius is not a double"),
        ({"celsius": 1, "floor": 1 << 31}, "floor is not a int"),
        ({"celsius": 1, "floor": 1.5}, "floor is not a int"),
        ({"celsius": 1, "room": 7}, "room is not a string"),
        ({"celsius": 1, "at": "yesterday"}, "at is not a timestamp"),
        ({"celsius": 1, "tags": [None, 1]}, "tags[] is not a string"),
        ({"celsius": 1, "tags": {}}, "tags is not an array"),
        ({"celsius": 1, "more": {"x": "y"}}, "more.* is not a double"),
        ({"celsius": 1, "more": []}, "more is not an object"),
    ],
)
def test_a_value_is_compared_with_its_schema(body: Any, problem: str) -> None:
    assert mismatch(body, READING) == problem


def test_a_declared_schema_is_used() -> None:
    rows = profiled([b'{"celsius": 1}', b"{}"], Declaration("*", "json", "s"), schema=READING)
    assert kinds(rows) == {"ok": (True, 1), "celsius is missing": (False, 1)}


def test_the_first_declaration_that_covers_a_stream_counts() -> None:
    some = (Declaration("a.b", "text"), Declaration("a.*", "json"))
    assert declaration_of("a.b", some) == some[0]
    assert declaration_of("a.c", some) == some[1]
    assert declaration_of("b", some) is None


# Bodies of strangers


def test_a_body_nested_deeply_or_with_a_long_number_is_bad() -> None:
    assert read_json(b"[" * 200_000)[0] == "nested too deeply"
    assert read_json(b"9" * 10_000)[0] == "a number is too long"
    assert profiled([b"[" + b"9" * 400 + b"]"], JSON)  # too large for a float


def test_a_huge_body_is_not_parsed() -> None:
    assert kinds(profiled([b"1" * (MAX_BODY + 1)], JSON)) == {"not checked: above 8 MiB": (None, 1)}


def test_ten_thousand_fields_are_bounded() -> None:
    bodies = [json.dumps({f"<b>{place}.{number}": 1 for number in range(100)}).encode() for place in range(100)]
    rows = [row for row in profiled(bodies, JSON) if row["field"]]
    assert len(rows) <= MAX_FIELDS + 1
    assert sum(row["messages"] for row in rows if row["field"] == OTHER_FIELDS) == 10_001 - MAX_FIELDS
    assert len(list(fields_of({str(number): number for number in range(10_000)}))) <= MAX_VISITED


def test_control_characters_and_long_names_are_made_harmless() -> None:
    rows = profiled([json.dumps({"\x1b[2J" + "n" * 5000: "\u202e" + "t" * 5000}).encode(), b"\x1b[2J" * 100], JSON)
    for row in rows:
        for text in (row["field"], row["first"], row["example"]):
            assert text is None or (text.isprintable() and len(text) <= 700)


def test_a_task_gives_its_rows_on_before_they_are_too_many() -> None:
    profile = Profile(1, ())
    for second in range(10):
        assert not profile.is_full
        times = pa.array(range(second * 2000, second * 2000 + 2000), pa.timestamp("us", "UTC"))
        profile.add(batch([b"x"] * 2000).set_column(1, "timestamp", times))
    assert profile.is_full
    assert len(profile.take()) == 20_000
    assert not profile.is_full


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_body_ends_a_job(bodies: list[bytes]) -> None:
    for declared in ((), (JSON,), (Declaration("*", "avro", AVRO),), (Declaration("*", "text"),)):
        rows = profiled(bodies, *declared)
        assert sum(row["messages"] for row in rows if row["field"] == "") == len(bodies)
