"""The offsets of a streaming query: for each stream, the last sequence that it has read, and the incarnation.

Spark stores offsets as JSON in the checkpoint, and compares them as text:

    {"readings": {"sequence": 1042, "incarnation": "0b2f1c7e-...", "begin": 1000}}

A sequence alone is not enough: a stream that is deleted and made again counts from 1, so sequence 1042 of the new
stream is a different message. The query began to read this incarnation after the sequence `begin`. With it, a batch
that must be read again reads the same messages, even if the stream was new to the query in that batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from zambezi.spark.errors import SparkError


@dataclass(frozen=True, slots=True)
class Position:
    """A position in an incarnation of a stream: right after a sequence. 0 is before the first message."""

    sequence: int
    incarnation: str
    begin: int = 0


class Offsets(Mapping[str, Position]):
    """The positions of a query, by stream.

    >>> offsets = Offsets({"b": Position(7, "x", 3), "a": Position(0, "y")})
    >>> offsets.to_json()
    {'a': {'sequence': 0, 'incarnation': 'y', 'begin': 0}, 'b': {'sequence': 7, 'incarnation': 'x', 'begin': 3}}
    >>> Offsets.from_json(offsets.to_json()) == offsets
    True
    """

    __slots__ = ("_positions",)

    def __init__(self, positions: Mapping[str, Position]) -> None:
        self._positions = dict(sorted(positions.items()))  # sorted, because equal offsets must be equal as text

    def __getitem__(self, stream: str) -> Position:
        return self._positions[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the form that Spark stores in the checkpoint."""
        return {name: asdict(position) for name, position in self._positions.items()}

    @classmethod
    def from_json(cls, value: Any) -> Offsets:
        """Parse the form that Spark stores in the checkpoint."""
        try:
            return cls(
                {
                    name: Position(int(one["sequence"]), str(one["incarnation"]), int(one["begin"]))
                    for name, one in value.items()
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SparkError(
                f"{value!r} is not an offset of the source `zeps`: the checkpoint belongs to another source; use "
                "another directory for the checkpoint"
            ) from None

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()!r})"
