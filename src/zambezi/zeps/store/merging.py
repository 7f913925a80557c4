"""Merging: many chunks become one segment. And the removal of what is not needed: merged chunks, old segments.

A segment is put before its chunks are removed. Fences are never removed: a put that comes hours late must meet them.
An owner that was deposed may still be merging: its segment has bytes of the same log, and overlaps with others.

A chunk that is large enough becomes a segment as it is: an empty object with the name of a segment says so. So the
bytes of a busy stream are sent once. The chunk has a snapshot of the publishers and positions for that. Small chunks
before it are merged with it.

A slow stream has many small chunks, and would get many small segments. So a merge also takes the newest segments, while
each is at most twice as large as all that is merged after it: then the number of segments stays small, and a byte is
copied a few times only.

Of a stream that was trimmed, segments with removed messages only go as those that are too old. The newest segment and
the chunks above it are replaced by a segment without such messages: see `trimming`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from zambezi.zeps.store.chunk import Author, Ending, Footer, Kind, Piece, pack_segment, unpack_footer, unpack_object
from zambezi.zeps.store.commands import Procedure, compute, delete, get, put
from zambezi.zeps.store.names import SegmentName, StreamPlace
from zambezi.zeps.store.view import ChunkObject, SegmentObject, View, look

GROWTH: Final = 2  # a segment is merged again while the bytes after it are at least this part of its own
# Bytes of an object for each byte of messages, at most, without its snapshots: messages of a few bytes need so many.
_MOST_PER_BYTE: Final = 5


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The objects that become one segment: segments, and chunks of the tail. They are in order."""

    number: int  # of the last chunk
    segments: Sequence[SegmentObject]
    chunks: Sequence[ChunkObject]
    ending: Ending | None  # the records that count at the end of the last chunk; None if that chunk has them
    following: int  # the sequence after the last one
    last_time: int
    trimmed: Container[int] = ()  # chunks that have only messages before the beginning: the segment does not have them
    replaced: Sequence[SegmentObject] = ()  # segments that have only such messages

    @property
    def data_chunks(self) -> list[ChunkObject]:
        """The chunks with messages."""
        return [chunk for chunk in self.chunks if not chunk.is_fence and chunk.number not in self.trimmed]


def segments_to_absorb(view: View, limit: int) -> list[SegmentObject]:
    """Return the newest segments that are small enough to be merged again; `limit` is the size of a full segment."""
    size = sum(chunk.size for chunk in view.tail)
    absorbed: list[SegmentObject] = []
    for segment in reversed(view.readable):
        content = min(segment.size, _MOST_PER_BYTE * segment.name.octets)  # its snapshots are not merged
        if size + content > limit or content > GROWTH * size:
            break
        if absorbed and segment.name.last >= absorbed[0].name.first:
            break  # they overlap: a reader takes from each what it lacks, and a merge does not
        absorbed.insert(0, segment)
        size += content
    return absorbed


def first_group(tail: Sequence[ChunkObject], large: Container[int]) -> Sequence[ChunkObject]:
    """Return the chunks up to the first large one; `large` are the numbers of these. If there is none, return all."""
    count = next((index for index, chunk in enumerate(tail, 1) if chunk.number in large), len(tail))
    return tail[:count]


def promote(place: StreamPlace, footer: Footer) -> Procedure[SegmentObject]:
    """Let a chunk with a snapshot be a segment. If another broker has merged the chunk, the name does not count."""
    made = SegmentObject(footer.segment_name._replace(is_chunk=True), footer.size)
    yield from put(place.listed(made.name), b"")
    return made


def remove_segments(place: StreamPlace, segments: Sequence[SegmentObject]) -> Procedure[None]:
    """Remove segments: first the names, so that no name stays without its bytes."""
    yield from delete(place.listed(segment.name) for segment in segments)
    # The number of a void segment can be that of a fence, which stays.
    yield from delete(place.segment(segment.name) for segment in segments if segment.name.is_chunk and segment.size)


