"""Avro records in a column, decoded field by field for all rows at once.

An Avro record has no lengths but those of its own fields, so a row can only be read from its beginning on. But all rows
have the same fields: so the first field of all rows is read at once, then the second, and each row has its own place.
Numbers are of variable length, 7 bits to an octet, and are gathered octet by octet.

A row that does not fit the schema becomes null, and does not disturb the others.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.columns import Array, Numbers, Octets, slices
from zambezi.spark.errors import SchemaError

_SIMPLE: Final = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("int", "date"): "date",
}
_MOST: Final = 10  # octets of a number


class Avro:
    """A reader for one schema, which must be that of a record.

    >>> reader = Avro('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}')
    >>> reader.ddl
    'struct<n:bigint>'
    >>> reader.column(pa.array([bytes([2]), bytes([3]), b""], pa.binary())).to_pylist()
    [{'n': 1}, {'n': -2}, None]
    """

    def __init__(self, schema: str, skip: int = 0) -> None:
        try:
            self._schema = json.loads(schema)
        except ValueError as error:
            raise SchemaError(f"an Avro schema is JSON, and this is none: {error}") from None
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise SchemaError("an Avro schema for bodies is that of a record: {'type': 'record', 'fields': [...]}")
        self._skip = skip
        self.ddl = _ddl(self._schema)

    def column(self, bodies: Array) -> Array:
        """Structs for bodies; null for those that are no such record, or have more octets than it."""
        rows = _Rows(bodies, self._skip)
        found = rows.read(self._schema, np.arange(len(bodies)))
        bad = rows.bad | (rows.places != rows.stops)
        return pa.StructArray.from_arrays(found.flatten(), fields=list(found.type), mask=pa.array(bad))


def _ddl(schema: Any) -> str:
    """The type in Spark's words."""
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        raise SchemaError(
            f"Avro type {schema!r} is not known here: there are {', '.join(_SIMPLE)}, record, enum, fixed"
        )
    if isinstance(schema, list):
        return _ddl(_present(schema))
    kind = schema.get("type")
    if (kind, schema.get("logicalType")) in _LOGICAL:
        return _LOGICAL[kind, schema["logicalType"]]
    if kind == "record":
        fields = [f"{field['name']}:{_ddl(field['type'])}" for field in schema["fields"]]
        return f"struct<{','.join(fields)}>"
    if kind == "enum":
        return "string"
    if kind == "fixed":
        return "binary"
    if kind in ("array", "map"):
        raise SchemaError(f"Avro's {kind} is not decoded here: use Spark's from_avro, of the package spark-avro")
    return _ddl(kind)


def _present(union: list[Any]) -> Any:
    """What a value is that may also be null."""
    kinds = [kind for kind in union if kind != "null"]
    if len(kinds) != 1 or len(union) > 2:
        raise SchemaError(f"of Avro's unions only those of null and one other type are decoded here, not {union!r}")
    return kinds[0]


