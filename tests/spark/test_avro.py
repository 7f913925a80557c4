"""zambezi.spark.avro: all types, compared with a decoder for one value at a time, and invalid bodies."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from struct import pack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.slow_avro import decoded, plain, string, widest, zigzag
from zambezi.spark.avro import Avro
from zambezi.spark.avro import blocks as blocks_module
from zambezi.spark.avro.schema import canonical, fingerprint
from zambezi.spark.decoders import avro_bodies
from zambezi.spark.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HUGE = 1 << 60


def column(bodies: Sequence[bytes | None]) -> Any:
    return pa.array(bodies, pa.binary())


def read(schema: Any, *bodies: bytes | None, **options: Any) -> list[Any]:
    made = Avro(json.dumps(schema), **options).column(column(bodies))
    made.validate(full=True)
    return list(made.to_pylist())


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": schema} for name, schema in fields.items()],
    }


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


# Any schema, any value


SIMPLE = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    logical("int", "date"),
    logical("int", "time-millis"),
    logical("long", "time-micros"),
    logical("long", "timestamp-millis"),
    logical("long", "timestamp-micros"),
    logical("long", "local-timestamp-millis"),
    logical("long", "local-timestamp-micros"),
    logical("string", "uuid"),
    logical("fixed", "uuid", size=16),
    logical("bytes", "decimal", precision=6, scale=2),
    logical("bytes", "decimal", precision=38, scale=0),
    logical("fixed", "decimal", size=5, precision=9, scale=9),
    logical("fixed", "decimal", size=19, precision=38, scale=3),
]


def branch(schema: Any) -> Any:
    """Return the part of a schema that must not be twice in a union."""
    if isinstance(schema, dict):
        return id(schema) if schema["type"] in ("record", "enum", "fixed") else schema["type"]
    return schema


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(inner, max_size=4)
    return st.one_of(
        fields.map(lambda kinds: record(**{f"f{number}": kind for number, kind in enumerate(kinds)})),
        inner.map(array),
        inner.map(lambda values: {"type": "map", "values": values}),
        st.lists(inner.filter(lambda kind: not isinstance(kind, list)), min_size=1, max_size=4, unique_by=branch),
    )


leaves = st.one_of(
    st.sampled_from(SIMPLE),
    st.sampled_from(LOGICAL),
    st.integers(0, 3).map(lambda size: {"type": "fixed", "size": size}),
    st.integers(1, 3).map(lambda size: {"type": "enum", "symbols": ["A", "B", "C"][:size]}),
)
schemas = st.recursive(leaves, containers, max_leaves=8).map(lambda schema: named(schema, count()))


def named(schema: Any, numbers: Iterator[int]) -> Any:
    """The same, where each type that can have a name has another one."""
    if isinstance(schema, list):
        return [named(one, numbers) for one in schema]
    if isinstance(schema, str):
        return schema
    changed = dict(schema)
    if "fields" in schema:
        changed["fields"] = [{**field, "type": named(field["type"], numbers)} for field in schema["fields"]]
    for part in ("items", "values"):
        if part in schema:
            changed[part] = named(schema[part], numbers)
    if schema["type"] in ("record", "enum", "fixed"):
        changed["name"] = f"n{next(numbers)}"
    return changed


def encoded(schema: Any) -> st.SearchStrategy[bytes]:
    """Octets of any value of a schema."""
    if isinstance(schema, list):
        return st.one_of(*[st.tuples(st.just(zigzag(at)), encoded(one)).map(b"".join) for at, one in enumerate(schema)])
    if isinstance(schema, str):
        return {
            "null": st.just(b""),
            "boolean": st.sampled_from([b"\0", b"\1"]),
            "int": st.integers(-(1 << 31), (1 << 31) - 1).map(zigzag),
            "long": st.integers(-(1 << 63), (1 << 63) - 1).map(zigzag),
            "float": st.binary(min_size=4, max_size=4),
            "double": st.binary(min_size=8, max_size=8),
            "bytes": st.binary(max_size=20).map(string),
            "string": st.text(max_size=8).map(lambda text: string(text.encode())),
        }[schema]
    if schema.get("logicalType") == "decimal":
        most = 10 ** schema["precision"] - 1
        numbers = st.integers(-most, most)
        if schema["type"] == "fixed":
            return numbers.map(lambda number: number.to_bytes(schema["size"], "big", signed=True))
        return numbers.map(lambda number: string(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)))
    if str(schema.get("logicalType")).startswith("time-"):
        day = 86_400_000 if schema["type"] == "int" else 86_400_000_000
        return st.integers(0, day - 1).map(zigzag)
    if str(schema.get("logicalType")).endswith("timestamp-millis"):
        return st.integers(-(1 << 62) // 1000, (1 << 62) // 1000).map(zigzag)
    match schema["type"]:
        case "record":
            return st.tuples(*[encoded(field["type"]) for field in schema["fields"]]).map(b"".join)
        case "enum":
            return st.integers(0, len(schema["symbols"]) - 1).map(zigzag)
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "array":
            return blocks(encoded(schema["items"]))
        case "map":
            return blocks(st.tuples(encoded("string"), encoded(schema["values"])).map(b"".join))
        case other:
            return encoded(other)


def blocks(items: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    block = st.lists(items, min_size=1, max_size=5)
    return st.lists(st.tuples(block, st.booleans()), max_size=3).map(
        lambda found: b"".join(sized(some) if is_sized else unsized(some) for some, is_sized in found) + b"\0"
    )


def sized(items: list[bytes]) -> bytes:
    return zigzag(-len(items)) + string(b"".join(items))


def unsized(items: list[bytes]) -> bytes:
    return zigzag(len(items)) + b"".join(items)


@given(schemas, st.data())
def test_any_schema_and_any_value(schema: Any, data: st.DataObject) -> None:
    bodies = data.draw(st.lists(encoded(schema), max_size=8))
    made = Avro(json.dumps(schema)).column(column(bodies))
    made.validate(full=True)
    assert plain(made) == [decoded(schema, body) for body in bodies]


@st.composite
def spoilt(draw: st.DrawFn, schema: Any) -> bytes:
    """A body with octets cut off, changed, put in or added."""
    body = bytearray(draw(encoded(schema)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        how = draw(st.sampled_from(["cut", "change", "insert"]))
        if how == "cut":
            del body[at:]
        elif how == "change" and at < len(body):
            body[at] = draw(st.integers(0, 255))
        else:
            body[at:at] = draw(st.binary(min_size=1, max_size=10))
    return bytes(body)


@given(schemas, st.data())
def test_damaged_bodies_are_null_and_do_not_disturb_others(schema: Any, data: st.DataObject) -> None:
    bodies = data.draw(st.lists(st.one_of(encoded(schema), spoilt(schema), st.binary(max_size=30)), max_size=8))
    made = Avro(json.dumps(schema)).column(column(bodies))
    made.validate(full=True)
    assert plain(made) == [decoded(schema, body) for body in bodies]
    assert_bounded(made, max(len(bodies), sum(map(len, bodies))))


ITEMS = [
    "string",
    "bytes",
    ["null", "string", "long"],
    record(a="bytes", b=["null", "int"]),
    ["string", array("bytes")],
]


@given(st.sampled_from(ITEMS).map(array), st.integers(1, 40), st.data())
def test_a_few_long_arrays(schema: Any, leap: int, data: st.DataObject) -> None:
    bodies = data.draw(st.lists(st.one_of(encoded(schema), spoilt(schema)), max_size=8))
    with patch.multiple(blocks_module, _MANY=2, _LEAP_SIZE=leap):
        made = Avro(json.dumps(schema)).column(column(bodies))
    assert plain(made) == [decoded(schema, body) for body in bodies]


def test_a_long_array_with_an_invalid_item() -> None:
    # The third item is longer than can be; if it were passed over, the first would be the end of the array.
    schema = record(a=array("bytes"), b={"type": "fixed", "name": "f", "size": 3})
    with patch.multiple(blocks_module, _MANY=2):
        assert read(schema, b"\6\0\0\x7f\0") == [None]


@pytest.mark.parametrize("items", ["string", record(a="string", b=["null", "long"]), array("string")])
def test_arrays_of_all_lengths(items: Any) -> None:
    schema = array(items)
    item = {"string": string(b"abc"), "record": string(b"x" * 90) + b"\2\4", "array": b"\2\2a\0"}
    octets = item[items if isinstance(items, str) else items["type"]]
    bodies = [unsized([octets] * number) + b"\0" for number in (1, 5000, 3, 40, 700)] + [b"\0"]
    bodies += [bodies[1][:-1], bodies[1][:-5] + b"\xff" + bodies[1][-4:], bodies[1] + b"\0"]
    found = Avro(json.dumps(schema)).column(column(bodies))
    assert found.is_valid().to_pylist() == [True] * 6 + [False] * 3
    assert plain(found) == [decoded(schema, body) for body in bodies]


def assert_bounded(made: Any, most: int) -> None:
    """No column, however deep, has more values than there are octets."""
    assert len(made) <= most
    if pa.types.is_struct(made.type):
        for part in made.flatten():
            assert_bounded(part, most)
    elif pa.types.is_list(made.type) or pa.types.is_map(made.type):
        assert_bounded(made.values, most)


# A record as people have them


READING = json.dumps(
    {
        "type": "record",
        "name": "reading",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "value", "type": "double"},
            {"name": "ok", "type": "boolean"},
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["RED", "BLUE"]}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "place",
                "type": {
                    "type": "record",
                    "name": "p",
                    "fields": [
                        {"name": "x", "type": "int"},
                        {"name": "raw", "type": {"type": "fixed", "name": "f", "size": 2}},
                    ],
                },
            },
        ],
    }
)


def reading(row: dict[str, Any]) -> bytes:
    name = b"\0" if row["name"] is None else b"\2" + string(row["name"].encode())
    return b"".join(
        [
            zigzag(row["id"]),
            name,
            pack("<d", row["value"]),
            bytes([row["ok"]]),
            zigzag(["RED", "BLUE"].index(row["kind"])),
            zigzag(int(row["at"].timestamp() * 1000)),
            zigzag(row["place"]["x"]),
            row["place"]["raw"],
        ]
    )


rows_of_readings = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "name": st.one_of(st.none(), st.text(max_size=10)),
        "value": st.floats(allow_nan=False),
        "ok": st.booleans(),
        "kind": st.sampled_from(["RED", "BLUE"]),
        "at": st.integers(0, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
        "place": st.fixed_dictionaries(
            {"x": st.integers(-(1 << 31), (1 << 31) - 1), "raw": st.binary(min_size=2, max_size=2)}
        ),
    }
)


@given(st.lists(rows_of_readings, max_size=20), st.data())
def test_avro_records(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    bodies: list[bytes | None] = []
    expected: list[Any] = []
    for row in rows:
        bodies.append(reading(row))
        expected.append(row)
        if data.draw(st.booleans()):
            cut = data.draw(st.integers(0, len(reading(row)) - 1))
            bodies.append(data.draw(st.sampled_from([reading(row)[:cut], reading(row) + b"x", None])))
            expected.append(None)
    made = Avro(READING).column(column(bodies))
    made.validate(full=True)
    assert made.to_pylist() == expected


def test_headers_before_a_value() -> None:
    day = logical("int", "date")
    assert read(record(d=day), b"\0\0\0\0\7" + zigzag(1), b"\0\0", skip=5) == [{"d": date(1970, 1, 2)}, None]
    bodies = [b"\0\0\0\0\7\2", b"\1\0\0\0\7\2", b"\0\0\0\0", b"", None]
    assert read("int", *bodies, framing="confluent") == [1, None, None, None, None]
    mark = b"\xc3\1" + fingerprint("int")
    bodies = [
        mark + b"\2",
        mark,
        mark[:-1],
        b"\xc3\1" + fingerprint("long") + b"\2",
        b"\xc3\2" + mark[2:] + b"\2",
        b"\2",
    ]
    assert read("int", *bodies, framing="single-object") == [1, None, None, None, None, None]
    assert read("int", b"xy" + mark + b"\2", framing="single-object", skip=2) == [1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"framing": "avro"}, "framing must be one of none, confluent, single-object, not 'avro'"),
        ({"skip": -1}, "skip must be a number of bytes of at least 0, not -1"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        Avro('"int"', **options)


def test_a_slice_of_bodies() -> None:
    bodies = column([b"\2a", b"\4bc", None, b"\2d", b"x"]).slice(1, 3)
    assert Avro('"string"').column(bodies).to_pylist() == ["bc", None, "d"]


# What types become


@pytest.mark.parametrize(
    ("schema", "ddl", "octets", "value"),
    [
        (logical("int", "date"), "date", zigzag(-1), date(1969, 12, 31)),
        (logical("int", "time-millis"), "time(3)", zigzag(3_600_001), time(1, 0, 0, 1000)),
        (logical("long", "time-micros"), "time(6)", zigzag(1), time(0, 0, 0, 1)),
        (logical("long", "timestamp-millis"), "timestamp", zigzag(int(NOON.timestamp() * 1000)), NOON),
        (logical("long", "timestamp-micros"), "timestamp", zigzag(int(NOON.timestamp() * 1e6)), NOON),
        (
            logical("long", "local-timestamp-millis"),
            "timestamp_ntz",
            zigzag(int(NOON.timestamp() * 1000)),
            NOON.replace(tzinfo=None),
        ),
        (
            logical("long", "local-timestamp-micros"),
            "timestamp_ntz",
            zigzag(int(NOON.timestamp() * 1e6)),
            NOON.replace(tzinfo=None),
        ),
        (logical("long", "timestamp-nanos"), "bigint", zigzag(5), 5),
        (logical("string", "uuid"), "string", string(b"anything"), "anything"),
        (
            logical("fixed", "uuid", name="u", size=16),
            "string",
            bytes(range(240, 256)),
            str(UUID(bytes=bytes(range(240, 256)))),
        ),
        (logical("fixed", "duration", name="d", size=12), "binary", bytes(12), bytes(12)),
        (logical("bytes", "decimal", precision=4, scale=2), "decimal(4,2)", string(b"\xff\x85"), Decimal("-1.23")),
        (
            logical("fixed", "decimal", name="d", size=3, precision=4),
            "decimal(4,0)",
            b"\0\x27\x0f",
            Decimal(9999),
        ),
        (logical("bytes", "decimal"), "binary", string(b"\7"), b"\7"),
        (logical("bytes", "decimal", precision=2, scale=3), "binary", string(b"\7"), b"\7"),
        (logical("fixed", "decimal", name="d", size=1, precision=3), "binary", b"\7", b"\7"),
        (logical("string", "date"), "string", string(b"x"), "x"),
        (array("int"), "array<int>", b"\4\2\4\1\2\6\0", [1, 2, 3]),
        ({"type": "map", "values": "int"}, "map<string,int>", b"\2\2a\2\0", [("a", 1)]),
        (["null", "string"], "string", b"\2\2a", "a"),
        (["string"], "string", b"\0\2a", "a"),
        (["null"], "boolean", b"\0", None),
        (["int", "null", "long"], "bigint", b"\0\3", -2),
        (["double", "float"], "double", b"\2" + pack("<f", 0.5), 0.5),
        (
            ["int", "null", "string", "long"],
            "struct<member0:int,member1:string,member2:bigint>",
            b"\4\2a",
            {"member0": None, "member1": "a", "member2": None},
        ),
        (
            ["int", logical("long", "timestamp-millis")],
            "struct<member0:int,member1:timestamp>",
            b"\0\2",
            {"member0": 1, "member1": None},
        ),
        (record(), "struct<>", b"", {}),
        (record(größe="int"), "struct<`größe`:int>", b"\2", {"größe": 1}),
        ({"type": {"type": "int"}}, "int", b"\2", 1),
    ],
)
def test_types_in_spark(schema: Any, ddl: str, octets: bytes, value: Any) -> None:
    assert Avro(json.dumps(schema)).ddl == ddl
    assert read(schema, octets, octets + b"x", octets) == [value, None, value]


def test_null_in_a_union_of_several() -> None:
    assert read(["int", "null", "string"], b"\2", b"\0\2") == [None, {"member0": 1, "member1": None}]


def test_names() -> None:
    schema = {
        "type": "record",
        "name": "a.b.outer",
        "fields": [
            {"name": "x", "type": {"type": "fixed", "name": "two", "size": 2, "aliases": ["pair", "c.couple"]}},
            {"name": "same", "type": "two"},
            {"name": "whole", "type": "a.b.two"},
            {"name": "alias", "type": ["null", "pair"]},
            {"name": "elsewhere", "type": array("c.couple")},
            {
                "name": "inner",
                "type": {
                    "type": "record",
                    "name": "inner",
                    "namespace": "d",
                    "fields": [
                        {"name": "e", "type": {"type": "enum", "name": "two", "symbols": ["A", "B"]}},
                        {"name": "f", "type": "two"},
                        {"name": "g", "type": "a.b.two"},
                    ],
                },
            },
            {"name": "last", "type": "d.two"},
        ],
    }
    body = b"aa" + b"bb" + b"cc" + b"\2dd" + b"\2ee\0" + b"\0\2ff" + b"\2"
    assert read(schema, body) == [
        {
            "x": b"aa",
            "same": b"bb",
            "whole": b"cc",
            "alias": b"dd",
            "elsewhere": [b"ee"],
            "inner": {"e": "A", "f": "B", "g": b"ff"},
            "last": "B",
        }
    ]


# Octets that are none


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("long", b"\x80" * 10),
        ("long", b"\xff" * 9 + b"\2"),  # 65 bits
        ("int", zigzag(1 << 31)),
        ("boolean", b"\2"),
        ("bytes", b"\1"),
        ("bytes", zigzag(HUGE)),
        ("string", b"\2\xff"),
        ("string", string("\ud800".encode("utf-8", "surrogatepass"))),
        (["null", "int"], b"\1"),
        (["null", "int"], b"\4"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\4"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\1"),
        (array("int"), zigzag(-(1 << 63)) + b"\2\0"),
        (array("int"), b"\2\2"),  # without an end
        (array("int"), b"\4\2\0"),  # an item too few
        (array("int"), b"\6\2\x80\x80"),  # one that does not end
        (array("int"), b"\1\4\2\0"),  # a block shorter than it says
        (array("string"), b"\1\2\2a\0"),  # and one that is longer
        (array("int"), b"\1\1\2\0"),
        (array("int"), zigzag(HUGE) + b"\2\0"),
        (array("double"), zigzag(HUGE) + bytes(9)),
        (array("string"), zigzag(-HUGE) + b"\2\0"),
        ({"type": "map", "values": "int"}, b"\2\2\xff\2\0"),
        (logical("int", "time-millis"), zigzag(86_400_000)),
        (logical("long", "time-micros"), b"\1"),
        (logical("long", "timestamp-millis"), zigzag((1 << 63) // 1000 + 1)),
        (logical("bytes", "decimal", precision=2), string(b"\x64")),
        (logical("bytes", "decimal", precision=2), string(b"\x9c")),
        (logical("bytes", "decimal", precision=2), string(b"")),
        (logical("bytes", "decimal", precision=38), string(b"\1" + bytes(16))),
        (logical("fixed", "decimal", name="d", size=17, precision=38), b"\1" + bytes(16)),
        (logical("fixed", "decimal", name="d", size=17, precision=38), b"\0\x80" + bytes(15)),
        (logical("fixed", "decimal", name="d", size=17, precision=38), b"\0" + b"\xff" * 16),
    ],
)
def test_invalid_bodies_are_null(schema: Any, body: bytes) -> None:
    assert read(record(v=schema), body, body) == [None, None]
    assert decoded(record(v=schema), body) is None


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {**record(), "name": "empty"},
        {**record(a="null"), "name": "nothing"},
        {"type": "fixed", "name": "f", "size": 0},
    ],
)
def test_items_without_bytes_are_limited_by_the_size_of_the_body(items: Any) -> None:
    schema = record(some=array(items), rest="bytes")
    assert widest(items) == 0
    few = zigzag(3) + b"\0" + string(b"")
    many = zigzag(100) + b"\0"
    found = read(schema, few, many + string(b""), many + string(bytes(97)), many + string(bytes(96)))
    assert [value and len(value["some"]) for value in found] == [3, None, 100, 100]


def test_a_few_bytes_cannot_take_much_memory() -> None:
    nothing = zigzag(HUGE) + b"\0"
    schemas_and_bodies = [
        (array("null"), nothing),
        (array("null"), zigzag(-HUGE) + b"\0\0"),
        (array("int"), nothing),
        (array("float"), nothing),
        (array("string"), nothing),
        ("bytes", zigzag(1 << 40)),
        (array(array("null")), unsized([zigzag(1000) + b"\0"] * 300) + b"\0"),
        (array(array("null")), unsized([zigzag(100) + b"\0"] * 300) + b"\0"),  # each for itself would be allowed
        ({"type": "map", "values": array("null")}, unsized([b"\0" + nothing] * 50) + b"\0"),
    ]
    for schema, body in schemas_and_bodies:
        reader = Avro(json.dumps(schema))
        bodies = column([body] * 10)
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        try:
            assert reader.column(bodies).null_count == 10
            peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20, schema


# Schemas


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("no", "an Avro schema must be JSON"),
        ("7", "a schema must be a name, a list, or an object with a type, not 7"),
        ('{"name": "x"}', "a schema must be a name"),
        ('"colour"', "'colour' is not known here"),
        (
            '{"type": "record", "fields": [{"name": "a", "type": "colour"}]}',
            "field 'a': type 'colour' is not known here",
        ),
        ('{"type": "record"}', "needs 'fields'"),
        ('{"type": "record", "fields": [{"name": "a"}]}', "each with a name and a type"),
        (
            '{"type": "record", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
            "must have different names, not a, a",
        ),
        ('{"type": "array"}', "needs 'items'"),
        ('{"type": "map"}', "needs 'values'"),
        ('{"type": "enum", "name": "e"}', "needs 'symbols'"),
        ('{"type": "enum", "name": "e", "symbols": []}', "a list of names"),
        ('{"type": "fixed", "name": "f", "size": -1}', "must be a number of bytes, not -1"),
        ("[]", "at least one type"),
        ('["int", ["null", "string"]]', "a union cannot contain another union"),
        ('["int", {"type": "int", "logicalType": "date"}]', "each type only once, not int, int"),
        (
            '[{"type": "fixed", "name": "f", "size": 1}, {"type": "fixed", "name": "f", "size": 1}]',
            "each type only once",
        ),
        (
            json.dumps(record(a={"type": "enum", "name": "r", "symbols": ["A"]})),
            "type 'r' is defined twice",
        ),
        (
            json.dumps({**record(v="int", next=["null", "tree"]), "name": "n.tree"}),
            "field 'next': type 'n.tree' contains itself",
        ),
        (
            '{"type": "bytes", "logicalType": "decimal", "precision": 39}',
            "a decimal has at most 38 digits in Spark, not 39",
        ),
    ],
)
def test_invalid_schemas_raise(schema: str, told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        Avro(schema)


@pytest.mark.parametrize(
    ("schema", "form", "number"),
    [
        ('"null"', '"null"', 7195948357588979594),
        ('{"type": "boolean"}', '"boolean"', -6970731678124411036),
        ('["int", {"type": "boolean"}]', '["int","boolean"]', 5392556393470105090),
        (
            '{"fields": [], "type": "record", "name": "foo", "namespace": "x.y", "doc": "d", "aliases": ["bar"]}',
            '{"name":"x.y.foo","type":"record","fields":[]}',
            5916914534497305771,
        ),
        (
            '{"namespace": "x.y.z", "type": "enum", "name": "foo", "symbols": ["A1", "A2"]}',
            '{"name":"x.y.z.foo","type":"enum","symbols":["A1","A2"]}',
            -4448647247586288245,
        ),
        (
            '{"namespace": "x.y.z", "type": "fixed", "name": "foo", "doc": "foo bar", "size": 32}',
            '{"name":"x.y.z.foo","type":"fixed","size":32}',
            -3064184465700546786,
        ),
        ('{"items": {"type": "null"}, "type": "array"}', '{"type":"array","items":"null"}', -589620603366471059),
        ('{"values": "string", "type": "map"}', '{"type":"map","values":"string"}', -8732877298790414990),
        (
            json.dumps({**record(value=["null", "int", "long", "PigValue"]), "name": "PigValue"}),
            '{"name":"PigValue","type":"record","fields":[{"name":"value","type":["null","int","long","PigValue"]}]}',
            -1759257747318642341,
        ),
    ],
)
def test_fingerprints_match_other_implementations(schema: str, form: str, number: int) -> None:
    assert canonical(json.loads(schema)) == form
    assert fingerprint(json.loads(schema)) == pack("<q", number)


# In Spark


def messages(spark: SparkSession, bodies: Sequence[bytes | None]) -> DataFrame:
    return spark.createDataFrame(list(enumerate(bodies)), "sequence long, body binary")


def test_a_record_in_spark(spark: SparkSession) -> None:
    row = {
        "id": 7,
        "name": "n",
        "value": 0.5,
        "ok": True,
        "kind": "BLUE",
        "at": NOON,
        "place": {"x": -1, "raw": b"ab"},
    }
    frame = avro_bodies(messages(spark, [reading(row), b"\1"]), READING, into="reading")
    found = frame.selectExpr("reading.id", "reading.kind", "reading.place.x", "unix_millis(reading.at)", "sequence")
    assert [tuple(one) for one in found.orderBy("sequence").collect()] == [
        (7, "BLUE", -1, int(NOON.timestamp() * 1000), 0),
        (None, None, None, None, 1),
    ]


def test_all_types_in_spark(spark: SparkSession) -> None:
    schema = record(
        tags=array("string"),
        counts={"type": "map", "values": "long"},
        parts=array({"type": "record", "name": "p", "fields": [{"name": "at", "type": LOGICAL[3]}]}),
        price=LOGICAL[9],
        day=LOGICAL[0],
        clock=LOGICAL[2],
        local=LOGICAL[6],
        id={**LOGICAL[8], "name": "u"},
        either=["null", "int", "string"],
        wide=["int", "long"],
        nothing=array("null"),
        none=array({"type": "record", "name": "none", "fields": [{"name": "x", "type": "null"}]}),
        order={"type": "record", "name": "empty", "fields": []},
    )
    body = b"".join(
        [
            unsized([string(b"a"), string(b"b")]) + b"\0",
            sized([string(b"k") + zigzag(5)]) + b"\0",
            unsized([zigzag(1000)]) + b"\0",
            string(b"\x7b"),
            zigzag(1),
            zigzag(1_000_001),
            zigzag(2),
            bytes(16),
            b"\4" + string(b"x"),
            b"\2" + zigzag(HUGE),
            zigzag(2) + b"\0",
            zigzag(2) + b"\0",
        ]
    )
    frame = avro_bodies(messages(spark, [body, body[:-1], None]), json.dumps(schema))
    first, *others = frame.orderBy("sequence").selectExpr("to_json(value) as text", "value.price").collect()
    assert [tuple(other) for other in others] == [(None, None)] * 2
    found = json.loads(first.text)
    assert found.pop("parts")[0]["at"].startswith("1970-01-01T")
    assert first.price == Decimal("1.23")
    assert found == {
        "tags": ["a", "b"],
        "counts": {"k": 5},
        "price": 1.23,
        "day": "1970-01-02",
        "clock": "00:00:01.000001",
        "local": "1970-01-01T00:00:00.000",
        "id": str(UUID(int=0)),
        "either": {"member1": "x"},
        "wide": HUGE,
        "nothing": [None, None],
        "none": [{}, {}],
        "order": {},
    }
