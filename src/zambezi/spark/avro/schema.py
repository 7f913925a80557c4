"""The parser of schemas, from JSON to types, and the fingerprint of a schema.

A record, an enum and a fixed have names, by which later parts of the schema can refer to them. A name without dots is
in the namespace that is given beside it, or else in the namespace of the enclosing type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from zambezi.spark.avro.blocks import List, Map
from zambezi.spark.avro.kinds import Boolean, Bytes, Enum, Fixed, Float, Int, Kind, Long, Null, Record, String, Union
from zambezi.spark.avro.logical import logical_type
from zambezi.spark.errors import SchemaError

_SIMPLE: Final[dict[str, Kind]] = {
    "null": Null(),
    "boolean": Boolean(),
    "int": Int(),
    "long": Long(),
    "float": Float(4),
    "double": Float(8),
    "bytes": Bytes(),
    "string": String(),
}
_NAMED: Final = ("record", "enum", "fixed")
_MAX_SIZE: Final = (1 << 31) - 1  # bytes in an Arrow column


def parse_json(text: str) -> Any:
    """Parse the JSON of a schema."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"an Avro schema must be JSON: {error}") from None


def kind_of(schema: Any) -> Kind:
    """Return the type that a schema describes."""
    return _Parser().kind(schema, "")


class _Parser:
    def __init__(self) -> None:
        self._known: dict[str, Kind | None] = {}  # None while its definition is being parsed
        self._path: list[str] = []

    def kind(self, schema: Any, space: str) -> Kind:
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space)
        what = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(what, dict | list):
            return self.kind(what, space)
        if not isinstance(what, str):
            raise self._error(f"a schema must be a name, a list, or an object with a type, not {schema!r:.80}")
        if what == "array":
            return List(self.kind(self._part(schema, "items", "array"), space))
        if what == "map":
            return Map.of(self.kind(self._part(schema, "values", "map"), space))
        if what in _NAMED:
            return self._named(schema, space)
        return logical_type(self._by_name(what, space), schema)

    def _by_name(self, name: str, space: str) -> Kind:
        if name in _SIMPLE:
            return _SIMPLE[name]
        whole = _whole(name, space)
        if whole not in self._known:
            known = ", ".join([*_SIMPLE, *_NAMED, "array", "map", *self._known])
            raise self._error(f"type {whole!r} is not known here: the types are {known}")
        kind = self._known[whole]
        if kind is None:
            raise self._error(
                f"type {whole!r} contains itself, and a column cannot have a recursive type: "
                "read the value as `bytes` if it has a length, or decode it with another library"
            )
        return kind

    def _named(self, schema: dict[str, Any], space: str) -> Kind:
        space, names = _names(schema, space)
        for name in names:
            if name in self._known or name in _SIMPLE:
                raise self._error(f"type {name!r} is defined twice")
            self._known[name] = None
        kind = self._body(schema, space)
        self._known.update(dict.fromkeys(names, kind))
        return kind

    def _body(self, schema: dict[str, Any], space: str) -> Kind:
        if schema["type"] == "enum":
            symbols = self._part(schema, "symbols", "enum")
            if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
                raise self._error(f"the symbols of an enum must be a list of names, not {symbols!r:.80}")
            return Enum(tuple(symbols))
        if schema["type"] == "fixed":
            size = self._part(schema, "size", "fixed")
            if type(size) is not int or not 0 <= size <= _MAX_SIZE:
                raise self._error(f"the size of a fixed must be a number of bytes, not {size!r:.80}")
            return logical_type(Fixed(size), schema)
        fields = self._part(schema, "fields", "record")
        if not isinstance(fields, list) or not all(
            isinstance(field, dict) and isinstance(field.get("name"), str) and "type" in field for field in fields
        ):
            raise self._error("the fields of a record must be a list of objects, each with a name and a type")
        names = tuple(field["name"] for field in fields)
        if len(set(names)) < len(names):
            raise self._error(f"the fields of a record must have different names, not {', '.join(names)}")
        kinds = []
        for field in fields:
            with self._inside(field["name"]):
                kinds.append(self.kind(field["type"], space))
        return Record(names, tuple(kinds))

    def _union(self, schemas: list[Any], space: str) -> Kind:
        seen = [_branch(schema, space) for schema in schemas]
        if not seen:
            raise self._error("a union must have at least one type")
        if None in seen:
            raise self._error("a union cannot contain another union: put all types into one")
        if len(set(seen)) < len(seen):
            raise self._error(f"a union can contain each type only once, not {', '.join(map(str, seen))}")
        return Union(tuple(self.kind(schema, space) for schema in schemas))

    def _part(self, schema: dict[str, Any], name: str, what: str) -> Any:
        if name not in schema:
            raise self._error(f"a schema of type {what} needs {name!r}")
        return schema[name]

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._path.append(name)
        yield
        self._path.pop()

    def _error(self, text: str) -> SchemaError:
        return SchemaError(f"Avro schema, field {'.'.join(self._path)!r}: {text}" if self._path else f"Avro: {text}")


