"""A cursor for a client that has asked for times: a TIMES goes out before the messages that it is about.

Nothing here is used for other clients. The messages themselves are the same: a block in high gear, and in low gear a
selection of a block, or a span that the kernel sends from the file. TIMES messages cost no credit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zambezi.zeps.block import Block
from zambezi.zeps.broker.cursor import Cursor, Outgoing, Outlet
from zambezi.zeps.broker.prefixed_block import PrefixedBlock
from zambezi.zeps.journal import Reader, Span
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.times import Pair, TimeTable, encode_times

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream


class TimedCursor(Cursor):
    """A subscriber's position in one stream, if the subscriber wants times."""

    __slots__ = ("_span",)

    def __init__(self, stream: BrokerStream, outlet: Outlet, on_fell_behind: Callable[[int, int], bool]) -> None:
        super().__init__(stream, outlet, on_fell_behind)
        self._span: Span | None = None  # the messages whose TIMES was pulled: they go out next

    def send_live(self, block: Block) -> None:
        """Send a block that was just appended, after its time; or change to low gear if it cannot go out now."""
        pairs = [(block.first, self.stream.journal.last_time)]
        if self.credit >= block.credit and self.outlet.offer(PrefixedBlock([encode_times(pairs)], block)):
            self._spend(block.credit, block.count)
        elif self.live:  # the connection may have ended in `offer`
            self.fall_back(block.first - 1)

    def pull(self) -> Outgoing | None:
        """Return the next messages that the credit pays for, or the TIMES before them; None if there is nothing."""
        if self._span is not None:
            span, self._span = self._span, None
            return span
        found = super().pull()
        if isinstance(found, Span):
            self._span = found
            return PrefixedBlock([encode_times(self._last_reader.times(found.first, found.last))])
        if isinstance(found, Block):
            return PrefixedBlock([encode_times(self._pairs_of(found))], found)
        return found

    @property
    def _last_reader(self) -> Reader:
        """The reader of the messages that `Cursor.pull` has just returned."""
        return self._stretches[0].reader if self._stretches else self.reader

    def _pairs_of(self, block: Block) -> list[Pair]:
        """Return the pairs for a block that may have gaps: none for batches without a message in it."""
        pairs = self._last_reader.times(block.first, block.last)
        if len(pairs) == 1:
            return pairs
        sequences = [sequence_of(body) for body in block.bodies]
        times = TimeTable(*zip(*pairs, strict=True)).times_of(sequences)
        changes = [0, *(index for index in range(1, len(times)) if times[index] != times[index - 1])]
        return [(sequences[index], times[index]) for index in changes]

    def close(self) -> None:
        """End all subscriptions."""
        super().close()
        self._span = None
