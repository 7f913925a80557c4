"""A view of a stream's log: what two LISTs tell about it.

The chunks are listed first and the segments after them. A segment is put before its chunks are removed: so a chunk that
is missing in the first LIST because it was merged is in a segment of the second one.

Chunks at or below the last chunk of the newest segment do not count: their messages are in segments. The chunks above
it are the tail. Their numbers have no gap, unless objects were removed by other hands than a broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple, TypeVar

from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.store.chunk import FOOTER
from zambezi.zeps.store.commands import Procedure, StoredObject, listing
from zambezi.zeps.store.names import (
    ALL,
    Beginning,
    SegmentName,
    StreamPlace,
    last_part,
    parse_beginning,
    parse_chunk,
    parse_segment,
)

T = TypeVar("T")
_LOOKS: Final = 3  # times that the same listing must not fit the objects, before they count as damaged


class ChunkObject(NamedTuple):
    """A chunk in a listing."""

    number: int
    size: int

    @property
    def is_fence(self) -> bool:
        """Whether it has no messages: it is never removed."""
        return self.size <= FOOTER


class SegmentObject(NamedTuple):
    """A segment in a listing."""

    name: SegmentName
    size: int  # of the object with its bytes


@dataclass(frozen=True)
class View:
    """The chunks and segments of a stream, in order."""

    chunks: Sequence[ChunkObject]
    segments: Sequence[SegmentObject]
    strange: Sequence[str] = ()  # keys that no broker writes
    void: Sequence[SegmentObject] = ()  # segments that are chunks, and whose chunk is not listed
    beginnings: Sequence[Beginning] = ()  # the highest one counts

    @classmethod
    def of(cls, chunks: Iterable[StoredObject], segments: Iterable[StoredObject]) -> View:
        """Return the view that two listings tell."""
        strange = []
        numbered = []
        named = []
        void = []
        beginnings = []
        for found in chunks:
            number = parse_chunk(last_part(found.key))
            if number is None:
                strange.append(found.key)
            else:
                numbered.append(ChunkObject(number, found.size))
        sizes = dict(numbered)
        for found in segments:
            name = parse_segment(last_part(found.key))
            beginning = parse_beginning(last_part(found.key))
            if beginning is not None:
                beginnings.append(beginning)
            elif name is None:
                strange.append(found.key)
            elif not name.is_chunk:
                named.append(SegmentObject(name, found.size))
            elif (size := sizes.get(name.last_chunk, 0)) >= name.octets + FOOTER:
                named.append(SegmentObject(name, size))
            else:
                void.append(SegmentObject(name, 0))
        return cls(sorted(numbered), sorted(named), strange, void, sorted(beginnings))

    @property
    def beginning(self) -> Beginning:
        """The first sequence of the stream, unless the objects begin later."""
        return max(self.beginnings, default=ALL)

    @cached_property
    def newest(self) -> SegmentObject | None:
        """The segment that tells the next number, with the chunks above it."""
        return max(self.segments, key=lambda segment: segment.name.rank, default=None)

    @property
    def reached(self) -> int:
        """The last chunk that is in a segment."""
        return self.newest.name.last_chunk if self.newest is not None else 0

    @cached_property
    def tail(self) -> Sequence[ChunkObject]:
        """The chunks that are in no segment."""
        return [chunk for chunk in self.chunks if chunk.number > self.reached]

    @property
    def is_whole(self) -> bool:
        """Whether no number of the tail is missing."""
        return all(chunk.number == number for number, chunk in enumerate(self.tail, self.reached + 1))

    def check_whole(self) -> None:
        """Raise `StoreDamaged` if a number of the tail is missing."""
        if not self.is_whole:
            raise StoreDamaged(f"a chunk between {self.reached + 1} and {self.following - 1} is missing")

    @property
    def following(self) -> int:
        """The number of the next chunk."""
        return (self.tail[-1].number if self.tail else self.reached) + 1

    def is_void(self, fence: int) -> bool:
        """Return whether a fence that was put before this LIST gives no ownership.

        That is so if a segment reaches it, if a chunk above it exists, or if a number below it is missing: the broker
        that put it had read the end of the log long ago, and found its number free only because the chunk of that
        number had been merged and removed.
        """
        return not (self.is_whole and self.tail and self.tail[-1].number == fence)

    @cached_property
    def readable(self) -> Sequence[SegmentObject]:
        """The segments to read, in order: those that reach back from the newest one without a gap.

        Segments can overlap. A segment that others cover is left out.
        """
        chosen: list[SegmentObject] = []
        if self.newest is None:
            return chosen
        chosen.append(self.newest)
        first = self.newest.name.first  # of those that are covered
        best = self.newest
        for segment in sorted(self.segments, key=lambda one: one.name.last, reverse=True):
            if segment.name.last < first - 1:
                if best.name.first == first:
                    break  # a gap
                chosen.append(best)
                first = best.name.first
                if segment.name.last < first - 1:
                    break
            if segment.name.first < best.name.first:
                best = segment
        if best.name.first < first:
            chosen.append(best)
        return chosen[::-1]

    @property
    def leftovers(self) -> list[SegmentObject]:
        """The segments that are not needed: void ones, ones that others cover, and ones that a gap separates."""
        needed = set(self.readable)
        return [*self.void, *(segment for segment in self.segments if segment not in needed)]

    @property
    def merged_chunks(self) -> list[ChunkObject]:
        """The chunks with messages that a segment has: an interrupted merge, or a late put, left them behind."""
        named = {segment.name.last_chunk for segment in self.segments if segment.name.is_chunk}
        return [
            chunk
            for chunk in self.chunks
            if chunk.number <= self.reached and not chunk.is_fence and chunk.number not in named
        ]


def look(place: StreamPlace) -> Procedure[View]:
    """List the chunks of a stream, and then its segments.

    The chunk of a segment can be missing because it was put after the first LIST: then both are listed again. If it is
    still missing, it was merged and removed, perhaps replaced by a void fence, and another segment has its messages.
    """
    return (yield from _look(partial(_list_twice, place)))


def glance(place: StreamPlace) -> Procedure[View]:
    """List the chunks and segments of a stream together.

    That is half the requests of `look`. The result can lack a chunk and the segment that has its messages, if the chunk
    was merged meanwhile: so nothing that must be safe may depend on it.
    """
    return (yield from _look(partial(_list_once, place)))


def _list_twice(place: StreamPlace) -> Procedure[View]:
    chunks = yield from listing(place.chunks)
    segments = yield from listing(place.segments)
    return View.of(chunks, segments)


def _list_once(place: StreamPlace) -> Procedure[View]:
    found = yield from listing(place.path)
    chunks, segments = f"{place.chunks}/", f"{place.segments}/"
    return View.of(
        [one for one in found if one.key.startswith(chunks)], [one for one in found if one.key.startswith(segments)]
    )


def _look(list_all: Callable[[], Procedure[View]]) -> Procedure[View]:
    seen: set[SegmentObject] = set()
    while True:
        view = yield from list_all()
        if seen.issuperset(view.void):
            return view
        seen.update(view.void)


def look_and_read(
    place: StreamPlace, read: Callable[[View], Procedure[T | None]], *, is_hint: bool = False
) -> Procedure[T]:
    """Return what `read` finds; look again as long as objects are not as listed, and others are listed then.

    An object can be removed after the LIST, because it was merged. A void fence can then get its number: so an object
    that seems to be damaged is perhaps another one. If the same objects are listed again, it is damaged. With
    `is_hint` a `glance` is enough.
    """
    seen: View | None = None
    times = 0
    while True:
        view = yield from (glance(place) if is_hint else look(place))
        problem = StoreDamaged(f"objects of {place.path} are listed and cannot be read")
        try:
            found = yield from read(view)
            if found is not None:
                return found
        except StoreDamaged as error:
            problem = error
        times = times + 1 if view == seen else 1
        if times == _LOOKS:
            raise problem
        seen = view
