"""Where the source reads from, whichever it is: files, or a broker. The rest of the package sees this only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zambezi.spark.columns import Numbers, Window
from zambezi.spark.errors import Trimmed

WINDOW = 2 << 20  # octets of the log that become one record batch, about


@dataclass(frozen=True, slots=True)
class StreamState:
    """What is known of a stream. Times are in microseconds since 1970."""

    name: str
    incarnation: str
    first: int  # the oldest sequence that is kept; last + 1 if there is none
    last: int
    octets: int
    last_time: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The messages after one sequence up to another, of one incarnation of a stream."""

    stream: str
    incarnation: str
    after: int
    last: int

    @property
    def count(self) -> int:
        return max(0, self.last - self.after)


@dataclass(frozen=True, slots=True)
class Marks:
    """What the index tells of a slice: at some sequences, how many octets of the slice stand before them.

    Both grow; the first mark is where the slice begins, the last right after its end.
    """

    sequences: Numbers
    octets: Numbers

    @property
    def size(self) -> int:
        return int(self.octets[-1])

    def at(self, octets: float) -> int:
        """The sequence before which there are so many octets, about."""
        return int(np.interp(octets, self.octets, self.sequences))

    def before(self, sequence: int) -> float:
        """How many octets there are before a sequence, about."""
        return float(np.interp(sequence, self.sequences, self.octets))


class Backend(Protocol):
    """Streams to read from."""

    def streams(self, wanted: Iterable[str] | None = None) -> dict[str, StreamState]:
        """The streams that there are now, or those among them that are wanted."""

    def before(self, stream: str, time: int) -> int:
        """The last sequence before the first message at or after a time in microseconds since 1970."""

    def marks(self, piece: Slice) -> Marks:
        """What the index tells of a slice."""

    def windows(self, piece: Slice, pattern: str, *, timed: bool) -> Iterator[Window]:
        """The messages of a slice, in order, in windows, each valid until the next; there may be others before and
        after.

        Raises `Trimmed`, `Replaced` and `Vanished` where they are not there any more. Messages that do not match the
        pattern may be left out already, or not. Without `timed` the times need not be true.
        """

    @property
    def filters(self) -> bool:
        """Whether a pattern is of use to `windows`."""

    def close(self) -> None: ...


def marks_of(firsts: Numbers, starts: Numbers, end: int, piece: Slice) -> Marks:
    """The marks of a slice from index entries: the sequence and octet that each begins with, and where the last ends.

    The entries must reach over the whole slice.
    """
    sequences = np.append(firsts, np.int64(end))
    octets = starts - starts[0]
    first, stop = piece.after + 1, piece.last + 1
    low, high = np.interp([first, stop], sequences, octets)
    inside = (sequences > first) & (sequences < stop)
    return Marks(
        np.concatenate([[first], sequences[inside], [stop]]),
        np.concatenate([[0], octets[inside] - int(low), [max(1, int(high - low))]]),
    )


def trimmed(stream: str, after: int, oldest: int) -> Trimmed:
    """Retention removed what follows a sequence, up to the oldest that is kept."""
    return Trimmed(
        f"stream {stream!a}: sequences {after + 1} to {oldest - 1} are not kept any more, the oldest is {oldest}",
        oldest,
    )
