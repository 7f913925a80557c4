"""Reading a stream from the store, with no broker: as procedures, for the simulation, brokers, commands and Spark.

A reader keeps a view of the log. It looks again when an object has been removed meanwhile, because it was merged, and
when it is told to (`refresh`). It reads what it needs of a segment: the index, once, and then ranges of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Final, NamedTuple, TypeVar

from zambezi.zeps.errors import OutOfRange, StoreDamaged
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.store.chunk import FOOTER, UNCHANGED, Footer, Kind, Piece, check_batches, read_entries, unpack_footer
from zambezi.zeps.store.commands import MISSING, Get, Procedure, ask_all, get
from zambezi.zeps.store.names import Beginning, SegmentName, StreamPlace
from zambezi.zeps.store.view import ChunkObject, SegmentObject, View, look_and_read

T = TypeVar("T")
_LOOKS: Final = 3  # times that a part must not be as the same listing says, before it counts as damaged


class Part(NamedTuple):
    """An object with messages, and its sequences."""

    key: str
    size: int  # of the object
    first: int
    last: int
    octets: int  # of messages
    first_time: int
    last_time: int
    is_segment: bool  # if not, it is a chunk: after a merge, a void fence can replace it


class OpenedPart:
    """A part whose index was read."""

    def __init__(self, part: Part, footer: Footer, index: bytes) -> None:
        self.part = part
        self.footer = footer
        self.index = index

    @cached_property
    def entries(self) -> Sequence[IndexEntry]:
        """The entries; raises `StoreDamaged` if they do not fit."""
        return read_entries(self.index, self.footer, self.part.key)

    @cached_property
    def firsts(self) -> Sequence[int]:
        """The first sequence of each entry."""
        return [entry.first for entry in self.entries]


def open_whole(part: Part, octets: bytes | memoryview) -> OpenedPart:
    """Return a part whose object was read as a whole; raise `StoreDamaged` if it is not what was listed."""
    if len(octets) != part.size:
        raise StoreDamaged(f"{part.key} has {len(octets)} bytes, and {part.size} were listed")
    footer = _read_footer(part, octets[-FOOTER:])
    return OpenedPart(part, footer, bytes(octets[footer.log : footer.log + footer.index]))


def _read_footer(part: Part, octets: bytes | memoryview) -> Footer:
    footer = unpack_footer(octets, part.key)
    if (footer.first, footer.last, footer.size) != (part.first, part.last, part.size):
        raise StoreDamaged(f"{part.key} is not what its name or its size says")
    return footer


class LogReader:
    """A reader of one stream. Its procedures must not run at the same time."""

    def __init__(self, place: StreamPlace) -> None:
        self.place = place
        self.last = 0
        self.last_time = 0
        self.incarnation = UNCHANGED  # that of `stream.json`, unless the log tells another one
        self.is_deleted = False
        self._view = View((), ())
        self._footers: dict[int, Footer] = {}  # of chunks in the tail
        self._opened: OpenedPart | None = None
        self._tail_first = 1  # the first sequence of the tail

    @property
    def first(self) -> int:
        """The first sequence of the stream; one more than `last` if it has no messages."""
        return max(self.oldest, min(self._view.beginning.first, self.last + 1))

    @property
    def beginning(self) -> Beginning:
        """The beginning of the stream, as the store tells it."""
        return self._view.beginning

    @property
    def oldest(self) -> int:
        """The first sequence that can be read: a reader that has planned to read messages can still read them, for a
        while, after they were removed from the stream.
        """
        readable = self._view.readable
        return readable[0].name.first if readable else self._tail_first

    @property
    def size(self) -> int:
        """The bytes of all messages, approximately."""
        return sum(part.octets for part in self.segments) + self.tail_size

    @property
    def segments(self) -> list[Part]:
        """The segments with messages of the stream, in order. They can overlap, and the first can begin before it."""
        first = self.first
        return [self._segment_part(one) for one in self._view.readable if max(one.name.first, first) <= one.name.last]

    @property
    def tail_size(self) -> int:
        """The bytes of the chunks that are in no segment."""
        return sum(chunk.size for chunk in self._view.tail)

    def refresh(self) -> Procedure[None]:
        """Look at the log again: find the last sequence. It needs two LISTs, and the footer of the last chunk."""
        yield from look_and_read(self.place, self._read_view)

    def _read_view(self, view: View) -> Procedure[View | None]:
        """Use a view, if its objects can be read."""
        view.check_whole()
        known = dict(view.tail)
        self._footers = {number: one for number, one in self._footers.items() if known.get(number) == one.size}
        is_known = yield from self._read_last_footers(view)
        if not is_known or not (yield from self._read_first_footer(view)):
            return None
        self._view = view
        return view

    def _read_last_footers(self, view: View) -> Procedure[bool]:
        """Find the last sequence, from the end of the tail backwards; return False if an object is missing."""
        incarnation = UNCHANGED
        is_deleted = False
        stop = len(view.tail)
        while stop:
            # Sizes tell fences: what is asked for is one object with messages, and the fences above it.
            start = next((number for number in reversed(range(stop)) if not view.tail[number].is_fence), 0)
            footers = yield from self._read_footers(view.tail[start:stop])
            if footers is None:
                return False
            for footer in reversed(footers):
                incarnation = footer.incarnation if incarnation == UNCHANGED else incarnation
                is_deleted |= footer.kind == Kind.DELETION
                if footer.kind == Kind.DATA:
                    self._note_end(footer.last, footer.last_time, incarnation, is_deleted)
                    return True
            stop = start
        if view.newest is None:
            self._note_end(0, 0, incarnation, is_deleted)
            return True
        name = view.newest.name
        if incarnation == UNCHANGED:
            key = self.place.segment(name)
            octets = yield from get(key, view.newest.size - FOOTER, FOOTER)
            if octets is None:
                return False
            incarnation = unpack_footer(octets, key).incarnation
        self._note_end(name.last, name.last_time, incarnation, is_deleted)
        return True

    def _read_first_footer(self, view: View) -> Procedure[bool]:
        """Find the first sequence of a log without segments; return False if an object is missing."""
        data = [chunk for chunk in view.tail if not chunk.is_fence]
        if view.newest is None and data:
            footers = yield from self._read_footers(data[:1])
            if footers is None:
                return False
            self._tail_first = footers[0].first
        return True

    def _note_end(self, last: int, last_time: int, incarnation: bytes, is_deleted: bool) -> None:
        self.last, self.last_time = last, last_time
        self.incarnation, self.is_deleted = incarnation, is_deleted

    def _read_footers(self, chunks: Sequence[ChunkObject]) -> Procedure[list[Footer] | None]:
        """Return the footers of chunks; None if one was removed."""
        unknown = [chunk for chunk in chunks if chunk.number not in self._footers]
        answers = yield from ask_all(
            [Get(self.place.chunk(chunk.number), max(0, chunk.size - FOOTER), FOOTER) for chunk in unknown]
        )
        if MISSING in answers:
            return None
        for chunk, octets in zip(unknown, answers, strict=True):
            key = self.place.chunk(chunk.number)
            footer = unpack_footer(octets, key)
            if (footer.number, footer.size) != (chunk.number, chunk.size):
                raise StoreDamaged(f"{key} has {chunk.size} bytes, and its footer says chunk {footer.number}")
            self._footers[chunk.number] = footer
        return [self._footers[chunk.number] for chunk in chunks]

    def read(self, after: int, size: int) -> Procedure[Piece | None]:
        """Return messages from the sequence after `after` on: about `size` bytes, and at least a batch.

        The first batch can also have messages before. Returns None at the end of the log as it was at the last
        `refresh`; raises `OutOfRange` if the sequence cannot be read any more. A caller begins at `first`, and goes on
        from there however the stream is trimmed meanwhile, as long as the store has the messages.
        """
        return self.retry(after, partial(self._read_range, size))

    def open_after(self, after: int) -> Procedure[OpenedPart | None]:
        """Read the index of the object that has the sequence after `after`. It returns and raises like `read`."""
        return self.retry(after, self.open)

    def retry(self, after: int, action: Callable[[int], Procedure[T | None]]) -> Procedure[T | None]:
        """Return what `action` finds for the sequence after `after`; look again if objects are not as listed."""
        seen: View | None = None
        times = 0
        while after < self.last:
            if after + 1 < self.oldest:
                first = self.first
                raise OutOfRange(
                    f"sequences {after + 1} to {first - 1} are not kept any more, the oldest is {first}", first
                )
            problem = StoreDamaged(f"sequence {after + 1} of {self.place.path} cannot be read")
            try:
                found = yield from action(after + 1)
                if found is not None:
                    return found
            except StoreDamaged as error:
                problem = error
            # The object was merged or removed, and perhaps replaced; if the same objects are listed now, it is damaged.
            times = times + 1 if self._view == seen else 1
            if times == _LOOKS:
                raise problem
            seen = self._view
            self._opened = None
            yield from self.refresh()
        return None

    def open(self, sequence: int) -> Procedure[OpenedPart | None]:
        """Read the index of the object that has a sequence; return None if the object was removed."""
        opened = self._opened
        if opened is not None and opened.part.first <= sequence <= opened.part.last:
            return opened
        part = yield from self.find_part(sequence)
        if part is None:
            return None
        octets = yield from get(part.key, part.size - FOOTER, FOOTER)
        if octets is None:
            return None
        footer = _read_footer(part, octets)
        index = yield from get(part.key, footer.log, footer.index)
        if index is None:
            return None
        if len(index) != footer.index:
            raise StoreDamaged(f"{part.key} ends in its index")
        self._opened = OpenedPart(part, footer, index)
        return self._opened

    def find_part(self, sequence: int) -> Procedure[Part | None]:
        """Return the object that has a sequence; None if the view is too old."""
        segments = self._view.readable
        number = bisect_left(segments, sequence, key=lambda segment: segment.name.last)
        if number < len(segments) and segments[number].name.first <= sequence:
            return self._segment_part(segments[number])
        footers = yield from self._read_footers(self._view.tail)
        for footer in footers or ():
            if footer.kind == Kind.DATA and footer.first <= sequence <= footer.last:
                return Part(
                    self.place.chunk(footer.number),
                    footer.size,
                    footer.first,
                    footer.last,
                    footer.log,
                    footer.first_time,
                    footer.last_time,
                    is_segment=False,
                )
        return None

    def _segment_part(self, segment: SegmentObject) -> Part:
        name: SegmentName = segment.name
        return Part(
            self.place.segment(name),
            segment.size,
            name.first,
            name.last,
            name.octets,
            name.first_time,
            name.last_time,
            is_segment=not name.is_chunk,
        )

    def _read_range(self, size: int, sequence: int) -> Procedure[Piece | None]:
        opened = yield from self.open(sequence)
        if opened is None:
            return None
        entries = opened.entries
        start = bisect_right(opened.firsts, sequence) - 1
        begin = entries[start].offset
        stop = start + 1
        while stop < len(entries) and entries[stop].end - begin <= size:
            stop += 1
        chosen = entries[start:stop]
        length = chosen[-1].end - begin
        octets = yield from get(opened.part.key, begin, length)
        if octets is None:
            return None
        if len(octets) != length:
            raise StoreDamaged(f"{opened.part.key} ends before byte {begin + length}")
        if not opened.part.is_segment:  # the name of a segment stands for its bytes; a chunk can be replaced by a fence
            check_batches(octets, chosen, opened.part.key, begin)
        return Piece(octets, [entry._replace(offset=entry.offset - begin) for entry in chosen], b"")

    def last_before(self, time: int) -> Procedure[int]:
        """Return the last sequence before the first message at or after a time in microseconds since 1970."""
        while True:
            found = yield from self._last_before(time)
            if found is not None:
                return found
            yield from self.refresh()

    def _last_before(self, time: int) -> Procedure[int | None]:
        found = self.first - 1
        parts = self.segments
        if not parts or parts[-1].last_time < time:
            footers = yield from self._read_footers(self._view.tail)
            if footers is None:
                return None
            later = [footer for footer in footers if footer.kind == Kind.DATA and footer.count]
            found = max(found, parts[-1].last) if parts else found
            spans = [(footer.first, footer.last, footer.last_time) for footer in later]
        else:
            spans = [(part.first, part.last, part.last_time) for part in parts]
        for first, last, last_time in spans:
            if last_time < time:
                found = max(found, last)
                continue
            opened = yield from self.open(first)
            if opened is None:
                return None
            number = next(number for number, entry in enumerate(opened.entries) if entry.time >= time)
            return max(found, opened.entries[number].first - 1)
        return found
