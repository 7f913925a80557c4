"""A stream as its groups of shared readers see it: the journal, read only where the pages are in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zambezi.zeps.block import Block
from zambezi.zeps.broker.turns import keys_in_slice
from zambezi.zeps.errors import Absent, OutOfRange, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal import Span

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream


class GroupSource:
    """The messages of a stream, for one group. `on_loaded` is called when messages were loaded into memory."""

    def __init__(self, stream: BrokerStream, pattern: str) -> None:
        self._stream = stream
        self._filter: Filter = stream.filter_for([pattern])
        self._single = JournalLane(self, 0)
        self.on_loaded: Callable[[], object] = lambda: None

    def reader(self, after: int) -> JournalLane:
        """Return a reader after a sequence."""
        return JournalLane(self, after)

    def message(self, sequence: int) -> Block | None:
        """Return one message; None if it must be loaded first. Raises `OutOfRange` if it is not kept any more."""
        self._single.position = sequence - 1
        return self._single.read_one()

    def wants(self, key: bytes) -> bool:
        """Return whether the group wants messages with a key."""
        return self._filter(key)

    def matching(self, keys: Sequence[bytes]) -> list[int]:
        """Return the indices of the keys whose messages the group wants."""
        return self._filter.matching(keys)

    def is_much_work(self, block: Block) -> bool:
        """Return whether it takes long to filter a block."""
        weight = self._filter.weight
        return bool(weight) and block.count > keys_in_slice(weight)


class JournalLane:
    """A position in the journal."""

    def __init__(self, source: GroupSource, after: int) -> None:
        self._source = source
        self._stream = source._stream
        self._reader = self._stream.journal.reader(after)
        self._loading = False
        self._problem: ZepsError | None = None  # why the store cannot give the next messages
        self._loaded = 0  # the first sequence of messages that were loaded: they are read, or the read fails

    @property
    def position(self) -> int:
        """The last sequence that was passed."""
        return self._reader.position

    @position.setter
    def position(self, after: int) -> None:
        self._reader.seek(after)

    def read(self, octets: int) -> Block | None:
        """Return the next messages, about `octets` at most, and pass them.

        Returns None if there are none, or if they must be loaded first.
        """
        span = self._next(octets)
        if span is None:
            return None
        block = span.read()
        weight = self._source._filter.weight
        if weight and block.count > (most := keys_in_slice(weight)):
            block = block.head(most)
        self._remember(block)
        self._reader.seek(block.last)
        return block

    def _remember(self, block: Block) -> None:
        """Remember the times of messages that a member gets later, when the disk may not have them any more."""
        journal = self._stream.journal
        if journal.is_cache:
            journal.remember_times(block.first, block.last, self._reader.times(block.first, block.last))

    def read_one(self) -> Block | None:
        """Return the next message; None if it must be loaded first. Raises `OutOfRange` if it is not there."""
        wanted = self._reader.position + 1
        if wanted > self._stream.journal.last:
            raise OutOfRange(f"there is no message {wanted}", self._stream.journal.last + 1)
        span = self._next(1)
        if span is not None and span.first != wanted:
            raise OutOfRange(f"message {wanted} is not kept any more", span.first)
        if span is None:
            return None
        block = span.read()
        self._remember(block)
        return block

    def _next(self, octets: int) -> Span | None:
        if self._loading:
            return None
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        try:
            span = self._reader.peek(octets)
        except Absent as absent:
            self._loading = True
            self._stream.fetch(absent, self._on_fetched)
            return None
        if span is not None:
            self._reader.check_gap(span)
        if span is not None and span.first != self._loaded and not span.is_resident():
            self._loading = True
            self._stream.warm(span, lambda: self._on_loaded(span.first))
            return None
        return span

    def _on_fetched(self, problem: ZepsError | None) -> None:
        self._loading = False
        self._problem = problem
        self._source.on_loaded()

    def _on_loaded(self, first: int) -> None:
        self._loading = False
        self._loaded = first
        self._source.on_loaded()