def _whole(name: str, space: str) -> str:
    """Return a name with its namespace."""
    return name if "." in name or not space else f"{space}.{name}"


def _names(schema: dict[str, Any], space: str) -> tuple[str, list[str]]:
    """Return the namespace inside a type, and its names: none if it is anonymous, which allows no references to it."""
    name, aliases = schema.get("name"), schema.get("aliases", [])
    if not isinstance(name, str) or not name:
        return space, []
    whole = _whole(name, str(schema.get("namespace", space) or ""))
    space = whole.rpartition(".")[0]
    others = [_whole(alias, space) for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
    return space, list(dict.fromkeys([whole, *others]))


def _branch(schema: Any, space: str) -> str | None:
    """Return the part of a branch that must be unique in a union: its name, or its type; None for a union."""
    if isinstance(schema, dict):
        what = schema.get("type")
        if what in _NAMED:
            return next(iter(_names(schema, space)[1]), what)
        return _branch(what, space) if not isinstance(what, str) or what not in ("array", "map") else what
    if isinstance(schema, list):
        return None
    return schema if schema in _SIMPLE else _whole(str(schema), space)


# Fingerprints


def fingerprint(schema: Any) -> bytes:
    """Return the CRC-64-AVRO of the canonical form of a schema, as in a single-object encoding.

    >>> fingerprint("int").hex()
    '8f5c393f1ad57572'
    """
    found = _EMPTY
    for byte in canonical(schema).encode():
        found = (found >> 8) ^ _table()[(found ^ byte) & 0xFF]
    return found.to_bytes(8, "little")


_EMPTY: Final = 0xC15D213AA4D7A795


@cache
def _table() -> list[int]:
    found = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (_EMPTY & -(number & 1))  # noqa: PLW2901
        found.append(number)
    return found


def canonical(schema: Any, space: str = "") -> str:
    """Return the canonical form of a schema: full names, only the attributes that decoding needs, in a fixed order and
    without spaces."""
    if isinstance(schema, list):
        return f"[{','.join(canonical(one, space) for one in schema)}]"
    if isinstance(schema, str):
        return _json(schema if schema in _SIMPLE else _whole(schema, space))
    what = schema["type"]
    if what == "array":
        return f'{{"type":"array","items":{canonical(schema["items"], space)}}}'
    if what == "map":
        return f'{{"type":"map","values":{canonical(schema["values"], space)}}}'
    if what not in _NAMED:
        return canonical(what, space)
    space, names = _names(schema, space)
    head = f'"name":{_json(names[0])},"type":"{what}"' if names else f'"type":"{what}"'
    if what == "enum":
        return f'{{{head},"symbols":[{",".join(map(_json, schema["symbols"]))}]}}'
    if what == "fixed":
        return f'{{{head},"size":{schema["size"]}}}'
    fields = [
        f'{{"name":{_json(field["name"])},"type":{canonical(field["type"], space)}}}' for field in schema["fields"]
    ]
    return f'{{{head},"fields":[{",".join(fields)}]}}'


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
