"""The times of messages on the wire: the content of a TIMES, which is a list of pairs of a sequence and a time.

A pair gives the time of the message with its sequence and of those after it, up to the sequence of the next pair. The
time is that of the batch in the journal, in microseconds since 1970; 0 if retention has removed the batch while the
message waited for a member of a group. The sequences of a list are in order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain, pairwise
from struct import Struct
from typing import Final, Self, TypeAlias

from zambezi.zeps.errors import ZepsError
from zambezi.zeps.messages import Times

Pair: TypeAlias = tuple[int, int]  # a sequence and a time

_PAIR: Final = Struct(">QQ")
MOST: Final = (
    65_536  # pairs of a TIMES; a broker reads fewer index entries, and sends fewer messages to a member, at once
)


def encode_times(pairs: Sequence[Pair]) -> bytes:
    """Return the TIMES message for some pairs."""
    return Times(Struct(f">{2 * len(pairs)}Q").pack(*chain.from_iterable(pairs))).encode()[0]


class TimeTable:
    """The content of a TIMES, to look up the times of messages."""

    __slots__ = ("_sequences", "_times")

    def __init__(self, sequences: Sequence[int], times: Sequence[int]) -> None:
        self._sequences = sequences
        self._times = times

    @classmethod
    def parse(cls, octets: bytes) -> Self:
        """Return the table that a broker has sent; raise `ZepsError` if it is not a valid one."""
        count, rest = divmod(len(octets), _PAIR.size)
        if rest or not 0 < count <= MOST:
            raise ZepsError(f"TIMES with {len(octets)} bytes, which are not 1 to {MOST} pairs of {_PAIR.size} bytes")
        sequences, times = zip(*_PAIR.iter_unpack(octets), strict=True)
        if any(one >= other for one, other in pairwise(sequences)):
            raise ZepsError("TIMES whose sequences are not in order")
        return cls(sequences, times)

    @property
    def first(self) -> int:
        """The first sequence whose time is known."""
        return self._sequences[0]

    def times_of(self, sequences: Sequence[int]) -> array[int]:
        """Return the time of each message. The sequences are in order, and not before `first`."""
        begin = self._place(sequences[0])
        if begin == self._place(sequences[-1]):
            return array("Q", (self._times[begin],)) * len(sequences)
        return array("Q", [self._times[self._place(sequence)] for sequence in sequences])

    def _place(self, sequence: int) -> int:
        return bisect_right(self._sequences, sequence) - 1
