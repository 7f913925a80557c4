"""The profile of bodies: how many are as declared, what is wrong with the others, and which fields they have.

This module needs no Spark session. Spark's tasks give it the messages of a partition, and it gives back a few rows for
each window, stream and field: partial sums, which add up. Bodies come from strangers, so everything is bounded: the
depth and the number of fields of a body, the fields of a stream, and the length of names and examples.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import types

from zambezi.spark.avro import Avro
from zambezi.wire.text import printable

OK: Final = "ok"
EMPTY: Final = "empty"
BODY: Final = "$"  # the name of the whole body among its fields
FORMATS: Final = ("json", "avro", "text")
MAX_BODY: Final = 8 << 20  # bytes; the values of a larger body could fill the memory of a task
MAX_VISITED: Final = 300  # values of a body
MAX_DEPTH: Final = 6
MAX_FIELDS: Final = 300  # of a stream in a task
OTHER_FIELDS: Final = "(other fields)"
NO_NAME: Final = '""'  # a field whose name is empty; a row without a field is about whole messages
_MAX_NAME: Final = 80  # characters of the name of a field
_MAX_TEXT: Final = 40  # characters of a text that is the first or the last of a range
_MAX_EXAMPLE: Final = 160  # bytes
_MAX_GROUPS: Final = 20_000  # rows that a task keeps before it gives them on

_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")

# start (microseconds since 1970), stream, declared, field, kind, good
Group: TypeAlias = tuple[int, str, str, str, str, bool | None]
Row: TypeAlias = tuple[Any, ...]

COLUMNS: Final = (
    "start timestamp, stream string, declared string, field string, kind string, good boolean, messages long, "
    "low double, high double, first_text string, last_text string, sequence long, key string, example string"
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declared format of the bodies of some streams.

    `streams` is a name, or a prefix if it ends in `*`. `schema` is an Avro schema in JSON, or for JSON a schema as DDL,
    which can be empty: then any JSON value is right. `framing` is that of `avro_bodies`.
    """

    streams: str
    format: str
    schema: str = ""
    framing: str = "none"

    def covers(self, stream: str) -> bool:
        """Return whether a stream is declared by this.

        >>> Declaration("rooms.*", "json").covers("rooms.1"), Declaration("rooms", "json").covers("rooms.1")
        (True, False)
        """
        if self.streams.endswith("*"):
            return stream.startswith(self.streams[:-1])
        return stream == self.streams


def declaration_of(stream: str, declared: Sequence[Declaration]) -> Declaration | None:
    """Return the first declaration that covers a stream."""
    return next((one for one in declared if one.covers(stream)), None)


@dataclass(slots=True)
class _Sum:
    """The messages of a group, added up."""

    messages: int = 0
    low: float | None = None
    high: float | None = None
    first_text: str | None = None
    last_text: str | None = None
    sequence: int | None = None
    key: str | None = None
    example: str | None = None

    def add_number(self, value: float | Decimal) -> None:
        try:
            number = float(value)
        except OverflowError:  # an integer of hundreds of digits
            return
        if math.isfinite(number):
            self.low = number if self.low is None else min(self.low, number)
            self.high = number if self.high is None else max(self.high, number)

    def add_text(self, value: str) -> None:
        text = printable(value[:_MAX_TEXT])
        self.first_text = text if self.first_text is None else min(self.first_text, text)
        self.last_text = text if self.last_text is None else max(self.last_text, text)


