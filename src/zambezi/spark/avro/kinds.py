"""The types of Avro except arrays and maps: the Spark type of each, and how many cursors at once read or skip it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro.cursors import Cursors
from zambezi.spark.columns import Array, Numbers, spans_to_array

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Kind(ABC):
    """A type. `width` is the size of its values in bytes if all have the same size."""

    width: int | None = None
    is_number: bool = False  # its encoding is one number of variable length
    is_flat: bool = True  # it contains no arrays or maps

    @property
    @abstractmethod
    def ddl(self) -> str:
        """The type in Spark's DDL."""

    @abstractmethod
    def read(self, cursors: Cursors) -> Array:
        """Read the next value of each cursor."""

    def skip(self, cursors: Cursors) -> None:
        """Move each cursor past the next value without decoding it."""
        if self.width is not None:
            cursors.take(self.width)
        elif self.is_number:
            cursors.number()
        else:
            cursors.span(cursors.number())


# Simple types


@dataclass(frozen=True)
class Null(Kind):
    """The type null, whose values take no bytes.

    Spark's type would be void. But when Spark casts such arrays, Arrow makes them too short
    (https://github.com/apache/arrow/issues/43838), and few file formats support void. So it is a boolean that is always
    null.
    """

    ddl = "boolean"
    width = 0

    def read(self, cursors: Cursors) -> Array:
        return pa.nulls(len(cursors), pa.bool_())


@dataclass(frozen=True)
class Boolean(Kind):
    """The type boolean: a byte that is 0 or 1."""

    ddl = "boolean"
    width = 1

    def read(self, cursors: Cursors) -> Array:
        octets = cursors.bodies.octets[cursors.take(1)]
        cursors.mark_bad(octets > 1)
        return pa.array(octets.astype(np.bool_))


@dataclass(frozen=True)
class Int(Kind):
    """The type int: a number of 32 bits."""

    ddl = "int"
    is_number = True

    def read(self, cursors: Cursors) -> Array:
        return pa.array(self.numbers(cursors))

    def numbers(self, cursors: Cursors) -> Any:
        """Read the next values as a numpy array."""
        numbers = cursors.number()
        found = numbers.astype(np.int32)
        cursors.mark_bad(found != numbers)
        return found


@dataclass(frozen=True)
class Long(Kind):
    """The type long: a number of 64 bits."""

    ddl = "bigint"
    is_number = True

    def read(self, cursors: Cursors) -> Array:
        return pa.array(cursors.number())


@dataclass(frozen=True)
class Float(Kind):
    """The types float, with 4 bytes, and double, with 8 bytes."""

    width: int

    @property
    def ddl(self) -> str:
        return "float" if self.width == 4 else "double"

    def read(self, cursors: Cursors) -> Array:
        return pa.array(cursors.bodies.as_numbers(f"<f{self.width}")[cursors.take(self.width)])


@dataclass(frozen=True)
class Bytes(Kind):
    """The type bytes: a length, then the bytes."""

    ddl = "binary"

    def read(self, cursors: Cursors) -> Array:
        begins, ends = cursors.span(cursors.number())
        return spans_to_array(cursors.bodies.octets, begins, ends, pa.binary())


@dataclass(frozen=True)
class String(Kind):
    """The type string: a length, then UTF-8."""

    ddl = "string"

    def read(self, cursors: Cursors) -> Array:
        begins, ends = cursors.span(cursors.number())
        found = spans_to_array(cursors.bodies.octets, begins, ends, pa.string())
        try:
            found.validate(full=True)
        except pa.ArrowInvalid:
            # Arrow does not say which strings are invalid: this column is decoded one by one.
            texts = [_text(octets) for octets in found.cast(pa.binary()).to_pylist()]
            cursors.mark_bad(np.array([text is None for text in texts]))
            return pa.array([text or "" for text in texts], pa.string())
        return found


def _text(octets: bytes) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class Fixed(Kind):
    """The type fixed: as many bytes as the schema says."""

    width: int
    ddl = "binary"

    def read(self, cursors: Cursors) -> Array:
        begins, ends = cursors.span(np.full(len(cursors), self.width, np.int64))
        return spans_to_array(cursors.bodies.octets, begins, ends, pa.binary())


@dataclass(frozen=True)
class Enum(Kind):
    """The type enum: the number of a symbol."""

    symbols: tuple[str, ...]
    ddl = "string"
    is_number = True

    def read(self, cursors: Cursors) -> Array:
        chosen = cursors.choice(len(self.symbols))
        return pa.array(self.symbols, pa.string()).take(pa.array(chosen))


