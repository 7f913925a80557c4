"""The interface between the source and the place where streams are stored: files, or a broker.

The readers and the planner use only this interface. `JournalBackend` and `BrokerBackend` implement it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from zambezi.spark.columns import EncodedMessages, Numbers
from zambezi.spark.errors import Trimmed

READ_SIZE: Final = 2 << 20  # bytes of the log that become one record batch, approximately


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream at one moment. Times are in microseconds since 1970."""

    name: str
    incarnation: str
    first: int  # the oldest sequence that is kept; last + 1 if the stream is empty
    last: int
    size: int  # bytes
    last_time: int
    has_gaps: bool = False  # whether messages between `first` and `last` can be missing: the stream is compacted


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """The messages of one incarnation of a stream with a sequence greater than `after` and at most `last`."""

    stream: str
    incarnation: str
    after: int
    last: int

    @property
    def count(self) -> int:
        return max(0, self.last - self.after)


@dataclass(frozen=True, slots=True)
class SizeIndex:
    """The number of bytes before some sequences of a range, as the index of the journal gives it.

    Both arrays grow. The first entry is the beginning of the range, the last is the position after its end.
    """

    sequences: Numbers
    bytes_before: Numbers

    @property
    def size(self) -> int:
        """The size of the whole range in bytes."""
        return int(self.bytes_before[-1])

    def sequence_at(self, size: float) -> int:
        """Return the sequence before which the range has this many bytes, approximately."""
        return int(np.interp(size, self.bytes_before, self.sequences))

    def size_before(self, sequence: int) -> float:
        """Return the number of bytes of the range before a sequence, approximately."""
        return float(np.interp(sequence, self.sequences, self.bytes_before))


class Backend(Protocol):
    """A place to read streams from."""

    def streams(self, names: Iterable[str] | None = None) -> dict[str, StreamState]:
        """Return the streams that exist now: all of them, or those with the given names."""

    def last_before(self, stream: str, time: int) -> int:
        """Return the last sequence before the first message at or after a time in microseconds since 1970."""

    def size_index(self, wanted: SequenceRange) -> SizeIndex:
        """Return the sizes that the index of the journal has for a range."""

    def read(self, wanted: SequenceRange, pattern: str, *, with_times: bool) -> Iterator[EncodedMessages]:
        """Yield the messages of a range in order. Each item is valid until the next one is requested.

        The first and the last item can also contain messages outside the range. The backend can already leave out
        messages that do not match the pattern, but it need not. Without `with_times` the times can be wrong.

        Raises `Trimmed`, `Replaced` or `Vanished` if messages of the range no longer exist.
        """

    @property
    def filters_keys(self) -> bool:
        """Whether `read` makes use of a pattern."""

    def close(self) -> None: ...


def size_index_from_entries(firsts: Numbers, starts: Numbers, end: int, wanted: SequenceRange) -> SizeIndex:
    """Return the size index of a range.

    `firsts` has the first sequence of each index entry, `starts` the byte at which each entry begins and then the byte
    at which the last one ends, `end` is the sequence after the last entry. The entries must cover the whole range.
    """
    sequences = np.append(firsts, np.int64(end))
    positions = starts - starts[0]
    first, stop = wanted.after + 1, wanted.last + 1
    low, high = np.interp([first, stop], sequences, positions)
    is_inside = (sequences > first) & (sequences < stop)
    return SizeIndex(
        np.concatenate([[first], sequences[is_inside], [stop]]),
        np.concatenate([[0], positions[is_inside] - int(low), [max(1, int(high - low))]]),
    )


def trimmed_error(stream: str, after: int, oldest: int) -> Trimmed:
    """Return the error for messages that retention removed: those after a sequence and before the oldest one kept."""
    return Trimmed(
        f"stream {stream!a}: sequences {after + 1} to {oldest - 1} are not kept any more, the oldest is {oldest}",
        oldest,
    )
