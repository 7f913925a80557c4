"""The object store behind a journal that is a cache, as the journal sees it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from zambezi.zeps.journal.entry import IndexEntry

if TYPE_CHECKING:
    from zambezi.zeps.journal.reading import JournalReading


class Extent(NamedTuple):
    """A part of a stream in the store: its sequences, and the bytes of its messages."""

    first: int
    last: int
    octets: int


class Backing(Protocol):
    """The messages of a stream in an object store. The properties need no I/O; the methods say if they block."""

    @property
    def first(self) -> int:
        """The first sequence; one more than `last` if the store has no messages."""

    @property
    def last(self) -> int: ...

    @property
    def first_time(self) -> int: ...

    @property
    def last_time(self) -> int: ...

    @property
    def octets(self) -> int:
        """The bytes of all messages."""

    def extents(self, after: int, last: int) -> Sequence[Extent]:
        """Return the parts that have messages of a range, in order. Does not block."""

    def read_ahead(self, journal: JournalReading, sequence: int) -> None:
        """Begin to load messages that a reader will want soon. Does not block."""

    def piece_of(self, sequence: int) -> Hashable:
        """Return a name of the piece that has a sequence, as far as the sizes of objects tell. Does not block."""

    def load(self, journal: JournalReading, sequence: int) -> None:
        """Load messages into the journal: a piece that has the sequence. Blocks."""

    def entries(self, sequence: int) -> Sequence[IndexEntry]:
        """Return the index of the object that has a sequence, without its messages. Blocks."""

    def find_before(self, time: int) -> int:
        """Return the last sequence before the first message at or after a time. Blocks."""

    def backwards(self, after: int, last: int) -> Iterator[tuple[Sequence[IndexEntry], bytes]]:
        """Yield the messages of a range from the end, in pieces: their entries and their bytes. Blocks."""