@dataclass(slots=True)
class Profile:
    """The sums of the messages of a task. `schemas` are the parsed schemas of declarations with JSON."""

    window: int  # microseconds
    declared: Sequence[Declaration] = ()
    schemas: Mapping[str, types.DataType] = field(default_factory=dict)
    _groups: dict[Group, _Sum] = field(default_factory=dict)
    _fields: dict[str, set[str]] = field(default_factory=dict)
    _readers: dict[Declaration, Avro] = field(default_factory=dict)

    def add(self, batch: Any) -> None:
        """Add the messages of an Arrow batch with stream, timestamp, sequence, key and body."""
        streams = batch.column("stream").to_pylist()
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        bodies = batch.column("body").to_pylist()
        keys = batch.column("key").to_pylist()
        decoded = self._decoded(streams, bodies)
        for place, sequence in enumerate(batch.column("sequence").to_pylist()):
            self._add(
                streams[place], times[place], sequence, keys[place] or "", bodies[place] or b"", decoded.get(place)
            )

    def _decoded(self, streams: Sequence[str], bodies: Sequence[bytes | None]) -> dict[int, Any]:
        """Decode the bodies that are declared as Avro, a column at a time. Return values by place; None is invalid."""
        places: dict[Declaration, list[int]] = {}
        for place, stream in enumerate(streams):
            one = declaration_of(stream, self.declared)
            if one is not None and one.format == "avro" and len(bodies[place] or b"") <= MAX_BODY:
                places.setdefault(one, []).append(place)
        found: dict[int, Any] = {}
        for one, some in places.items():
            if one not in self._readers:
                self._readers[one] = Avro(one.schema, 0, one.framing)
            reader = self._readers[one]
            column = reader.column(pa.array([bodies[place] or b"" for place in some], pa.binary()))
            found |= zip(some, map(_value, column), strict=True)
        return found

    def _add(self, stream: str, time: int, sequence: int, key: str, body: bytes, decoded: Any) -> None:
        start = time - time % self.window
        one = declaration_of(stream, self.declared)
        problem, value, good = self._judged(one, body, decoded)
        named = one.format if one is not None else ""
        total = self._sum((start, stream, named, "", problem, good))
        total.messages += 1
        total.add_number(len(body))
        if good is not True and (total.sequence is None or sequence < total.sequence):
            total.sequence, total.key, total.example = sequence, printable(key[:_MAX_EXAMPLE]), _shown(body)
        if value is not None:
            self._add_fields(start, stream, named, value)

    def _judged(self, one: Declaration | None, body: bytes, decoded: Any) -> tuple[str, Any, bool | None]:
        """Return the kind of a body, its value if it has fields, and whether it is as declared (None: not judged)."""
        if len(body) > MAX_BODY:
            return f"not checked: above {MAX_BODY >> 20} MiB", None, None
        if one is None:
            kind, value = guessed(body)
            return kind, value, None
        if one.format == "avro":
            return (OK, decoded, True) if decoded is not None else ("not Avro of this schema", None, False)
        if one.format == "text":
            problem = "" if _as_text(body) is not None else "not UTF-8"
            return problem or OK, None, not problem
        problem, value = read_json(body)
        schema = self.schemas.get(one.schema)
        if not problem and schema is not None:
            problem = mismatch(value, schema)
        return problem or OK, value, not problem

    def _add_fields(self, start: int, stream: str, declared: str, value: Any) -> None:
        known = self._fields.setdefault(stream, set())
        for found, item in fields_of(value):
            name = found if found in known or len(known) < MAX_FIELDS else OTHER_FIELDS
            known.add(name)
            total = self._sum((start, stream, declared, name, kind_of(item), None))
            total.messages += 1
            _add_range(total, item)

    def _sum(self, group: Group) -> _Sum:
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = _Sum()
        return found

    @property
    def is_full(self) -> bool:
        """Whether the rows should be taken."""
        return len(self._groups) >= _MAX_GROUPS

    def take(self) -> list[Row]:
        """Return the rows so far, and begin new ones."""
        rows = [
            (*group, one.messages, one.low, one.high, one.first_text, one.last_text, one.sequence, one.key, one.example)
            for group, one in self._groups.items()
        ]
        self._groups.clear()
        return rows


def guessed(body: bytes) -> tuple[str, Any]:
    """Return what an undeclared body looks like, and its value if that is a JSON object or array.

    >>> guessed(b'{"a": 1}'), guessed(b"21.5"), guessed(b"hello"), guessed(b"\\xff"), guessed(b"")
    (('json', {'a': 1}), ('json', None), ('text', None), ('binary', None), ('empty', None))
    """
    if not body:
        return EMPTY, None
    problem, value = read_json(body)
    if not problem:
        return "json", value if isinstance(value, dict | list) else None
    text = _as_text(body)
    is_text = text is not None and not _CONTROL.search(text)
    return ("text" if is_text else "binary"), None


def read_json(body: bytes) -> tuple[str, Any]:
    """Return the problem of a body that should be JSON, or "" and its value.

    >>> read_json(b"[1]"), read_json(b"{1}"), read_json(b"NaN")
    (('', [1]), ('not JSON', None), ('not JSON', None))
    """
    if not body:
        return EMPTY, None
    text = _as_text(body)
    if text is None:
        return "not UTF-8", None
    try:
        return "", json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError:
        return "not JSON", None
    except RecursionError:
        return "nested too deeply", None
    except ValueError as error:  # a constant, or an integer of thousands of digits
        return "not JSON" if isinstance(error, _NotJSON) else "a number is too long", None


