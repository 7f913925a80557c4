"""Schemas: from JSON to types, with the names that types can have; and the fingerprint that stands for a schema.

A record, an enum and a fixed have names, by which they can be used again further on. A name without dots is in the
namespace that is said beside it, or else in that of the type around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from zambezi.spark.avro.blocks import List, Map
from zambezi.spark.avro.kinds import Boolean, Bytes, Enum, Fixed, Float, Int, Kind, Long, Null, Record, String, Union
from zambezi.spark.avro.logical import meaning
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
_LARGEST: Final = (1 << 31) - 1  # octets in an Arrow column


def loaded(text: str) -> Any:
    """The JSON of a schema."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"an Avro schema is JSON, and this is none: {error}") from None


def kind_of(schema: Any) -> Kind:
    """The type that a schema describes."""
    return _Parser().kind(schema, "")


class _Parser:
    def __init__(self) -> None:
        self._known: dict[str, Kind | None] = {}  # None: it is not yet at its end
        self._path: list[str] = []

    def kind(self, schema: Any, space: str) -> Kind:
        if isinstance(schema, str):
            return self._called(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space)
        what = schema.get("type") if isinstance(schema, dict) else None
        if isinstance(what, dict | list):
            return self.kind(what, space)
        if not isinstance(what, str):
            raise self._error(f"a schema is a name, a list, or an object with a type, and not {schema!r:.80}")
        if what == "array":
            return List(self.kind(self._part(schema, "items", "array"), space))
        if what == "map":
            return Map.of(self.kind(self._part(schema, "values", "map"), space))
        if what in _NAMED:
            return self._named(schema, space)
        return meaning(self._called(what, space), schema)

    def _called(self, name: str, space: str) -> Kind:
        if name in _SIMPLE:
            return _SIMPLE[name]
        whole = _whole(name, space)
        if whole not in self._known:
            known = ", ".join([*_SIMPLE, *_NAMED, "array", "map", *self._known])
            raise self._error(f"type {whole!r} is not known here: there are {known}")
        kind = self._known[whole]
        if kind is None:
            raise self._error(
                f"type {whole!r} has itself in it, and a column has no such type: "
                "read the octets as `bytes` if they have a length, or leave them to a reader of your own"
            )
        return kind

    def _named(self, schema: dict[str, Any], space: str) -> Kind:
        space, names = _names(schema, space)
        for name in names:
            if name in self._known or name in _SIMPLE:
                raise self._error(f"there is a type {name!r} already")
            self._known[name] = None
        kind = self._body(schema, space)
        self._known.update(dict.fromkeys(names, kind))
        return kind

    def _body(self, schema: dict[str, Any], space: str) -> Kind:
        if schema["type"] == "enum":
            symbols = self._part(schema, "symbols", "enum")
            if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
                raise self._error(f"the symbols of an enum are a list of names, and not {symbols!r:.80}")
            return Enum(tuple(symbols))
        if schema["type"] == "fixed":
            size = self._part(schema, "size", "fixed")
            if type(size) is not int or not 0 <= size <= _LARGEST:
                raise self._error(f"the size of a fixed is a number of octets, and not {size!r:.80}")
            return meaning(Fixed(size), schema)
        fields = self._part(schema, "fields", "record")
        if not isinstance(fields, list) or not all(
            isinstance(field, dict) and isinstance(field.get("name"), str) and "type" in field for field in fields
        ):
            raise self._error("the fields of a record are a list of objects, each with a name and a type")
        names = tuple(field["name"] for field in fields)
        if len(set(names)) < len(names):
            raise self._error(f"a record has each field once, and not {', '.join(names)}")
        kinds = []
        for field in fields:
            with self._inside(field["name"]):
                kinds.append(self.kind(field["type"], space))
        return Record(names, tuple(kinds))

    def _union(self, schemas: list[Any], space: str) -> Kind:
        seen = [_branch(schema, space) for schema in schemas]
        if not seen:
            raise self._error("a union has at least one type")
        if None in seen:
            raise self._error("a union has no unions in it: write their types into the one")
        if len(set(seen)) < len(seen):
            raise self._error(f"a union has each type once, and not {', '.join(map(str, seen))}")
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
    """A name with its namespace."""
    return name if "." in name or not space else f"{space}.{name}"


def _names(schema: dict[str, Any], space: str) -> tuple[str, list[str]]:
    """The namespace inside a type, and all names that it has. Without a name it just cannot be used again."""
    name, aliases = schema.get("name"), schema.get("aliases", [])
    if not isinstance(name, str) or not name:
        return space, []
    whole = _whole(name, str(schema.get("namespace", space) or ""))
    space = whole.rpartition(".")[0]
    others = [_whole(alias, space) for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
    return space, list(dict.fromkeys([whole, *others]))


def _branch(schema: Any, space: str) -> str | None:
    """What must differ in the branches of a union: the name of a type that has one, or the type; None for a union."""
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
    """The CRC-64-AVRO of a schema's canonical form, as it stands in a single object.

    >>> fingerprint("int").hex()
    '8f5c393f1ad57572'
    """
    found = _EMPTY
    for octet in canonical(schema).encode():
        found = (found >> 8) ^ _table()[(found ^ octet) & 0xFF]
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
    """The form of a schema that is the same for all that are read alike: full names, nothing but what is needed, in a
    fixed order, without spaces."""
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
