"""How far a query has come: for each stream the last sequence that was read, and the incarnation that it is of.

Spark keeps offsets as JSON in the checkpoint, and compares them as text:

    {"readings": {"sequence": 1042, "incarnation": "0b2f1c7e-...", "begin": 1000}}

A sequence alone would not do: a stream that was deleted and made anew counts from 1 again, and 1042 of the new one is
another message. `begin` is after which sequence the query began to read this incarnation: so a batch that has to be
read again reads what it read before, though the stream was new to the query then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from zambezi.spark.errors import SparkError


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream: right after a sequence, of an incarnation. 0 is before the first message."""

    sequence: int
    incarnation: str
    begin: int = 0


class Offsets(Mapping[str, Position]):
    """The positions of a query, by the names of the streams.

    >>> offsets = Offsets({"b": Position(7, "x", 3), "a": Position(0, "y")})
    >>> offsets.to_json()
    {'a': {'sequence': 0, 'incarnation': 'y', 'begin': 0}, 'b': {'sequence': 7, 'incarnation': 'x', 'begin': 3}}
    >>> Offsets.from_json(offsets.to_json()) == offsets
    True
    """

    __slots__ = ("_positions",)

    def __init__(self, positions: Mapping[str, Position]) -> None:
        self._positions = dict(sorted(positions.items()))  # equal offsets must be equal as text

    def __getitem__(self, stream: str) -> Position:
        return self._positions[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """What Spark keeps in the checkpoint."""
        return {name: asdict(position) for name, position in self._positions.items()}

    @classmethod
    def from_json(cls, told: Any) -> Offsets:
        """What Spark gives back."""
        try:
            return cls(
                {
                    name: Position(int(one["sequence"]), str(one["incarnation"]), int(one["begin"]))
                    for name, one in told.items()
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SparkError(
                f"{told!r} is no offset of the source `zeps`: the checkpoint is of another source; use another one"
            ) from None

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()!r})"