def merge(place: StreamPlace, author: Author, plan: MergePlan) -> Procedure[SegmentObject | None]:
    """Put a segment, and remove what it replaces. Return None if an object is missing: another broker merged it."""
    pieces: list[Piece] = []
    ending = Ending()
    keys = [place.segment(segment.name) for segment in plan.segments]
    keys += [place.chunk(chunk.number) for chunk in plan.data_chunks]
    sizes = [one.size for one in plan.segments] + [chunk.size for chunk in plan.data_chunks]
    for key, size in zip(keys, sizes, strict=True):
        octets = yield from get(key)
        # A chunk that was merged can be replaced by a void fence, which has another size.
        if octets is None or len(octets) != size:
            return None
        found = yield from compute(partial(unpack_object, octets, key))
        pieces.append(found.piece)
        ending = found.ending
    if plan.ending is not None:
        ending = plan.ending
    octets = yield from compute(
        partial(pack_segment, author, plan.number, pieces, ending, plan.following, plan.last_time)
    )
    made = SegmentObject(unpack_footer(octets, "the new segment").segment_name, len(octets))
    yield from put(place.listed(made.name), octets)
    yield from delete(place.chunk(chunk.number) for chunk in plan.chunks if is_removable(chunk))
    yield from remove_segments(place, [one for one in (*plan.segments, *plan.replaced) if one.name != made.name])
    return made


def is_removable(chunk: ChunkObject) -> bool:
    """Return whether a chunk may be removed when its messages are in a segment."""
    return not chunk.is_fence


def sweep(
    place: StreamPlace, keep_bytes: int | None, horizon: int | None, removable: int | None = None
) -> Procedure[View]:
    """Remove the segments that are too old, and all that other segments have; return the view that remains.

    `keep_bytes` bounds the bytes of the segments; segments that end before `horizon`, a time in microseconds since
    1970, are too old. So are those that end before the sequence `removable`, by default the beginning of the stream.
    The newest segment always stays: its name has the number that comes next.
    """
    view = yield from look(place)
    first = view.beginning.first if removable is None else removable
    expired = expired_segments(view, keep_bytes, horizon)
    expired = [one for one in view.readable[:-1] if one in expired or one.name.last < first]
    doomed = [*view.leftovers, *expired]
    yield from remove_segments(place, doomed)
    yield from delete(place.chunk(chunk.number) for chunk in view.merged_chunks)
    yield from delete(place.listed(one) for one in view.beginnings if one != view.beginning)
    removed = {
        *view.merged_chunks,
        *(ChunkObject(one.name.last_chunk, one.size) for one in doomed if one.name.is_chunk),
    }
    return View(
        [chunk for chunk in view.chunks if chunk not in removed],
        [segment for segment in view.segments if segment not in doomed],
        beginnings=[view.beginning],
    )


def expired_segments(view: View, keep_bytes: int | None, horizon: int | None) -> list[SegmentObject]:
    """Return the segments that retention removes from the stream, the oldest first; never the newest.

    The messages that stay have `keep_bytes` at least. The chunks of the tail do not count: a listing tells their sizes,
    and not how much of that are messages.
    """
    present = [segment for segment in view.readable if segment.name.last >= view.beginning.first]
    kept = sum(segment.name.octets for segment in present)
    expired = []
    for segment in present[:-1]:
        is_too_much = keep_bytes is not None and kept - segment.name.octets >= keep_bytes
        is_too_old = horizon is not None and segment.name.last_time < horizon
        if not is_too_much and not is_too_old:
            break
        expired.append(segment)
        kept -= segment.name.octets
    return expired


def clear(place: StreamPlace, author: Author, last: int, deletion: int) -> Procedure[None]:
    """Remove the messages of a deleted stream. `deletion` is the number of the chunk that deletes it.

    An empty segment stands for all others, so that the log stays without gaps; the deletion stays above it.
    """
    empty = pack_segment(author, deletion - 1, (), Ending(), last + 1, 0)
    name = SegmentName(deletion - 1, last + 1, last, 0, 0, 0)
    yield from put(place.listed(name), empty)
    view = yield from look(place)
    yield from delete(place.listed(one.name) for one in (*view.segments, *view.void) if one.name != name)
    yield from delete(place.listed(beginning) for beginning in view.beginnings)
    yield from delete(place.chunk(chunk.number) for chunk in view.chunks if is_removable(chunk))


def find_deletion(view: View, kinds: Sequence[Kind]) -> int | None:
    """Return the number of the chunk that deletes the stream; `kinds` are those of the tail."""
    found = (chunk.number for chunk, kind in zip(view.tail, kinds, strict=True) if kind == Kind.DELETION)
    return next(found, None)
