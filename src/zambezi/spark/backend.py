"""The interface between the source and the place where streams are stored: files, an object store, or a broker.

The readers and the planner use only this interface. `JournalBackend`, `StoreBackend` and `BrokerBackend` implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np

from zambezi.spark.columns import Messages, Numbers
from zambezi.spark.errors import DataLoss, Replaced, Trimmed

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

    def covers(self, state: StreamState) -> bool:
        """Return whether these are all messages of a stream."""
        return self.after < state.first and self.last >= state.last


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

    def sequences_at(self, sizes: Sequence[float]) -> list[int]:
        """Return the sequences before which the range has so many bytes, approximately."""
        return [int(sequence) for sequence in np.interp(sizes, self.bytes_before, self.sequences)] if sizes else []

    def size_before(self, sequence: int) -> float:
        """Return the number of bytes of the range before a sequence, approximately."""
        return float(np.interp(sequence, self.sequences, self.bytes_before))


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of messages that a query needs."""

    pattern: str = ""  # of keys; a backend can leave out messages that do not match
    bare: bool = False  # neither keys nor bodies: the index of the journal is enough


class Backend(Protocol):
    """A place to read streams from."""

    def streams(self, names: Iterable[str] | None = None, pattern: str = "") -> dict[str, StreamState]:
        """Return streams that exist now: those with the given names, or else those whose names match a pattern."""

    def last_before(self, times: Mapping[str, int]) -> dict[str, int]:
        """Return, for streams and times in microseconds since 1970, the last sequence before the first message at or
        after the time; 0 for a stream that does not exist."""

    def times_after(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Return, for streams and sequences, the time of the first message after the sequence, in microseconds since
        1970; 0 if there is none."""

    def size_indexes(self, ranges: Sequence[SequenceRange], step: int) -> list[SizeIndex | None]:
        """Return the sizes that the indexes of the journals have, about one entry for each `step` bytes.

        None stands for a range whose messages do not exist any more: whoever reads it finds out why.
        """

    def read(self, ranges: Sequence[SequenceRange], request: Request) -> Iterator[Found]:
        """Yield the messages of ranges in order, each with its range. An item is valid until the next is requested.

        An item can also contain messages outside the range. If messages of a range do not exist any more, an item is
        the error, after those of the messages that could be read: `Trimmed`, `Replaced` or `Vanished`.
        """

    @property
    def filters_keys(self) -> bool:
        """Whether `read` makes use of a pattern."""

    def close(self) -> None: ...


Found: TypeAlias = tuple[SequenceRange, Messages | DataLoss]


def size_index_from_points(points: Sequence[tuple[int, int]]) -> SizeIndex | None:
    """Return the size index of a range, from sequences and the bytes before them; None if there are none."""
    if not points:
        return None
    sequences, sizes = np.array(points, np.int64).T
    sizes = np.maximum(sizes, np.arange(len(sizes)))  # sizes grow, even if messages at an end are smaller than a byte
    return SizeIndex(np.ascontiguousarray(sequences), np.ascontiguousarray(sizes))


def read_each(ranges: Sequence[SequenceRange], read: Callable[[SequenceRange], Iterator[Found]]) -> Iterator[Found]:
    """Yield the messages of each range; a range that cannot be read whole ends with its loss."""
    for wanted in ranges:
        try:
            yield from read(wanted)
        except DataLoss as loss:
            yield wanted, loss


def replaced_error(stream: str, now: str, before: str) -> Replaced:
    """Return the error for a stream that has another incarnation."""
    return Replaced(f"stream {stream!a} is now {now}, and was {before}")


def trimmed_error(stream: str, after: int, oldest: int) -> Trimmed:
    """Return the error for messages that retention removed: those after a sequence and before the oldest one kept."""
    return Trimmed(
        f"stream {stream!a}: sequences {after + 1} to {oldest - 1} are not kept any more, the oldest is {oldest}",
        oldest,
        oldest - 1 - after,
    )
