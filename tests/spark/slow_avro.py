"""Avro one value at a time, the obvious way: what the reader of columns is held against.

Values are plain: floats are their bits, dates are days, other times microseconds; a map is a list of pairs, and a union
of several types a dict of its members.
"""

from __future__ import annotations

from decimal import Context, Decimal
from struct import unpack
from typing import Any
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]

WIDE = Context(prec=60)
SCALES = {"time-millis": 1000, "timestamp-millis": 1000, "local-timestamp-millis": 1000}
DAY = 86_400_000_000


def zigzag(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    value &= (1 << 64) - 1
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def string(octets: bytes) -> bytes:
    return zigzag(len(octets)) + octets


class Wrong(Exception):
    """The octets are no such value."""


def decoded(schema: Any, body: bytes) -> Any:
    """The value that a body is; None if it is none."""
    reader = _Reader(body)
    try:
        value = reader.read(schema)
    except Wrong:
        return None
    return value if reader.place == len(body) else None


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self.place = 0
        self._allowance = len(body)

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._body) - self.place:
            raise Wrong
        self.place += size
        return self._body[self.place - size : self.place]

    def _number(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            octet = self._take(1)[0]
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                if value >> 64:
                    raise Wrong
                return (value >> 1) ^ -(value & 1)
        raise Wrong

    def _below(self, end: int) -> int:
        number = self._number()
        if not 0 <= number < end:
            raise Wrong
        return number

    def read(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._simple(schema)
        if "logicalType" in schema:
            return self._logical(schema)
        match schema["type"]:
            case "record":
                return {field["name"]: self.read(field["type"]) for field in schema["fields"]}
            case "enum":
                return schema["symbols"][self._below(len(schema["symbols"]))]
            case "fixed":
                return self._take(schema["size"])
            case "array":
                return self._items(schema["items"], lambda: self.read(schema["items"]))
            case "map":
                return self._items("int", lambda: (self._simple("string"), self.read(schema["values"])))
            case other:
                return self.read(other)

    def _simple(self, kind: str) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                octet = self._take(1)[0]
                if octet > 1:
                    raise Wrong
                return bool(octet)
            case "int":
                number = self._number()
                if not -(1 << 31) <= number < 1 << 31:
                    raise Wrong
                return number
            case "long":
                return self._number()
            case "float":
                return unpack("<i", self._take(4))[0]
            case "double":
                return unpack("<q", self._take(8))[0]
            case "bytes":
                return self._take(self._number())
        try:
            return self._take(self._number()).decode()
        except UnicodeDecodeError:
            raise Wrong from None

    def _logical(self, schema: dict[str, Any]) -> Any:
        logical = schema["logicalType"]
        if logical == "uuid" and schema["type"] == "fixed":
            return str(UUID(bytes=self._take(16)))
        if logical == "decimal":
            octets = self._take(schema["size"]) if schema["type"] == "fixed" else self._simple("bytes")
            value = int.from_bytes(octets, "big", signed=True)
            if (
                not octets
                or (schema["type"] == "bytes" and len(octets) > 16)
                or abs(value) >= 10 ** schema["precision"]
            ):
                raise Wrong
            return Decimal(value).scaleb(-schema["scale"], WIDE)
        value = self._simple(schema["type"])
        if logical in ("uuid", "date"):
            return value
        value *= SCALES.get(logical, 1)
        if not -(1 << 63) <= value < 1 << 63 or (logical.startswith("time-") and not 0 <= value < DAY):
            raise Wrong
        return value

    def _union(self, schemas: list[Any]) -> Any:
        chosen = schemas[self._below(len(schemas))]
        value = self.read(chosen)
        present = [schema for schema in schemas if schema != "null"]
        if chosen == "null" or len(present) == 1 or sorted(map(str, present)) == ["int", "long"]:
            return value
        if sorted(map(str, present)) == ["double", "float"]:
            # A double has the same value as the float, and other bits.
            return (
                value
                if chosen == "double"
                else pa.array([value], pa.int32()).view(pa.float32()).cast(pa.float64()).view(pa.int64())[0].as_py()
            )
        return {f"member{number}": value if schema is chosen else None for number, schema in enumerate(present)}

    def _items(self, schema: Any, read: Any) -> list[Any]:
        found: list[Any] = []
        is_empty = widest(schema) == 0
        while count := self._number():
            end = None
            if count < 0:
                count = -count
                size = self._number()
                end = self.place + size
                if not 0 <= size <= len(self._body) - self.place:
                    raise Wrong
            if is_empty:
                self._allowance -= count
                if self._allowance < 0:
                    raise Wrong
            elif count > len(self._body) - self.place:
                raise Wrong
            found += [read() for _ in range(count)]
            if end not in (None, self.place):
                raise Wrong
        return found


def widest(schema: Any) -> int:
    """0 if a value of the schema never has octets, otherwise anything else."""
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return sum(widest(field["type"]) for field in schema["fields"])
        return int(schema["size"]) if schema["type"] == "fixed" else 1
    return 0 if schema == "null" else 1


def plain(column: Any) -> list[Any]:
    """The values of a column, in the same form."""
    kind = column.type
    is_there = column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        parts = [plain(part) for part in column.flatten()]
        rows = [dict(zip([field.name for field in kind], row, strict=True)) for row in zip(*parts, strict=True)]
        rows = rows if parts else [{} for _ in is_there]
        return [row if there else None for row, there in zip(rows, is_there, strict=True)]
    if pa.types.is_list(kind):
        items = plain(column.values)
    elif pa.types.is_map(kind):
        items = list(zip(plain(column.keys), plain(column.items), strict=True))
    elif pa.types.is_temporal(kind):
        return list(column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64()).to_pylist())
    elif pa.types.is_floating(kind):
        return list(column.view(pa.int32() if kind == pa.float32() else pa.int64()).to_pylist())
    else:
        return list(column.to_pylist())
    bounds = column.offsets.to_pylist()
    return [items[bounds[row] : bounds[row + 1]] if there else None for row, there in enumerate(is_there)]
