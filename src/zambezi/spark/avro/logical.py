"""Logical types: the meaning of a number or of bytes.

Avro says that a reader must ignore a logical type that is unknown or invalid. So times in nanoseconds, which Spark does
not have, stay numbers, and durations and decimals without a valid scale stay bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro.cursors import Cursors
from zambezi.spark.avro.kinds import Bytes, Fixed, Int, Kind, Long, String
from zambezi.spark.columns import Array
from zambezi.spark.errors import SchemaError

_DAY: Final = 86_400_000_000  # microseconds
_MAX_DIGITS: Final = 38  # of a decimal, in Spark and in Arrow
_DECIMAL_SIZE: Final = 16  # bytes of a decimal in Arrow
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID: Final = 36  # characters
_HYPHENS: Final = (8, 13, 18, 23)


@dataclass(frozen=True)
class Date(Kind):
    """The logical type date: days since 1970."""

    ddl = "date"
    is_number = True

    def read(self, cursors: Cursors) -> Array:
        return Int().read(cursors).cast(pa.date32())


@dataclass(frozen=True)
class Moment(Kind):
    """A time of day, or a time since 1970: a number of units of `factor` microseconds."""

    name: str  # of the type in Spark
    factor: int = 1
    is_number = True

    @property
    def ddl(self) -> str:
        return self.name

    def read(self, cursors: Cursors) -> Array:
        numbers = cursors.number()
        least, end = (0, _DAY) if self._is_of_day else (-(1 << 63), 1 << 63)
        wrong = (numbers < -(-least // self.factor)) | (numbers > (end - 1) // self.factor)
        cursors.mark_bad(wrong)
        return pa.array(np.where(wrong, 0, numbers) * self.factor).cast(self._type)

    @property
    def _is_of_day(self) -> bool:
        return self.name.startswith("time(")

    @property
    def _type(self) -> Any:
        if self._is_of_day:
            return pa.time64("us")
        return pa.timestamp("us", "UTC" if self.name == "timestamp" else None)


@dataclass(frozen=True)
class Decimal(Kind):
    """The logical type decimal: a big-endian integer in two's complement, divided by a power of ten."""

    octets: Bytes | Fixed
    precision: int
    scale: int

    @property
    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    @property
    def width(self) -> int | None:  # type: ignore[override]
        return self.octets.width

    def read(self, cursors: Cursors) -> Array:
        width = self.octets.width
        sizes = cursors.number() if width is None else np.full(len(cursors), width, np.int64)
        begins, ends = cursors.span(sizes)
        wrong = (begins == ends) | (ends - begins > max(_DECIMAL_SIZE, width or 0))
        octets = cursors.bodies.octets
        sign = np.where(octets[begins] >= 0x80, 0xFF, 0).astype(np.uint8)
        values = np.empty((len(cursors), _DECIMAL_SIZE), np.uint8)
        for number in range(_DECIMAL_SIZE):
            positions = ends - 1 - number
            values[:, number] = np.where(positions >= begins, octets[np.maximum(positions, 0)], sign)
        for number in range(_DECIMAL_SIZE, width or 0):
            wrong |= octets[np.maximum(ends - 1 - number, 0)] != sign
        wrong |= (values[:, -1] ^ sign) >= 0x80
        low, high = values.view("<u8").T
        high = high.view(np.int64)
        most = 10**self.precision - 1
        wrong |= (high > most >> 64) | ((high == most >> 64) & (low > most & 0xFFFFFFFFFFFFFFFF))
        wrong |= (high < -most >> 64) | ((high == -most >> 64) & (low < -most & 0xFFFFFFFFFFFFFFFF))
        cursors.mark_bad(wrong)
        values[wrong] = 0
        kind = pa.decimal128(self.precision, self.scale)
        return pa.Array.from_buffers(kind, len(cursors), [None, pa.py_buffer(values)])


@dataclass(frozen=True)
class Uuid(Kind):
    """A UUID of 16 bytes. It becomes text, like a UUID in a string."""

    ddl = "string"
    width = 16

    def read(self, cursors: Cursors) -> Array:
        count = len(cursors)
        octets = cursors.bodies.octets[cursors.take(self.width)[:, None] + np.arange(self.width)]
        texts = np.full((count, _UUID), ord("-"), np.uint8)
        digits = np.delete(np.arange(_UUID), _HYPHENS)
        texts[:, digits[0::2]] = _DIGITS[octets >> 4]
        texts[:, digits[1::2]] = _DIGITS[octets & 0xF]
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(_UUID)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(texts)])


_LOGICAL_TYPES: Final[dict[tuple[Kind, object], Kind]] = {
    (Int(), "date"): Date(),
    (Int(), "time-millis"): Moment("time(3)", 1000),
    (Long(), "time-micros"): Moment("time(6)"),
    (Long(), "timestamp-millis"): Moment("timestamp", 1000),
    (Long(), "timestamp-micros"): Moment("timestamp"),
    (Long(), "local-timestamp-millis"): Moment("timestamp_ntz", 1000),
    (Long(), "local-timestamp-micros"): Moment("timestamp_ntz"),
    (String(), "uuid"): String(),
    (Fixed(16), "uuid"): Uuid(),
}


def logical_type(kind: Kind, schema: dict[str, Any]) -> Kind:
    """Return the logical type of a schema; the type itself if the schema has no valid logical type."""
    logical = schema.get("logicalType")
    if logical == "decimal" and isinstance(kind, Bytes | Fixed):
        return _decimal(kind, schema)
    return _LOGICAL_TYPES.get((kind, logical), kind) if isinstance(logical, str) else kind


def _decimal(kind: Bytes | Fixed, schema: dict[str, Any]) -> Kind:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return kind
    if isinstance(kind, Fixed) and 10**precision > 1 << (8 * kind.width - 1 if kind.width else 0):
        return kind
    if precision > _MAX_DIGITS:
        raise SchemaError(
            f"a decimal has at most {_MAX_DIGITS} digits in Spark, not {precision}: "
            "remove its logicalType, and it is read as bytes"
        )
    return Decimal(kind, precision, scale)