class _NotJSON(ValueError):
    """NaN or Infinity, which Python reads and JSON does not have."""


def _refuse(name: str) -> NoReturn:
    raise _NotJSON(name)


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def mismatch(value: Any, kind: types.DataType, name: str = "") -> str:
    """Return how a JSON value differs from a type, or "". The names in the text are those of the schema."""
    told = name or "the body"
    if isinstance(kind, types.StructType):
        if not isinstance(value, dict):
            return f"{told} is not an object"
        return _first(_field_mismatch(value, one, name) for one in kind.fields)
    if isinstance(kind, types.ArrayType):
        if not isinstance(value, list):
            return f"{told} is not an array"
        return _first(mismatch(item, kind.elementType, f"{name}[]") for item in value if item is not None)
    if isinstance(kind, types.MapType):
        if not isinstance(value, dict):
            return f"{told} is not an object"
        return _first(mismatch(item, kind.valueType, f"{name}.*") for item in value.values() if item is not None)
    return "" if _fits(value, kind) else f"{told} is not a {kind.simpleString()}"


def _first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def _field_mismatch(value: Mapping[str, Any], one: types.StructField, name: str) -> str:
    path = f"{name}.{one.name}" if name else one.name
    item = value.get(one.name)
    if item is None:
        return "" if one.nullable else f"{path} is missing"
    return mismatch(item, one.dataType, path)


def _fits(value: Any, kind: types.DataType) -> bool:
    if isinstance(kind, types.BooleanType):
        return isinstance(value, bool)
    if isinstance(kind, types.IntegralType):
        bits = {"tinyint": 7, "smallint": 15, "int": 31}.get(kind.simpleString(), 63)
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if isinstance(kind, types.NumericType):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(kind, types.TimestampType | types.TimestampNTZType | types.DateType):
        return isinstance(value, str) and _is_time(value)
    return isinstance(value, str) or not isinstance(kind, types.StringType)


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def fields_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the fields of a body, `a.b` for one in an object, and `a[]` for items of an array.

    The first one is the whole body, `$`.

    >>> list(fields_of({"room": "hall", "at": {"x": 1}, "tags": ["a"]}))[1:]
    [('room', 'hall'), ('at', {'x': 1}), ('at.x', 1), ('tags', ['a']), ('tags[]', 'a')]
    """
    waiting: list[tuple[str, Any, int]] = [(BODY, value, 0)]
    visited = 0
    while waiting and visited < MAX_VISITED:
        name, item, depth = waiting.pop()
        visited += 1
        yield name, item
        if depth < MAX_DEPTH:
            inner = _inner(name, item)
            waiting += [(one, child, depth + 1) for one, child in reversed(list(inner))]


def _inner(name: str, item: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(item, dict):
        before = "" if name == BODY else f"{name}."
        some = [(str(one)[:_MAX_NAME] or NO_NAME, child) for one, child in list(item.items())[:MAX_VISITED]]
        return [(printable(f"{before}{one}")[: 2 * _MAX_NAME], child) for one, child in some]
    if isinstance(item, list):
        return [(f"{name}[]", child) for child in item[:MAX_VISITED]]
    return ()


def kind_of(value: Any) -> str:
    """Return the name of the type of a value.

    >>> [kind_of(one) for one in (None, True, 1, 1.5, "a", b"a", [], {})]
    ['null', 'boolean', 'integer', 'number', 'string', 'binary', 'array', 'object']
    """
    for kinds, name in _KINDS:
        if isinstance(value, kinds):
            return name
    return type(value).__name__


_KINDS: Final[tuple[tuple[Any, str], ...]] = (
    (type(None), "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (Decimal, "decimal"),
    (str, "string"),
    (bytes, "binary"),
    (list, "array"),
    (dict, "object"),
    (tuple, "entry"),
    (datetime.datetime, "timestamp"),
    (datetime.date, "date"),
    (datetime.time, "time"),
)


def _add_range(total: _Sum, value: Any) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float | Decimal):
        total.add_number(value)
    elif isinstance(value, str):
        total.add_text(value)
    elif isinstance(value, bytes | list | dict):
        total.add_number(len(value))
    else:
        total.add_text(str(value))


def _value(scalar: Any) -> Any:
    """Return an Arrow value as a Python value. A time beyond Python's years becomes a text."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return {"(times)": "beyond the year 9999"}


def _shown(data: bytes) -> str:
    return printable(data[:_MAX_EXAMPLE]) + ("…" if len(data) > _MAX_EXAMPLE else "")
