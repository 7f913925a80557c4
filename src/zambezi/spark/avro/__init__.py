"""Avro in a column of bodies, decoded for all of them at once.

    schema   from JSON to types
    kinds    the types, and how each is read
    blocks   arrays and maps
    logical  types that mean more: times, decimals, UUIDs
    cursors  the places in the bodies, and how they move

A body that does not fit the schema becomes null, and does not disturb the others. What is made of a body is bounded by
its octets: an array cannot have more items than there are octets, even where an item needs none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zambezi.spark.avro.cursors import Cursors, Mask
from zambezi.spark.avro.schema import fingerprint, kind_of, loaded
from zambezi.spark.columns import Array
from zambezi.spark.errors import OptionError

__all__ = ["FRAMINGS", "Avro"]

FRAMINGS: Final = ("none", "confluent", "single-object")
_REGISTRY: Final = 4  # octets of the number that a schema registry gives to a schema


class Avro:
    """A reader for one schema.

    >>> reader = Avro('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}')
    >>> reader.ddl
    'struct<n:bigint>'
    >>> reader.column(pa.array([bytes([2]), bytes([3]), b""], pa.binary())).to_pylist()
    [{'n': 1}, {'n': -2}, None]
    """

    def __init__(self, schema: str, skip: int = 0, framing: str = "none") -> None:
        if framing not in FRAMINGS:
            raise OptionError(f"framing is one of {', '.join(FRAMINGS)}, and not {framing!r}")
        if skip < 0:
            raise OptionError(f"skip is a number of octets, from 0 on, and not {skip}")
        parsed = loaded(schema)
        self._kind = kind_of(parsed)
        self.ddl = self._kind.ddl
        self._skip = skip
        self._head = b""
        self._registry = 0
        if framing == "confluent":
            self._head, self._registry = b"\0", _REGISTRY
        elif framing == "single-object":
            self._head = b"\xc3\1" + fingerprint(parsed)

    def column(self, bodies: Array) -> Array:
        """Values for bodies; null for those that are none, or have more octets than one."""
        cursors = Cursors.over(bodies)
        cursors.take(self._skip)
        cursors.expect(self._head)
        cursors.take(self._registry)
        found = self._kind.read(cursors)
        bad = cursors.bad | (cursors.places != cursors.stops)
        return _without(found, bad) if bad.any() else found


def _without(column: Array, bad: Mask) -> Array:
    if isinstance(column, pa.StructArray) and column.type.num_fields and not column.null_count:
        return pa.StructArray.from_arrays(column.flatten(), fields=list(column.type), mask=pa.array(bad))
    return column.take(pa.array(np.arange(len(column)), mask=bad))
