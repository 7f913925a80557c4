"""The end of a stream's log: the last sequence, the publishers, the owner. A new owner must know it, and a planner.

The newest segment has a snapshot of all publishers and positions, and each chunk above it the records of those that
changed in it. A segment can be a chunk, with the kind and the epoch of that. So only the ends of these objects are
read, and no messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.journal.counts import RECORD, unpack
from zambezi.zeps.store.chunk import FOOTER, NOBODY, UNCHANGED, Footer, Kind, check_positions, unpack_footer
from zambezi.zeps.store.commands import MISSING, Get, Procedure, ask_all, get
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.view import ChunkObject, View

_GUESS: Final = 4096  # bytes at the end of a chunk that usually have its records and its footer


@dataclass(frozen=True, slots=True)
class End:
    """The end of a log."""

    view: View
    last: int  # the last sequence
    last_time: int  # its time
    epoch: int
    owner: bytes
    incarnation: bytes  # 16 bytes; zeros if the log does not tell it: then it is that of `stream.json`
    is_deleted: bool
    records: Sequence[bytes]  # the records of publishers, the oldest first
    positions: bytes  # the records of positions, the oldest first
    footers: Sequence[Footer]  # of the tail

    @property
    def is_released(self) -> bool:
        """Whether the last owner has given the stream up, or it never had an owner."""
        return self.owner == NOBODY


def read_end(place: StreamPlace, view: View, known: Mapping[ChunkObject, bytes] | None = None) -> Procedure[End | None]:
    """Read the end of a log; return None if an object was removed meanwhile: then look again.

    An object that was replaced meanwhile seems to be damaged: see `look_and_read`. `known` are the ends of chunks that
    are not read again. A chunk with a number and a size has the same bytes for ever: only a void fence, which has
    another size, can get the number of a chunk with messages.
    """
    view.check_whole()
    ends: list[_Ends] = []
    newest = view.newest
    if newest is not None:
        key = place.segment(newest.name)
        octets = yield from get(key, max(0, newest.size - FOOTER), FOOTER)
        if octets is None:
            return None
        footer = _segment_footer(octets, key, newest.size)
        size = footer.ending - footer.records
        if size > FOOTER:
            octets = yield from get(key, newest.size - size, size)
            if octets is None:
                return None
        ends.append(_divide(footer, octets, key, is_segment=True))
    tails = yield from _read_tails(place, view.tail, known or {})
    if tails is None:
        return None
    return _fold(view, [*ends, *tails])


class _Ends(NamedTuple):
    """The end of one object: its footer, the records of publishers, and those of positions."""

    footer: Footer
    records: list[bytes]
    positions: bytes


def _divide(footer: Footer, octets: bytes, key: str, *, is_segment: bool) -> _Ends:
    """Return the parts of the last bytes of an object: the snapshot of a segment, or the records of a chunk."""
    positions_at = len(octets) - FOOTER - footer.positions
    snapshot_at = positions_at - footer.snapshot
    records_at = snapshot_at - footer.records
    positions = octets[positions_at:-FOOTER]
    check_positions(positions, key)
    records = octets[snapshot_at:positions_at] if is_segment else octets[records_at:snapshot_at]
    return _Ends(footer, _split(records, key), positions)


def _segment_footer(octets: bytes, key: str, size: int) -> Footer:
    footer = unpack_footer(octets, key)
    if footer.kind not in (Kind.SEGMENT, Kind.DATA) or footer.size != size:
        raise StoreDamaged(f"{key} has {size} bytes, and its footer says a {footer.kind.name.lower()} of {footer.size}")
    return footer


def read_known(place: StreamPlace, view: View) -> Procedure[dict[ChunkObject, bytes]]:
    """Return the ends of the chunks in a tail, as `read_end` wants them; none if one was removed meanwhile."""
    ends = yield from _read_ends(place, view.tail, [_GUESS] * len(view.tail))
    return dict(zip(view.tail, ends, strict=True)) if ends is not None else {}


def _read_tails(
    place: StreamPlace, tail: Sequence[ChunkObject], known: Mapping[ChunkObject, bytes]
) -> Procedure[list[_Ends] | None]:
    """Return the ends of all chunks; None if one was removed meanwhile."""
    unknown = [chunk for chunk in tail if chunk not in known]
    read = yield from _read_ends(place, unknown, [_GUESS] * len(unknown))
    if read is None:
        return None
    found = {**known, **dict(zip(unknown, read, strict=True))}
    ends = [found[chunk] for chunk in tail]
    footers = [_chunk_footer(place, chunk, octets) for chunk, octets in zip(tail, ends, strict=True)]
    short = [number for number, footer in enumerate(footers) if footer.ending > len(ends[number])]
    if short:
        more = yield from _read_ends(
            place, [tail[number] for number in short], [footers[number].ending for number in short]
        )
        if more is None:
            return None
        for number, octets in zip(short, more, strict=True):
            ends[number] = octets
    return [
        _divide(footer, octets, place.chunk(footer.number), is_segment=False)
        for footer, octets in zip(footers, ends, strict=True)
    ]


def _read_ends(
    place: StreamPlace, chunks: Sequence[ChunkObject], sizes: Sequence[int]
) -> Procedure[list[bytes] | None]:
    """Return the last bytes of chunks; None if one was removed meanwhile."""
    starts = [max(0, chunk.size - size) for chunk, size in zip(chunks, sizes, strict=True)]
    found = yield from ask_all(
        [Get(place.chunk(chunk.number), start, chunk.size - start) for chunk, start in zip(chunks, starts, strict=True)]
    )
    return None if MISSING in found else list(found)


def _chunk_footer(place: StreamPlace, chunk: ChunkObject, octets: bytes) -> Footer:
    key = place.chunk(chunk.number)
    footer = unpack_footer(octets, key)
    if (footer.number, footer.size) != (chunk.number, chunk.size) or footer.kind == Kind.SEGMENT:
        raise StoreDamaged(f"{key} has {chunk.size} bytes, and its footer says chunk {footer.number}, {footer.size}")
    return footer


def _split(octets: bytes, key: str) -> list[bytes]:
    """Return the records in some bytes."""
    records = [octets[at : at + RECORD] for at in range(0, len(octets), RECORD)]
    if any(unpack(record) is None for record in records):
        raise StoreDamaged(f"{key} has a damaged record of a publisher")
    return records


def _fold(view: View, ends: Sequence[_Ends]) -> End:
    """Return what consecutive objects say together."""
    footers = [one.footer for one in ends]
    last = last_time = epoch = 0
    owner, incarnation = NOBODY, UNCHANGED
    is_deleted = False
    for index, footer in enumerate(footers):
        if footer.kind in (Kind.DATA, Kind.SEGMENT):
            # The first message of a log can have any sequence: a stream that is copied may have lost its beginning.
            wanted = last + 1 if last else footer.first
            is_segment = view.newest is not None and index == 0
            if not is_segment and (footer.epoch, footer.first) != (epoch, wanted):
                raise StoreDamaged(
                    f"chunk {footer.number} has epoch {footer.epoch} and sequence {footer.first}, and epoch {epoch} "
                    f"and sequence {last + 1} must follow"
                )
            last, last_time = footer.last, footer.last_time
        epoch = footer.epoch
        owner = NOBODY if footer.kind == Kind.RELEASE else footer.owner
        incarnation = incarnation if footer.incarnation == UNCHANGED else footer.incarnation
        is_deleted |= footer.kind == Kind.DELETION
    tail = footers[1:] if view.newest is not None else footers
    records = [record for one in ends for record in one.records]
    positions = b"".join([one.positions for one in ends])
    return End(view, last, last_time, epoch, owner, incarnation, is_deleted, records, positions, tail)
