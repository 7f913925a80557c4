"""The messages that a log has in the store, as its owner knows them: no request is needed to tell what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zambezi.zeps.journal.backing import Extent
from zambezi.zeps.store.chunk import Footer
from zambezi.zeps.store.ending import End
from zambezi.zeps.store.names import Beginning
from zambezi.zeps.store.view import View


class _Part(NamedTuple):
    extent: Extent
    first_time: int

    def begin_at(self, beginning: Beginning) -> _Part | None:
        """Return the part without the messages before a beginning; None if there are no others."""
        first, last, octets = self.extent
        if first >= beginning.first:
            return self
        if last < beginning.first:
            return None
        kept = last - beginning.first + 1
        return _Part(Extent(beginning.first, last, octets * kept // (last - first + 1)), beginning.time)


class StoredExtents:
    """The parts of one log: its segments, and the chunks above them."""

    def __init__(self) -> None:
        self.octets = 0  # of all messages
        self._tail: dict[int, Footer] = {}  # of chunks with messages, by number
        self._parts: Sequence[_Part] = ()  # replaced, never modified: other threads may be iterating over it

    def begin(self, end: End) -> None:
        """Begin with the end of a log."""
        self._tail = {footer.number: footer for footer in end.footers if footer.count}
        self.update(end.view)

    def add(self, footer: Footer) -> None:
        """Note a chunk that was put."""
        if footer.count:
            self._tail[footer.number] = footer
            self._set([*self._parts, _part_of(footer)])  # the stream never begins after a new message

    def update(self, view: View) -> None:
        """Note that segments were put or removed, or that the stream begins later."""
        self._tail = {number: footer for number, footer in self._tail.items() if number > view.reached}
        found = []
        above = 0  # segments can overlap: each counts for the messages that the one before lacks
        for segment in view.readable:
            name = segment.name
            first = max(name.first, above + 1)
            if first <= name.last:
                share = name.octets * (name.last - first + 1) // (name.last - name.first + 1)
                found.append(_Part(Extent(first, name.last, share), name.first_time))
                above = name.last
        parts = [*found, *map(_part_of, self._tail.values())]
        self._set([one for part in parts if (one := part.begin_at(view.beginning)) is not None])

    def _set(self, parts: Sequence[_Part]) -> None:
        self._parts = parts
        self.octets = sum(part.extent.octets for part in parts)

    def ends_before(self, first: int) -> set[int]:
        """Return the numbers of the chunks above all segments that have messages, and only some before a sequence."""
        return {number for number, footer in self._tail.items() if footer.last < first}

    @property
    def first(self) -> int | None:
        """The first sequence; None if there are no messages."""
        parts = self._parts
        return parts[0].extent.first if parts else None

    @property
    def first_time(self) -> int:
        """The time of the first message, in microseconds since 1970."""
        parts = self._parts
        return parts[0].first_time if parts else 0

    def between(self, after: int, last: int) -> list[Extent]:
        """Return the parts with messages of a range."""
        return [part.extent for part in self._parts if part.extent.last > after and part.extent.first <= last]


def _part_of(footer: Footer) -> _Part:
    return _Part(Extent(footer.first, footer.last, footer.log), footer.first_time)