class _Rows:
    """The rows that are read, and the place of each."""

    def __init__(self, bodies: Array, skip: int) -> None:
        _, offsets, values = bodies.buffers()
        bounds = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)
        # Some octets more, so that a number at the very end can be read as if it were a long one.
        octets = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
        self.octets: Octets = np.concatenate([octets, np.zeros(16, np.uint8)])
        self.starts = bounds[:-1]
        self.stops = bounds[1:]
        self.places: Numbers = np.minimum(self.starts + skip, self.stops)
        self.bad: npt.NDArray[np.bool_] = self.starts + skip > self.stops
        if bodies.null_count:
            self.bad |= bodies.is_null().to_numpy(zero_copy_only=False)

    def read(self, schema: Any, rows: Numbers) -> Array:
        """The next field of some rows."""
        if isinstance(schema, list):
            return self._union(schema, rows)
        if isinstance(schema, str):
            return self._simple(schema, rows)
        kind = schema["type"]
        if kind == "record":
            fields = schema["fields"]
            columns = [self.read(field["type"], rows) for field in fields]
            return pa.StructArray.from_arrays(columns, names=[field["name"] for field in fields])
        if kind == "enum":
            symbols = pa.array(schema["symbols"], pa.string())
            return symbols.take(pa.array(self._within(self._number(rows), len(symbols), rows)))
        if kind == "fixed":
            return self._octets(np.full(len(rows), int(schema["size"]), np.int64), rows, pa.binary())
        logical = (kind, schema.get("logicalType"))
        if logical in _LOGICAL:
            return self._time(logical, rows)
        return self.read(kind, rows)

    def _simple(self, kind: str, rows: Numbers) -> Array:
        if kind == "null":
            return pa.nulls(len(rows))
        if kind == "boolean":
            places = self._take(1, rows)
            return pa.array(self.octets[places] != 0)
        if kind in ("int", "long"):
            numbers = self._number(rows)
            if kind == "long":
                return pa.array(numbers)
            too_large = (numbers < -(1 << 31)) | (numbers >= 1 << 31)
            self._spoil(rows[too_large])
            return pa.array(np.where(too_large, 0, numbers).astype(np.int32))
        if kind in ("float", "double"):
            size = 4 if kind == "float" else 8
            places = self._take(size, rows)
            raw = np.ndarray((len(self.octets) - 7,), f"<f{size}", self.octets, 0, (1,))
            return pa.array(raw[places])
        return self._octets(self._number(rows), rows, pa.string() if kind == "string" else pa.binary())

    def _time(self, logical: tuple[str, str], rows: Numbers) -> Array:
        numbers = self._number(rows)
        if logical[1] == "date":
            return pa.array(numbers.astype(np.int32)).cast(pa.date32())
        micros = numbers * 1000 if logical[1] == "timestamp-millis" else numbers
        return pa.array(micros).cast(pa.timestamp("us", "UTC"))

    def _union(self, kinds: list[Any], rows: Numbers) -> Array:
        chosen = self._within(self._number(rows), len(kinds), rows)
        present = _present(kinds)
        is_there = chosen == kinds.index(present)
        found = self.read(present, rows[is_there])
        places = np.cumsum(is_there) - 1
        return found.take(pa.array(places, pa.int64(), mask=~is_there))

    def _within(self, numbers: Numbers, count: int, rows: Numbers) -> Numbers:
        wrong = (numbers < 0) | (numbers >= count)
        self._spoil(rows[wrong])
        return np.where(wrong, 0, numbers)

    def _number(self, rows: Numbers) -> Numbers:
        """A number of variable length, zigzag."""
        found = np.zeros(len(rows), np.uint64)
        active = np.arange(len(rows))
        for step in range(_MOST):
            going = rows[active]
            is_over = self.places[going] >= self.stops[going]
            self._spoil(going[is_over])
            active = active[~is_over]
            going = going[~is_over]
            octets = self.octets[self.places[going]]
            self.places[going] += 1
            found[active] |= (octets & 0x7F).astype(np.uint64) << np.uint64(7 * step)
            active = active[octets >= 0x80]
            if not len(active):
                break
        self._spoil(rows[active])
        half = (found >> np.uint64(1)).astype(np.int64)
        return half ^ -(found & np.uint64(1)).astype(np.int64)

    def _take(self, size: int, rows: Numbers) -> Numbers:
        """Where the next octets of each row stand; the places move on."""
        places = self.places[rows].copy()
        is_over = places + size > self.stops[rows]
        self._spoil(rows[is_over])
        self.places[rows[~is_over]] += size
        return np.where(is_over, 0, places)

    def _octets(self, sizes: Numbers, rows: Numbers, kind: Any) -> Array:
        begins = self.places[rows]
        wrong = (sizes < 0) | (sizes > self.stops[rows] - begins)
        self._spoil(rows[wrong])
        ends = np.where(wrong, begins, begins + sizes)
        begins = np.where(wrong, ends, begins)
        self.places[rows] = np.where(wrong, self.places[rows], ends)
        return slices(self.octets, begins, ends, kind)

    def _spoil(self, rows: Numbers) -> None:
        self.bad[rows] = True
        self.places[rows] = self.stops[rows]
