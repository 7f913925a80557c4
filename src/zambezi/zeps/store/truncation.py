"""Truncation: a stream loses the messages after a sequence, and gets a new incarnation.

The log of chunks never changes: readers without a broker have seen it, and segments of deposed owners may still come.
So a stream that is truncated goes on in another generation, a new log with the messages up to the cut.

1. The broker takes the stream with a fence: so it knows the end of the log, and no other broker confirms messages.
2. It claims the next free generation: `stream.json` there names the chunk that must come next in the old log. Until
   that chunk exists, the generation does not count. No other attempt writes to it: it has an incarnation of its own.
3. It copies the messages up to the cut. The last segment has the counts of all publishers: those whose messages are cut
   off must not send them again. It also has the positions of readers, and the log goes on after its number.
4. It puts that chunk: a deletion, with the incarnation of the new generation. This is the moment of the truncation: the
   chunk is put if absent, as any other. If another broker has put a fence there, the attempt has failed.
5. The old messages are removed, as those of a deleted stream.

A crash leaves the old stream, or the new one. A broker or a reader that is in the old log finds the deletion there, and
looks for the stream again. `clear_others` removes what an attempt that has failed, or step 5, has left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from zambezi.zeps.errors import OutOfRange, StoreError
from zambezi.zeps.journal.counts import RECORD, Counts
from zambezi.zeps.journal.loaded import clip
from zambezi.zeps.journal.positions import Content
from zambezi.zeps.store.catalog import StoredStream, claim_generation, is_void, other_generations
from zambezi.zeps.store.chunk import (
    UNCHANGED,
    Author,
    Ending,
    Kind,
    Piece,
    pack_fence,
    pack_segment,
    unpack_footer,
)
from zambezi.zeps.store.commands import Procedure, compute, delete, get, put
from zambezi.zeps.store.ending import End, read_end
from zambezi.zeps.store.merging import clear, find_deletion
from zambezi.zeps.store.names import Beginning, StreamPlace
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.takeover import put_own, take_over
from zambezi.zeps.store.view import SegmentObject, View, look, look_and_read

_PIECE: Final = 8 << 20  # bytes that are read at once
_PUBLISHERS: Final = 1 << 30  # all of them


def truncate(stream: StoredStream, owner: bytes, last: int, incarnation: UUID) -> Procedure[StoredStream]:
    """Remove all messages after a sequence, and return the stream in its new place: no broker owns it there.

    Return the stream itself if it has no messages after the sequence.
    """
    place = stream.place
    end = yield from take_over(place, owner, UNCHANGED)
    if end.is_deleted:
        raise StoreError("it was deleted or truncated meanwhile")
    reader = LogReader(place)
    yield from reader.refresh()
    if not reader.first - 1 <= last <= end.last:
        raise OutOfRange(f"it has sequences {reader.first} to {end.last}, and cannot be cut after {last}", reader.first)
    if last == end.last:
        return stream
    number = end.view.following
    author = Author(owner, end.epoch, incarnation.bytes)
    made = yield from claim_generation(stream, incarnation, number)
    beginning = reader.beginning
    if beginning.first > 1:
        yield from put(made.place.listed(Beginning(min(beginning.first, last + 1), beginning.time)), b"")
    copied = yield from _copy_segments(place, made.place, reader.first, last)
    rest = yield from _read_rest(reader, copied.last, last)
    last_time = rest[-1].entries[-1].time if rest else copied.last_time
    octets = yield from compute(partial(pack_segment, author, number, rest, _ending_at(end, last), last + 1, last_time))
    yield from put(made.place.listed(unpack_footer(octets, "the new segment").segment_name), octets)
    if not (yield from put_own(place.chunk(number), pack_fence(Kind.DELETION, author, number))):
        raise StoreError("another broker has taken it")
    return made


class _Copied(NamedTuple):
    """The last message of the segments that were copied, and its time."""

    last: int
    last_time: int


def _copy_segments(source: StreamPlace, target: StreamPlace, first: int, last: int) -> Procedure[_Copied]:
    """Copy the segments with messages from one sequence to another one, and no others.

    A segment that is a chunk becomes one of its own: the new log has no such chunk.
    """
    while True:
        view = yield from look(source)
        whole = [one for one in view.readable if one.name.first <= one.name.last and first <= one.name.last <= last]
        for segment in whole:
            octets = yield from get(source.segment(segment.name))
            if octets is None or len(octets) != segment.size:
                break  # it was merged meanwhile: what was copied already does no harm
            yield from put(target.listed(segment.name._replace(is_chunk=False)), octets)
        else:
            newest = max(whole, key=lambda one: one.name.last, default=None)
            return _Copied(first - 1, 0) if newest is None else _Copied(newest.name.last, newest.name.last_time)


def _read_rest(reader: LogReader, after: int, last: int) -> Procedure[list[Piece]]:
    """Return the messages between two sequences. The snapshot of a segment has the counts, so the pieces have none."""
    pieces: list[Piece] = []
    while after < last:
        piece = yield from reader.read(after, _PIECE)
        if piece is None:
            raise StoreError(f"sequence {after + 1} of {reader.place.path} is not there")
        entries, octets = clip(piece.entries, piece.octets, after + 1, last)
        pieces.append(Piece(octets, [entry._replace(publishers=0, removed=0) for entry in entries], b""))
        after = entries[-1].last
    return pieces


def _ending_at(end: End, last: int) -> Ending:
    """Return the records of a log that count if it ends with an earlier sequence."""
    counts = Counts(_PUBLISHERS)
    counts.note(end.records)
    counts.move_to(last)
    states = Content(end.positions).states.values()
    return Ending(counts.snapshot(1)[RECORD:], b"".join([state.cut_after(last).pack() for state in states]))


# What is left behind


def clear_others(place: StreamPlace) -> Procedure[None]:
    """Remove the messages of all other generations of a stream that count no more, and never will."""
    others = yield from other_generations(place)
    for other in others:
        if (yield from is_void(other)):
            view = yield from look(other.place)
            yield from delete(other.place.listed(one.name) for one in view.segments)
            yield from delete(other.place.listed(one) for one in view.beginnings)
        elif other.place.generation < place.generation:
            yield from clear_deleted(other.place)


def clear_deleted(place: StreamPlace) -> Procedure[None]:
    """Remove the messages of a stream that is deleted or truncated, if it has some."""
    end = yield from look_and_read(place, partial(read_end, place))
    deletion = find_deletion(end.view, [footer.kind for footer in end.footers])
    if end.is_deleted and deletion is not None and _has_messages(end.view, end.view.segments):
        yield from clear(place, Author(end.owner, end.epoch, end.incarnation), end.last, deletion)


def _has_messages(view: View, segments: Sequence[SegmentObject]) -> bool:
    is_left = any(one.name.octets for one in segments) or bool(view.leftovers or view.beginnings)
    return is_left or any(not chunk.is_fence for chunk in view.chunks)
