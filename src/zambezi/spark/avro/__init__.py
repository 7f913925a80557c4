"""A decoder for a column of Avro bodies, which decodes all of them at once.

    schema   the parser of schemas: from JSON to types
    kinds    the types, and how each is read
    blocks   arrays and maps
    logical  logical types: times, decimals, UUIDs
    cursors  the position in each body, and how it moves

A body that does not fit the schema becomes null, and does not disturb the others. The size of a body bounds the size of
its value: an array cannot have more items than the body has bytes, even if an item takes no bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro.cursors import Cursors, Mask
from zambezi.spark.avro.schema import fingerprint, kind_of, parse_json
from zambezi.spark.columns import Array
from zambezi.spark.errors import OptionError

__all__ = ["FRAMINGS", "Avro"]

FRAMINGS: Final = ("none", "confluent", "single-object")
_SCHEMA_NUMBER: Final = 4  # bytes of the number that a schema registry gives to a schema


class Avro:
    """A decoder for one schema.

    >>> reader = Avro('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}')
    >>> reader.ddl
    'struct<n:bigint>'
    >>> reader.column(pa.array([bytes([2]), bytes([3]), b""], pa.binary())).to_pylist()
    [{'n': 1}, {'n': -2}, None]
    """

    def __init__(self, schema: str, skip: int = 0, framing: str = "none") -> None:
        if framing not in FRAMINGS:
            raise OptionError(f"framing must be one of {', '.join(FRAMINGS)}, not {framing!r}")
        if skip < 0:
            raise OptionError(f"skip must be a number of bytes of at least 0, not {skip}")
        parsed = parse_json(schema)
        self._kind = kind_of(parsed)
        self.ddl = self._kind.ddl
        self._skip = skip
        self._head = b""
        self._schema_number = 0
        if framing == "confluent":
            self._head, self._schema_number = b"\0", _SCHEMA_NUMBER
        elif framing == "single-object":
            self._head = b"\xc3\1" + fingerprint(parsed)

    def column(self, bodies: Array) -> Array:
        """Decode bodies; null if a body is not a value, or has more bytes than its value."""
        cursors = Cursors.over(bodies)
        cursors.take(self._skip)
        cursors.expect(self._head)
        cursors.take(self._schema_number)
        values = self._kind.read(cursors)
        bad = cursors.bad | (cursors.positions != cursors.stops)
        return _set_null(values, bad) if bad.any() else values


def _set_null(column: Array, bad: Mask) -> Array:
    if isinstance(column, pa.StructArray) and column.type.num_fields and not column.null_count:
        return pa.StructArray.from_arrays(column.flatten(), fields=list(column.type), mask=pa.array(bad))
    return column.take(pa.array(np.arange(len(column)), mask=bad))