# Types that contain other types


@dataclass(frozen=True)
class Record(Kind):
    """The type record: its fields one after another."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    width: int | None = field(init=False)
    is_flat: bool = field(init=False)

    def __post_init__(self) -> None:
        widths = [kind.width for kind in self.kinds if kind.width is not None]
        object.__setattr__(self, "width", sum(widths) if len(widths) == len(self.kinds) else None)
        object.__setattr__(self, "is_flat", all(kind.is_flat for kind in self.kinds))

    @property
    def ddl(self) -> str:
        return _struct(self.names, self.kinds)

    def read(self, cursors: Cursors) -> Array:
        columns = [kind.read(cursors) for kind in self.kinds]
        if not columns:
            return pa.Array.from_buffers(pa.struct([]), len(cursors), [None])
        return pa.StructArray.from_arrays(columns, names=self.names)

    def skip(self, cursors: Cursors) -> None:
        if self.width is not None:
            cursors.take(self.width)
            return
        for kind in self.kinds:
            kind.skip(cursors)


def _struct(names: tuple[str, ...], kinds: tuple[Kind, ...]) -> str:
    fields = [f"{_quoted(name)}:{kind.ddl}" for name, kind in zip(names, kinds, strict=True)]
    return f"struct<{','.join(fields)}>"


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


@dataclass(frozen=True)
class Union(Kind):
    """A union: the number of a branch, then a value of that branch's type.

    It is converted as in Spark's from_avro. A branch null makes the value nullable. If there is one other branch, the
    value has its type; int and long become one bigint, float and double one double; other unions become a struct of
    member0, member1, ..., in which only the chosen member is not null.
    """

    branches: tuple[Kind, ...]
    is_flat: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_flat", all(kind.is_flat for kind in self.branches))

    @property
    def present(self) -> tuple[Kind, ...]:
        """The branches other than null."""
        return tuple(kind for kind in self.branches if not isinstance(kind, Null))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(f"member{number}" for number in range(len(self.present)))

    @property
    def ddl(self) -> str:
        merged = self._merged()
        if merged is not None:
            return merged.ddl
        return _struct(self._names, self.present) if self.present else Null().ddl

    def _merged(self) -> Kind | None:
        """Return the single type that all branches become; None if they become a struct."""
        kinds = self.present
        if len(kinds) == 1:
            return kinds[0]
        if set(kinds) == {Int(), Long()}:
            return Long()
        return Float(8) if set(kinds) == {Float(4), Float(8)} else None

    def read(self, cursors: Cursors) -> Array:
        count = len(cursors)
        chosen = cursors.choice(len(self.branches))
        columns, indexes = [], []
        for number, kind in enumerate(self.branches):
            if isinstance(kind, Null):
                continue
            index = np.flatnonzero(chosen == number)
            indexes.append(index)
            if len(index) == count:
                columns.append(kind.read(cursors))
                continue
            some = cursors.subset(index)
            columns.append(kind.read(some))
            cursors.put_back(index, some)
        if not columns:
            return Null().read(cursors)
        if self._merged() is None:
            spread = [_spread(column, index, count) for column, index in zip(columns, indexes, strict=True)]
            is_null = np.ones(count, np.bool_)
            is_null[np.concatenate(indexes)] = False
            return pa.StructArray.from_arrays(spread, names=self._names, mask=pa.array(is_null))
        if len(columns) == 1:
            return _spread(columns[0], indexes[0], count)
        widest = pa.int64() if isinstance(self._merged(), Long) else pa.float64()
        together = pa.concat_arrays([column.cast(widest) for column in columns])
        return _spread(together, np.concatenate(indexes), count)

    def skip(self, cursors: Cursors) -> None:
        chosen = cursors.choice(len(self.branches))
        for number, kind in enumerate(self.branches):
            index = np.flatnonzero(chosen == number)
            if len(index) and kind.width != 0:
                some = cursors.subset(index)
                kind.skip(some)
                cursors.put_back(index, some)


def _spread(column: Array, index: Numbers, count: int) -> Array:
    """Return a column of `count` values: those of `column` at `index`, and nulls elsewhere."""
    positions = np.full(count, -1, np.int64)
    positions[index] = np.arange(len(index))
    is_missing = positions < 0
    if len(index) == count and (count < 2 or (positions[1:] > positions[:-1]).all()):
        return column
    return column.take(pa.array(positions, mask=is_missing))
