"""zambezi.spark.avro decodes bodies that another library, fastavro, has written."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro import Avro

POINT = {
    "type": "record",
    "name": "Point",
    "namespace": "geo",
    "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "float"}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "namespace": "sensors",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "count", "type": "int"},
        {"name": "total", "type": "long"},
        {"name": "is_new", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 4}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OFF", "ON", "LOST"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "values", "type": {"type": "array", "items": "long"}},
        {"name": "labels", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "here", "type": POINT},
        {"name": "path", "type": {"type": "array", "items": "geo.Point"}},
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
    ],
}


def value(chance: random.Random) -> dict[str, Any]:
    def point() -> dict[str, float]:
        return {"x": chance.uniform(-1e9, 1e9), "y": chance.randrange(-1000, 1000) / 8}

    return {
        "id": f"{chance.getrandbits(32):08x}-0000-4000-8000-{chance.getrandbits(48):012x}",
        "count": chance.choice([0, -1, 63, -64, 64, (1 << 31) - 1, -(1 << 31)]),
        "total": chance.choice([0, -1, (1 << 63) - 1, -(1 << 63), chance.getrandbits(40)]),
        "is_new": chance.random() < 0.5,
        "raw": chance.randbytes(chance.randrange(300)),
        "mark": chance.randbytes(4),
        "state": chance.choice(["OFF", "ON", "LOST"]),
        "note": chance.choice([None, "", "größer", "x" * 200]),
        "values": [chance.getrandbits(50) - (1 << 49) for _ in range(chance.choice([0, 1, 5, 200]))],
        "labels": {f"k{number}": chance.choice([None, "v"]) for number in range(chance.randrange(4))},
        "here": point(),
        "path": [point() for _ in range(chance.randrange(4))],
        "when": datetime(2026, 1, 31, tzinfo=UTC) + timedelta(microseconds=chance.randrange(1 << 40)),
        "day": date(2026, 1, 1) + timedelta(days=chance.randrange(-20_000, 20_000)),
        "price": Decimal(chance.randrange(-(10**11), 10**11)) / 1000,
    }


def written(given: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), given)
    return file.getvalue()


def test_bodies_of_fastavro_are_decoded() -> None:
    chance = random.Random(7)
    given = [value(chance) for _ in range(300)]
    read = Avro(json.dumps(SCHEMA)).column(pa.array([written(one) for one in given], pa.binary()))
    read.validate(full=True)
    found = read.to_pylist(maps_as_pydicts="strict")
    assert found == given


def test_bodies_that_were_cut_are_null_and_the_others_stay() -> None:
    chance = random.Random(8)
    given = [value(chance) for _ in range(100)]
    bodies = [written(one) for one in given]
    cut = [body[: chance.randrange(len(body))] if number % 3 else body for number, body in enumerate(bodies)]
    found = Avro(json.dumps(SCHEMA)).column(pa.array(cut, pa.binary())).to_pylist(maps_as_pydicts="strict")
    assert found == [None if number % 3 else one for number, one in enumerate(given)]


def test_single_objects_have_the_fingerprint_of_the_schema() -> None:
    given = {"x": 1.5, "y": 0.25}
    mark = bytes.fromhex(fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(POINT), "CRC-64-AVRO"))
    reader = Avro(json.dumps(POINT), framing="single-object")
    body = b"\xc3\x01" + mark + written(given, POINT)
    other = b"\xc3\x01" + bytes(8) + written(given, POINT)
    assert reader.column(pa.array([body, other], pa.binary())).to_pylist() == [given, None]
